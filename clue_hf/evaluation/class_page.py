"""A report about a classifier as one web page that needs no network."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from .class_measures import definition
from .class_report import DETECTION, IN_TABLE, SHIFTED, ClassificationReport
from .class_selection import class_page_data
from .page_parts import (
    breakable,
    definition_lists,
    embedded_json,
    fill_template,
    html_table,
    interval_text,
    metric_td,
    number_text,
    paragraphs,
    subject,
)


#: Metrics of which lower is better; of those in `HIGHER` higher is.
LOWER = {
    "error", "ece", "ece_adaptive", "ece_debiased", "ece_classwise", "nll", "brier", "alignment_error", "uce", "aurc",
    "e_aurc", "augrc", "flip_error", "risk_at_coverage_0.5", "risk_at_coverage_0.8", "ood_fpr95",
}  # fmt: skip
HIGHER = {
    "uncertainty_accuracy", "uncertainty_accuracy_val", "uncertainty_auc", "residual_correlation", "wasserstein",
    "residual_correlation_probability", "residual_correlation_nll", "uncertainty_gap", "prr", "prr_0.5", "flip_f1",
    "flip_precision", "flip_tpr", "flip_tnr", "coverage_at_risk_0.1", "coverage_at_risk_0.2", "ood_auroc", "ood_aupr",
}  # fmt: skip


def write_class_page(
    report: ClassificationReport,
    path: str | Path,
    comparison: dict[str, dict[str, Any]] | None = None,
    other: str = "the other model",
    limit: int = 200,
) -> None:
    """
    Writes a report as one HTML file that works offline: summary, tables with intervals, curves to explore, and
    examples with their images to sort and filter. The same report gives the same bytes.

    Args:
        report ([`ClassificationReport`]):
            What to show.
        path (`str` or `Path`):
            The file to write.
        comparison (`dict`, *optional*):
            What `report.compare(other_report)` gave.
        other (`str`, *optional*):
            What to call the model that was compared with.
        limit (`int`, *optional*, defaults to 200):
            About the most examples on the page; a quarter of them are the most wrongly sure ones.
    """
    parts = {
        "title": escape(f"Uncertainty of {report.description.get('model', 'a classifier')}"),
        "subject": subject(report.description),
        "tiles": _tiles(report),
        "summary": paragraphs(_sentences(report)),
        "metrics": _metrics(report),
        "shifts": _corruptions(report) + _detection(report),
        "comparison": _comparison(comparison, other) if comparison else "",
        "definitions": definition_lists(report.description),
        "data": embedded_json(class_page_data(report, limit)),
    }
    page = fill_template("class_page.html", parts)
    Path(path).write_text(page, encoding="utf-8", newline="\n", errors="replace")


def _tiles(report: ClassificationReport) -> str:
    """The few numbers to see first: value, name, what to know."""
    found = [(f"{report.metrics['n']:,}", "examples", f"{len(report.names):,} classes")]
    for name in ("error", "ece", "uncertainty_auc", "prr"):
        entry = report.metrics["raw"][name]
        found.append((number_text(entry["value"]), IN_TABLE[name], interval_text(entry) or entry["reason"] or ""))
    if report.calibrated is not None:
        entry = report.metrics["calibrated"]["ece"]
        found.append((number_text(entry["value"]), "ECE, calibrated", interval_text(entry)))
    tile = '<li><span class="value">{}</span><span class="name">{}</span><span class="more">{}</span></li>'
    return "".join(tile.format(*map(breakable, texts)) for texts in found)


def _sentences(report: ClassificationReport) -> list[str]:
    """What was found, in words."""
    raw, n = report.raw, report.metrics["n"]
    wrong, sure = int((~raw.right).sum()), float(raw.confidence.mean())
    sentences = [f"{wrong:,} of {n:,} answers {'is' if wrong == 1 else 'are'} wrong."]
    gap = sure - float(raw.right.mean())
    side = "too sure" if gap > 0 else "not sure enough"
    sentences[0] += f" Their mean probability is {sure:.3f}: on average the model is {side} by {abs(gap):.3f}."
    area = report.metrics["raw"]["uncertainty_auc"]["value"]
    if area is not None:
        sentences.append(f"In {100 * area:.0f} % of all pairs the wrong answer is more uncertain than the right one.")
    if report.calibrator is not None:
        before, after = (report.metrics[kind]["ece"]["value"] for kind in ("raw", "calibrated"))
        sentences.append(
            f"The calibrator ({report.calibrator.name}, fitted on the validation data) takes the ECE from "
            f"{before:.3f} to {after:.3f}."
        )
    flip = report.metrics["raw"].get("flip_error")
    if flip and flip["value"] is not None:
        sentences.append(
            f"Taking the other class where the uncertainty is above {report.metrics['tau']['raw']:.3f} (from the "
            f"validation data) takes the error from {report.metrics['raw']['error']['value']:.3f} to "
            f"{flip['value']:.3f}."
        )
    return sentences


def _metrics(report: ClassificationReport) -> str:
    """The main metrics, and all of them in a table to unfold."""
    names = [name for name in report.metrics["raw"] if name not in IN_TABLE]
    main = [name for name in IN_TABLE if name in report.metrics["raw"]]
    return (
        _metric_rows(report, main, "Main metrics")
        + "<details><summary>All other metrics</summary>"
        + _metric_rows(report, names, "All other metrics")
        + "</details>"
    )


def _metric_rows(report: ClassificationReport, names: list[str], caption: str) -> str:
    kinds = list(report.kinds)
    head = '<th scope="col">Metric</th>' + "".join(f'<th scope="col">{kind}</th>' for kind in kinds)
    rows = []
    for name in names:
        best = _best([report.metrics[kind][name]["value"] for kind in kinds], name)
        cells = "".join(
            metric_td(report.metrics[kind][name], best is not None and report.metrics[kind][name]["value"] == best)
            for kind in kinds
        )
        words = f'<span class="about">{escape(definition(name))}</span>'
        rows.append(f'<tr><th scope="row">{escape(_heading(name))}{words}</th>{cells}</tr>')
    return html_table(caption, head, rows)


def _heading(name: str) -> str:
    return IN_TABLE.get(name, name.replace("_", " ")) + _arrow(name)


def _arrow(name: str) -> str:
    return " ↓" if name in LOWER else " ↑" if name in HIGHER else ""


def _best(values: list[float | None], name: str) -> float | None:
    """The better of several values; `None` where there is no choice."""
    known = [value for value in values if value is not None]
    if len(set(known)) < 2 or not _arrow(name):
        return None
    return min(known) if name in LOWER else max(known)


def _corruptions(report: ClassificationReport) -> str:
    """The table of the corrupted copies."""
    if "corruptions" not in report.metrics:
        return ""
    heads = ["Corruption", "Severity", *(SHIFTED[name] + _arrow(name) for name in SHIFTED)]
    clean = [("none", "0", report.metrics["raw"])]
    found = [
        (name, severity, kinds["raw"])
        for name, by_severity in report.metrics["corruptions"].items()
        for severity, kinds in by_severity.items()
    ]
    rows = [
        f'<tr><th scope="row">{breakable(name)}</th><td class="number">{severity}</td>'
        + "".join(metric_td(metrics.get(metric)) for metric in SHIFTED)
        + "</tr>"
        for name, severity, metrics in clean + found
    ]
    table = html_table("Corrupted images", "".join(f'<th scope="col">{escape(head)}</th>' for head in heads), rows)
    return (
        '<section id="corruptions"><h2>Corrupted images</h2><p>The same images, corrupted. Uncertainty should grow '
        "with the error; OOD AUROC is the chance that a corrupted image is more uncertain than an original one.</p>"
        f"{table}</section>"
    )


def _detection(report: ClassificationReport) -> str:
    if "ood" not in report.metrics:
        return ""
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in ("Uncertainty", *DETECTION.values()))
    rows = [
        f'<tr><th scope="row">{kind}</th>{"".join(metric_td(found[name]) for name in DETECTION)}</tr>'
        for kind, found in report.metrics["ood"].items()
    ]
    return (
        '<section id="ood"><h2>Other data</h2><p>How well the uncertainty tells examples from out of the distribution '
        f"(the positives) from the examples evaluated here.</p>{html_table('Other data', head, rows)}</section>"
    )


def _comparison(comparison: dict[str, dict[str, Any]], other: str) -> str:
    kinds = list(comparison)
    heads = ["Metric", *(word for kind in kinds for word in (f"Difference, {kind}", "p"))]
    rows = []
    for name in (name for name in IN_TABLE if name in comparison["raw"]):
        cells = ""
        for kind in kinds:
            entry = comparison[kind].get(name) or {}
            sure = entry.get("low") is not None and not entry["low"] <= 0 <= entry["high"]
            cells += metric_td(entry, sure, signed=True) + metric_td({"value": entry.get("p_value")})
        rows.append(f'<tr><th scope="row">{escape(_heading(name))}</th>{cells}</tr>')
    table = html_table("Comparison", "".join(f'<th scope="col">{escape(head)}</th>' for head in heads), rows)
    return (
        f'<section id="comparison"><h2>Compared with <span dir="auto">{escape(other)}</span></h2>'
        "<p>This model minus the other one, on the same rows. Bold: the interval leaves out zero.</p>"
        f"{table}</section>"
    )
