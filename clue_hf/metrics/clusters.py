"""Intervals of what is computed from sums over the items: an item, like a text, may hold many numbers (its tokens)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import checked_arrays
from .bootstrap import NAN, Interval, check_options, multiplicities, percentile_interval


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
    table = np.column_stack(checked_arrays(sums=sums, counts=counts))
    drawn = resampled_sums(table, resamples, level, seed)
    with np.errstate(invalid="ignore"):
        [value], values = (total[:, 0] / total[:, 1] for total in (table.sum(axis=0, keepdims=True), drawn))
    return percentile_interval(value, values, len(table), level)


def resampled_sums(table: np.ndarray, resamples: int, level: float, seed: int) -> np.ndarray:
    """Sum of the rows of a table over each resample of them, as `(resamples, columns)`; nan without rows."""
    check_options(resamples, level)
    totals = np.full((resamples, table.shape[1]), NAN)
    for index, counts in enumerate(multiplicities(len(table), resamples, seed)):
        totals[index] = counts @ table
    return totals
