"""DEUP: a second model that predicts the error of the first, learned from errors that the first did not train on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..data.targets import TargetScale
from ..tasks.regression import RegressionTask
from .normalizer import ErrorNormalizer


#: The kinds of error predictors, by the name users give.
ERROR_PREDICTORS = ("deup",)


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

    @torch.no_grad()
    def errors(self, inputs: dict[str, Any]) -> np.ndarray:
        """The predicted error of each example of a batch, in the units of the errors it was trained on."""
        training = self.model.training
        self.model.eval()
        mean = RegressionTask(self.model).moments(self.model, inputs).mean
        self.model.train(training)
        return unscaled(self.model.config, mean.double().cpu().numpy())

    def uncertainty(self, inputs: dict[str, Any]) -> np.ndarray:
        """The uncertainty of each example."""
        errors = self.errors(inputs)
        return errors if self.normalizer is None else self.normalizer(errors)


def halves(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """
    Two parts of validation rows, drawn at random: one for the error predictor, the other for a calibrator of the
    variance that it predicts, which must not have fitted it.
    """
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[: (count + 1) // 2]), np.sort(order[(count + 1) // 2 :])


def unscaled(config: Any, predicted: np.ndarray) -> np.ndarray:
    """Predictions of a model in the units of what it was trained on."""
    scale = TargetScale.of_config(config) or TargetScale()
    return predicted * scale.std + scale.mean
