"""Classifiers: the probabilities of each class, and how uncertain the most probable one is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..inputs.base import Inputs, Rows
from ..inputs.labels import class_names_of
from ..metrics import normalized_entropy
from ..posthoc import Calibrator, ErrorPredictor
from ..tasks import ClassificationTask
from .base import SEED, Answer, RowPredictor, chosen_passes


@dataclass(frozen=True)
class ClassPredictions:
    """The answers of a classifier."""

    probabilities: np.ndarray
    labels: Any = None
    own_uncertainty: np.ndarray | None = None

    @cached_property
    def answers(self) -> np.ndarray:
        """The number of the most probable class."""
        return self.probabilities.argmax(axis=1)

    @cached_property
    def right(self) -> np.ndarray:
        """Whether each answer is right."""
        return self.answers == self.labels

    @cached_property
    def confidence(self) -> np.ndarray:
        """The probability of each answer."""
        return self.probabilities.max(axis=1)

    @cached_property
    def uncertainty(self) -> np.ndarray:
        """Entropy of the probabilities, divided by its largest value, or the model's own."""
        return normalized_entropy(self.probabilities) if self.own_uncertainty is None else self.own_uncertainty

    def calibrated(self, calibrator: Calibrator) -> ClassPredictions:
        """The same predictions after a calibrator."""
        return replace(self, probabilities=calibrator(self.probabilities))


class ClassPredictor(RowPredictor):
    """A classifier of images or texts."""

    def __init__(
        self,
        model: Any,
        inputs: Inputs,
        mc_samples: int | None = None,
        calibrator: Calibrator | None = None,
        error_predictor: ErrorPredictor | None = None,
        seed: int = SEED,
    ) -> None:
        task = ClassificationTask(model, chosen_passes(model, mc_samples, "classification"), seed)
        super().__init__(model, inputs, task, calibrator, error_predictor)
        self.names = class_names_of(model)
        if error_predictor is None:
            self.scorer, self.definition = "normalized_entropy", "entropy of the probabilities / ln(number of classes)"
        else:
            self.scorer = "predicted_error"
            self.definition = "error predicted by a second model, between the bounds of the validation data"

    def batch_arrays(self, inputs: dict[str, torch.Tensor]) -> tuple[np.ndarray, ...]:
        probabilities = self.task.log_probabilities(self.model, inputs).double().softmax(-1).cpu().numpy()
        if self.error_predictor is None:
            return (probabilities,)
        return probabilities, self.error_predictor.uncertainty(inputs)

    def raw(self, rows: Rows, batch_size: int, labels: Any = None, **options: Any) -> ClassPredictions:
        probabilities, *uncertainty = self.run(rows, batch_size, **options)
        return ClassPredictions(probabilities, labels, *uncertainty)

    def answers(
        self, rows: Rows, batch_size: int, first_row: int, description: str | None = None, **options: Any
    ) -> list[Answer]:
        predictions = self.calibrated(rows, batch_size, first_row, description)
        columns = zip(predictions.answers, predictions.confidence, predictions.uncertainty, strict=True)
        return [
            {"label": self.names[number], "score": float(score), "uncertainty": float(uncertainty)}
            for number, score, uncertainty in columns
        ]
