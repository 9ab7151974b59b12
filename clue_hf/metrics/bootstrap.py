"""How sure a metric is: percentile bootstrap over the items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


NAN = float("nan")


@dataclass(frozen=True)
class Interval:
    """
    A metric with its bootstrap interval.

    Args:
        value (`float`): The metric on all items.
        low (`float`): Lower end of the interval; nan where no resample has a value.
        high (`float`): Upper end of the interval.
        n (`int`): Number of items.
        undefined (`int`): Number of resamples on which the metric was nan; the interval leaves them out.
    """

    value: float
    low: float
    high: float
    n: int
    undefined: int


@dataclass(frozen=True)
class Measured:
    """
    A metric on all items and on each resample, for those who combine several models: the draws depend on the seed and
    the number of items only.

    Args:
        value (`float`): The metric on all items.
        reason (`str`, *optional*): Why it has no value, where it has none.
        n (`int`): Number of items.
        values (`np.ndarray`): The metric on each resample; nan where it is undefined.
    """

    value: float
    reason: str | None
    n: int
    values: np.ndarray

    def __sub__(self, other: Measured) -> Measured:
        return Measured(self.value - other.value, self.reason or other.reason, self.n, self.values - other.values)

    def interval(self, level: float = 0.95) -> Interval:
        """Its percentile interval."""
        return percentile_interval(self.value, self.values, self.n, level)


@dataclass(frozen=True)
class Difference(Interval):
    """
    The difference of a metric between two models on the same items, with its bootstrap interval.

    Args:
        p_value (`float`): Two-sided p-value of no difference, `min(1, 2 (1 + m) / (1 + B))`: of the B resampled
            differences that are defined, m is the smaller of the number at or below zero and the number at or above
            zero. Never 0: at least 2 / (1 + B). nan where no resample has a value.
    """

    p_value: float


def bootstrap_interval(
    metric: Callable[..., float], *arrays: Any, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval:
    """
    `metric(*arrays)` with its percentile interval: the metric on `resamples` draws of n rows with replacement (the
    same rows of every array), cut at the quantiles `(1 - level) / 2` and `(1 + level) / 2`.

    The draws come from a generator of their own and depend on `seed` and n only.

    Args:
        metric (`Callable`):
            Takes the arrays and returns a float, nan where it is undefined.
        arrays (`array`):
            One or more arrays with one row per item.
        resamples (`int`, *optional*, defaults to 2000):
            Number of draws.
        level (`float`, *optional*, defaults to 0.95):
            Share of the resampled values inside the interval.
        seed (`int`, *optional*, defaults to 0):
            Seed of the draws.

    Returns:
        [`Interval`]

    Example:

    ```python
    >>> from clue_hf.metrics import bootstrap_interval, prediction_rejection_ratio

    >>> interval = bootstrap_interval(prediction_rejection_ratio, uncertainty, quality)
    ```
    """
    return _bootstrap(metric, _rows(arrays), resamples, level, seed)[0]


def paired_bootstrap(
    metric: Callable[..., float],
    a: Sequence[Any],
    b: Sequence[Any],
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Difference:
    """
    `metric(*a) - metric(*b)` with its percentile interval and a two-sided p-value, for two models on the same items: a
    and b hold the arrays of each model, in the same order of items, and every resample draws the same rows of both.

    Same options as [`bootstrap_interval`].

    Returns:
        [`Difference`]
    """
    rows, split = _rows([*a, *b]), len(a)

    def difference(*both: np.ndarray) -> float:
        return metric(*both[:split]) - metric(*both[split:])

    interval, differences = _bootstrap(difference, rows, resamples, level, seed)
    return Difference(**vars(interval), p_value=difference_p_value(differences))


def _rows(arrays: Sequence[Any]) -> list[np.ndarray]:
    """The arrays, checked to hold one row per item."""
    rows = [np.asarray(array) for array in arrays]
    if not rows or any(array.ndim == 0 for array in rows):
        raise ValueError(
            "Expected one or more arrays (for a pair: a tuple of arrays per model), got numbers or nothing."
        )
    lengths = [len(array) for array in rows]
    if len(set(lengths)) > 1:
        raise ValueError(f"The arrays differ in length: {lengths}.")
    return rows


def _bootstrap(
    metric: Callable[..., float], arrays: list[np.ndarray], resamples: int, level: float, seed: int
) -> tuple[Interval, np.ndarray]:
    """The interval, and the resampled values."""
    check_options(resamples, level)
    n = len(arrays[0])
    values = np.full(resamples, NAN)
    for index, rows in enumerate(draws(n, resamples, seed)):
        values[index] = metric(*(array[rows] for array in arrays))
    return percentile_interval(metric(*arrays), values, n, level), values


def check_options(resamples: int, level: float) -> None:
    """Raises where the number of resamples is negative or the level is no share. Without any there is no interval."""
    if resamples < 0 or not 0 < level < 1:
        raise ValueError(f"Expected resamples >= 0 and 0 < level < 1, got {resamples} and {level}.")


def draws(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """The rows of each resample: n of n with replacement; none without rows. All bootstraps here draw the same."""
    generator = np.random.default_rng(seed)
    for _ in range(resamples if n else 0):
        yield generator.integers(n, size=n)


def multiplicities(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each resample draws each row."""
    for rows in draws(n, resamples, seed):
        yield np.bincount(rows, minlength=n)


def percentile_interval(value: float, values: np.ndarray, n: int, level: float) -> Interval:
    """The interval from the resampled values, of which those that are nan are left out and counted."""
    defined = values[~np.isnan(values)]
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2]) if len(defined) else (NAN, NAN)
    return Interval(float(value), float(low), float(high), n, undefined=len(values) - len(defined))


def difference_p_value(differences: np.ndarray) -> float:
    """Two-sided p-value of "no difference" from the resampled differences: see [`Difference`]."""
    defined = differences[~np.isnan(differences)]
    if len(defined) == 0:
        return NAN
    fewer = min((defined <= 0).sum(), (defined >= 0).sum())
    return float(min(1.0, 2 * (1 + fewer) / (1 + len(defined))))
