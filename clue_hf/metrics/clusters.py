"""Intervals of what is computed from sums over the items: an item, like a text, may hold many numbers (its tokens)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import checked_arrays
from .bootstrap import NAN, Interval, Measured, check_options, multiplicities


def cluster_mean_interval(
    sums: Any, counts: Any, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval:
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
        [`Interval`]: nan where there is nothing to count.
    """
    check_options(resamples, level)
    return measured_cluster_mean(sums, counts, resamples, seed).interval(level)


def measured_cluster_mean(sums: Any, counts: Any, resamples: int = 2000, seed: int = 0) -> Measured:
    """The same with its value on each resample."""
    table = np.column_stack(checked_arrays(sums=sums, counts=counts))
    drawn = resampled_sums(table, resamples, seed)
    with np.errstate(invalid="ignore"):
        [value], values = (total[:, 0] / total[:, 1] for total in (table.sum(axis=0, keepdims=True), drawn))
    return Measured(float(value), None, len(table), values)


def resampled_sums(table: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Sum of the rows of a table over each resample of them, as `(resamples, columns)`; nan without rows."""
    totals = np.full((resamples, table.shape[1]), NAN)
    for index, counts in enumerate(multiplicities(len(table), resamples, seed)):
        totals[index] = counts @ table
    return totals
