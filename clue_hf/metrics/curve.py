"""
The rejection curve. With the n items in ascending order of uncertainty, every rejection metric follows from

    S(k) = sum over the k most certain items of (quality - mean quality),   k = 1..n,

because the mean quality of the k items kept is `mean quality + S(k) / k`. Items of equal uncertainty have no order:
each counts with the mean quality of its tie group, which is the expectation over all ways to break the tie.

A bootstrap resample only changes how often an item counts, so its curve needs no sorting: [`Order`] and [`Qualities`]
are made once, [`Items`] and [`Curve`] for each resample.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from .measured import NAN


ROUNDING = 1e-12


class Order:
    """
    The items in ascending order of a number: `starts` is where groups of equal numbers start, `None` where there are
    none.
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers, self.rows = numbers, np.argsort(numbers)
        ranked = numbers[self.rows]
        differs = ranked[1:] != ranked[:-1]
        self.starts = None if differs.all() else np.flatnonzero(np.append(True, differs))

    @cached_property
    def values(self) -> np.ndarray:
        """The different numbers."""
        return self.numbers[self.rows if self.starts is None else self.rows[self.starts]]

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many items each group has."""
        n = len(self.rows)
        return np.ones(n, int) if self.starts is None else np.diff(self.starts, append=n)

    @cached_property
    def ends(self) -> np.ndarray:
        """The last item of each group."""
        n = len(self.rows)
        return np.arange(n) if self.starts is None else np.append(self.starts[1:] - 1, n - 1)

    def running_sums(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Sums of the ranked arrays up to the end of each group of equal numbers."""
        sums = [np.cumsum(array) for array in arrays]
        return sums if self.starts is None else [running[self.ends] for running in sums]

    def group_sums(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Sums of the ranked arrays over the groups of equal numbers."""
        return [array if self.starts is None else np.add.reduceat(array, self.starts) for array in arrays]


class Qualities:
    """The quality of each item; also `(quality - min) / scale`, whose sums neither underflow nor cancel."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.scale = float(np.ptp(values)) or 1.0 if len(values) else 1.0
        is_scaled = not len(values) or (self.scale == 1.0 and values.min() == 0)
        self.scaled = values if is_scaled else (values - values.min()) / self.scale

    @cached_property
    def ranks(self) -> np.ndarray:
        """1 to n."""
        return np.arange(1.0, len(self.values) + 1)

    @cached_property
    def order(self) -> Order:
        """The best possible order: by the quality itself."""
        return Order(-self.values)


class Items:
    """
    The items that a metric is about: each once, or `counts` times where they are a resample. With the counts of
    several resamples, (resamples, n), every number here and of their [`Curve`] is an array of one for each resample.
    """

    def __init__(self, qualities: Qualities, counts: np.ndarray | None = None) -> None:
        self.qualities, self.counts, self.n = qualities, counts, len(qualities.values)
        values, self.mean, self.least, self.largest = qualities.values, NAN, NAN, NAN
        if self.n and counts is None:
            self.mean, self.least, self.largest = float(values.mean()), float(values.min()), float(values.max())
        elif self.n and counts is not None:
            self.mean = counts @ values / self.n
            self.least = np.where(counts, values, np.inf).min(-1)
            self.largest = np.where(counts, values, -np.inf).max(-1)

    @property
    def equal(self) -> Any:
        """Whether the qualities are equal up to rounding: an order of rounding errors is not a ranking."""
        largest = np.maximum(np.abs(self.least), np.abs(self.largest))
        return self.n == 0 or self.largest - self.least <= ROUNDING * largest

    @cached_property
    def best(self) -> Curve:
        """The curve of the best possible order. Of a copy: a circle of the two would outlive its resample for long."""
        return Curve(copy(self), self.qualities.order)


class Curve:
    """The rejection curve of some items in the order of their uncertainty."""

    def __init__(self, items: Items, order: Order) -> None:
        self.items, self.scale = items, items.qualities.scale
        self.sums = _sums(items, order)
        self._gains: dict[int, Any] = {}

    @cached_property
    def steps(self) -> np.ndarray:
        """S(k) / k, in units of `scale`."""
        return self.sums / self.items.qualities.ranks

    @cached_property
    def kept(self) -> np.ndarray:
        """Mean quality of the k most certain items, k = 1..n."""
        return np.expand_dims(self.items.mean, -1) + self.scale * self.steps

    def gain(self, rejections: int) -> Any:
        """Area minus mean quality, the mean of S(k) / k over k = n-R+1..n, in units of `scale`."""
        if rejections not in self._gains:
            self._gains[rejections] = self.steps[..., self.items.n - rejections :].mean(-1)
        return self._gains[rejections]


def curve(uncertainty: np.ndarray, quality: np.ndarray) -> Curve:
    """The rejection curve of items that count once each."""
    return Curve(Items(Qualities(quality)), Order(uncertainty))


def _sums(items: Items, order: Order) -> np.ndarray:
    """S(k) in units of `scale`: each item adds the deviation of its tie group's mean quality from the mean quality."""
    totals = items.qualities.scaled[order.rows]
    counts = None if items.counts is None else np.take(items.counts, order.rows, -1)
    if counts is not None:
        totals = totals * counts
    if order.starts is not None:
        totals = np.add.reduceat(totals, order.starts, -1)
        counts = order.sizes if counts is None else np.add.reduceat(counts, order.starts, -1)
    # one group of all has exactly the mean: a constant score gains exactly nothing
    mean = totals.sum(-1, keepdims=True) / max(items.n, 1)
    if counts is None:
        steps = np.subtract(totals, mean, out=totals)
    else:
        deviations = totals / np.maximum(counts, 1) - mean
        steps = np.repeat(deviations.ravel(), counts.ravel()).reshape(*deviations.shape[:-1], items.n)
    sums = np.cumsum(steps, -1, out=steps)
    sums[..., -1:] = 0.0  # deviations from the mean sum to zero
    return sums
