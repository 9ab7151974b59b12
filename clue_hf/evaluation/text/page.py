"""The web page of a report on texts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...metrics.registry import format_metric
from ...pages import environment
from ...pages.environment import Tile, metric_tile
from ..answering import answering
from .measures import RIGHT_OR_WRONG
from .selection import best_scorer, colour_index, grouped_scorers, metric_value, ordered_scorers, page_data


if TYPE_CHECKING:
    from ..report import Differences
    from .report import EvaluationReport

#: Metrics of the first table; the others are in the one that unfolds.
MAIN = (
    "prr", "prr_0.5", "aurc", "risk_at_coverage_0.8", "coverage_at_risk_0.1", "auroc", "aupr", "confidence_brier",
    "confidence_ece", "true_entropy_correlation",
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
            What `report.compare(other_report)` returned.
        other (`str`, *optional*):
            Name of the model of the other report.
        scorer (`str`, *optional*):
            The scorer whose uncertainty defines the groups of examples; by default the one with the highest PRR.
        limit (`int`, *optional*, defaults to 500):
            Maximum number of examples: see [`~clue_hf.evaluation.text.selection.choose_examples`].
    """
    scorer = scorer or best_scorer(report)
    groups = grouped_scorers(report)
    scorers = {name: report.metrics["scorers"][name] for group in groups.values() for name in group}
    names = list(dict.fromkeys(name for metrics in scorers.values() for name in metrics if name != "mean_quality"))
    environment.write_page(
        path,
        "text",
        description={name: value for name, value in report.description.items() if name != "signature"},
        advice=answering(report.uncertainty(scorer), report.quality(), scorer) if scorer else None,
        tiles=_tiles(report, scorer),
        summary=_summary(report, scorer),
        metrics=report.metrics,
        scorers=scorers,
        groups=groups,
        colours=colour_index(ordered_scorers(report)),
        ranges=_ranges(report),
        names=names,
        main=[name for name in MAIN if name in names],
        right_or_wrong=RIGHT_OR_WRONG,
        unavailable=report.unavailable,
        comparison=comparison,
        other=other,
        data=page_data(report, scorer, limit),
    )


def ranking_sentence(scorers: dict[str, Any], best: str | None) -> str:
    """Which scorer ranks the outputs best, and how well; empty where there is none."""
    if best is None:
        return ""
    entry = scorers[best].get("prr") or {}
    if (prr := entry.get("value")) is None:
        return f"The scorers cannot be ranked: {entry.get('reason') or 'the report has no PRR'}."
    gain = f"{100 * prr:.0f} % of the gain of knowing the quality" if prr > 0 else "no gain"
    return (
        f"{best} ranks the outputs best: rejecting the least certain ones achieves {gain} (PRR "
        f"{format_metric(entry, 'prr', 'text', minus='−', interval=', {} to {}')})." + _overlaps(scorers, best)
    )


def _summary(report: EvaluationReport, best: str | None) -> list[str]:
    metrics, n = report.metrics, len(report.quality())
    blank = metrics.get("empty_outputs") or 0
    empty = f" {blank:,} of them {'is' if blank == 1 else 'are'} empty." if blank else ""
    quality = f" The mean quality is {report.quality().mean():.3f}." if n else ""
    sentences = [f"The model generated {n:,} output{'' if n == 1 else 's'}.{empty}{quality}"]
    if outputs := report.description.get("outputs"):  # texts from elsewhere
        sentences = [f"{n:,} output{'s were' if n != 1 else ' was'} generated elsewhere.{empty}{quality}"]
        sentences += [f"Entropies are {outputs['entropy']}."] if "entropy" in outputs else []
    sentences += [ranking] if (ranking := ranking_sentence(metrics["scorers"], best)) else []
    if gain := report.learned_gain():
        sentences.append(gain)
    if compat := report.description.get("compat"):
        sentences.append(f"Scores are computed as in {compat}, not by the definitions of clue_hf.")
    references = metrics.get("references") or {}
    error, uncertainty = ((references.get(name) or {}).get("value") for name in ("error", "uncertainty"))
    if error is not None and uncertainty is not None:
        side = "overconfident" if error > uncertainty else "underconfident"
        sentences.append(
            f"On {references['tokens']:,} reference tokens its error is {error:.3f} nats and its uncertainty "
            f"{uncertainty:.3f}: on average it is {side} by {abs(error - uncertainty):.3f} nats."
        )
    if before := metrics.get("uncalibrated_references"):
        sentences.append(
            "Its probabilities were calibrated after training, which does not change its outputs. Before: error "
            f"{before['error']['value']:.3f}, uncertainty {before['uncertainty']['value']:.3f} nats, token ECE "
            f"{before['token_ece']['value']:.3f} (now {references['token_ece']['value']:.3f})."
        )
    return sentences


def _overlaps(scorers: dict[str, Any], best: str) -> str:
    """How many other scorers have an interval that overlaps with that of the best one."""
    low = scorers[best]["prr"].get("low")
    highs = [(metrics.get("prr") or {}).get("high") for name, metrics in scorers.items() if name != best]
    count = sum(high is not None and high >= low for high in highs) if low is not None else 0
    return f" The intervals of {count} other scorer{'' if count == 1 else 's'} overlap with its own." if count else ""


def _tiles(report: EvaluationReport, best: str | None) -> list[Tile]:
    metrics, quality = report.metrics, report.quality()
    n = len(quality)
    tiles = [(f"{n:,}", "outputs", f"{metrics.get('empty_outputs', 0):,} empty")]
    for name, entries in list((metrics.get("quality") or {}).items())[:1]:
        tiles.append(metric_tile(entries.get("corpus"), f"{name}, corpus", "quality", "text"))
    if best:
        tiles.append(metric_tile(metrics["scorers"][best].get("prr"), f"PRR of {best}"))
    if best and n > 1:
        order = np.argsort(report.uncertainty(best), kind="stable")
        kept = float(quality[order[: math.ceil(0.8 * n)]].mean())
        note = f"{quality.mean():.3f} of all"
        tiles.append((f"{kept:.3f}", "mean quality of the most certain 80 %", note))
    if error := (metrics.get("references") or {}).get("token_ece"):
        tiles.append(metric_tile(error, "token ECE"))
    return tiles


def _ranges(report: EvaluationReport) -> dict[str, dict[str, float]]:
    """Where the PRR of each scorer and its interval are drawn, in pixels on an axis that all share."""
    defined = [name for name in report.scorers if metric_value(report, name, "prr") is not None]
    entries = {name: report.metrics["scorers"][name]["prr"] for name in defined}
    start = max(-1.0, min((0.0, *(_end(entry, "low") for entry in entries.values()))))

    def pixel(value: float) -> float:
        return round(4 + 112 * (min(1.0, max(start, value)) - start) / (1 - start), 1)

    return {
        name: {"zero": pixel(0.0), **{key: pixel(_end(entry, key)) for key in ("low", "value", "high")}}
        for name, entry in entries.items()
    }


def _end(entry: dict[str, Any], key: str) -> float:
    """An end of the interval, or the value if there is none."""
    return entry["value"] if entry.get(key) is None else entry[key]
