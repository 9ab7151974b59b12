"""How sure a metric is: percentile bootstrap over the items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from .arrays import checked_arrays
from .measured import NAN, Measured, difference_p_value


#: Counts that are multiplied with a table at once.
SUMMED = 2**17


def bootstrap_interval(
    metric: Callable[..., float], *arrays: Any, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Measured:
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
        [`Measured`]

    Example:

    ```python
    >>> from clue_hf.metrics import bootstrap_interval, prediction_rejection_ratio

    >>> interval = bootstrap_interval(prediction_rejection_ratio, uncertainty, quality)
    ```
    """
    check_options(resamples, level)
    rows = _rows(arrays)
    n = len(rows[0])
    values = np.full(resamples, NAN)
    for index, drawn in enumerate(draws(n, resamples, seed)):
        values[index] = metric(*(array[drawn] for array in rows))
    return Measured.from_resamples(metric(*rows), values, n, level=level)


def paired_bootstrap(
    metric: Callable[..., float],
    a: Sequence[Any],
    b: Sequence[Any],
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Measured:
    """
    `metric(*a) - metric(*b)` with its percentile interval and a two-sided p-value, for two models on the same items: a
    and b hold the arrays of each model, in the same order of items, and every resample draws the same rows of both.

    Same options as [`bootstrap_interval`].

    Returns:
        [`Measured`]
    """
    split = len(a)

    def difference(*both: np.ndarray) -> float:
        return metric(*both[:split]) - metric(*both[split:])

    measured = bootstrap_interval(difference, *a, *b, resamples=resamples, level=level, seed=seed)
    return replace(measured, p_value=difference_p_value(measured.resampled))


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


def check_options(resamples: int, level: float) -> None:
    """Raises where the number of resamples is negative, or the level is not between 0 and 1."""
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


def blocks_of_counts(n: int, resamples: int, seed: int, size: int) -> Iterator[np.ndarray]:
    """How often each resample draws each row, for as many resamples at once as have about `size` counts together."""
    drawn = multiplicities(n, resamples, seed)
    while block := list(islice(drawn, max(1, size // max(n, 1)))):
        yield np.array(block)


def cluster_mean_interval(
    sums: Any, counts: Any, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Measured:
    """
    `sum(sums) / sum(counts)` with its bootstrap interval over the items, for instance the mean over all tokens where
    whole texts are drawn: tokens of one text are not independent.

    Args:
        sums (`array`):
            Sum of the numbers of each item.
        counts (`array`):
            How many numbers each item has.
        resamples, level, seed (*optional*):
            As in [`bootstrap_interval`], which would give the same interval, but slower.

    Returns:
        [`Measured`]: nan where there is nothing to count.
    """
    check_options(resamples, level)
    table = np.column_stack(checked_arrays(sums=sums, counts=counts))
    drawn = resampled_sums(table, resamples, seed)
    with np.errstate(invalid="ignore"):
        [value], values = (total[:, 0] / total[:, 1] for total in (table.sum(axis=0, keepdims=True), drawn))
    return Measured.from_resamples(value, values, len(table), "no items" if np.isnan(value) else None, level)


def resampled_sums(table: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Sum of the rows of a table over each resample of them, as `(resamples, columns)`; nan without rows."""
    totals = np.full((resamples, table.shape[1]), NAN)
    first = 0
    for counts in blocks_of_counts(len(table), resamples, seed, SUMMED):
        totals[first : first + len(counts)] = counts @ table
        first += len(counts)
    return totals


def measure_rows(
    metrics: Callable[[np.ndarray | None], Mapping[Any, float]],
    n: int,
    reason: Callable[[Any], str | None],
    resamples: int,
    level: float,
    seed: int,
) -> dict[Any, Measured]:
    """
    Every metric with its interval; `metrics` gives their values from how often each row counts, `None` for once. See
    [`measured_columns`].
    """
    check_options(resamples, level)
    rows = [metrics(counts) for counts in chain([None], multiplicities(n, resamples, seed))]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return measured_columns(columns, n, reason, resamples, level)


def measured_columns(
    columns: Mapping[Any, Sequence[float]], n: int, reason: Callable[[Any], str | None], resamples: int, level: float
) -> dict[Any, Measured]:
    """
    Metrics from the value of each on all items, followed by those on each resample; `reason` says why one is undefined
    by its name. What is undefined on all items is so on every resample.
    """
    measured = {}
    for name, (value, *drawn) in columns.items():
        undefined = bool(np.isnan(value))
        values = np.full(resamples, NAN) if undefined else np.array(drawn, dtype=float)
        measured[name] = Measured.from_resamples(value, values, n, reason(name) if undefined else None, level)
    return measured
