"""A report as one web page that needs no network: tables by Python, curves and examples by the script inside."""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ...pages.parts import (
    breakable,
    comparison_section,
    embedded_json,
    html_table,
    interval_text,
    leaves_out_zero,
    metric_td,
    number_text,
    paragraphs,
    tile_list,
    value_text,
    write_parts,
)
from ..report import Differences
from .report import EvaluationReport
from .selection import Numbers, best_scorer, colour_index, page_data, read_numbers


#: Per metric: its heading, whether higher (1) or lower (-1) is better, and what it says. A number may follow its name.
METRICS: dict[str, tuple[str, int, str]] = {
    "prr": ("PRR", 1, "prediction rejection ratio, the share achieved of what rejection could gain: 1 is as good as "
            "knowing the quality, 0 is useless; with a number, at most that share is rejected"),
    "aurc": ("AURC", -1, "area under the risk-coverage curve, where risk is 1 - quality"),
    "augrc": ("AUGRC", -1, "how much risk is kept, averaged over all coverages"),
    "risk_at_coverage": ("Risk at coverage", -1, "mean risk of that share of the outputs, the most certain ones"),
    "coverage_at_risk": ("Coverage at risk", 1, "largest share that can be kept at a mean risk of at most this"),
    "confidence_ece": ("Confidence ECE", -1, "mean distance between calibrated confidence and quality"),
    "rejection_area": ("Rejection area", 1, "mean quality of what is kept, averaged over the shares rejected; depends "
                       "on the quality of the model, so compare it within one model only"),
    "oracle_area": ("Oracle area", 0, "rejection area of the best possible order"),
    "random_area": ("Random area", 0, "rejection area of a useless order: the mean quality"),
    "e_aurc": ("E-AURC", -1, "AURC in excess of the best possible one"),
    "true_entropy_correlation": ("True entropy", 1, "rank correlation with the true entropy of the targets"),
}  # fmt: skip
#: Those in the first table; the others are in the one that unfolds.
HEADLINE = (
    "prr", "prr_0.5", "aurc", "risk_at_coverage_0.8", "coverage_at_risk_0.1", "confidence_ece",
    "true_entropy_correlation",
)  # fmt: skip


def write_page(
    report: EvaluationReport,
    path: str | Path,
    comparison: Differences | None = None,
    other: str = "the other model",
    scorer: str | None = None,
    limit: int = 500,
) -> None:
    """
    Writes a report as one HTML file that works offline: summary, tables with intervals, curves to explore, and
    examples to sort, filter and open, down to the uncertainty of each token. The same report gives the same bytes.

    Args:
        report ([`EvaluationReport`]):
            Its examples are read twice.
        path (`str` or `Path`):
            The file to write.
        comparison (`dict`, *optional*):
            What `report.compare(other_report)` gave.
        other (`str`, *optional*):
            What to call the model that was compared with.
        scorer (`str`, *optional*):
            Whose uncertainty sorts the examples into groups; by default the one with the highest PRR.
        limit (`int`, *optional*, defaults to 500):
            The most examples on the page: see [`~clue_hf.evaluation.text.selection.choose_examples`].

    Example:

    ```python
    write_page(EvaluationReport.load("report"), "report/index.html")
    ```
    """
    numbers = read_numbers(report)
    scorer = scorer or best_scorer(report)
    parts = {
        "tiles": _tiles(report, numbers, scorer),
        "summary": paragraphs(_sentences(report, numbers, scorer)),
        "scorers": _scorer_table(report),
        "quality": _quality_table(report),
        "comparison": _comparison(comparison, other) if comparison else "",
        "data": embedded_json(page_data(report, numbers, scorer, limit)),
    }
    told = {name: value for name, value in report.description.items() if name != "signature"}
    write_parts(path, "page", "a model", told, parts)


def _sentences(report: EvaluationReport, numbers: Numbers, best: str | None) -> list[str]:
    """What was found, in words."""
    metrics, n = report.metrics, len(numbers.quality)
    blank = metrics.get("empty_outputs") or 0
    empty = f" {blank:,} of them {'is' if blank == 1 else 'are'} empty." if blank else ""
    quality = f" The mean quality is {numbers.quality.mean():.3f}." if n else ""
    sentences = [f"The model wrote {n:,} output{'' if n == 1 else 's'}.{empty}{quality}"]
    entry = metrics["scorers"][best].get("prr") or {} if best else {}
    if best and entry.get("value") is not None:
        gain = (
            f"{100 * entry['value']:.0f} % of what knowing the quality would gain" if entry["value"] > 0 else "no gain"
        )
        sentences.append(
            f"{best} ranks the outputs best: rejecting the least certain ones brings {gain} (PRR {value_text(entry)})."
            + _rivals(metrics["scorers"], best)
        )
    elif best:
        sentences.append(f"No scorer can be judged: {entry.get('reason') or 'the PRR is not in the report'}.")
    if report.description.get("compat"):
        sentences.append(f"Scores are as {report.description['compat']} computes them, not by our own definitions.")
    references = metrics.get("references") or {}
    error, uncertainty = ((references.get(name) or {}).get("value") for name in ("error", "uncertainty"))
    if error is not None and uncertainty is not None:
        side = "too sure" if error > uncertainty else "not sure enough"
        sentences.append(
            f"On {references['tokens']:,} reference tokens its error is {error:.3f} nats and its uncertainty "
            f"{uncertainty:.3f}: on average it is {side} by {abs(error - uncertainty):.3f} nats."
        )
    return sentences


def _rivals(scorers: dict[str, Any], best: str) -> str:
    """How many other scorers have an interval that reaches into the best one's."""
    low = scorers[best]["prr"].get("low")
    highs = [(metrics.get("prr") or {}).get("high") for name, metrics in scorers.items() if name != best]
    near = sum(high is not None and high >= low for high in highs) if low is not None else 0
    return f" The intervals of {near} other scorer{'' if near == 1 else 's'} overlap with its own." if near else ""


def _tiles(report: EvaluationReport, numbers: Numbers, best: str | None) -> str:
    """The few numbers to see first: value, name, what to know."""
    metrics, n = report.metrics, len(numbers.quality)
    found = [(f"{n:,}", "outputs", f"{metrics.get('empty_outputs', 0):,} empty")]
    for name, entries in list((metrics.get("quality") or {}).items())[:1]:
        entry = entries.get("corpus") or entries.get("mean") or {}
        found.append((number_text(entry.get("value")), f"{name}, whole corpus", interval_text(entry)))
    if best:
        entry = metrics["scorers"][best].get("prr") or {}
        found.append(
            (number_text(entry.get("value")), f"PRR of {best}", interval_text(entry) or entry.get("reason") or "")
        )
    if best and n > 1:
        order = np.argsort(numbers.uncertainty[best], kind="stable")
        kept = float(numbers.quality[order[: math.ceil(0.8 * n)]].mean())
        found.append((number_text(kept), "mean quality of the surest 80 %", f"{numbers.quality.mean():.3f} of all"))
    error = ((metrics.get("references") or {}).get("token_ece")) or {}
    if error:
        found.append((number_text(error.get("value")), "token ECE", interval_text(error)))
    return tile_list(found)


def _scorer_table(report: EvaluationReport) -> str:
    """The scorers with their main metrics, and all metrics in a second table to unfold."""
    scorers = dict(sorted(report.metrics["scorers"].items(), key=_by_ratio))
    names = list(dict.fromkeys(name for metrics in scorers.values() for name in metrics if name != "mean_quality"))
    main = [name for name in HEADLINE if name in names]
    others = (report.metrics.get("other_qualities") or {}).items()
    read = "".join(f"<dt>{escape(METRICS[base][0])}</dt><dd>{escape(METRICS[base][2])}</dd>" for base in METRICS)
    return (
        _metric_table(scorers, main, "Scorers and their main metrics", ranges=True)
        + f"<details><summary>How to read these numbers</summary><dl>{read}</dl></details>"
        + "<details><summary>All metrics</summary>"
        + _metric_table(scorers, names, "Scorers and all their metrics")
        + "</details>"
        + "".join(
            f"<details><summary>Judged by {escape(quality)}</summary>"
            + _metric_table(found, main, f"Scorers, judged by {quality}")
            + "</details>"
            for quality, found in others
        )
    )


def _by_ratio(entry: tuple[str, dict[str, Any]]) -> float:
    value = (entry[1].get("prr") or {}).get("value")
    return math.inf if value is None else -value


def _metric_table(scorers: dict[str, Any], names: list[str], caption: str, ranges: bool = False) -> str:
    columns = "".join(f'<th scope="col" title="{escape(name)}">{escape(_heading(name))}</th>' for name in names)
    colours, best = colour_index(list(scorers)), {name: _best(scorers, name) for name in names}
    shown = ranges and any((metrics.get("prr") or {}).get("value") is not None for metrics in scorers.values())
    rows = []
    for scorer, metrics in scorers.items():
        cells = [metric_td(metrics.get(name), scorer in best[name]) for name in names]
        drawing = (
            f'<td class="wide">{_range_drawing(metrics.get("prr"), scorers, colours[scorer])}</td>' if shown else ""
        )
        swatch = f'<i class="swatch s{colours[scorer]}"></i>'
        rows.append(f'<tr><th scope="row">{swatch}<span>{breakable(scorer)}</span></th>{drawing}{"".join(cells)}</tr>')
    drawings = '<th scope="col" class="wide"><span class="unseen">PRR, drawn</span></th>' if shown else ""
    return html_table(caption, f'<th scope="col">Scorer</th>{drawings}{columns}', rows)


def _range_drawing(entry: dict[str, Any] | None, scorers: dict[str, Any], colour: int) -> str:
    """The ratio and its interval as a dot and a bar, on an axis that all scorers share."""
    if not entry or entry.get("value") is None:
        return ""
    lows = [_ends(metrics.get("prr") or {})[0] for metrics in scorers.values()]
    start = max(-1.0, min(0.0, *(low for low in lows if low is not None)))
    low, high = _ends(entry)
    low, middle, high, zero = (
        round(4 + 112 * (min(1.0, max(start, value)) - start) / (1 - start), 1)
        for value in (low, entry["value"], high, 0.0)
    )
    return (
        f'<svg class="range s{colour}" width="120" height="16" viewBox="0 0 120 16" aria-hidden="true">'
        f'<path class="axis" d="M4 8H116M{zero} 3V13M116 3V13"/><path class="bar" d="M{low} 8H{high}"/>'
        f'<circle cx="{middle}" cy="8" r="4"/></svg>'
    )


def _ends(entry: dict[str, Any]) -> tuple[Any, Any]:
    """The ends of an interval; both the value itself where there is none."""
    known = entry.get("low") is not None and entry.get("high") is not None
    return (entry["low"], entry["high"]) if known else (entry.get("value"), entry.get("value"))


def _base(name: str) -> str:
    """The name of a metric without the number at its end."""
    return re.sub(r"_[\d.]+$", "", name)


def _heading(name: str) -> str:
    label, direction, _ = METRICS.get(_base(name), (_base(name).replace("_", " "), 0, ""))
    number = name[len(_base(name)) + 1 :]
    return f"{label} {number}".strip() + {1: " ↑", 0: "", -1: " ↓"}[direction]


def _best(scorers: dict[str, Any], name: str) -> list[str]:
    """The scorers with the best value of a metric, where there is more than one to choose from."""
    sign = METRICS.get(_base(name), ("", 0, ""))[1]
    values = {scorer: (metrics.get(name) or {}).get("value") for scorer, metrics in scorers.items()}
    known = [sign * value for value in values.values() if value is not None]
    if not sign or len(known) < 2:
        return []
    return [scorer for scorer, value in values.items() if value is not None and sign * value == max(known)]


def _quality_table(report: EvaluationReport) -> str:
    """Quality of the outputs, and calibration on the references."""
    qualities, references = report.metrics.get("quality") or {}, report.metrics.get("references") or {}
    rows = [
        f'<tr><th scope="row">{escape(name)}</th>{metric_td(found.get("mean"))}{metric_td(found.get("corpus"))}</tr>'
        for name, found in qualities.items()
    ]
    head = '<th scope="col">Quality</th><th scope="col">Mean per output</th><th scope="col">Whole corpus</th>'
    tables = html_table("Quality of the outputs", head, rows) if rows else ""
    rows = [
        f'<tr><th scope="row">{escape(name.replace("_", " "))}</th>{metric_td(entry)}</tr>'
        for name, entry in references.items()
        if isinstance(entry, dict)
    ]
    head = f'<th scope="col">On {references.get("tokens", 0):,} reference tokens</th><th scope="col">Value</th>'
    return tables + (html_table("Calibration on the references", head, rows) if rows else "")


def _comparison(comparison: Differences, other: str) -> str:
    heads = ["Scorer", "Difference in PRR", "p", "Difference in area", "from ranking", "from quality"]
    rows = []
    for scorer, found in comparison.items():
        ratio, area = found.get("prr") or {}, found.get("area") or {}
        cells = metric_td(ratio, leaves_out_zero(ratio), signed=True) + metric_td({"value": ratio.get("p_value")})
        cells += "".join(
            metric_td({"value": area.get(key)}, signed=True) for key in ("difference", "ranking", "quality")
        )
        rows.append(f'<tr><th scope="row">{breakable(scorer)}</th>{cells}</tr>')
    words = "The difference in area splits into what better ranking and what better outputs bring. "
    return comparison_section(other, words, heads, rows)
