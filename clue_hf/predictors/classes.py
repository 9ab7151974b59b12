"""Classifiers: the probabilities of each class, and how uncertain the most probable one is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..inputs.base import Inputs, Rows
from ..inputs.labels import class_names_of
from ..metrics import Measured, normalized_entropy, prediction_set_report
from ..posthoc import Calibrator, ErrorPredictor, PredictionSets
from ..posthoc.rules import CONFORMAL_BY_FAMILY
from ..tasks import ClassificationTask
from .base import SEED, Answer, RowPredictor, chosen_passes


@dataclass(frozen=True)
class ClassPredictions:
    """The answers of a classifier."""

    probabilities: np.ndarray
    labels: Any = None
    own_uncertainty: np.ndarray | None = None
    conformal: PredictionSets | None = None

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
        return replace(self, probabilities=calibrator(self.probabilities), conformal=None)

    def fit_conformal(
        self, method: str, labels: np.ndarray, coverage: float, rows: Any = slice(None)
    ) -> PredictionSets:
        """Prediction sets, fitted to the labels of these rows, or of some of them."""
        return CONFORMAL_BY_FAMILY["classes"][method].fit(self.probabilities[rows], labels[rows], coverage)

    @cached_property
    def in_set(self) -> np.ndarray:
        """Whether each class is in the prediction set of each row; raises where there are no sets."""
        if self.conformal is None:
            raise ValueError("The model has no prediction sets: clue-hf calibrate MODEL --conformal lac")
        return self.conformal(self.probabilities)

    def prediction_sets(self) -> list[list[int]]:
        """The classes of each row's prediction set, the most probable first."""
        order = np.argsort(-self.probabilities, axis=1, kind="stable")
        held = np.take_along_axis(self.in_set, order, axis=1)
        return [classes[kept].tolist() for classes, kept in zip(order, held, strict=True)]

    def conformal_report(self, resamples: int) -> dict[str, dict[str, Measured]]:
        """Coverage and size of the prediction sets."""
        return prediction_set_report(self.in_set, self.labels, resamples)


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
        conformal: PredictionSets | None = None,
    ) -> None:
        task = ClassificationTask(model, chosen_passes(model, mc_samples, "classification"), seed)
        super().__init__(model, inputs, task, calibrator, error_predictor, conformal)
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
        return ClassPredictions(probabilities, labels, uncertainty[0] if uncertainty else None)

    def answered(self, predictions: ClassPredictions, **options: Any) -> list[Answer]:
        columns = zip(predictions.answers, predictions.confidence, predictions.uncertainty, strict=True)
        answers: list[Answer] = [
            {"label": self.names[number], "score": float(score), "uncertainty": float(uncertainty)}
            for number, score, uncertainty in columns
        ]
        if predictions.conformal is not None:
            for answer, classes in zip(answers, predictions.prediction_sets(), strict=True):
                answer["prediction_set"] = [self.names[number] for number in classes]
        return answers
