"""How far uncertainty and error, or confidence and accuracy, are apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from typing import Any

import numpy as np

from .arrays import checked_arrays
from .bootstrap import check_options, resampled_sums
from .curve import Order
from .measured import NAN, Measured


def alignment_error(error: Any, uncertainty: Any, num_bins: int = 15) -> float:
    """
    CLUE's own criterion, `E[error | uncertainty] = uncertainty`, measured: `sum |B|/n |mean error - mean uncertainty|`
    over `num_bins` bins B of equal mass along the uncertainty.

    Equal uncertainties count as one value (they share their mean error), so the order of the rows does not matter.
    Returns nan without items.
    """
    error, uncertainty = checked_arrays(error=error, uncertainty=uncertainty)
    return EqualMassGap(uncertainty, error, num_bins)()


def confidence_calibration_error(confidence: Any, correct: Any, num_bins: int = 15) -> float:
    """
    Expected calibration error from the confidence in each answer and whether it was right: `sum |B|/n |accuracy -
    mean confidence|` over `num_bins` bins of equal width, each `(low, high]`. Returns nan without items.
    """
    confidence, correct = checked_arrays(confidence=confidence, correct=correct)
    gaps = np.bincount(equal_width_bins(confidence, num_bins), correct - confidence, minlength=num_bins)
    return mean_gap(gaps, len(correct))


def calibration_intervals(
    error: Any,
    uncertainty: Any,
    confidence: Any,
    correct: Any,
    example_of_token: Any,
    num_bins: int = 15,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Measured]:
    """
    [`alignment_error`] and [`confidence_calibration_error`] of tokens, with bootstrap intervals over the examples:
    tokens of one text are not independent, so a resample draws whole examples.

    The equal-mass bins of the alignment error are those of all tokens, in every resample (a standard approximation:
    only the gaps within the bins vary). The bins of the confidence are fixed anyway. Both metrics sum absolute gaps,
    to which a resample adds noise: where a model is close to calibrated, the interval lies mostly above the value.

    Args:
        error, uncertainty, confidence, correct (`array`):
            One number per token.
        example_of_token (`array`):
            Which example each token belongs to.
        num_bins (`int`, *optional*, defaults to 15):
            Number of bins of both metrics.
        resamples, level, seed (*optional*):
            As in [`bootstrap_interval`].

    Returns:
        `dict[str, Measured]`: `alignment_error` and `confidence_calibration_error`; n is the number of examples.
    """
    check_options(resamples, level)
    error, uncertainty, confidence, correct = checked_arrays(
        error=error, uncertainty=uncertainty, confidence=confidence, correct=correct
    )
    examples, example = np.unique(np.asarray(example_of_token).reshape(-1), return_inverse=True)
    if len(example) != len(error):
        raise ValueError(f"There are {len(error)} tokens but `example_of_token` has {len(example)} entries.")
    gaps = {
        "alignment_error": _alignment_gaps(error, uncertainty, num_bins),
        "confidence_calibration_error": _confidence_gaps(confidence, correct, num_bins),
    }
    return _gap_intervals(gaps, example, num_bins, resamples, level, seed)


def confidence_calibration_interval(
    confidence: Any, correct: Any, num_bins: int = 15, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Measured:
    """
    [`confidence_calibration_error`] with its bootstrap interval over the answers: that of [`bootstrap_interval`], but
    faster.
    """
    check_options(resamples, level)
    confidence, correct = checked_arrays(confidence=confidence, correct=correct)
    gaps = {"": _confidence_gaps(confidence, correct, num_bins)}
    return _gap_intervals(gaps, np.arange(len(confidence)), num_bins, resamples, level, seed)[""]


def _gap_intervals(
    gaps: Mapping[str, Iterator[tuple[np.ndarray, ...]]],
    example: np.ndarray,
    num_bins: int,
    resamples: int,
    level: float,
    seed: int,
) -> dict[str, Measured]:
    """By name, the mean gap of the items of some bins, with its interval over the examples that the items are of."""
    n = int(example.max(initial=-1)) + 1
    columns = [np.bincount(example[inside], values, minlength=n) for inside, values in chain(*gaps.values())]
    table = np.column_stack([np.bincount(example, minlength=n), *columns])
    drawn = resampled_sums(table, resamples, seed)
    measured = {}
    for first, name in zip(range(1, table.shape[1], num_bins), gaps, strict=True):
        bins = slice(first, first + num_bins)
        values = np.abs(drawn[:, bins]).sum(axis=1) / drawn[:, 0]
        value = mean_gap(table[:, bins].sum(axis=0), len(example))
        measured[name] = Measured.from_resamples(value, values, n, level=level)
    return measured


class EqualMassGap:
    """
    [`alignment_error`] of items that count several times. Along the items in ascending order, the sum of `outcome -
    expected` is a line within equal expectations, so the gap of a bin is the rise of that line over it.
    """

    def __init__(self, expected: np.ndarray, outcome: np.ndarray, num_bins: int, order: Order | None = None) -> None:
        self.order, self.num_bins = order or Order(expected), num_bins
        self.gaps = (outcome - expected)[self.order.rows]

    def __call__(self, counts: np.ndarray | None = None) -> float:
        n = len(self.gaps)
        if n == 0:
            return NAN
        edges = equal_mass_edges(n, self.num_bins)
        if counts is None and self.order.starts is None:
            return mean_gap(np.diff(_from_zero(self.gaps)[edges]), n)
        if counts is None:
            size, [gaps] = self.order.sizes, self.order.group_sums(self.gaps)
        else:
            drawn = counts[self.order.rows]
            size, gaps = self.order.group_sums(drawn, drawn * self.gaps)
        return mean_gap(np.diff(np.interp(edges, _from_zero(size), _from_zero(gaps))), n)


def _from_zero(numbers: np.ndarray) -> np.ndarray:
    """The sums of the first 0, 1, ... numbers."""
    sums = np.zeros(len(numbers) + 1)
    np.cumsum(numbers, out=sums[1:])
    return sums


def equal_mass_edges(n: int, num_bins: int) -> np.ndarray:
    """The edges of bins of equally many of n items; the first bins have one more if there is a remainder."""
    bins = np.arange(num_bins + 1)
    size, larger = divmod(n, max(num_bins, 1))
    return bins * size + np.minimum(bins, larger)


def _alignment_gaps(error: np.ndarray, uncertainty: np.ndarray, num_bins: int) -> Iterator[tuple[np.ndarray, ...]]:
    """
    The tokens of each bin of equal mass, and their `error - uncertainty`. Equal uncertainties that reach over several
    bins count in each with the share of them that falls there.
    """
    group, counts = np.unique(uncertainty, return_inverse=True, return_counts=True)[1:]
    starts, ends = np.cumsum(counts) - counts, np.cumsum(counts)
    for low, high in pairwise(equal_mass_edges(len(error), num_bins)):
        first, last = np.searchsorted(ends, low, side="right"), np.searchsorted(starts, high)
        share = np.minimum(ends[first:last], high) - np.maximum(starts[first:last], low)
        inside = np.flatnonzero((group >= first) & (group < last))
        yield inside, (error[inside] - uncertainty[inside]) * (share / counts[first:last])[group[inside] - first]


def _confidence_gaps(confidence: np.ndarray, correct: np.ndarray, num_bins: int) -> Iterator[tuple[np.ndarray, ...]]:
    """The tokens of each bin of equal width, and their `correct - confidence`."""
    bins = equal_width_bins(confidence, num_bins)
    for number in range(num_bins):
        inside = np.flatnonzero(bins == number)
        yield inside, correct[inside] - confidence[inside]


def equal_width_bins(numbers: np.ndarray, num_bins: int) -> np.ndarray:
    """Which of `num_bins` bins `(low, high]` of equal width each number of [0, 1] is in; 0 is in the first."""
    scaled = numbers * num_bins
    bins = np.ceil(scaled, out=scaled).astype(np.intp)
    bins -= 1
    return np.clip(bins, 0, num_bins - 1, out=bins)


def mean_gap(gaps: np.ndarray, n: int) -> float:
    """`sum |B|/n |mean gap in B|` from the sum of the gaps in each bin."""
    return float(np.abs(gaps).sum() / n) if n else NAN
