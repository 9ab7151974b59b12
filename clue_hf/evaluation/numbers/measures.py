"""The metrics of a regressor's predictions, as they stand in a report."""

from __future__ import annotations

from typing import Any

from ...metrics import Measured, metric_definitions, regression_report
from ...predictors.numbers import RegressionPredictions


def measure(predicted: RegressionPredictions, resamples: int) -> dict[str, Measured]:
    """Every metric of [`~clue_hf.metrics.regression_report`]."""
    forecasts = predicted.forecasts
    return regression_report(
        forecasts.mean, forecasts.std, forecasts.target, pit=forecasts.calibrated_pit, resamples=resamples
    )


def definitions(metrics: dict[str, Any]) -> dict[str, str]:
    """What the metrics of a report are."""
    return metric_definitions(metrics["raw"], "numbers")
