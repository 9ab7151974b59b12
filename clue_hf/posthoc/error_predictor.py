"""DEUP: a second model that predicts the error of the first, learned from errors that the first did not train on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.targets import TargetScale
from ..metrics.arrays import checked_arrays
from .stored import Stored


#: The kinds of error predictors, by the name users give.
ERROR_PREDICTORS = ("deup",)


@dataclass(frozen=True)
class ErrorNormalizer(Stored):
    """
    `(error - low) / (high - low)`, clipped to [0, 1]: the uncertainty of a model that predicts the error of another
    (DEUP). The bounds are the least and the largest error predicted on validation data.

    Args:
        low, high (`float`):
            The bounds. Where they are equal, errors above them become 1, all others 0.
    """

    name = "error_normalizer"
    low: float
    high: float

    @classmethod
    def fit(cls, predicted_error: Any) -> ErrorNormalizer:
        """The bounds of the errors that were predicted on validation data."""
        [errors] = checked_arrays(predicted_error=predicted_error)
        if len(errors) == 0:
            raise ValueError("There is nothing to fit: no errors.")
        return cls(float(errors.min()), float(errors.max()))

    def __call__(self, predicted_error: Any) -> np.ndarray:
        """The uncertainty that goes with each predicted error."""
        [errors] = checked_arrays(predicted_error=predicted_error)
        if self.low == self.high:
            return (errors > self.high).astype(float)
        return np.clip((errors - self.low) / (self.high - self.low), 0, 1)


@dataclass(frozen=True)
class ErrorPredictor:
    """
    Predicts the error of another model from its inputs.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            A model with one output, regressed (squared error) on the standardised errors of the other model on
            validation data; its config keeps their scale.
        normalizer ([`ErrorNormalizer`], *optional*):
            From predicted errors to an uncertainty in [0, 1], for classifiers.
    """

    model: Any
    normalizer: ErrorNormalizer | None = None

    def errors(self, inputs: dict[str, Any]) -> np.ndarray:
        """The predicted error of each example of a batch, in the units of the errors it was trained on."""
        from ..models.inference import inference  # takes seconds, and a model card needs the rest without it
        from ..tasks.regression import RegressionTask

        with inference(self.model):
            mean = RegressionTask(self.model).moments(self.model, inputs).mean
        scale = TargetScale.of_config(self.model.config) or TargetScale()
        return mean.double().cpu().numpy() * scale.std + scale.mean

    def uncertainty(self, inputs: dict[str, Any]) -> np.ndarray:
        """The uncertainty of each example."""
        errors = self.errors(inputs)
        return errors if self.normalizer is None else self.normalizer(errors)


def halves(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """
    Two parts of validation rows, drawn at random: one for an error predictor (or a calibrator), the other for a
    calibrator of the variance that it predicts (or for prediction sets), which must not have fitted it.
    """
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[: (count + 1) // 2]), np.sort(order[(count + 1) // 2 :])
