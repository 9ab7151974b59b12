"""A report about a classifier as one web page that needs no network."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ...pages.metric_tables import MetricTables
from ...pages.parts import (
    breakable,
    embedded_json,
    html_table,
    interval_text,
    metric_td,
    number_text,
    paragraphs,
    tile_list,
    write_parts,
)
from ..report import Differences
from .measures import definition
from .report import DETECTION, IN_TABLE, SHIFTED, ClassificationReport
from .selection import class_page_data


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
TABLES = MetricTables(IN_TABLE, LOWER, HIGHER, definition)


def write_class_page(
    report: ClassificationReport,
    path: str | Path,
    comparison: Differences | None = None,
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
        "tiles": _tiles(report),
        "summary": paragraphs(_sentences(report)),
        "metrics": TABLES.metrics(report),
        "shifts": _corruptions(report) + _detection(report),
        "comparison": TABLES.comparison(comparison, other),
        "data": embedded_json(class_page_data(report, limit)),
    }
    write_parts(path, "class_page", "a classifier", report.description, parts)


def _tiles(report: ClassificationReport) -> str:
    """The few numbers to see first: value, name, what to know."""
    found = [(f"{report.metrics['n']:,}", "examples", f"{len(report.names):,} classes")]
    for name in ("error", "ece", "uncertainty_auc", "prr"):
        entry = report.metrics["raw"][name]
        found.append((number_text(entry["value"]), IN_TABLE[name], interval_text(entry) or entry["reason"] or ""))
    if report.calibrated is not None:
        entry = report.metrics["calibrated"]["ece"]
        found.append((number_text(entry["value"]), "ECE, calibrated", interval_text(entry)))
    return tile_list(found)


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


def _corruptions(report: ClassificationReport) -> str:
    """The table of the corrupted copies."""
    if "corruptions" not in report.metrics:
        return ""
    heads = ["Corruption", "Severity", *(SHIFTED[name] + TABLES.arrow(name) for name in SHIFTED)]
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
