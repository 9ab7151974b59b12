"""
Calibration of a regression model: from the probabilities that its Gaussians give to those that are observed.

The map is one of probabilities, but its knots are kept as standard scores, and all is computed from these: next to 1
double precision does not tell the probabilities of scores above 8 apart, and rows with such errors are where an
overconfident model needs calibration most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr, ndtri, ndtri_exp

from ..metrics.arrays import checked_arrays
from ..metrics.regression import checked_forecasts, checked_pit, floored_std
from .stored import Stored


ROOT_2 = float(np.sqrt(2))


@dataclass(frozen=True)
class QuantileCalibrator(Stored):
    """
    Quantile recalibration (Kuleshov et al. 2018): R maps the CDF that the model predicts to how often the target was
    at or below it in validation data. It is linear between its knots, with (0, 0) and (1, 1) added, and R(F) is the
    calibrated CDF. These frequencies rise with the predicted CDF, so isotonic regression leaves them as they are.

    Of a Gaussian F it makes a distribution with mean `mean + std * shift` and standard deviation `std * factor`: two
    constants of R, computed exactly.

    Args:
        scores (`list[float]`):
            The knots as standard scores `(target - mean) / std`, ascending: the predicted CDF is Phi of them.
        values (`list[float]`):
            The share of validation targets at or below each.

    Example:

    ```python
    >>> from clue_hf.metrics import regression_report
    >>> from clue_hf.posthoc import QuantileCalibrator

    >>> calibrator = QuantileCalibrator.fit(validation_mean, validation_std, validation_target)
    >>> new_mean, new_std = calibrator.mean(mean, std), calibrator.std(mean, std)
    >>> regression_report(new_mean, new_std, target, pit=calibrator.pit(mean, std, target))
    >>> low, high = calibrator.interval(mean, std, level=0.9)
    ```
    """

    name = "quantile"
    scores: list[float]
    values: list[float]

    @classmethod
    def fit(cls, mean: Any, std: Any, target: Any, min_variance: float = 0.0) -> QuantileCalibrator:
        """
        The map that suits validation data.

        Args:
            mean, std, target (`array`):
                Predicted mean and standard deviation, and the truth, of each row.
            min_variance (`float`, *optional*, defaults to 0.0):
                Smaller variances count as this, in squared units of the target.
        """
        forecasts = checked_forecasts(mean, std, target, min_variance)
        if forecasts.n == 0:
            raise ValueError("There is nothing to fit: no rows.")
        bad = np.flatnonzero((forecasts.std == 0) | ~np.isfinite(forecasts.score))
        if len(bad):
            raise ValueError(
                f"`std` is {forecasts.std[bad[0]]} at position {bad[0]}, where the error is "
                f"{forecasts.error[bad[0]] ** 0.5:g}; it must be above 0: give a `min_variance`."
            )
        scores, counts = np.unique(forecasts.score, return_counts=True)
        # n + 1, not n as Kuleshov et al. have it: else nothing is left above the largest score, the map favours low
        # values, and a few validation rows shift every mean
        return cls(scores.tolist(), (np.cumsum(counts) / (forecasts.n + 1)).tolist())

    def cdf(self, pit: Any) -> np.ndarray:
        """R: the calibrated probabilities that go with predicted ones."""
        return self._frequency(ndtri(checked_pit(pit)))

    def pit(self, mean: Any, std: Any, target: Any, min_variance: float = 0.0) -> np.ndarray:
        """The calibrated CDF at each target: [`cdf`] of the Gaussian's, exact for scores of any size."""
        return self._frequency(checked_forecasts(mean, std, target, min_variance).score)

    def quantile(self, p: Any) -> np.ndarray:
        """The least predicted probability whose calibrated one is at least p: the generalised inverse of [`cdf`]."""
        return ndtr(self._score(checked_pit(p, "p"), "left"))

    def mean(self, mean: Any, std: Any) -> np.ndarray:
        """The means of the calibrated distributions."""
        mean, std = self._checked(mean, std)
        return mean + std * self.shift

    def std(self, mean: Any, std: Any) -> np.ndarray:
        """Their standard deviations."""
        return self._checked(mean, std)[1] * self.factor

    def interval(self, mean: Any, std: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """
        Lower and upper ends of the central intervals with the probability `level`: a target lies within just if its
        [`pit`] lies within `(1 - level) / 2` and `(1 + level) / 2`. An end may be infinite at level 1.
        """
        mean, std = self._checked(mean, std)
        [level] = checked_pit(level, "level")
        ends = (self._score(np.array([(1 - level) / 2]), "left"), self._score(np.array([(1 + level) / 2]), "right"))
        with np.errstate(invalid="ignore"):  # 0 times infinity
            low, high = (np.where(std == 0, mean, mean + std * end) for end in ends)
        return low, high

    @property
    def shift(self) -> float:
        """The mean of R(Phi): how far the calibrated mean is from the predicted one, in standard deviations."""
        return self._moments[0]

    @property
    def factor(self) -> float:
        """The standard deviation of R(Phi)."""
        return self._moments[1]

    @cached_property
    def _knots(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores and values, with those of (0, 0) and (1, 1)."""
        return np.array([-np.inf, *self.scores, np.inf]), np.array([0.0, *self.values, 1.0])

    @cached_property
    def _moments(self) -> tuple[float, float]:
        """Mean and standard deviation of R(Phi): between two knots it is a Gaussian cut off there."""
        knots, values = self._knots
        mass = np.diff(values)
        used = mass > 0
        means, variances = _truncated_moments(knots[:-1][used], knots[1:][used])
        mean = mass[used] @ means
        return float(mean), float(np.sqrt(mass[used] @ (variances + (means - mean) ** 2)))

    def _frequency(self, score: np.ndarray) -> np.ndarray:
        """R(Phi(score))."""
        knots, values = self._knots
        after = np.clip(np.searchsorted(knots, score), 1, None)  # the first knot that is not below
        share = _share(score, knots[after - 1], knots[after])
        return values[after - 1] + share * (values[after] - values[after - 1])

    def _score(self, p: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
        """The least score with R(Phi(score)) >= p (side "left"), or the largest with R(Phi(score)) <= p ("right")."""
        knots, values = self._knots
        after = np.clip(np.searchsorted(values, p, side), 1, len(values) - 1)
        rise = values[after] - values[after - 1]
        at_end = 0.0 if side == "left" else 1.0  # without a rise p is 0 or 1
        share = np.where(rise > 0, (p - values[after - 1]) / np.where(rise > 0, rise, 1), at_end)
        return _inverse_share(share, knots[after - 1], knots[after])

    @staticmethod
    def _checked(mean: Any, std: Any) -> list[np.ndarray]:
        mean, std = checked_arrays(mean=mean, std=std)
        return [mean, floored_std(std, 0.0)[0]]


def _share(score: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """`(Phi(score) - Phi(low)) / (Phi(high) - Phi(low))`, exact in both tails."""
    flip, low, high, score = _in_lower_tail(low, high, score)
    below = _log_ratio(low, high)
    width = -np.expm1(below)
    # knots that Phi does not tell apart: the upper one counts
    share = np.divide(np.exp(_log_ratio(score, high)) - np.exp(below), width, out=1.0 - flip, where=width > 0)
    share = np.clip(share, 0, 1)
    return np.where(flip, 1 - share, share)


def _inverse_share(share: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The score whose [`_share`] it is."""
    flip, low, high = _in_lower_tail(low, high)
    share = np.where(flip, 1 - share, share)
    with np.errstate(divide="ignore"):  # the score of share 0 below the first knot is minus infinity
        log_phi = log_ndtr(high) + np.log(share + (1 - share) * np.exp(_log_ratio(low, high)))
    score = np.clip(ndtri_exp(np.minimum(log_phi, 0)), low, high)
    return np.where(flip, -score, score)


def _truncated_moments(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a standard Gaussian between low and high."""
    flip, low, high = _in_lower_tail(low, high)
    log_ratio = _log_ratio(low, high)
    width = -np.expm1(log_ratio)
    narrow, bounded = width == 0, np.isfinite(low)
    width = np.where(narrow, 1, width)
    # densities at both ends, divided by Phi(high)
    at_high, start, end = _hazard(high), np.where(bounded, low, 0), np.where(np.isfinite(high), high, 0)
    at_low = np.where(bounded, _hazard(start) * np.exp(log_ratio), 0)
    # rounding must not leave the segment
    mean = np.clip(np.where(narrow, low, (at_low - at_high) / width), low, high)
    variance = 1 + (start * at_low - end * at_high) / width - mean**2
    variance = np.clip(np.where(narrow, 0, variance), 0, (high - low) ** 2 / 4)
    return np.where(flip, -mean, mean), variance


def _in_lower_tail(low: np.ndarray, high: np.ndarray, *scores: np.ndarray) -> list[np.ndarray]:
    """Which segments lie above 0; then all segments, and scores within, with these mirrored."""
    flip = low > 0
    mirrored = [np.where(flip, -high, low), np.where(flip, -low, high)]
    return [flip, *mirrored, *(np.where(flip, -score, score) for score in scores)]


def _log_ratio(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """`ln(Phi(low) / Phi(high))` for low <= high: in the far tail a difference of logarithms would cancel."""
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = np.minimum(high, 0)
        start = np.minimum(low, tail)
        scaled = np.log(erfcx(-start / ROOT_2) / erfcx(-tail / ROOT_2)) - (start - tail) * (start + tail) / 2
        return np.where(high < 0, scaled, log_ndtr(low) - log_ndtr(high))


def _hazard(score: np.ndarray) -> np.ndarray:
    """`phi(score) / Phi(score)`."""
    return np.sqrt(2 / np.pi) / erfcx(-score / ROOT_2)
