"""The web page of a report on a classifier."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...metrics.registry import metric_info
from ...pages import environment
from ...pages.environment import Tile, metric_tile
from .selection import class_page_data


if TYPE_CHECKING:
    from ..report import Differences
    from .report import ClassificationReport


def write_class_page(
    report: ClassificationReport,
    path: str | Path,
    comparison: Differences | None = None,
    other: str = "the other model",
    limit: int = 200,
) -> None:
    """
    Writes a report as one HTML file that works offline: summary, tables with intervals, curves to explore, and at most
    about `limit` examples with their images to sort and filter. See [`~clue_hf.evaluation.text.page.write_page`].
    """
    columns = {kind: report.metrics[kind] for kind in report.kinds}
    environment.write_page(
        path,
        "classes",
        description=report.description,
        tiles=_tiles(report),
        summary=_summary(report),
        columns=columns,
        main=[name for name in report.main_metrics if name in columns["raw"]],
        report=report,
        comparison=comparison,
        other=other,
        data=class_page_data(report, limit),
    )


def _tiles(report: ClassificationReport) -> list[Tile]:
    """The numbers to see first."""
    tiles = [(f"{report.metrics['n']:,}", "examples", f"{len(report.names):,} classes")]
    for name in ("error", "ece", "uncertainty_auc", "prr"):
        heading = metric_info(name, "classes").heading
        tiles.append(metric_tile(report.metrics["raw"][name], heading, name, "classes"))
    if report.calibrated is not None:
        tiles.append(metric_tile(report.metrics["calibrated"]["ece"], "ECE, calibrated", "ece", "classes"))
    return tiles


def _summary(report: ClassificationReport) -> list[str]:
    """The main results in sentences."""
    raw, n = report.raw, report.metrics["n"]
    wrong, confidence = int((~raw.right).sum()), float(raw.confidence.mean())
    gap = confidence - float(raw.right.mean())
    side = "overconfident" if gap > 0 else "underconfident"
    sentences = [
        f"{wrong:,} of {n:,} answers {'is' if wrong == 1 else 'are'} wrong. The mean probability of the answers is "
        f"{confidence:.3f}: on average the model is {side} by {abs(gap):.3f}."
    ]
    area = report.metrics["raw"]["uncertainty_auc"]["value"]
    if area is not None:
        sentences.append(
            f"In {100 * area:.0f} % of all pairs of a wrong and a right answer the wrong one is more uncertain."
        )
    if report.calibrator is not None:
        before, after = (report.metrics[kind]["ece"]["value"] for kind in ("raw", "calibrated"))
        sentences.append(
            f"The calibrator ({report.calibrator.name}, fitted on the validation data) changes the ECE from "
            f"{before:.3f} to {after:.3f}."
        )
    flip = report.metrics["raw"].get("flip_error")
    if flip and flip["value"] is not None:
        sentences.append(
            f"Predicting the other class where the uncertainty is above {report.metrics['tau']['raw']:.3f} (from the "
            f"validation data) changes the error from {report.metrics['raw']['error']['value']:.3f} to "
            f"{flip['value']:.3f}."
        )
    return sentences
