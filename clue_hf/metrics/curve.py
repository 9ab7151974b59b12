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

import numpy as np

from .measured import NAN


ROUNDING = 1e-12


class Order:
    """
    The items in ascending order of a number: `values` are the different numbers, `starts` where groups of equal ones
    start, `None` where there are none.
    """

    def __init__(self, numbers: np.ndarray) -> None:
        self.rows = np.argsort(numbers)
        ranked = numbers[self.rows]
        differs = ranked[1:] != ranked[:-1]
        self.starts = None if differs.all() else np.flatnonzero(np.append(True, differs))
        self.values = ranked if self.starts is None else ranked[self.starts]

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
        self.scaled = (values - values.min()) / self.scale if len(values) else values
        self.ranks = np.arange(1.0, len(values) + 1)

    @cached_property
    def order(self) -> Order:
        """The best possible order: by the quality itself."""
        return Order(-self.values)


class Items:
    """The items that a metric is about: each once, or `counts` times where they are a resample."""

    def __init__(self, qualities: Qualities, counts: np.ndarray | None = None) -> None:
        self.qualities, self.counts, self.n = qualities, counts, len(qualities.values)
        if self.n == 0:
            self.mean = self.least = self.largest = NAN
            return
        values = qualities.values
        self.mean = float(values.mean() if counts is None else counts @ values / self.n)
        drawn = values if counts is None else values[counts > 0]
        self.least, self.largest = float(drawn.min()), float(drawn.max())

    @property
    def equal(self) -> bool:
        """Whether the qualities are equal up to rounding: an order of rounding errors is not a ranking."""
        largest = max(abs(self.least), abs(self.largest))
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
        self._gains: dict[int, float] = {}

    @cached_property
    def steps(self) -> np.ndarray:
        """S(k) / k, in units of `scale`."""
        return self.sums / self.items.qualities.ranks

    @cached_property
    def kept(self) -> np.ndarray:
        """Mean quality of the k most certain items, k = 1..n."""
        return self.items.mean + self.scale * self.steps

    def gain(self, rejections: int) -> float:
        """Area minus mean quality, the mean of S(k) / k over k = n-R+1..n, in units of `scale`."""
        if rejections not in self._gains:
            self._gains[rejections] = float(self.steps[self.items.n - rejections :].mean())
        return self._gains[rejections]


def curve(uncertainty: np.ndarray, quality: np.ndarray) -> Curve:
    """The rejection curve of items that count once each."""
    return Curve(Items(Qualities(quality)), Order(uncertainty))


def _sums(items: Items, order: Order) -> np.ndarray:
    """S(k) in units of `scale`: each item adds the deviation of its tie group's mean quality from the mean quality."""
    totals = items.qualities.scaled[order.rows]
    counts = None if items.counts is None else items.counts[order.rows]
    if counts is not None:
        totals = totals * counts
    if order.starts is not None:
        totals = np.add.reduceat(totals, order.starts)
        counts = order.sizes if counts is None else np.add.reduceat(counts, order.starts)
    # one group of all has exactly the mean: a constant score gains exactly nothing
    mean = totals.sum() / max(items.n, 1)
    steps = totals - mean if counts is None else np.repeat(totals / np.maximum(counts, 1) - mean, counts)
    sums = np.cumsum(steps, out=steps)
    sums[-1:] = 0.0  # deviations from the mean sum to zero
    return sums
