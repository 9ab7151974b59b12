"""Do prediction sets and intervals hold the truth as often as they should, and how large are they for it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .arrays import checked_arrays
from .bootstrap import cluster_mean_interval
from .measured import Measured


#: All rows, among the groups.
ALL = "all"
#: The metrics by kind of model, in the order of the tables; the first two are those of all rows.
CONFORMAL_METRICS = {
    "classes": ("conformal_coverage", "prediction_set_size", "group_share"),
    "numbers": ("conformal_coverage", "interval_width", "group_share"),
}


def prediction_set_report(sets: Any, labels: Any, resamples: int = 2000) -> dict[str, dict[str, Measured]]:
    """
    Coverage and mean size of sets of classes: of all (`all`), and of those with `1`, `2`, and `3 or more` classes.

    Args:
        sets (`array` of shape `(n, classes)`):
            Whether each class is in the set of each row.
        labels (`array`):
            The right class of each row.
        resamples (`int`, *optional*, defaults to 2000):
            Bootstrap resamples of the 95 % intervals; 0 for none.
    """
    sets, labels = np.asarray(sets, dtype=bool), np.asarray(labels, dtype=int)
    size = sets.sum(axis=1)
    groups = {ALL: size >= 0, "1": size == 1, "2": size == 2, "3 or more": size >= 3}
    return _by_group("classes", sets[np.arange(len(sets)), labels], size, groups, resamples)


def conformal_interval_report(
    low: Any, high: Any, target: Any, resamples: int = 2000
) -> dict[str, dict[str, Measured]]:
    """
    Coverage and mean width of intervals: of all (`all`), and of the `narrow`, `medium` and `wide` third of them. Equal
    widths are in the same group, so that one may be empty.

    Args:
        low, high, target (`array`):
            The ends of each row's interval, and the truth.
        resamples (`int`, *optional*, defaults to 2000):
            Bootstrap resamples of the 95 % intervals; 0 for none.
    """
    low, high, target = checked_arrays(low=low, high=high, target=target)
    width = high - low
    first, second = np.quantile(width, [1 / 3, 2 / 3], method="inverted_cdf") if len(width) else (0.0, 0.0)
    groups = {
        ALL: np.ones(len(width), bool),
        "narrow": width <= first,
        "medium": (width > first) & (width <= second),
        "wide": width > second,
    }
    return _by_group("numbers", (low <= target) & (target <= high), width, groups, resamples)


def _by_group(
    kind: str, covered: np.ndarray, size: np.ndarray, groups: Mapping[str, np.ndarray], resamples: int
) -> dict[str, dict[str, Measured]]:
    """Mean coverage and size in each group of rows, and its share of all."""
    report = {}
    for name, group in groups.items():
        means = [(covered & group, group), (size * group, group), (group, np.ones(len(group)))]
        report[name] = {
            metric: replace(cluster_mean_interval(sums, counts, resamples), n=int(group.sum()))
            for metric, (sums, counts) in zip(CONFORMAL_METRICS[kind], means, strict=True)
        }
    return report
