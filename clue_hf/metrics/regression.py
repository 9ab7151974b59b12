"""
How right and how calibrated a regression model is, from the mean and the standard deviation that it gives each row.

All functions take `mean`, `std` and `target` of the n rows, in the units of the target. The error of a row is
`(target - mean)^2`, its uncertainty the variance `std^2`, its distribution a Gaussian. Variances below `min_variance`
count as that; by default there is no such floor. Without rows every metric is nan.

Rows of equal variance have no order: where rows are ranked, each counts with the mean error of its tie group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr

from .arrays import check_unit_range, check_values, checked_arrays, mean_or_nan
from .calibration import alignment_error, equal_mass_edges
from .curve import Order
from .measured import NAN
from .separation import Correlation


#: The probabilities at which calibration errors compare what a model says with what is observed.
LEVELS = np.linspace(0, 1, 100)
#: `ln(2 pi) / 2`, the constant of a Gaussian's log-density.
HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Forecasts:
    """
    The predictions of a regression model, checked, and what the metrics need of them. `std` is at least the root of
    `min_variance`; `clamped` is the number of rows where it was less; `calibrated_pit` holds the values of another CDF
    than the Gaussian at the targets, if there is one.
    """

    mean: np.ndarray
    std: np.ndarray
    target: np.ndarray
    clamped: int = 0
    calibrated_pit: np.ndarray | None = None

    @property
    def n(self) -> int:
        return len(self.target)

    @cached_property
    def error(self) -> np.ndarray:
        """The squared error."""
        return (self.target - self.mean) ** 2

    @cached_property
    def variance(self) -> np.ndarray:
        return self.std**2

    @cached_property
    def score(self) -> np.ndarray:
        """The standard score `(target - mean) / std`: infinite where the std is 0, but 0 for a target that is met."""
        residual = self.target - self.mean
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.where(residual == 0, 0.0, residual / self.std)

    @property
    def pit(self) -> np.ndarray:
        """The predicted CDF at the target (probability integral transform)."""
        return ndtr(self.score) if self.calibrated_pit is None else self.calibrated_pit

    @property
    def entropy(self) -> np.ndarray:
        """Predictive entropy of the Gaussian, `ln(2 pi e variance) / 2`: minus infinity where the std is 0."""
        with np.errstate(divide="ignore"):
            return HALF_LOG_2PI + 0.5 + np.log(self.std)

    @property
    def log_loss(self) -> np.ndarray:
        """`-ln` of the Gaussian's density at the target; all nan where it is infinite for one of them."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            loss = HALF_LOG_2PI + np.log(self.std) + self.score**2 / 2
        return loss if np.isfinite(loss).all() else np.full(self.n, NAN)


def checked_forecasts(mean: Any, std: Any, target: Any, min_variance: float = 0.0, pit: Any = None) -> Forecasts:
    """Means, standard deviations and targets, checked, the floor applied."""
    mean, std, target = checked_arrays(mean=mean, std=std, target=target)
    std, clamped = floored_std(std, min_variance)
    if pit is not None:
        pit, _ = checked_arrays(pit=checked_pit(pit), target=target)
    return Forecasts(mean, std, target, clamped, pit)


def checked_pit(pit: Any, name: str = "pit") -> np.ndarray:
    """Values of a CDF; raises with the position where one lies outside [0, 1]."""
    [values] = checked_arrays(**{name: pit})
    check_unit_range(name, values)
    return values


def floored_std(std: np.ndarray, min_variance: float) -> tuple[np.ndarray, int]:
    """The standard deviations, at least the root of the floor, and how many were less."""
    if not 0 <= min_variance < np.inf:
        raise ValueError(f"`min_variance` is {min_variance}; it must be 0 or more.")
    check_values("std", std, std >= 0, "it must not be negative")
    least = np.sqrt(min_variance)
    return np.maximum(std, least), int((std < least).sum())


def mean_squared_error(mean: Any, target: Any) -> float:
    """Mean of the squared errors."""
    mean, target = checked_arrays(mean=mean, target=target)
    return mean_or_nan((target - mean) ** 2)


def gaussian_nll(mean: Any, std: Any, target: Any, min_variance: float = 0.0) -> float:
    """
    Mean of `ln(2 pi variance) / 2 + (target - mean)^2 / (2 variance)`, the negative log-likelihood in nats with its
    constant. nan where a standard deviation is 0 (give a `min_variance`).
    """
    return mean_or_nan(checked_forecasts(mean, std, target, min_variance).log_loss)


def probability_integral_transform(mean: Any, std: Any, target: Any, min_variance: float = 0.0) -> np.ndarray:
    """
    The predicted CDF at each target: uniform on [0, 1] where the model is calibrated. With a standard deviation of 0
    it is 0, 1/2 or 1, as the target is below, at or above the mean.
    """
    return checked_forecasts(mean, std, target, min_variance).pit


def regression_calibration_error(
    mean: Any, std: Any, target: Any, min_variance: float = 0.0, pit: Any = None
) -> float:
    """
    Mean over the 100 probabilities `p = 0, 1/99, ..., 1` of `|coverage - p|`: coverage is the share of targets within
    the central interval that should hold p of them.

    Args:
        mean, std, target (`array`):
            Predicted mean and standard deviation, and the truth, of each row.
        min_variance (`float`, *optional*, defaults to 0.0):
            Smaller variances count as this.
        pit (`array`, *optional*):
            The predicted CDF at each target, where that is not the Gaussian's: the coverage of central intervals
            depends on nothing else. See [`~clue_hf.posthoc.QuantileCalibrator`].

    Returns:
        `float`: 0 where every interval holds its share, at most 0.5.
    """
    return _coverage(mean, std, target, min_variance, pit).error()


def calibration_error_of_pit(pit: Any) -> float:
    """[`regression_calibration_error`] from the predicted CDF at each target alone."""
    return Coverage(checked_pit(pit)).error()


def root_mean_squared_calibration_error(
    mean: Any, std: Any, target: Any, min_variance: float = 0.0, pit: Any = None
) -> float:
    """The root of the mean square of what [`regression_calibration_error`] averages. Same arguments."""
    return _coverage(mean, std, target, min_variance, pit).root_mean_squared_error()


def kuleshov_error(mean: Any, std: Any, target: Any, min_variance: float = 0.0, pit: Any = None) -> float:
    """
    The calibration error of Kuleshov et al. (2018): sum over the same 100 probabilities p of `(share of targets below
    the predicted p-quantile - p)^2`. Unlike central intervals, quantiles also show a mean that is off to one side.
    Same arguments as [`regression_calibration_error`].
    """
    return _coverage(mean, std, target, min_variance, pit).kuleshov()


def interval_coverage(
    mean: Any, std: Any, target: Any, level: float = 0.95, min_variance: float = 0.0, pit: Any = None
) -> float:
    """Share of targets within the central interval that should hold `level` of them, ends included."""
    if not 0 <= level <= 1:
        raise ValueError(f"`level` is {level}; it must lie in [0, 1].")
    return mean_or_nan(central_level(checked_forecasts(mean, std, target, min_variance, pit).pit) <= level)


def coverage_gap(
    mean: Any, std: Any, target: Any, level: float = 0.95, min_variance: float = 0.0, pit: Any = None
) -> float:
    """`|coverage - level|` of [`interval_coverage`]."""
    return abs(interval_coverage(mean, std, target, level, min_variance, pit) - level)


def ence(mean: Any, std: Any, target: Any, num_bins: int = 10, min_variance: float = 0.0) -> float:
    """
    Expected normalised calibration error (Levi et al. 2019): mean over `num_bins` bins of equally many rows along the
    variance of `|RMV - RMSE| / RMV`, with RMV the root of the mean variance in the bin and RMSE that of the mean
    squared error. Bins whose RMV is 0 are left out; nan where all are.
    """
    return Ranked(checked_forecasts(mean, std, target, min_variance)).draw().ence(num_bins)[0]


def regression_alignment_error(
    mean: Any, std: Any, target: Any, num_bins: int = 15, min_variance: float = 0.0
) -> float:
    """[`alignment_error`] of the squared error and the variance, in squared units of the target."""
    forecasts = checked_forecasts(mean, std, target, min_variance)
    return alignment_error(forecasts.error, forecasts.variance, num_bins)


def ause(mean: Any, std: Any, target: Any, min_variance: float = 0.0) -> float:
    """
    Area under the sparsification error (Ilg et al. 2018). The sparsification curve is the mean squared error of what
    is left after the share k/n of the rows with the largest variance is removed, k = 0..n-1, divided by that of all
    rows; the area is that between this curve and the one by the squared error itself, by the trapezoid rule.

    0 is the best possible order of the rows. Only the order of the variances matters. nan where there are fewer than
    two rows, or all errors are 0.
    """
    return Ranked(checked_forecasts(mean, std, target, min_variance)).draw().ause()


def corr_error_pe(mean: Any, std: Any, target: Any, min_variance: float = 0.0) -> float:
    """
    Pearson correlation of the squared error with the predictive entropy `ln(2 pi e variance) / 2`. nan where one of
    them is constant or a standard deviation is 0 (give a `min_variance`).
    """
    forecasts = checked_forecasts(mean, std, target, min_variance)
    return correlation(forecasts.error, forecasts.entropy)()


def corr_error_var(mean: Any, std: Any, target: Any, min_variance: float = 0.0) -> float:
    """Pearson correlation of the squared error with the variance, nan where one of them is constant."""
    forecasts = checked_forecasts(mean, std, target, min_variance)
    return correlation(forecasts.error, forecasts.variance)()


def mean_std(std: Any, min_variance: float = 0.0) -> float:
    """Mean of the standard deviations: how sharp the predictions are, in units of the target."""
    [std] = checked_arrays(std=std)
    return mean_or_nan(floored_std(std, min_variance)[0])


def sharpness(std: Any, min_variance: float = 0.0) -> float:
    """Root of the mean variance."""
    [std] = checked_arrays(std=std)
    return float(np.sqrt(mean_or_nan(floored_std(std, min_variance)[0] ** 2)))


def central_level(pit: np.ndarray) -> np.ndarray:
    """The probability of the smallest central interval that holds the target."""
    return np.abs(2 * pit - 1)


def correlation(a: np.ndarray, b: np.ndarray) -> Correlation:
    """Pearson correlation; of numbers that are not all finite it is nan, like that of constant ones."""
    return Correlation(a, b if np.isfinite(b).all() else np.zeros(len(b)))


class Coverage:
    """How often targets lie within central intervals, and below quantiles, of the probabilities `LEVELS`."""

    def __init__(self, pit: np.ndarray) -> None:
        self.n = len(pit)
        # the first of the levels that holds each row
        self.central = np.searchsorted(LEVELS, central_level(pit))
        # no target is below the quantile of 0: a CDF of 0 is one that was rounded
        self.below = np.maximum(np.searchsorted(LEVELS, pit), 1)

    def error(self, counts: np.ndarray | None = None) -> float:
        return mean_or_nan(np.abs(self._gaps(self.central, counts)))

    def root_mean_squared_error(self, counts: np.ndarray | None = None) -> float:
        return float(np.sqrt(mean_or_nan(self._gaps(self.central, counts) ** 2)))

    def kuleshov(self, counts: np.ndarray | None = None) -> float:
        return float((self._gaps(self.below, counts) ** 2).sum())

    def _gaps(self, first: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
        """Observed minus expected share at each level."""
        return np.bincount(first, counts, minlength=len(LEVELS)).cumsum() / (self.n or NAN) - LEVELS


class Ranked:
    """The rows in ascending order of variance, and of error: sorted once, whatever is drawn of them."""

    def __init__(self, forecasts: Forecasts) -> None:
        self.order, self.best = Order(forecasts.variance), np.argsort(forecasts.error)
        self.error, self.best_error = forecasts.error[self.order.rows], forecasts.error[self.best]

    def draw(self, counts: np.ndarray | None = None) -> Drawn:
        """The rows, each once, or `counts` times where they are a resample."""
        if counts is None:
            drawn, [total] = self.order.sizes, self.order.group_sums(self.error)
            best_error = self.best_error
        else:
            ranked = counts[self.order.rows]
            total, drawn = self.order.group_sums(ranked * self.error, ranked)
            best_error = np.repeat(self.best_error, counts[self.best])
        if counts is None and self.order.starts is None:  # nothing is repeated
            return Drawn(total, self.order.values, best_error)
        error, variance = (np.repeat(values, drawn) for values in (total / np.maximum(drawn, 1), self.order.values))
        return Drawn(error, variance, best_error)


@dataclass(frozen=True)
class Drawn:
    """Errors and variances of rows in ascending order of variance, and the errors in ascending order of their own."""

    error: np.ndarray
    variance: np.ndarray
    best_error: np.ndarray

    def ence(self, num_bins: int) -> tuple[float, int]:
        """ENCE, and the number of bins without variance, which are left out."""
        if num_bins < 1:
            raise ValueError(f"`num_bins` is {num_bins}; it must be 1 or more.")
        n = len(self.error)
        starts = equal_mass_edges(n, min(n, num_bins))[:-1]
        rmv, rmse = (
            np.sqrt(np.add.reduceat(values, starts) if n else values) for values in (self.variance, self.error)
        )
        used = rmv > 0
        return mean_or_nan(np.abs(rmv[used] - rmse[used]) / rmv[used]), int((~used).sum())

    def ause(self) -> float:
        n, total = len(self.error), self.best_error.sum()
        if n < 2 or total == 0:
            return NAN
        # the mean errors of the 1, 2, ..., n most certain rows; at n both curves meet
        apart = (np.cumsum(self.error) - np.cumsum(self.best_error)) / np.arange(1, n + 1)
        return max(0.0, float((apart.sum() - (apart[0] + apart[-1]) / 2) / total))


def _coverage(mean: Any, std: Any, target: Any, min_variance: float, pit: Any) -> Coverage:
    return Coverage(checked_forecasts(mean, std, target, min_variance, pit).pit)
