"""A report as one web page that needs no network: tables by Python, curves and examples by the script inside."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from .report import EvaluationReport
from .selection import DARK, LIGHT, Numbers, best_scorer, colour_index, page_data, read_numbers


TEMPLATE = Path(__file__).with_name("page.html")
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
    comparison: dict[str, dict[str, Any]] | None = None,
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
            The most examples on the page: see [`~clue_hf.evaluation.selection.choose_examples`].

    Example:

    ```python
    write_page(EvaluationReport.load("report"), "report/index.html")
    ```
    """
    numbers = read_numbers(report)
    scorer = scorer or best_scorer(report)
    parts = {
        "title": escape(f"Uncertainty of {report.description.get('model', 'a model')}"),
        "subject": _subject(report.description),
        "tiles": _tiles(report, numbers, scorer),
        "summary": _paragraphs(_sentences(report, numbers, scorer)),
        "scorers": _scorer_table(report),
        "quality": _quality_table(report),
        "comparison": _comparison(comparison, other) if comparison else "",
        "definitions": _definitions({k: v for k, v in report.description.items() if k != "signature"}),
        "data": _json(page_data(report, numbers, scorer, limit)),
    }
    template = TEMPLATE.read_text(encoding="utf-8").replace("{{palette}}", _palette())
    parts["policy"] = _policy(template)
    # one pass: a text that looks like a placeholder stays a text
    page = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)
    Path(path).write_text(page, encoding="utf-8", newline="\n")


def _policy(template: str) -> str:
    """A content security policy: the script and the styles of the template may run, and nothing may be loaded."""

    def hashes(pattern: str) -> str:
        digests = [hashlib.sha256(text.encode()).digest() for text in re.findall(pattern, template, re.DOTALL)]
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    script, style = hashes(r"<script>(.*?)</script>"), hashes(r"<style>(.*?)</style>")
    own = f"script-src {script}; style-src {style}; img-src data:"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _palette() -> str:
    """The colours of the scorers as CSS."""
    light, dark = ("".join(f"--s{i}:{colour};" for i, colour in enumerate(colours)) for colours in (LIGHT, DARK))
    classes = "".join(f".s{i}{{--c:var(--s{i})}}" for i in range(len(LIGHT)))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{classes}"


def _json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, so U+2028 and the like are escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _subject(description: dict[str, Any]) -> str:
    named = [str(description[name]) for name in ("model", "data") if description.get(name)]
    return " on ".join(f'<b dir="auto">{escape(name)}</b>' for name in named)


def _breakable(text: str) -> str:
    """A text whose lines may break after an underscore."""
    return escape(text).replace("_", "_<wbr>")


def _paragraphs(sentences: list[str]) -> str:
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


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
            f"{best} ranks the outputs best: rejecting the least certain ones brings {gain} (PRR {_interval(entry)})."
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
        found.append((_number(entry.get("value")), f"{name}, whole corpus", _range(entry)))
    if best:
        entry = metrics["scorers"][best].get("prr") or {}
        found.append((_number(entry.get("value")), f"PRR of {best}", _range(entry) or entry.get("reason") or ""))
    if best and n > 1:
        order = np.argsort(numbers.uncertainty[best], kind="stable")
        kept = float(numbers.quality[order[: math.ceil(0.8 * n)]].mean())
        found.append((_number(kept), "mean quality of the surest 80 %", f"{numbers.quality.mean():.3f} of all"))
    error = ((metrics.get("references") or {}).get("token_ece")) or {}
    if error:
        found.append((_number(error.get("value")), "token ECE", _range(error)))
    tile = '<li><span class="value">{}</span><span class="name">{}</span><span class="more">{}</span></li>'
    return "".join(tile.format(*map(_breakable, texts)) for texts in found)


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
        cells = [_cell(metrics.get(name), scorer in best[name]) for name in names]
        drawing = (
            f'<td class="wide">{_range_drawing(metrics.get("prr"), scorers, colours[scorer])}</td>' if shown else ""
        )
        swatch = f'<i class="swatch s{colours[scorer]}"></i>'
        rows.append(
            f'<tr><th scope="row">{swatch}<span>{_breakable(scorer)}</span></th>{drawing}{"".join(cells)}</tr>'
        )
    drawings = '<th scope="col" class="wide"><span class="unseen">PRR, drawn</span></th>' if shown else ""
    return _table(caption, f'<th scope="col">Scorer</th>{drawings}{columns}', rows)


def _table(caption: str, head: str, rows: list[str]) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f'<caption class="unseen">{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


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
        f'<tr><th scope="row">{escape(name)}</th>{_cell(entries.get("mean"))}{_cell(entries.get("corpus"))}</tr>'
        for name, entries in qualities.items()
    ]
    head = '<th scope="col">Quality</th><th scope="col">Mean per output</th><th scope="col">Whole corpus</th>'
    tables = _table("Quality of the outputs", head, rows) if rows else ""
    rows = [
        f'<tr><th scope="row">{escape(name.replace("_", " "))}</th>{_cell(entry)}</tr>'
        for name, entry in references.items()
        if isinstance(entry, dict)
    ]
    head = f'<th scope="col">On {references.get("tokens", 0):,} reference tokens</th><th scope="col">Value</th>'
    return tables + (_table("Calibration on the references", head, rows) if rows else "")


def _comparison(comparison: dict[str, dict[str, Any]], other: str) -> str:
    heads = ("Scorer", "Difference in PRR", "p", "Difference in area", "from ranking", "from quality")
    rows = []
    for scorer, found in comparison.items():
        ratio, area = found.get("prr") or {}, found.get("area") or {}
        sure = ratio.get("low") is not None and not ratio["low"] <= 0 <= ratio["high"]
        cells = _cell(ratio, sure, signed=True) + _cell({"value": ratio.get("p_value")})
        cells += "".join(_cell({"value": area.get(key)}, signed=True) for key in ("difference", "ranking", "quality"))
        rows.append(f'<tr><th scope="row">{_breakable(scorer)}</th>{cells}</tr>')
    table = _table("Comparison", "".join(f'<th scope="col">{head}</th>' for head in heads), rows)
    return (
        f'<section id="comparison"><h2>Compared with <span dir="auto">{escape(other)}</span></h2>'
        "<p>This model minus the other one, on the same rows. The difference in area splits into what better ranking "
        f"and what better outputs bring. Bold: the interval leaves out zero.</p>{table}</section>"
    )


def _definitions(value: Any) -> str:
    """A description of any depth as definition lists."""
    if isinstance(value, dict):
        entries = (f"<dt>{escape(str(key))}</dt><dd>{_definitions(entry)}</dd>" for key, entry in value.items())
        return f"<dl>{''.join(entries)}</dl>" if value else "-"
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = {"": "(empty)", "None": "-"}.get(str(value), str(value))
    marked = re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
    return f'<span dir="auto">{marked}</span>'


def _cell(entry: dict[str, Any] | None, best: bool = False, signed: bool = False) -> str:
    """A metric and its interval; a dash and the reason where it is undefined."""
    value = _number((entry or {}).get("value"), signed)
    if value == "-":
        reason = escape((entry or {}).get("reason") or "not computed")
        return f'<td class="number" title="{reason}">-<span class="unseen"> {reason}</span></td>'
    interval = _range(entry or {})
    return (
        f'<td class="number{" best" if best else ""}">{value}'
        + (f'<span class="interval">{interval}</span>' if interval else "")
        + "</td>"
    )


def _interval(entry: dict[str, Any]) -> str:
    interval = _range(entry)
    return _number(entry.get("value")) + (f", {interval}" if interval else "")


def _range(entry: dict[str, Any]) -> str:
    low, high = entry.get("low"), entry.get("high")
    return "" if low is None or high is None else f"{_number(low)} to {_number(high)}"


def _number(value: float | None, signed: bool = False) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:{'+' if signed else ''}.{1 if abs(value) >= 10 else 3}f}".replace("-", "−")
