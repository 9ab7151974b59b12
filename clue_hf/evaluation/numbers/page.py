"""The web page of a report on a regressor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...metrics.registry import metric_info
from ...pages import environment
from ...pages.environment import Tile, metric_tile
from .selection import number_page_data


if TYPE_CHECKING:
    from ..report import Differences
    from .report import RegressionReport


def write_number_page(
    report: RegressionReport,
    path: str | Path,
    comparison: Differences | None = None,
    other: str = "the other model",
    limit: int = 200,
) -> None:
    """
    Writes a report as one HTML file that works offline: summary, tables with intervals, curves to explore, and the
    `limit` most overconfident predictions to sort. See [`~clue_hf.evaluation.text.page.write_page`].
    """
    columns = {kind: report.metrics[kind] for kind in report.kinds}
    environment.write_page(
        path,
        "numbers",
        description=report.description,
        tiles=_tiles(report),
        summary=_summary(report),
        columns=columns,
        main=[name for name in report.main_metrics if name in columns["raw"]],
        comparison=comparison,
        other=other,
        data=number_page_data(report, limit),
    )


def _tiles(report: RegressionReport) -> list[Tile]:
    """The numbers to see first."""
    tiles = [(f"{report.metrics['n']:,}", "rows", f"target {report.target_name}")]
    shown = [("raw", name) for name in ("mse", "nll", "regression_ece", "coverage_95")]
    shown += [("calibrated", "regression_ece")] if report.calibrated is not None else []
    for kind, name in shown:
        label = metric_info(name, "numbers").heading + (", calibrated" if kind == "calibrated" else "")
        tiles.append(metric_tile(report.metrics[kind][name], label, name, "numbers"))
    return tiles


def _summary(report: RegressionReport) -> list[str]:
    """The main results in sentences."""
    raw = report.metrics["raw"]
    root, expected = raw["mse"]["value"] ** 0.5, raw["sharpness"]["value"]
    side = "overconfident" if expected < root else "underconfident"
    sentences = [
        f"The root mean squared error is {root:.4g}, and the model expects {expected:.4g} (root of the mean "
        f"variance): on average it is {side}.",
        f"The 95 % intervals contain {raw['coverage_95']['value']:.1%} of the targets.",
    ]
    if report.calibrator is not None:
        before, after = (report.metrics[kind]["regression_ece"]["value"] for kind in ("raw", "calibrated"))
        coverage = report.metrics["calibrated"]["coverage_95"]["value"]
        sentences.append(
            f"The calibrator ({report.calibrator.name}, fitted on validation data) changes the ECE from {before:.3f} "
            f"to {after:.3f}; its 95 % intervals contain {coverage:.1%}."
        )
    return sentences + [note for note in report.remarks() if not note.startswith("Calibrated:")]
