"""A report about a regressor as one web page that needs no network."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from ..metrics import regression_definition
from .number_report import IN_TABLE, RegressionReport, digits_after_point
from .number_selection import number_page_data
from .page_parts import (
    breakable,
    definition_lists,
    embedded_json,
    fill_template,
    html_table,
    metric_td,
    paragraphs,
    subject,
)


#: Metrics of which lower is better; of those in `HIGHER` higher is.
LOWER = {
    "mse", "nll", "regression_ece", "rmsce", "kuleshov_error", "coverage_95_gap", "ence", "alignment_error", "ause",
}  # fmt: skip
HIGHER = {"corr_error_pe", "corr_error_var"}


def write_number_page(
    report: RegressionReport,
    path: str | Path,
    comparison: dict[str, dict[str, Any]] | None = None,
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
        "title": escape(f"Uncertainty of {report.description.get('model', 'a regressor')}"),
        "subject": subject(report.description),
        "tiles": _tiles(report),
        "summary": paragraphs(_sentences(report)),
        "metrics": _metrics(report),
        "comparison": _comparison(comparison, other) if comparison else "",
        "definitions": definition_lists(report.description),
        "data": embedded_json(number_page_data(report, limit)),
    }
    page = fill_template("number_page.html", parts)
    Path(path).write_text(page, encoding="utf-8", newline="\n", errors="replace")


def _tiles(report: RegressionReport) -> str:
    """The few numbers to see first: value, name, what to know."""
    found = [(f"{report.metrics['n']:,}", "rows", f"target {report.target_name}")]
    shown = [(kind, name) for kind in report.kinds for name in ("mse", "nll", "regression_ece", "coverage_95")]
    shown = shown if len(report.kinds) == 1 else [*shown[:4], ("calibrated", "regression_ece")]
    for kind, name in shown:
        entry = report.metrics[kind][name]
        heading = IN_TABLE[name] + (", calibrated" if kind == "calibrated" else "")
        found.append((_number(name, entry, "value"), heading, _interval(name, entry) or entry["reason"] or ""))
    tile = '<li><span class="value">{}</span><span class="name">{}</span><span class="more">{}</span></li>'
    return "".join(tile.format(*map(breakable, texts)) for texts in found)


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


def _metrics(report: RegressionReport) -> str:
    """The main metrics, and all of them in a table to unfold."""
    names = [name for name in report.metrics["raw"] if name not in IN_TABLE]
    return (
        _metric_rows(report, list(IN_TABLE), "Main metrics")
        + "<details><summary>All other metrics</summary>"
        + _metric_rows(report, names, "All other metrics")
        + "</details>"
    )


def _metric_rows(report: RegressionReport, names: list[str], caption: str) -> str:
    kinds = list(report.kinds)
    head = '<th scope="col">Metric</th>' + "".join(f'<th scope="col">{kind}</th>' for kind in kinds)
    rows = []
    for name in names:
        entries = [report.metrics[kind][name] for kind in kinds]
        best = _best([entry["value"] for entry in entries], name)
        cells = "".join(_td(name, entry, best is not None and entry["value"] == best) for entry in entries)
        words = f'<span class="about">{escape(regression_definition(name))}</span>'
        rows.append(f'<tr><th scope="row">{escape(_heading(name))}{words}</th>{cells}</tr>')
    return html_table(caption, head, rows)


def _heading(name: str) -> str:
    return IN_TABLE.get(name, name.replace("_", " ")) + (" ↓" if name in LOWER else " ↑" if name in HIGHER else "")


def _best(values: list[float | None], name: str) -> float | None:
    """The better of several values; `None` where there is no choice."""
    known = [value for value in values if value is not None]
    if len(set(known)) < 2 or name not in LOWER | HIGHER:
        return None
    return min(known) if name in LOWER else max(known)


def _comparison(comparison: dict[str, dict[str, Any]], other: str) -> str:
    kinds = list(comparison)
    heads = ["Metric", *(word for kind in kinds for word in (f"Difference, {kind}", "p"))]
    rows = []
    for name in IN_TABLE:
        cells = ""
        for kind in kinds:
            entry = comparison[kind][name]
            sure = entry.get("low") is not None and not entry["low"] <= 0 <= entry["high"]
            cells += _td(name, entry, sure, "+") + metric_td({"value": entry.get("p_value")})
        rows.append(f'<tr><th scope="row">{escape(_heading(name))}</th>{cells}</tr>')
    table = html_table("Comparison", "".join(f'<th scope="col">{escape(head)}</th>' for head in heads), rows)
    return (
        f'<section id="comparison"><h2>Compared with <span dir="auto">{escape(other)}</span></h2>'
        "<p>This model minus the other one, on the same rows. Bold: the interval leaves out zero.</p>"
        f"{table}</section>"
    )


def _td(name: str, entry: dict[str, Any], best: bool = False, sign: str = "") -> str:
    """A metric and its interval, with as many digits as its size asks for; a dash and the reason where undefined."""
    if entry["value"] is None:
        return metric_td(entry)
    interval = _interval(name, entry)
    return (
        f'<td class="number{" best" if best else ""}">{_number(name, entry, "value", sign)}'
        + (f'<span class="interval">{interval}</span>' if interval else "")
        + "</td>"
    )


def _interval(name: str, entry: dict[str, Any]) -> str:
    if entry.get("low") is None or entry.get("high") is None:
        return ""
    return f"{_number(name, entry, 'low')} to {_number(name, entry, 'high')}"


def _number(name: str, entry: dict[str, Any], key: str, sign: str = "") -> str:
    if entry[key] is None:
        return "-"
    return f"{entry[key]:{sign}.{digits_after_point(name, entry)}f}".replace("-", "−")
