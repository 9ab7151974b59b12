"""The web page of a report on a regressor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .selection import page_data


if TYPE_CHECKING:
    from .report import RegressionReport


def page_content(report: RegressionReport, limit: int) -> dict[str, Any]:
    """The parts of the page that are only in that of a regressor; its examples are the most overconfident ones."""
    first = (f"{report.metrics['n']:,}", "rows", f"target {report.target_name}")
    return {"tiles": report.tiles(first), "summary": _summary(report), "data": page_data(report, limit)}


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
        coverage = report.metrics["calibrated"]["coverage_95"]["value"]
        sentences += report.calibration_sentence(f"; its 95 % intervals contain {coverage:.1%}")
    return sentences + report.remarks()
