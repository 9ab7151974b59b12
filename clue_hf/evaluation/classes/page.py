"""The web page of a report on a classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .selection import page_data


if TYPE_CHECKING:
    from .report import ClassificationReport


def page_content(report: ClassificationReport, limit: int) -> dict[str, Any]:
    """The parts of the page that are only in that of a classifier; at most about `limit` examples."""
    first = (f"{report.metrics['n']:,}", "examples", f"{len(report.names):,} classes")
    return {"tiles": report.tiles(first), "summary": _summary(report), "data": page_data(report, limit)}


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
    sentences += report.calibration_sentence()
    flip = report.metrics["raw"].get("flip_error")
    if flip and flip["value"] is not None:
        sentences.append(
            f"Predicting the other class where the uncertainty is above {report.metrics['tau']['raw']:.3f} (from the "
            f"validation data) changes the error from {report.metrics['raw']['error']['value']:.3f} to "
            f"{flip['value']:.3f}."
        )
    return sentences
