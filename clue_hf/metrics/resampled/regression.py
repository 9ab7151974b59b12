"""
Every metric of a regression model at once, with bootstrap intervals, and the differences of two models.

The rows are sorted once; a resample only changes how often each counts. The draws are those of
[`bootstrap_interval`] and [`paired_bootstrap`], so the intervals are theirs up to rounding.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..bootstrap import measure_rows
from ..calibration import EqualMassGap
from ..measured import NAN, Measured, paired_differences
from ..regression import Coverage, Forecasts, Ranked, central_level, checked_forecasts, correlation


#: Numbers of bins: those of the definitions.
ENCE_BINS, ALIGNMENT_BINS = 10, 15

_COVERAGE_METRICS = ("regression_ece", "rmsce", "kuleshov_error", "coverage_95", "coverage_95_gap")


def regression_report(
    mean: Any,
    std: Any,
    target: Any,
    pit: Any = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    min_variance: float = 0.0,
) -> dict[str, Measured]:
    """
    Every metric of a regression model by name, as [`Measured`]: error, calibration, and how the variance goes with the
    error. [`metric_info`] says what each is.

    An entry also holds `clamped`, the number of rows whose variance was raised to `min_variance`, and `skipped_bins`
    (of `ence`), the number of bins without variance, each if there are any. The draws depend on `seed` and n only.

    Calibration errors sum absolute gaps, to which a resample adds noise: where a model is close to calibrated, the
    interval lies mostly above the value.

    Args:
        mean, std, target (`array`):
            Predicted mean and standard deviation, and the truth, of each row, in the units of the target.
        pit (`array`, *optional*):
            The predicted CDF at each target, where that is not the Gaussian's, such as that of
            [`~clue_hf.posthoc.QuantileCalibrator`]: coverages come from it, all else from mean and std.
        resamples, level, seed (*optional*):
            As in [`bootstrap_interval`]; 0 resamples for no intervals.
        min_variance (`float`, *optional*, defaults to 0.0):
            Smaller variances count as this, in squared units of the target.

    Example:

    ```python
    >>> from clue_hf.metrics import regression_report

    >>> regression_report(mean, std, target)["regression_ece"].value
    0.043
    ```
    """
    forecasts = checked_forecasts(mean, std, target, min_variance, pit)
    metrics = _Metrics(forecasts)
    measured = _measure(metrics, resamples, level, seed)
    if forecasts.clamped:
        unaffected = ("mse",) if pit is None else ("mse", *_COVERAGE_METRICS)
        for name in measured.keys() - set(unaffected):
            measured[name] = measured[name].with_details(clamped=forecasts.clamped)
    skipped = metrics.ranked.draw().ence(ENCE_BINS)[1]
    if skipped:
        measured["ence"] = measured["ence"].with_details(skipped_bins=skipped)
    return measured


def paired_regression_differences(
    mean_a: Any,
    std_a: Any,
    mean_b: Any,
    std_b: Any,
    target: Any,
    pit_a: Any = None,
    pit_b: Any = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    min_variance: float = 0.0,
) -> dict[str, Measured]:
    """
    Model a minus model b on the same rows, for every metric of [`regression_report`], as [`Measured`] with a p-value.
    Every resample draws the same rows of both.

    Args:
        mean_a, std_a, mean_b, std_b (`array`):
            Predicted mean and standard deviation of each row under either model.
        target (`array`):
            The truth.
        pit_a, pit_b (`array`, *optional*):
            As `pit` in [`regression_report`].
        resamples, level, seed, min_variance (*optional*):
            As in [`regression_report`].
    """
    a, b = (
        _measure(_Metrics(checked_forecasts(mean, std, target, min_variance, pit)), resamples, level, seed)
        for mean, std, pit in ((mean_a, std_a, pit_a), (mean_b, std_b, pit_b))
    )
    return paired_differences(a, b, level)


def _measure(metrics: _Metrics, resamples: int, level: float, seed: int) -> dict[str, Measured]:
    """Every metric on all rows and on each resample, in the order of the registry."""
    reason = partial(_reason, forecasts=metrics.forecasts)
    return measure_rows(metrics, metrics.forecasts.n, reason, resamples, level, seed)


class _Metrics:
    """Every metric; called with how often each row counts."""

    def __init__(self, forecasts: Forecasts) -> None:
        self.forecasts, self.n = forecasts, forecasts.n
        within_95 = central_level(forecasts.pit) <= 0.95
        columns = [forecasts.error, forecasts.log_loss, within_95, forecasts.std, forecasts.variance]
        self.table = np.array(columns, dtype=float)
        self.coverage, self.ranked = Coverage(forecasts.pit), Ranked(forecasts)
        self.alignment = EqualMassGap(forecasts.variance, forecasts.error, ALIGNMENT_BINS, self.ranked.order)
        self.correlations = {
            "corr_error_pe": correlation(forecasts.error, forecasts.entropy),
            "corr_error_var": correlation(forecasts.error, forecasts.variance),
        }

    def __call__(self, counts: np.ndarray | None) -> dict[str, float]:
        sums = self.table.sum(axis=1) if counts is None else self.table @ counts
        mse, nll, coverage_95, std, variance = (sums / (self.n or NAN)).tolist()
        drawn = self.ranked.draw(counts)
        return {
            "mse": mse,
            "nll": nll,
            "regression_ece": self.coverage.error(counts),
            "rmsce": self.coverage.root_mean_squared_error(counts),
            "kuleshov_error": self.coverage.kuleshov(counts),
            "coverage_95": coverage_95,
            "coverage_95_gap": abs(coverage_95 - 0.95),
            "ence": drawn.ence(ENCE_BINS)[0],
            "alignment_error": self.alignment(counts),
            "ause": drawn.ause(),
            **{name: coefficient(counts) for name, coefficient in self.correlations.items()},
            "mean_std": std,
            "sharpness": variance**0.5,
        }


def _reason(name: str, forecasts: Forecasts) -> str:
    """Why a metric is undefined on all rows."""
    if forecasts.n == 0:
        return "no rows"
    if name in ("nll", "corr_error_pe") and not forecasts.std.all():
        return "a standard deviation is 0: give a min_variance"
    if name == "nll":
        return "an error is too large for its standard deviation"
    if name == "ence":
        return "all standard deviations are 0"
    if name == "ause":
        return "fewer than two rows" if forecasts.n < 2 else "all errors are 0"
    return "the variance is constant" if np.ptp(forecasts.variance) == 0 else "the error is constant"
