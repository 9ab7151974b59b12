"""Regressors: mean and standard deviation of each prediction, in the target's own units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri

from ..errors import UserError
from ..inputs.base import Inputs, Rows
from ..inputs.labels import target_scale
from ..metrics import Measured, conformal_interval_report
from ..metrics.regression import Forecasts
from ..models.ensemble import Ensemble
from ..models.kind import has_variance_head
from ..posthoc import ErrorPredictor, QuantileCalibrator, ScaledIntervals
from ..posthoc.rules import CONFORMAL_BY_FAMILY
from ..tasks import RegressionTask
from .base import SEED, Answer, RowPredictor, chosen_passes


#: Probabilities of the intervals that are written for every row.
LEVELS = (0.5, 0.9, 0.95)
#: Probability of an interval unless another is asked for.
LEVEL = 0.95


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
        conformal ([`~clue_hf.posthoc.ScaledIntervals`], *optional*):
            What makes conformal intervals of these predictions.

    Example:

    ```python
    predictions = RegressionEvaluator(model, preprocessor).predict({"age": [59, 48], "bmi": [32.1, 21.6]})
    low, high = predictions.interval(0.9)
    pandas.DataFrame(predictions.columns())
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
    conformal: ScaledIntervals | None = None

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
        pit = None
        if self.calibrator is not None and self.raw is not None:
            pit = self.calibrator.pit(self.raw.mean, self.raw.std, self.target)
        return Forecasts(self.mean, self.std, self.target, calibrated_pit=pit)

    @property
    def error(self) -> np.ndarray:
        """The squared error of each row."""
        return self.forecasts.error

    def interval(self, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the central intervals that should hold the target with the probability `level`."""
        check_levels([level])
        if self.calibrator is not None and self.raw is not None:
            return self.calibrator.interval(self.raw.mean, self.raw.std, level)
        half = self.std * ndtri((1 + level) / 2)
        return self.mean - half, self.mean + half

    def conformal_interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the conformal intervals; raises where there are none."""
        if self.conformal is None:
            raise ValueError("The model has no conformal intervals: clue-hf calibrate MODEL --conformal scaled")
        return self.conformal(self.mean, self.std)

    def conformal_report(self, resamples: int) -> dict[str, dict[str, Measured]]:
        """Coverage and width of the conformal intervals."""
        return conformal_interval_report(*self.conformal_interval(), self.forecasts.target, resamples)

    def fit_conformal(
        self, method: str, target: np.ndarray, coverage: float, rows: Any = slice(None)
    ) -> ScaledIntervals:
        """Conformal intervals, fitted to the targets of these rows, or of some of them."""
        fit = CONFORMAL_BY_FAMILY["numbers"][method].fit
        return fit(self.mean[rows], self.std[rows], target[rows], coverage)

    def calibrated(self, calibrator: QuantileCalibrator) -> RegressionPredictions:
        """These predictions after a calibrator."""
        mean, std = calibrator.mean(self.mean, self.std), calibrator.std(self.mean, self.std)
        return replace(self, mean=mean, std=std, calibrator=calibrator, raw=self, conformal=None)

    def columns(self) -> dict[str, np.ndarray]:
        """Columns of a table: `mean`, `std`, and the ends of the intervals, such as `low_90` and `high_90`."""
        columns = {"mean": self.mean, "std": self.std}
        for level in self.levels:
            columns[f"low_{100 * level:g}"], columns[f"high_{100 * level:g}"] = self.interval(level)
        return columns


def check_levels(levels: Sequence[float]) -> None:
    """Raises where a probability of an interval is none, or its interval would hold everything or nothing."""
    for level in levels:
        if not 0 < level < 1:
            raise UserError(f"`level` must lie between 0 and 1, but is {level!r}.")


class NumberPredictor(RowPredictor):
    """A model that predicts a number, of tables, images or texts."""

    scorer = "std"
    definition = "standard deviation of the prediction, in units of the target"

    def __init__(
        self,
        model: Any,
        inputs: Inputs,
        mc_samples: int | None = None,
        calibrator: QuantileCalibrator | None = None,
        error_predictor: ErrorPredictor | None = None,
        min_variance: float = 1e-6,
        seed: int = SEED,
        conformal: ScaledIntervals | None = None,
    ) -> None:
        if not 0 < min_variance < np.inf:
            raise ValueError(f"`min_variance` must be above 0, but is {min_variance}.")
        # the floor is applied, and counted, in `raw`
        task = RegressionTask(model, chosen_passes(model, mc_samples, "regression"), seed, min_variance=0.0)
        super().__init__(model, inputs, task, calibrator, error_predictor, conformal)
        self.scale, self.min_variance = target_scale(model.config, inputs.processing_class), min_variance

    @property
    def has_variance(self) -> bool:
        """Whether anything tells rows apart by uncertainty: passes, members, a variance head, or a second model."""
        several = self.task.mc_samples > 1 or isinstance(self.model, Ensemble)
        return several or has_variance_head(self.model.config) or self.error_predictor is not None

    @property
    def floor(self) -> float:
        """The least variance, in squared units of the target."""
        return self.min_variance * self.scale.std**2

    def batch_arrays(self, inputs: dict[str, torch.Tensor]) -> tuple[np.ndarray, ...]:
        mean, variance = (part.double().cpu().numpy() for part in self.task.moments(self.model, inputs))
        return mean, variance if self.error_predictor is None else self.error_predictor.errors(inputs)

    def raw(
        self,
        rows: Rows,
        batch_size: int,
        target: Any = None,
        numbers: np.ndarray | None = None,
        levels: Sequence[float] = LEVELS,
        **options: Any,
    ) -> RegressionPredictions:
        mean, variance = self.run(rows, batch_size, numbers, **options)
        clamped = int((variance < self.min_variance).sum())
        std = np.sqrt(np.maximum(variance, self.min_variance)) * self.scale.std
        mean = mean * self.scale.std + self.scale.mean
        return RegressionPredictions(mean, std, target, tuple(levels), clamped, tuple(rows.notes))

    def answered(self, predictions: RegressionPredictions, level: float | None = None, **options: Any) -> list[Answer]:
        """The interval is the conformal one where there is one and no `level` is asked for."""
        if level is None and predictions.conformal is not None:
            low, high = predictions.conformal_interval()
        else:
            low, high = predictions.interval(LEVEL if level is None else level)
        columns = (values.tolist() for values in (predictions.mean, predictions.std, low, high))
        return [
            {"mean": mean, "std": std, "interval": [lower, upper], "uncertainty": std}
            for mean, std, lower, upper in zip(*columns, strict=True)
        ]
