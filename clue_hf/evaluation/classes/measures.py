"""The metrics of a classifier's predictions, as they stand in a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...metrics import (
    Measured,
    bootstrap_interval,
    classification_report,
    metric_definitions,
    ood_report,
)
from ...predictors.classes import ClassPredictions


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
