"""A report about a regressor as one web page that needs no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...metrics import regression_definition
from ...pages.metric_tables import MetricTables
from ...pages.parts import embedded_json, interval_text, paragraphs, tile_list, write_parts
from ..report import Differences
from .report import IN_TABLE, RegressionReport, digits_after_point
from .selection import number_page_data


#: Metrics of which lower is better; of those in `HIGHER` higher is.
LOWER = {
    "mse", "nll", "regression_ece", "rmsce", "kuleshov_error", "coverage_95_gap", "ence", "alignment_error", "ause",
}  # fmt: skip
HIGHER = {"corr_error_pe", "corr_error_var"}


def _writer(name: str, entry: dict[str, Any]) -> Callable[..., str]:
    """Writes the numbers of a metric with as many digits as its size asks for."""
    digits = digits_after_point(name, entry)

    def number(value: float | None, signed: bool = False) -> str:
        return "-" if value is None else f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")

    return number


TABLES = MetricTables(IN_TABLE, LOWER, HIGHER, regression_definition, _writer)


def write_number_page(
    report: RegressionReport,
    path: str | Path,
    comparison: Differences | None = None,
    other: str = "the other model",
    limit: int = 200,
) -> None:
    """
    Writes a report as one HTML file that works offline: summary, tables with intervals, curves to explore, and the
    rows it was most wrongly sure of, to sort. The same report gives the same bytes.

    Args:
        report ([`RegressionReport`]):
            What to show.
        path (`str` or `Path`):
            The file to write.
        comparison (`dict`, *optional*):
            What `report.compare(other_report)` gave.
        other (`str`, *optional*):
            What to call the model that was compared with.
        limit (`int`, *optional*, defaults to 200):
            The most rows on the page.
    """
    parts = {
        "tiles": _tiles(report),
        "summary": paragraphs(_sentences(report)),
        "metrics": TABLES.metrics(report),
        "comparison": TABLES.comparison(comparison, other),
        "data": embedded_json(number_page_data(report, limit)),
    }
    write_parts(path, "number_page", "a regressor", report.description, parts)


def _tiles(report: RegressionReport) -> str:
    """The few numbers to see first: value, name, what to know."""
    found = [(f"{report.metrics['n']:,}", "rows", f"target {report.target_name}")]
    shown = [(kind, name) for kind in report.kinds for name in ("mse", "nll", "regression_ece", "coverage_95")]
    shown = shown if len(report.kinds) == 1 else [*shown[:4], ("calibrated", "regression_ece")]
    for kind, name in shown:
        entry = report.metrics[kind][name]
        heading = IN_TABLE[name] + (", calibrated" if kind == "calibrated" else "")
        number = _writer(name, entry)
        found.append((number(entry["value"]), heading, interval_text(entry, number) or entry["reason"] or ""))
    return tile_list(found)


def _sentences(report: RegressionReport) -> list[str]:
    """What was found, in words."""
    raw = report.metrics["raw"]
    root, expected = raw["mse"]["value"] ** 0.5, raw["sharpness"]["value"]
    side = "too sure" if expected < root else "not sure enough"
    sentences = [
        f"The predictions are off by {root:.4g} (root of the mean squared error), and the model expects "
        f"{expected:.4g} (root of the mean variance): on average it is {side}.",
        f"The intervals of 95 % hold {raw['coverage_95']['value']:.1%} of the targets.",
    ]
    if report.calibrator is not None:
        before, after = (report.metrics[kind]["regression_ece"]["value"] for kind in ("raw", "calibrated"))
        held = report.metrics["calibrated"]["coverage_95"]["value"]
        sentences.append(
            f"The calibrator ({report.calibrator.name}, fitted on validation data) takes the ECE from {before:.3f} to "
            f"{after:.3f}; its intervals of 95 % hold {held:.1%}."
        )
    return sentences + [note for note in report.remarks() if not note.startswith("Calibrated:")]
