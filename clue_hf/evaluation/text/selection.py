"""What the page and the figures of a report on texts show: curves, bins, and the examples most worth reading."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # its parts are imported when they are first used: stats takes a second
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ...pages.palette import LIGHT
from ...pages.selection import (
    curve_limits,
    kept_quality,
    quality_bins,
    rows_in_groups,
    score_histogram,
    shortened,
)
from ...scorers import DEFAULT_SCORERS, scorer_group


if TYPE_CHECKING:
    from .report import EvaluationReport

#: The byte of each character of byte-level tokenizers.
BYTES = {letter: byte for byte, letter in bytes_to_unicode().items()}
#: Groups of examples and their meaning.
GROUPS = {
    "most certain": "lowest uncertainty",
    "least certain": "highest uncertainty",
    "most overconfident": "confidence furthest above quality",
    "random": "a uniform sample of all examples",
}


def ordered_scorers(report: EvaluationReport) -> list[str]:
    """The scorers of a report; where there are more than colours, the best first."""
    names = report.scorers
    return names if len(names) <= len(LIGHT) else best_first(report, names)


def best_first(report: EvaluationReport, names: Iterable[str]) -> list[str]:
    """Scorers by their prediction rejection ratio."""
    return sorted(names, key=lambda name: -metric_value(report, name, "prr", -math.inf))


def grouped_scorers(report: EvaluationReport) -> dict[str, list[str]]:
    """
    The scorers of a report, the best first. Where there are more than colours, they are grouped by what they need; the
    group of the best one comes first.
    """
    names = best_first(report, report.scorers)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(scorer_group(name) if len(names) > len(LIGHT) else "", []).append(name)
    return groups


def colour_index(scorers: Sequence[str]) -> dict[str, int]:
    """
    A place in the palette for each scorer: the same in every report for the usual ones of this library. Where there
    are more scorers than colours, each of the first ones has its own.
    """
    if len(scorers) > len(LIGHT):
        return {name: place % len(LIGHT) for place, name in enumerate(scorers)}
    others = sorted((name for name in scorers if name not in DEFAULT_SCORERS), key=lambda name: name != "learned")
    return {name: [*DEFAULT_SCORERS, *others].index(name) % len(LIGHT) for name in scorers}


def metric_value(report: EvaluationReport, scorer: str, metric: str, default: Any = None) -> Any:
    """A metric of a scorer, or the default if it is undefined."""
    value = (report.metrics["scorers"][scorer].get(metric) or {}).get("value")
    return default if value is None else value


def best_scorer(report: EvaluationReport) -> str | None:
    """The scorer with the highest prediction rejection ratio; the first one if none is defined."""
    return max(report.scorers, key=lambda name: metric_value(report, name, "prr", -math.inf), default=None)


def thinned_curves(report: EvaluationReport, points: int = 500) -> dict[str, np.ndarray]:
    """
    Mean quality of the outputs kept, by share rejected: `share`, `random`, `oracle`, and `scorer:NAME` for each
    scorer, of at most `points` points. One minus both axes is risk against coverage.
    """
    quality = report.quality()
    ranked = {f"scorer:{name}": (report.uncertainty(name), quality) for name in report.scorers}
    return kept_quality(quality, ranked, points)


def reliability_bins(confidence: np.ndarray, quality: np.ndarray, bins: int = 10) -> list[dict[str, float]]:
    """
    Mean confidence and mean quality, with its 95 % interval, in at most `bins` bins of equal mass. Equal confidences
    stay in one bin, so the order of the rows does not matter.
    """

    def interval(mean: float, values: np.ndarray) -> tuple[float, float]:
        half = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
        return mean - half, mean + half

    _, group, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    middle = (np.cumsum(counts) - counts / 2) / max(len(confidence), 1)
    place = np.minimum((middle * bins).astype(int), bins - 1)[group]
    return quality_bins(place, confidence, quality, interval)


def confidence_counts(confidence: np.ndarray) -> np.ndarray:
    """Number of examples in 20 bins of the confidence."""
    return np.histogram(confidence.clip(0, 1), np.linspace(0, 1, 21))[0]


def good_examples(quality: np.ndarray) -> np.ndarray:
    """Which examples are at least as good as the median one (without the rounding of equal qualities)."""
    return quality >= np.median(quality) - 1e-9 if len(quality) else np.empty(0, bool)


def choose_examples(
    report: EvaluationReport, scorer: str, limit: int = 500, seed: int = 0
) -> list[tuple[dict[str, Any], list[str]]]:
    """
    The examples most worth reading, in the order of the data, each with the [`GROUPS`] that it is in by the
    uncertainty of a scorer: none, one or several. No more than `limit`; all, if there are no more than that. `seed` is
    that of the random group.
    """
    groups = _groups(report, scorer, limit, seed)
    chosen = rows_in_groups(groups, len(report.examples), limit)
    return [(example, chosen[row]) for row, example in enumerate(report.examples) if row in chosen]


def _groups(report: EvaluationReport, scorer: str, limit: int, seed: int) -> dict[str, np.ndarray]:
    """The rows of each group: a tenth of the data, but at most a quarter of the limit; random ones fill the rest."""
    n = len(report.quality())
    size = min(limit // 4, max(1, n // 10))
    certain = np.argsort(report.uncertainty(scorer), kind="stable")
    excess = _excess_confidence(report, scorer)
    overconfident = np.argsort(-excess, kind="stable")[:size]
    named = {
        "most certain": certain[:size],
        "least certain": certain[::-1][:size],
        "most overconfident": overconfident[excess[overconfident] > 0],
    }
    order = np.random.default_rng(seed).permutation(n)
    if n > limit:
        taken = np.isin(order, np.concatenate(list(named.values())))
        size = int(np.searchsorted(np.cumsum(~taken), limit - int(taken.sum()), side="right"))
    return {**named, "random": order[:size]}


def _excess_confidence(report: EvaluationReport, scorer: str) -> np.ndarray:
    """How far confidence is above quality; without a confidence, how far the ranks of certainty and quality differ."""
    confidence, quality = report.confidence(scorer), report.quality()
    if confidence is not None:
        return confidence - quality
    return (scipy.stats.rankdata(-report.uncertainty(scorer)) - scipy.stats.rankdata(quality)) / max(len(quality), 1)


def page_data(report: EvaluationReport, scorer: str | None, limit: int) -> dict[str, Any]:
    """What the script of the page reads."""
    names, quality, confidences = ordered_scorers(report), report.quality(), report.confidences()
    curves, good, colours = thinned_curves(report, 250), good_examples(quality), colour_index(names)
    chosen = choose_examples(report, scorer, limit) if scorer else []
    ranked = {name: np.sort(report.uncertainty(name)) for name in names}
    entropies = np.concatenate([[0.1], *(np.asarray(entry["token_entropies"], float) for entry, _ in chosen)])
    return {
        "n": len(quality),
        "scorers": [
            {"name": name, "colour": colours[name], "dashed": colours[name] >= len(LIGHT) // 2}
            | {key: metric_value(report, name, key) for key in ("prr", "aurc", "confidence_ece")}
            for name in names
        ],
        "most_shown": len(LIGHT),
        "curves": curves,
        "limits": curve_limits(curves),
        "reliability": {
            name: {"bins": reliability_bins(values, quality), "counts": confidence_counts(values)}
            for name, values in confidences.items()
        },
        "histograms": {name: score_histogram(report.uncertainty(name), good) for name in names},
        "median": np.median(quality) if len(good) else None,
        "quality": next(iter(report.metrics.get("quality") or {}), "quality"),
        "groups": GROUPS,
        "scorer": scorer,
        "entropy_limit": _round_up(max(float(np.quantile(entropies[np.isfinite(entropies)], 0.95)), 1e-3)),
        "examples": [_example(entry, groups, confidences, ranked) for entry, groups in chosen],
    }


def _example(
    example: dict[str, Any], groups: list[str], confidences: dict[str, np.ndarray], ranked: dict[str, np.ndarray]
) -> dict[str, Any]:
    """An example for the script; `ranks` are the shares of all outputs that are more certain."""
    scores, row = example["scores"], example["row"]
    return {
        "row": row,
        **{name: shortened(example[name]) for name in ("source", "reference", "output")},
        "references": [shortened(text) for text in example.get("references", ())],
        "quality": example["quality"],
        "qualities": example["qualities"],
        "scores": [scores[name] for name in ranked],
        "ranks": [np.searchsorted(order, scores[name]) / len(order) for name, order in ranked.items()],
        "confidence": [confidences[name][row] if name in confidences else None for name in ranked],
        "groups": groups,
        "tokens": readable_tokens(example["tokens"], example["output"]),
        **{
            name: example[f"token_{name}"] or [None] * len(example["tokens"])  # not known of texts from elsewhere
            for name in ("log_probabilities", "entropies")
        },
    }


def _round_up(value: float) -> float:
    """The next number of one digit."""
    step = 10 ** math.floor(math.log10(value))
    return math.ceil(value / step - 1e-9) * step


def readable_tokens(tokens: Sequence[str], text: str) -> list[str]:
    """
    The tokens of a tokenizer as readable text: with spaces for SentencePiece's and byte-level markers, and with the
    characters that byte-level tokens encode. A character that is spread over several tokens is in the last one.
    """
    joined, spaced = "".join(tokens), [token.replace("▁", " ") for token in tokens]
    marked = "Ġ" in joined or "Ċ" in joined
    if "▁" in joined or (not marked and (text.strip() in joined or not set(joined) <= BYTES.keys())):
        return spaced
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoded = []
    for token in tokens:
        is_bytes = set(token) <= BYTES.keys()  # not so for tokens that were added to the vocabulary as they are
        decoded.append(decoder.decode(bytes(BYTES[letter] for letter in token)) if is_bytes else token)
    return decoded if marked or "\ufffd" not in "".join(decoded) else spaced
