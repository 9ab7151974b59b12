"""The metrics of a classifier's predictions, as they stand in a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...metrics import (
    OOD_DEFINITIONS,
    bootstrap_interval,
    classification_definition,
    classification_report,
    ood_report,
)
from ...predictors.classes import ClassPredictions


MEAN_UNCERTAINTY = "mean of the uncertainty, from 0 (certain) to 1 (uniform)"


def measure(predicted: ClassPredictions, tau: float | None, positive: int, resamples: int) -> dict[str, Any]:
    """Every metric of [`~clue_hf.metrics.classification_report`], and the mean uncertainty."""
    mean = bootstrap_interval(
        lambda values: float(np.mean(values)), predicted.uncertainty, resamples=max(resamples, 1)
    )
    entry: dict[str, Any] = {"value": mean.value, "reason": None, "n": mean.n}
    if resamples:
        entry.update(low=mean.low, high=mean.high)
    metrics = classification_report(
        predicted.probabilities, predicted.labels, predicted.uncertainty, resamples, tau, positive
    )
    return {**metrics, "mean_uncertainty": entry}


def measure_detection(inside: ClassPredictions, outside: ClassPredictions, resamples: int) -> dict[str, Any]:
    """How well the uncertainty tells the examples from out of the distribution from those from within."""
    return ood_report(inside.uncertainty, outside.uncertainty, resamples=resamples)


def definitions(metrics: dict[str, Any]) -> dict[str, str]:
    """What the metrics of a report are."""
    return {name: definition(name) for name in dict.fromkeys(_names(metrics))}


def definition(name: str) -> str:
    """What a metric is."""
    if name == "mean_uncertainty":
        return MEAN_UNCERTAINTY
    return OOD_DEFINITIONS.get(name) or classification_definition(name)


def _names(metrics: Any) -> Iterator[str]:
    """The names of all metrics at any depth: the keys of what has a value."""
    for name, entry in metrics.items() if isinstance(metrics, dict) else ():
        if isinstance(entry, dict) and "value" in entry:
            yield name
        else:
            yield from _names(entry)
