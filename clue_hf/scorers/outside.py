"""Texts that were generated elsewhere, as what the scorers read: from rows with whatever is known of their tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.columns import describe_value
from .base import Scorer
from .collected import Collected, ScoredText


#: What scorers may read of such a text, and the fields of its row that bring it.
PARTS = {
    "log_probability": "token_log_probabilities",
    "entropy": "token_entropies or top_log_probabilities",
    "samples": "samples",
    "sample_log_probability": "samples with token_log_probabilities",
}
#: Log-probabilities and entropies may be on the wrong side of 0 by the rounding of those who computed them.
ROUNDING = 1e-4
#: How far probabilities of different tokens may sum to more than 1.
EXCESS = 1e-2
#: Numbers beyond this are infinite.
LARGEST = 1e300


class RowProblem(ValueError):
    """Why a row cannot be used; it goes on "row 7 ..."."""


@dataclass(frozen=True)
class OutsideText:
    """
    A text from elsewhere.

    Args:
        collected ([`Collected`]):
            What the scorers read; numbers that are not known are nan.
        tokens (`list[str]`):
            Its tokens, where they are given.
        parts (`frozenset[str]`):
            Which of [`PARTS`] are known.
        top_tokens (`tuple[int, int]`, *optional*):
            The fewest and the most probabilities at a position that its entropies are computed from, where they are.
    """

    collected: Collected
    tokens: list[str]
    parts: frozenset[str]
    top_tokens: tuple[int, int] | None = None


def missing_parts(scorer: Scorer, parts: frozenset[str]) -> list[str]:
    """What a scorer reads and texts with these parts do not have."""
    return [part for part in (*sorted(scorer.reads), *sorted(scorer.needs)) if part not in parts]


def read_outside_text(row: Mapping[str, Any]) -> OutsideText:
    """
    The text of a row with `output` and any of `tokens`, `token_log_probabilities`, `token_entropies`,
    `top_log_probabilities` (for each token a list of log-probabilities, or a map from tokens to them), `samples`
    (texts, or maps with `text` and `token_log_probabilities`) and `ended`. Raises a [`RowProblem`].
    """
    text = row.get("output")
    if not isinstance(text, str):
        raise RowProblem(f"has no text in 'output', but {describe_value(text)}")
    tokens = _list(row, "tokens")
    if tokens is not None and not all(isinstance(token, str) for token in tokens):
        raise RowProblem("has something other than texts in 'tokens'")
    log_probability, entropy = _log_probabilities(row), _numbers(row, "token_entropies")
    if entropy is not None and len(entropy) and entropy.min() < -ROUNDING:
        raise RowProblem(f"has {entropy.min():g} in 'token_entropies': an entropy is not negative")
    tops = _tops(row)
    _check_lengths(
        tokens=tokens, token_log_probabilities=log_probability, token_entropies=entropy, top_log_probabilities=tops
    )
    top_tokens = None
    if entropy is None and tops is not None:
        entropy, counts = _top_entropies(tops), [len(top) for top in tops]
        top_tokens = (min(counts), max(counts)) if counts else None
    samples = [_sample(sample, place) for place, sample in enumerate(_list(row, "samples") or ())]
    ended = row.get("ended", True)
    if not isinstance(ended, bool):
        raise RowProblem(f"has {describe_value(ended)} in 'ended', which must be true or false")
    parts = {
        "log_probability": log_probability is not None,
        "entropy": entropy is not None,
        "samples": bool(samples),
        "sample_log_probability": bool(samples) and not any(np.isnan(s.log_probability).any() for s in samples),
    }
    output = _scored_text(text, log_probability, None if entropy is None else entropy.clip(0), ended)
    known = frozenset(part for part, is_known in parts.items() if is_known)
    return OutsideText(Collected(output, samples=samples), list(tokens or ()), known, top_tokens)


def _scored_text(text: str, log_probability: Any, entropy: Any, ended: bool) -> ScoredText:
    """Tokens from elsewhere have no ids here; what is not known of them is nan, which no score survives."""
    count = next((len(numbers) for numbers in (log_probability, entropy) if numbers is not None), None)
    unknown = np.full(max(count or 0, 1), np.nan)
    log_probability, entropy = (unknown if part is None else part for part in (log_probability, entropy))
    confidence, correct = np.full(count or 0, np.nan), np.zeros(count or 0, bool)
    return ScoredText(text, list(range(count or 0)), log_probability, entropy, confidence, correct, ended)


def _sample(sample: Any, place: int) -> ScoredText:
    where = f"at place {place} (counted from 0) of 'samples'"
    fields = {"text": sample} if isinstance(sample, str) else sample
    if not isinstance(fields, Mapping) or not isinstance(fields.get("text"), str):
        raise RowProblem(f"has no text {where}, but {describe_value(sample)}")
    try:
        log_probability = _log_probabilities(fields)
    except RowProblem as problem:
        raise RowProblem(f"{problem}, {where}") from problem
    return _scored_text(fields["text"], log_probability, None, ended=False)  # every token counts


def _list(row: Mapping[str, Any], name: str) -> Sequence[Any] | None:
    values = row.get(name)
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if values is not None and not isinstance(values, list | tuple):
        raise RowProblem(f"has {describe_value(values)} in {name!r}, which must be a list")
    return values


def _numbers(row: Mapping[str, Any], name: str) -> np.ndarray | None:
    values = _list(row, name)
    if values is None:
        return None
    for place, value in enumerate(values):
        if not _is_number(value):
            raise RowProblem(f"has {_short(value)} at place {place} (counted from 0) of {name!r}, not a finite number")
    return np.array(values, dtype=float)


def _log_probabilities(row: Mapping[str, Any]) -> np.ndarray | None:
    numbers = _numbers(row, "token_log_probabilities")
    if numbers is not None and len(numbers) and numbers.max() > ROUNDING:
        place = int(np.argmax(numbers > ROUNDING))
        raise RowProblem(
            f"has {numbers[place]:g} at place {place} (counted from 0) of 'token_log_probabilities': a "
            "log-probability is not positive"
        )
    return None if numbers is None else numbers.clip(max=0)


def _tops(row: Mapping[str, Any]) -> list[list[float]] | None:
    """The log-probabilities that are given at each position; minus infinity is that of an impossible token."""
    positions = _list(row, "top_log_probabilities")
    if positions is None:
        return None
    tops = []
    for place, position in enumerate(positions):
        where = f"at place {place} (counted from 0) of 'top_log_probabilities'"
        values = list(position.values()) if isinstance(position, Mapping) else position
        if not isinstance(values, list | tuple) or not values:
            raise RowProblem(f"has {_short(values)} {where}, where a list or map of log-probabilities is needed")
        wrong = [value for value in values if value != -np.inf and not (_is_number(value) and value <= ROUNDING)]
        if wrong or max(values) == -np.inf:
            raise RowProblem(f"has {_short(wrong[0] if wrong else values)} {where}, not a log-probability")
        if (total := sum(map(math.exp, values))) > 1 + EXCESS:
            raise RowProblem(f"has probabilities that sum to {total:.3g} {where}")
        tops.append(list(values))
    return tops


def _top_entropies(tops: list[list[float]]) -> np.ndarray:
    """The entropy of what is given at each position, renormalised."""
    table = np.full((len(tops), max(map(len, tops), default=1)), -np.inf)
    for place, values in enumerate(tops):
        table[place, : len(values)] = values
    weights = np.exp(table - table.max(axis=1, keepdims=True))
    shares = weights / weights.sum(axis=1, keepdims=True)
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)


def _check_lengths(**fields: Any) -> None:
    """Raises where lists of a value for each token differ in length."""
    lengths = {name: len(values) for name, values in fields.items() if values is not None}
    if len(set(lengths.values())) > 1:
        raise RowProblem(f"has {', '.join(f'{length} {name}' for name, length in lengths.items())}, which must match")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def _short(value: Any) -> str:
    return "nothing (null)" if value is None else repr(value)[:40]
