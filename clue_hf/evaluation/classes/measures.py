"""The metrics of a classifier's predictions, as they stand in a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...metrics import (
    Measured,
    bootstrap_interval,
    classification_report,
    metric_definitions,
    normalized_entropy,
    ood_report,
)


@dataclass(frozen=True)
class ClassPredictions:
    """
    The answers of a classifier.

    Args:
        probabilities (`np.ndarray` of shape `(n, classes)`):
            Of each class.
        labels (`np.ndarray`):
            The number of the right class.
        own_uncertainty (`np.ndarray`, *optional*):
            The uncertainty of a model that has another than the entropy of its probabilities.
    """

    probabilities: np.ndarray
    labels: np.ndarray
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


def measure(predicted: ClassPredictions, tau: float | None, positive: int, resamples: int) -> dict[str, Measured]:
    """Every metric of [`~clue_hf.metrics.classification_report`], and the mean uncertainty."""
    metrics = classification_report(
        predicted.probabilities, predicted.labels, predicted.uncertainty, resamples, tau, positive
    )
    mean = bootstrap_interval(np.mean, predicted.uncertainty, resamples=resamples)
    return {**metrics, "mean_uncertainty": mean}


def measure_detection(inside: ClassPredictions, outside: ClassPredictions, resamples: int) -> dict[str, Measured]:
    """How well the uncertainty tells the examples from out of the distribution from those from within."""
    return ood_report(inside.uncertainty, outside.uncertainty, resamples=resamples)


def definitions(metrics: dict[str, Any]) -> dict[str, str]:
    """What the metrics of a report are."""
    return metric_definitions(dict.fromkeys(_names(metrics)), "classes")


def _names(metrics: Any) -> Iterator[str]:
    """The names of all metrics at any depth."""
    for name, part in metrics.items():
        if isinstance(part, Measured):
            yield name
        elif isinstance(part, dict):
            yield from _names(part)
