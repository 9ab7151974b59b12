"""
Calibrators of a classifier: maps from its probabilities to better ones, fitted on validation data.

Each has `fit(probabilities, labels)`, is called with probabilities of shape `(n, classes)` and gives such. From
logits: `scipy.special.softmax(logits, axis=1)`. A new one is a class here and a line in `CALIBRATORS`.

All but the temperature go class by class, one against the rest: the map of class c is fitted to whether the label is
c, then each row is divided by its sum. This may change the answer. A row that would be all zero stays as it was. A
class that the validation labels never show, or always, teaches nothing: its map is the identity.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, logit, softmax

from ..metrics.answers import CheckedAnswers, checked_answers, checked_probabilities
from .confidence import isotonic_knots
from .stored import Stored


#: Where logarithms stop, next to 0 and to 1 (as in netcal and betacal).
EPSILON = float(np.finfo(np.float64).eps)
#: Where the logarithm of a probability stops for the temperature: the least that single precision has.
MIN_PROBABILITY = float(np.finfo(np.float32).tiny)
#: The temperatures to choose from. Where all answers are right the best would be 0.
TEMPERATURES = (0.01, 100.0)


class Calibrator(Stored, ABC):
    """A map from probabilities to probabilities."""

    name: ClassVar[str]

    @classmethod
    def fit(cls, probabilities: Any, labels: Any) -> Self:
        """
        The calibrator that suits validation data.

        Args:
            probabilities (`array` of shape `(n, classes)`):
                The classifier's probabilities.
            labels (`array`):
                The right class of each example.
        """
        answers = checked_answers(np.asarray(probabilities, dtype=np.float64), labels)
        if answers.n == 0:
            raise ValueError("There is nothing to fit: no examples.")
        return cls._fit(answers)

    def __call__(self, probabilities: Any) -> np.ndarray:
        """The calibrated probabilities, float64."""
        return self._map(checked_probabilities(probabilities))

    @classmethod
    @abstractmethod
    def _fit(cls, answers: CheckedAnswers) -> Self: ...

    @abstractmethod
    def _map(self, probabilities: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class TemperatureCalibrator(Calibrator):
    """
    `softmax(ln p / T)` with the temperature T > 0 of the least negative log-likelihood; the answers stay.

    Args:
        temperature (`float`):
            Above 1 it makes the classifier less certain, below 1 more.
    """

    name = "temperature"
    temperature: float

    @classmethod
    def _fit(cls, answers: CheckedAnswers) -> Self:
        from scipy.optimize import brentq

        logits = np.log(np.maximum(answers.probabilities, MIN_PROBABILITY))
        label_logits = logits[np.arange(answers.n), answers.labels]

        def slope(inverse: float) -> float:
            """The derivative of the (convex) loss by 1 / T: expected minus observed logit."""
            return float((softmax(inverse * logits, axis=1) * logits).sum(axis=1).mean() - label_logits.mean())

        low, high = 1 / TEMPERATURES[1], 1 / TEMPERATURES[0]
        if slope(low) >= 0:
            return cls(TEMPERATURES[1])
        if slope(high) <= 0:
            return cls(TEMPERATURES[0])
        return cls(float(1 / brentq(slope, low, high, xtol=1e-12)))

    def _map(self, probabilities: np.ndarray) -> np.ndarray:
        return softmax(np.log(np.maximum(probabilities, MIN_PROBABILITY)) / self.temperature, axis=1)


class OneVsRest(Calibrator):
    """A map for each class, then rows that sum to 1. Each field of a subclass holds one parameter of every class."""

    #: The parameters of the identity.
    identity: ClassVar[tuple[Any, ...]]

    @staticmethod
    @abstractmethod
    def _fit_class(probability: np.ndarray, target: np.ndarray) -> tuple[Any, ...]:
        """The parameters of a class, from its probability and whether it is the label (1 or 0)."""

    @staticmethod
    @abstractmethod
    def _map_class(probability: np.ndarray, *parameters: Any) -> np.ndarray: ...

    @classmethod
    def _fit(cls, answers: CheckedAnswers) -> Self:
        targets = [(answers.labels == c).astype(float) for c in range(answers.num_classes)]
        classes = [
            cls._fit_class(probability, target) if 0 < target.sum() < answers.n else cls.identity
            for probability, target in zip(answers.probabilities.T, targets, strict=True)
        ]
        return cls(*(list(values) for values in zip(*classes, strict=True)))

    def _map(self, probabilities: np.ndarray) -> np.ndarray:
        classes = list(zip(*(getattr(self, field.name) for field in fields(self)), strict=True))  # type: ignore[arg-type]
        if probabilities.shape[1] != len(classes):
            raise ValueError(
                f"`probabilities` has {probabilities.shape[1]} classes; the calibrator has {len(classes)}."
            )
        columns = zip(probabilities.T, classes, strict=True)
        mapped = np.column_stack([self._map_class(column, *parameters) for column, parameters in columns])
        sums = mapped.sum(axis=1, keepdims=True)
        return np.where(sums > 0, mapped / np.where(sums > 0, sums, 1), probabilities)


@dataclass(frozen=True)
class IsotonicCalibrator(OneVsRest):
    """
    The increasing map of the least squared error for each class: linear between its knots, constant outside them.

    Args:
        knots (`list[list[float]]`):
            Probabilities of each class, ascending.
        values (`list[list[float]]`):
            What each becomes.
    """

    name = "isotonic"
    identity = [0.0, 1.0], [0.0, 1.0]
    knots: list[list[float]]
    values: list[list[float]]

    @staticmethod
    def _fit_class(probability: np.ndarray, target: np.ndarray) -> tuple[list[float], list[float]]:
        return isotonic_knots(probability, target, increasing=True)

    @staticmethod
    def _map_class(probability: np.ndarray, *parameters: list[float]) -> np.ndarray:
        knots, values = parameters
        return np.interp(probability, knots, values)


@dataclass(frozen=True)
class PlattCalibrator(OneVsRest):
    """
    A logistic curve of the log-odds for each class: `sigmoid(slope * ln(p / (1 - p)) + intercept)`, by maximum
    likelihood. The targets are Platt's, a little short of 1 and 0, so that the curve stays finite where all is right.

    Args:
        slopes, intercepts (`list[float]`):
            One for each class.
    """

    name = "platt"
    identity = (1.0, 0.0)
    slopes: list[float]
    intercepts: list[float]

    @staticmethod
    def _fit_class(probability: np.ndarray, target: np.ndarray) -> tuple[float, float]:
        positives, negatives = target.sum(), len(target) - target.sum()
        softened = np.where(target > 0, (positives + 1) / (positives + 2), 1 / (negatives + 2))
        features = logit(_inside(probability))[:, None]
        # a target t is a positive of weight t and a negative of weight 1 - t
        [slope], intercept = _logistic(
            np.concatenate([features, features]),
            np.repeat([1.0, 0.0], len(target)),
            np.concatenate([softened, 1 - softened]),
        )
        return slope, intercept

    @staticmethod
    def _map_class(probability: np.ndarray, *parameters: float) -> np.ndarray:
        slope, intercept = parameters
        return expit(slope * logit(_inside(probability)) + intercept)


@dataclass(frozen=True)
class BetaCalibrator(OneVsRest):
    """
    Beta calibration (Kull et al. 2017) of each class: `sigmoid(a ln p - b ln(1 - p) + c)` with a, b >= 0, by maximum
    likelihood.

    Args:
        a, b, c (`list[float]`):
            One for each class.
    """

    name = "beta"
    identity = (1.0, 1.0, 0.0)
    a: list[float]
    b: list[float]
    c: list[float]

    @staticmethod
    def _fit_class(probability: np.ndarray, target: np.ndarray) -> tuple[float, ...]:
        """
        The likelihood is concave, so its maximum under the constraints is the best of the maxima with some of a and b
        at 0 that obey them.
        """
        from sklearn.metrics import log_loss

        features, maxima = _beta_features(probability), []
        for used in ([0, 1], [0], [1], []):
            weights = np.zeros(2)
            weights[used], intercept = _logistic(features[:, used], target)
            if weights.min() >= 0:
                maxima.append((log_loss(target, expit(features @ weights + intercept)), *weights.tolist(), intercept))
                if len(used) == 2:
                    break
        return min(maxima)[1:]

    @staticmethod
    def _map_class(probability: np.ndarray, *parameters: float) -> np.ndarray:
        *weights, intercept = parameters
        return expit(_beta_features(probability) @ np.array(weights) + intercept)


#: The calibrators by name.
CALIBRATORS: dict[str, type[Calibrator]] = {
    calibrator.name: calibrator
    for calibrator in (IsotonicCalibrator, TemperatureCalibrator, PlattCalibrator, BetaCalibrator)
}


def load_calibrator(path: str | Path) -> Calibrator:
    """Reads a calibrator of any kind from the file that its `save` wrote."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    if content.get("name") not in CALIBRATORS:
        raise ValueError(f"{path} holds {content.get('name')!r}, which is none of {', '.join(CALIBRATORS)}.")
    return CALIBRATORS[content["name"]].from_dict(content)


def _logistic(
    features: np.ndarray, targets: np.ndarray, sample_weight: np.ndarray | None = None
) -> tuple[list[float], float]:
    """Weights and intercept of logistic regression without a penalty."""
    if features.shape[1] == 0:
        return [], float(logit(targets.mean()))
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(features, targets, sample_weight)
    return fitted.coef_[0].tolist(), float(fitted.intercept_[0])


def _beta_features(probability: np.ndarray) -> np.ndarray:
    inside = _inside(probability)
    return np.column_stack([np.log(inside), -np.log1p(-inside)])


def _inside(probability: np.ndarray) -> np.ndarray:
    return np.clip(probability, EPSILON, 1 - EPSILON)
