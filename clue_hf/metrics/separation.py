"""
How well an uncertainty tells wrong answers from right ones.

All functions take one `uncertainty` per answer (higher = less certain) and `wrong`, 1 or True where the answer is
wrong. An answer is called uncertain where its uncertainty is above a threshold tau. Without answers all are nan.

The answers are sorted once; a bootstrap resample only changes how often each counts: see [`Separation`].
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from .arrays import check_unit_range, check_values, checked_arrays
from .calibration import confidence_calibration_error
from .curve import Order
from .measured import NAN


def uncertainty_accuracy(uncertainty: Any, wrong: Any) -> float:
    """
    The paper's uA: the largest share, over all thresholds tau, of answers that are wrong and uncertain or right and
    certain. At least `max(error, 1 - error)`: an optimistic number, as tau is chosen on the answers it is judged on.
    See [`best_threshold`] and [`uncertainty_accuracy_at`] for the honest one, with tau from validation data.
    """
    return _split(uncertainty, wrong).accuracy()


def best_threshold(uncertainty: Any, wrong: Any) -> float:
    """
    The threshold tau of [`uncertainty_accuracy`]: `(uncertainty > tau) == wrong` as often as possible; of several, the
    largest. It is one of the uncertainties, or just below the least of them where all answers are best called
    uncertain; nan without answers.

    With two classes this is the tau that leaves the fewest errors after a flip: see [`binary_flip`].
    """
    return _split(uncertainty, wrong).threshold()


def uncertainty_accuracy_at(uncertainty: Any, wrong: Any, tau: float) -> float:
    """Share of answers with `(uncertainty > tau) == wrong`, at a given tau, such as one from validation data."""
    uncertainty, wrong = checked_wrong(uncertainty, wrong)
    return float(uncertain_as_wrong(uncertainty, wrong, tau).mean()) if len(wrong) else NAN


def uncertainty_auc(uncertainty: Any, wrong: Any) -> float:
    """
    The paper's uAUC: the chance that a wrong answer is more uncertain than a right one, equal ones counting half (area
    under the ROC curve of the uncertainty as a detector of errors). nan where all answers are right, or all wrong.
    """
    return _split(uncertainty, wrong).auc()


def wasserstein_separation(uncertainty: Any, wrong: Any) -> float:
    """
    Wasserstein distance W1 between the uncertainties of wrong and of right answers, in units of the uncertainty. It
    has no sign: see [`uncertainty_gap`]. nan where all answers are right, or all wrong.
    """
    return _split(uncertainty, wrong).wasserstein()


def uncertainty_gap(uncertainty: Any, wrong: Any) -> float:
    """
    Mean uncertainty of the wrong answers minus that of the right ones; its size is at most
    [`wasserstein_separation`]. nan where all answers are right, or all wrong.
    """
    return _split(uncertainty, wrong).gap()


def residual_correlation(uncertainty: Any, wrong: Any) -> float:
    """
    Pearson correlation between the uncertainty and the residual, nan where one of them is constant.

    Args:
        uncertainty (`array`):
            One number per answer.
        wrong (`array`):
            The residual: 1 where the answer is wrong, or another measure of error such as `1 - p` of the label.
    """
    uncertainty, residual = checked_arrays(uncertainty=uncertainty, wrong=wrong)
    return Correlation(uncertainty, residual)()


def uncertainty_calibration_error(uncertainty: Any, wrong: Any, num_bins: int = 15) -> float:
    """
    `sum |B|/n |share of wrong answers - mean uncertainty|` over `num_bins` bins B of equal width along the
    uncertainty, each `(low, high]`. The uncertainty must lie in [0, 1], like [`normalized_entropy`].
    """
    uncertainty, wrong = checked_wrong(uncertainty, wrong)
    check_unit_range("uncertainty", uncertainty)
    return confidence_calibration_error(uncertainty, wrong, num_bins)


def checked_wrong(uncertainty: Any, wrong: Any) -> list[np.ndarray]:
    """Both arrays, checked; raises with the position where `wrong` is neither 0 nor 1."""
    uncertainty, wrong = checked_arrays(uncertainty=uncertainty, wrong=wrong)
    check_values("wrong", wrong, (wrong == 0) | (wrong == 1), "it must be 0 or 1")
    return [uncertainty, wrong]


def uncertain_as_wrong(uncertainty: np.ndarray, wrong: np.ndarray, tau: float) -> np.ndarray:
    """Whether each answer is uncertain just if it is wrong."""
    return (uncertainty > tau) == (wrong > 0)


class Separation:
    """The answers in ascending order of uncertainty."""

    def __init__(self, order: Order, wrong: np.ndarray) -> None:
        self.order = order
        self.wrong = wrong[self.order.rows] > 0

    def split(self, counts: np.ndarray | None = None) -> Split:
        """The answers, each counting once, or `counts` times where they are a resample."""
        if counts is None:
            [up_to_wrong], up_to = self.order.running_sums(self.wrong), self.order.ends + 1
        else:
            drawn = counts[self.order.rows]
            up_to_wrong, up_to = self.order.running_sums(drawn * self.wrong, drawn)
        return Split(self.order.values, up_to_wrong, np.subtract(up_to, up_to_wrong, out=up_to))


class Split:
    """
    How many answers are wrong, and how many right, up to each value of the uncertainty in ascending order; `wrong` and
    `right`: those at the value itself.
    """

    def __init__(self, values: np.ndarray, up_to_wrong: np.ndarray, up_to_right: np.ndarray) -> None:
        self.values, self.up_to_wrong, self.up_to_right = values, up_to_wrong, up_to_right
        self.all_wrong, self.all_right = (int(sums[-1]) if len(sums) else 0 for sums in (up_to_wrong, up_to_right))

    @cached_property
    def wrong(self) -> np.ndarray:
        return _steps(self.up_to_wrong)

    @cached_property
    def right(self) -> np.ndarray:
        return _steps(self.up_to_right)

    @property
    def two_sided(self) -> bool:
        """Whether there are both wrong and right answers."""
        return self.all_wrong > 0 and self.all_right > 0

    @cached_property
    def _gains(self) -> np.ndarray:
        """By how many answers a threshold at each value is better than one below all."""
        return self.up_to_right - self.up_to_wrong

    def accuracy(self) -> float:
        n = self.all_wrong + self.all_right
        return (self.all_wrong + max(0, int(self._gains.max()))) / n if n else NAN

    def threshold(self) -> float:
        if not len(self.values):
            return NAN
        best = len(self.values) - 1 - int(self._gains[::-1].argmax())  # the last of the best
        return float(self.values[best] if self._gains[best] >= 0 else np.nextafter(self.values[0], -np.inf))

    def auc(self) -> float:
        if not self.two_sided:
            return NAN
        return float(self.wrong @ (self.up_to_right - self.right / 2) / self.all_wrong / self.all_right)

    def wasserstein(self) -> float:
        if not self.two_sided:
            return NAN
        distance = np.abs(self.up_to_wrong / self.all_wrong - self.up_to_right / self.all_right)
        return float(distance[:-1] @ np.diff(self.values))

    def gap(self) -> float:
        if not self.two_sided:
            return NAN
        return float(self.wrong @ self.values / self.all_wrong - self.right @ self.values / self.all_right)

    def average_precision(self) -> float:
        """Area under the precision-recall curve of "wrong" in steps; equal uncertainties enter together."""
        if not self.two_sided:
            return NAN
        wrong_from, right_from = _remaining(self.up_to_wrong), _remaining(self.up_to_right)
        called = np.add(wrong_from, right_from, out=right_from)
        return float(self.wrong @ (wrong_from / np.maximum(called, 1, out=called)) / self.all_wrong)

    def false_positive_rate(self, recall: float) -> float:
        """Least share of right answers that a threshold calls uncertain which calls `recall` of the wrong ones so."""
        if not self.two_sided:
            return NAN
        # the threshold may leave out so many of the wrong ones, those of the least uncertainty
        missed = self.all_wrong - math.ceil(recall * self.all_wrong)
        last = int(np.searchsorted(self.up_to_wrong, missed, side="right"))
        below = self.up_to_right[last - 1] if last else 0
        return float((self.all_right - below) / self.all_right)


def _steps(sums: np.ndarray) -> np.ndarray:
    """What each of some running sums adds to the one before."""
    steps = sums.copy()
    steps[1:] -= sums[:-1]
    return steps


def _remaining(sums: np.ndarray) -> np.ndarray:
    """Of what running sums add up to, what is not in the one before each."""
    remaining = np.full(len(sums), sums[-1])
    remaining[1:] -= sums[:-1]
    return remaining


class Correlation:
    """Pearson correlation of two numbers per answer; called with how often each answer counts."""

    def __init__(self, a: np.ndarray, b: np.ndarray) -> None:
        self.scaled = [_to_unit_range(numbers) for numbers in (a, b)]

    def __call__(self, counts: np.ndarray | None = None) -> float:
        n = len(self.scaled[0]) if counts is None else counts.sum()
        if n == 0:
            return NAN
        a, b = (numbers - _counted(numbers, counts).sum() / n for numbers in self.scaled)
        counted_a, counted_b = _counted(a, counts), _counted(b, counts)
        squares = counted_a @ a, counted_b @ b
        if min(squares) <= n * (1e-13) ** 2:  # constant up to rounding
            return NAN
        return float(np.clip(counted_a @ b / np.sqrt(squares[0]) / np.sqrt(squares[1]), -1, 1))


def _counted(numbers: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
    """Each number as often as it counts, `None` for once."""
    return numbers if counts is None else counts * numbers


def _to_unit_range(numbers: np.ndarray) -> np.ndarray:
    """`(numbers - min) / (max - min)`, whose squares neither overflow nor vanish; zeros where all are equal."""
    if not len(numbers) or np.ptp(numbers) == 0:
        return np.zeros(len(numbers))
    least = numbers.min()
    scaled = numbers - least
    scaled /= numbers.max() - least
    return scaled


def _split(uncertainty: Any, wrong: Any) -> Split:
    uncertainty, wrong = checked_wrong(uncertainty, wrong)
    return Separation(Order(uncertainty), wrong).split()
