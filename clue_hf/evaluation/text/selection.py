"""What of a report is shown: the points of its curves, the bars of its histograms, and its most telling examples."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from ...metrics import rejection_curve
from ...scorers import SCORERS
from .report import EvaluationReport


#: Groups of examples, each with what it holds.
GROUPS = {
    "most certain": "lowest uncertainty",
    "least certain": "highest uncertainty",
    "most wrongly sure": "certain and bad: confidence furthest above quality",
    "random": "a uniform sample of all examples",
}
#: Colours on white and on black, told apart with any colour vision: the first four by colour, the last four (drawn
#: dashed) by colour too, and one half from the other by the dashes.
#: Characters of a text that the page shows.
LONGEST_TEXT = 20_000
LIGHT = ("#0072b2", "#d55e00", "#00916a", "#7a1f78", "#27307a", "#3a98e0", "#7d1d10", "#a07a00")
DARK = ("#4aa3e8", "#f5853f", "#25b88c", "#f3b4ea", "#8b90ff", "#b5e3ff", "#ff6f61", "#e6cf45")


@dataclass(frozen=True)
class Numbers:
    """
    The numbers of all examples, one per row.

    Args:
        quality (`np.ndarray`):
            The headline quality.
        uncertainty (`dict[str, np.ndarray]`):
            Per scorer.
        confidence (`dict[str, np.ndarray]`):
            Per scorer that has one: the quality to expect, by the other examples.
    """

    quality: np.ndarray
    uncertainty: dict[str, np.ndarray]
    confidence: dict[str, np.ndarray]


def read_numbers(report: EvaluationReport) -> Numbers:
    """The numbers of a report, which reads its examples once for all of them."""
    confidence = {name: report.confidence(name) for name in report.scorers}
    return Numbers(
        report.quality(),
        {name: report.uncertainty(name) for name in report.scorers},
        {name: values for name, values in confidence.items() if values is not None},
    )


def colour_index(scorers: Sequence[str]) -> dict[str, int]:
    """A place in the palette for each scorer: the same in every report for those of this library."""
    known = list(SCORERS)
    others = [name for name in scorers if name not in known]
    return {name: (known + others).index(name) % len(LIGHT) for name in scorers}


def metric_value(report: EvaluationReport, scorer: str, metric: str, otherwise: Any = None) -> Any:
    """A metric of a scorer, or something else where it is undefined."""
    value = (report.metrics["scorers"][scorer].get(metric) or {}).get("value")
    return otherwise if value is None else value


def best_scorer(report: EvaluationReport) -> str | None:
    """The scorer with the highest prediction rejection ratio; the first one where none is defined."""
    return max(report.scorers, key=lambda name: metric_value(report, name, "prr", -math.inf), default=None)


def thinned_curves(numbers: Numbers, points: int = 500) -> dict[str, np.ndarray]:
    """
    Mean quality of what is kept at some shares rejected: `share`, `random`, `oracle`, and `scorer:NAME` for each
    scorer, all of one length of at most `points`. One minus both axes is risk against coverage.
    """
    n = len(numbers.quality)
    kept = np.unique(np.linspace(0, n - 1, min(n, points)).round().astype(int)) if n else np.empty(0, int)
    curves = {
        "share": kept / max(n, 1),
        "random": np.full(len(kept), numbers.quality.mean() if n else 0.0),
        "oracle": rejection_curve(-numbers.quality, numbers.quality)[kept],
    }
    for name, uncertainty in numbers.uncertainty.items():
        curves[f"scorer:{name}"] = rejection_curve(uncertainty, numbers.quality)[kept]
    return curves


def curve_limits(curves: dict[str, np.ndarray]) -> tuple[float, float]:
    """Limits of an axis that show the curves, but for what the last few outputs kept do by chance."""
    values = [curve[: max(1, int(0.97 * len(curve)))] for name, curve in curves.items() if name != "share"]
    low, high = min(map(np.min, values), default=0.0), max(map(np.max, values), default=1.0)
    room = 0.06 * (high - low) or 0.05
    return float(low - room), float(high + room)


def reliability_bins(confidence: np.ndarray, quality: np.ndarray, bins: int = 10) -> list[dict[str, float]]:
    """
    Mean confidence and mean quality, with its 95 % interval, in at most `bins` bins of equal mass. Equal confidences
    stay in one bin, so the order of the rows does not matter.
    """
    if not len(confidence):
        return []
    _, group, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    middle = (np.cumsum(counts) - counts / 2) / len(confidence)
    place = np.minimum((middle * bins).astype(int), bins - 1)[group]
    found = []
    for inside in (place == number for number in np.unique(place)):
        mean, count = float(quality[inside].mean()), int(inside.sum())
        half = 1.96 * float(quality[inside].std(ddof=1)) / count**0.5 if count > 1 else 0.0
        low, high = max(0.0, mean - half), min(1.0, mean + half)
        found.append(
            {"confidence": float(confidence[inside].mean()), "quality": mean, "low": low, "high": high, "count": count}
        )
    return found


def score_histogram(uncertainty: np.ndarray, good: np.ndarray, bins: int = 24) -> dict[str, np.ndarray]:
    """
    How many good and other examples have which uncertainty: `edges`, `good`, `bad`. The outermost bars hold what is
    beyond the outermost per cent.
    """
    low, high = np.quantile(uncertainty, [0.01, 0.99]) if len(uncertainty) else (0.0, 0.0)
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, bins + 1)
    inside = np.clip(uncertainty, edges[0], edges[-1])
    return {
        "edges": edges,
        "good": np.histogram(inside[good], edges)[0],
        "bad": np.histogram(inside[~good], edges)[0],
    }


def good_examples(quality: np.ndarray) -> np.ndarray:
    """Which examples are at least as good as the median one (without the rounding of equal qualities)."""
    return quality >= np.median(quality) - 1e-9 if len(quality) else np.empty(0, bool)


def choose_examples(
    report: EvaluationReport, scorer: str, limit: int = 500, seed: int = 0, numbers: Numbers | None = None
) -> list[tuple[dict[str, Any], list[str]]]:
    """
    The examples worth a look, in the order of the data.

    Args:
        report ([`EvaluationReport`]):
            Its examples are read once, and a second time unless `numbers` are given.
        scorer (`str`):
            Whose uncertainty counts.
        limit (`int`, *optional*, defaults to 500):
            The most examples to return; all are returned where there are no more than that.
        seed (`int`, *optional*, defaults to 0):
            Of the random group.
        numbers ([`Numbers`], *optional*):
            What [`read_numbers`] found.

    Returns:
        `list[tuple[dict, list[str]]]`: Each example with the [`GROUPS`] it is in: none, one or several.
    """
    groups = _groups(numbers or read_numbers(report), scorer, limit, seed)
    n = len(report.examples)
    chosen: dict[int, list[str]] = {row: [] for row in range(n if n <= limit else 0)}
    for group, rows in groups.items():
        for row in rows:
            chosen.setdefault(int(row), []).append(group)
    return [(example, chosen[row]) for row, example in enumerate(report.examples) if row in chosen]


def _groups(numbers: Numbers, scorer: str, limit: int, seed: int) -> dict[str, np.ndarray]:
    """The rows of each group: a tenth of the data, but at most a quarter of the limit; random ones fill the rest."""
    uncertainty, n = numbers.uncertainty[scorer], len(numbers.quality)
    size = min(limit // 4, max(1, n // 10))
    certain = np.argsort(uncertainty, kind="stable")
    wrong = _wrongness(numbers, scorer)
    wrongly_sure = np.argsort(-wrong, kind="stable")[:size]
    named = {
        "most certain": certain[:size],
        "least certain": certain[::-1][:size],
        "most wrongly sure": wrongly_sure[wrong[wrongly_sure] > 0],
    }
    order = np.random.default_rng(seed).permutation(n)
    if n > limit:
        taken = np.isin(order, np.concatenate(list(named.values())))
        size = int(np.searchsorted(np.cumsum(~taken), limit - int(taken.sum()), side="right"))
    return {**named, "random": order[:size]}


def _wrongness(numbers: Numbers, scorer: str) -> np.ndarray:
    """How far confidence is above quality; where there is no confidence, both by their ranks."""
    confidence = numbers.confidence.get(scorer)
    if confidence is not None:
        return confidence - numbers.quality
    return (rankdata(-numbers.uncertainty[scorer]) - rankdata(numbers.quality)) / max(len(numbers.quality), 1)


def page_data(report: EvaluationReport, numbers: Numbers, scorer: str | None, limit: int) -> dict[str, Any]:
    """What the script of the page draws, as plain lists and dicts."""
    names = report.scorers
    curves, good, colours = thinned_curves(numbers, 250), good_examples(numbers.quality), colour_index(names)
    chosen = choose_examples(report, scorer, limit, numbers=numbers) if scorer else []
    ranked = {name: np.sort(numbers.uncertainty[name]) for name in names}
    entropies = np.concatenate([[0.1], *(np.asarray(entry["token_entropies"], float) for entry, _ in chosen)])
    return {
        "n": len(numbers.quality),
        "scorers": [
            {"name": name, "colour": colours[name], "dashed": colours[name] >= len(LIGHT) // 2}
            | {key: _short(metric_value(report, name, key)) for key in ("prr", "aurc", "confidence_ece")}
            for name in names
        ],
        "curves": {name: _shorts(curve) for name, curve in curves.items()},
        "limits": curve_limits(curves),
        "reliability": {name: _reliability(values, numbers.quality) for name, values in numbers.confidence.items()},
        "histograms": {
            name: {key: _shorts(part) for key, part in score_histogram(values, good).items()}
            for name, values in numbers.uncertainty.items()
        },
        "median": _short(float(np.median(numbers.quality))) if len(good) else None,
        "quality": next(iter(report.metrics.get("quality") or {}), "quality"),
        "groups": GROUPS,
        "scorer": scorer,
        "entropy_limit": _round_up(float(np.quantile(entropies[np.isfinite(entropies)], 0.95))),
        "examples": [_example(entry, groups, numbers, ranked) for entry, groups in chosen],
    }


def _reliability(confidence: np.ndarray, quality: np.ndarray) -> dict[str, Any]:
    counts = np.histogram(confidence.clip(0, 1), np.linspace(0, 1, 21))[0]
    bins = [{key: _short(value) for key, value in entry.items()} for entry in reliability_bins(confidence, quality)]
    return {"bins": bins, "counts": counts.tolist()}


def _example(
    example: dict[str, Any], groups: list[str], numbers: Numbers, ranked: dict[str, np.ndarray]
) -> dict[str, Any]:
    """An example as the script wants it; `ranks` are the shares of all outputs that are more certain."""
    scores, row = example["scores"], example["row"]
    return {
        "row": row,
        **{name: _readable(example[name]) for name in ("source", "reference", "output")},
        "quality": _short(example["quality"]),
        "qualities": {name: _short(value) for name, value in example["qualities"].items()},
        "scores": _shorts(scores[name] for name in ranked),
        "ranks": _shorts(np.searchsorted(order, scores[name]) / len(order) for name, order in ranked.items()),
        "confidence": [
            _short(numbers.confidence[name][row]) if name in numbers.confidence else None for name in ranked
        ],
        "groups": groups,
        "tokens": readable_tokens(example["tokens"], example["output"]),
        "log_probabilities": _shorts(example["token_log_probabilities"]),
        "entropies": _shorts(example["token_entropies"]),
    }


def _readable(text: str) -> str:
    """A text as far as anybody reads it: a page of several megabytes opens slowly, and the file has all of it."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ... ({len(text):,} characters)"


def _shorts(values: Iterable[Any]) -> list[float | None]:
    return [_short(value) for value in values]


def _short(value: Any) -> float | None:
    """Six digits are enough to look at."""
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def _round_up(value: float) -> float:
    """The next number of one digit."""
    step = 10 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / step - 1e-9) * step:.6g}")


def readable_tokens(tokens: Sequence[str], text: str) -> list[str]:
    """
    The pieces of a tokenizer as people read them: with spaces for SentencePiece's and byte-level markers, and with the
    letters that byte-level pieces stand for. A letter that is spread over several pieces stands in the last one.
    """
    joined, plain = "".join(tokens), [token.replace("▁", " ") for token in tokens]
    marked = "Ġ" in joined or "Ċ" in joined
    if "▁" in joined or (not marked and (text.strip() in joined or not set(joined) <= BYTES.keys())):
        return plain
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    found = []
    for token in tokens:
        known = set(token) <= BYTES.keys()  # not so for tokens that were added to the vocabulary as they are
        found.append(decoder.decode(bytes(BYTES[letter] for letter in token)) if known else token)
    return found if marked or "\ufffd" not in "".join(found) else plain


def _byte_alphabet() -> dict[str, int]:
    """The letters that byte-level tokenizers write bytes with: printable ones as they are, the others from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(0x100 + i): byte for i, byte in enumerate(others)}}


BYTES = _byte_alphabet()
