"""The predictions of a regressor, their intervals, and their metrics, as they stand in a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from ...metrics import Measured, metric_definitions, regression_report
from ...metrics.regression import Forecasts
from ...posthoc import QuantileCalibrator


#: Probabilities of the intervals that are written for every row.
LEVELS = (0.5, 0.9, 0.95)


@dataclass(frozen=True)
class RegressionPredictions:
    """
    What a regressor says of each row, in the target's own units: a Gaussian, or what a calibrator made of one.

    Args:
        mean (`np.ndarray`):
            The mean of each row's distribution: the prediction.
        std (`np.ndarray`):
            Its standard deviation.
        target (`np.ndarray`, *optional*):
            The truth, where it is known.
        levels (`Sequence[float]`, *optional*, defaults to 0.5, 0.9 and 0.95):
            Probabilities of the intervals in [`~RegressionPredictions.columns`].
        clamped (`int`, *optional*, defaults to 0):
            The number of rows whose variance was below the floor, and raised to it.
        notes (`Sequence[str]`, *optional*):
            What was done to the rows: values that were filled, rows that were left out.
        calibrator ([`~clue_hf.posthoc.QuantileCalibrator`], *optional*):
            What made these predictions of the `raw` ones.
        raw ([`RegressionPredictions`], *optional*):
            The predictions before the calibrator.

    Example:

    ```python
    found = RegressionEvaluator(model, preprocessor).predict({"age": [59, 48], "bmi": [32.1, 21.6]})
    low, high = found.interval(0.9)
    pandas.DataFrame(found.columns())
    ```
    """

    mean: np.ndarray
    std: np.ndarray
    target: np.ndarray | None = None
    levels: Sequence[float] = LEVELS
    clamped: int = 0
    notes: Sequence[str] = ()
    calibrator: QuantileCalibrator | None = None
    raw: RegressionPredictions | None = None

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def variance(self) -> np.ndarray:
        """The uncertainty: the error to expect, in squared units of the target."""
        return self.std**2

    @cached_property
    def forecasts(self) -> Forecasts:
        """What the metrics take; raises where the truth is not known."""
        if self.target is None:
            raise ValueError("The rows have no target, so there is no error.")
        given = None
        if self.calibrator is not None and self.raw is not None:
            given = self.calibrator.pit(self.raw.mean, self.raw.std, self.target)
        return Forecasts(self.mean, self.std, self.target, given_pit=given)

    @property
    def error(self) -> np.ndarray:
        """The squared error of each row."""
        return self.forecasts.error

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the central intervals that should hold the target with the probability `level`."""
        check_levels([level])
        if self.calibrator is not None and self.raw is not None:
            return self.calibrator.interval(self.raw.mean, self.raw.std, level)
        half = self.std * ndtri((1 + level) / 2)
        return self.mean - half, self.mean + half

    def calibrated(self, calibrator: QuantileCalibrator) -> RegressionPredictions:
        """These predictions after a calibrator."""
        mean, std = calibrator.mean(self.mean, self.std), calibrator.std(self.mean, self.std)
        return replace(self, mean=mean, std=std, calibrator=calibrator, raw=self)

    def columns(self) -> dict[str, np.ndarray]:
        """Columns of a table: `mean`, `std`, and the ends of the intervals, such as `low_90` and `high_90`."""
        found = {"mean": self.mean, "std": self.std}
        for level in self.levels:
            found[f"low_{100 * level:g}"], found[f"high_{100 * level:g}"] = self.interval(level)
        return found


def check_levels(levels: Sequence[float]) -> None:
    """Raises where a probability of an interval is none, or its interval would hold everything or nothing."""
    for level in levels:
        if not 0 < level < 1:
            raise ValueError(f"The level of an interval must be above 0 and below 1, but is {level}.")


def measure(predicted: RegressionPredictions, resamples: int) -> dict[str, Measured]:
    """Every metric of [`~clue_hf.metrics.regression_report`]."""
    forecasts = predicted.forecasts
    return regression_report(
        forecasts.mean, forecasts.std, forecasts.target, pit=forecasts.given_pit, resamples=resamples
    )


def definitions(metrics: dict[str, Any]) -> dict[str, str]:
    """What the metrics of a report are."""
    return metric_definitions(metrics["raw"], "numbers")
