"""
Every metric of a regression model at once, with bootstrap intervals, and the differences of two models.

The rows are sorted once; a resample only changes how often each counts. The draws are those of
[`bootstrap_interval`] and [`paired_bootstrap`], so the intervals are theirs up to rounding.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from .bootstrap import NAN, Measured, check_options, multiplicities
from .regression import Coverage, Forecasts, Ranked, central_level, checked_forecasts, correlation
from .resampled_rejection import as_entry as entry


#: What each metric of [`regression_report`] is.
REGRESSION_DEFINITIONS: dict[str, str] = {
    "mse": "mean of the squared error (target - mean)^2",
    "nll": "mean of ln(2 pi variance) / 2 + (target - mean)^2 / (2 variance), nats",
    "regression_ece": "mean over p = 0, 1/99, ..., 1 of |share of targets within the central interval of probability "
    "p - p|, at most 0.5",
    "rmsce": "root of the mean over p = 0, 1/99, ..., 1 of (share of targets within the central interval of "
    "probability p - p)^2",
    "kuleshov_error": "sum over p = 0, 1/99, ..., 1 of (share of targets below the predicted p-quantile - p)^2 "
    "(Kuleshov et al. 2018)",
    "coverage_95": "share of targets within the central interval of probability 0.95",
    "coverage_95_gap": "|coverage_95 - 0.95|",
    "ence": "mean over 10 bins of equally many rows along the variance of |RMV - RMSE| / RMV, the roots of the mean "
    "variance and of the mean squared error in the bin; bins with RMV 0 are left out (Levi et al. 2019)",
    "alignment_error": "sum |B|/n |mean squared error - mean variance| over 15 bins of equal mass along the variance",
    "ause": "area, over the share k/n of rows removed (k = 0..n-1), between the mean squared errors of what is left "
    "after removing those of largest variance and those of largest error, divided by that of all rows; ties count "
    "with the mean of their group",
    "corr_error_pe": "Pearson correlation of the squared error with the predictive entropy ln(2 pi e variance) / 2",
    "corr_error_var": "Pearson correlation of the squared error with the variance",
    "mean_std": "mean of the standard deviation",
    "sharpness": "root of the mean variance",
}
#: Numbers of bins: those of the definitions.
ENCE_BINS, ALIGNMENT_BINS = 10, 15

_OF_COVERAGE = ("regression_ece", "rmsce", "kuleshov_error", "coverage_95", "coverage_95_gap")


def regression_definition(name: str) -> str:
    """The definition of a metric of [`regression_report`]."""
    if name not in REGRESSION_DEFINITIONS:
        raise ValueError(f"There is no regression metric {name!r}; there are {', '.join(REGRESSION_DEFINITIONS)}.")
    return REGRESSION_DEFINITIONS[name]


def regression_report(
    mean: Any,
    std: Any,
    target: Any,
    pit: Any = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    min_variance: float = 0.0,
) -> dict[str, dict[str, Any]]:
    """
    Every metric of a regression model as `name -> entry`: error, calibration, and how the variance goes with the
    error. [`regression_definition`] says what each is.

    An entry holds `value`, `low`, `high` (the percentile bootstrap interval over the rows), `n` and `reason`: where a
    metric is undefined its value is `None` and the reason says why. `undefined` is the number of resamples without a
    value, `clamped` the number of rows whose variance was raised to `min_variance`, and `skipped_bins` (of `ence`) the
    number of bins without variance, each if there are any.

    Calibration errors sum absolute gaps, to which a resample adds noise: where a model is close to calibrated, the
    interval lies mostly above the value.

    Args:
        mean, std, target (`array`):
            Predicted mean and standard deviation, and the truth, of each row, in the units of the target.
        pit (`array`, *optional*):
            The predicted CDF at each target, where that is not the Gaussian's, such as that of
            [`~clue_hf.posthoc.QuantileCalibrator`]: coverages come from it, all else from mean and std.
        resamples (`int`, *optional*, defaults to 2000):
            Number of bootstrap resamples; 0 for no intervals.
        level (`float`, *optional*, defaults to 0.95):
            Share of the resampled values inside the interval.
        seed (`int`, *optional*, defaults to 0):
            Seed of the draws.
        min_variance (`float`, *optional*, defaults to 0.0):
            Smaller variances count as this, in squared units of the target.

    Example:

    ```python
    >>> from clue_hf.metrics import regression_report

    >>> regression_report(mean, std, target)["regression_ece"]
    {'value': 0.043, 'reason': None, 'n': 10000, 'low': 0.038, 'high': 0.05}
    ```
    """
    forecasts = checked_forecasts(mean, std, target, min_variance, pit)
    measured = _measure(forecasts, resamples, level, seed)
    found = {name: entry(metric, resamples, level) for name, metric in measured.items()}
    for name in found:
        of_variance = name != "mse" and (pit is None or name not in _OF_COVERAGE)
        if of_variance and forecasts.clamped:
            found[name]["clamped"] = forecasts.clamped
    skipped = Ranked(forecasts).draw().ence(ENCE_BINS)[1]
    if skipped:
        found["ence"]["skipped_bins"] = skipped
    return found


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
) -> dict[str, dict[str, Any]]:
    """
    Model a minus model b on the same rows: `name -> entry` for every metric of [`regression_report`], with `value`,
    `low`, `high`, `p_value` (see [`Difference`]), `n` and `reason`. Every resample draws the same rows of both.

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
    models = [
        checked_forecasts(mean_a, std_a, target, min_variance, pit_a),
        checked_forecasts(mean_b, std_b, target, min_variance, pit_b),
    ]
    of_a, of_b = (_measure(model, resamples, level, seed) for model in models)
    return {name: entry(of_a[name] - of_b[name], resamples, level, paired=True) for name in of_a}


def measured_regression(
    mean: Any,
    std: Any,
    target: Any,
    pit: Any = None,
    resamples: int = 2000,
    seed: int = 0,
    min_variance: float = 0.0,
) -> dict[str, Measured]:
    """
    Every metric with its value on each resample, for those who combine several models: the draws depend on `seed` and
    n only. Same arguments as [`regression_report`].
    """
    return _measure(checked_forecasts(mean, std, target, min_variance, pit), resamples, 0.95, seed)


def _measure(forecasts: Forecasts, resamples: int, level: float, seed: int) -> dict[str, Measured]:
    """Every metric on all rows and on each resample, in the order of the definitions."""
    check_options(resamples, level)
    n, metrics = forecasts.n, _Metrics(forecasts)
    every = chain([np.ones(n, int)], multiplicities(n, resamples, seed))
    rows = [metrics(counts) for counts in every]
    found = {}
    for name in REGRESSION_DEFINITIONS:
        value, *drawn = [row[name] for row in rows]
        # what is undefined on all rows is so on every resample
        values = np.full(resamples, NAN) if np.isnan(value) else np.array(drawn)
        found[name] = Measured(value, _reason(name, value, forecasts), n, values)
    return found


class _Metrics:
    """Every metric; called with how often each row counts."""

    def __init__(self, forecasts: Forecasts) -> None:
        self.n = forecasts.n
        within_95 = central_level(forecasts.pit) <= 0.95
        columns = [forecasts.error, forecasts.log_loss, within_95, forecasts.std, forecasts.variance]
        self.table = np.array(columns, dtype=float)
        self.coverage, self.ranked = Coverage(forecasts.pit), Ranked(forecasts)
        self.correlations = {
            "corr_error_pe": correlation(forecasts.error, forecasts.entropy),
            "corr_error_var": correlation(forecasts.error, forecasts.variance),
        }

    def __call__(self, counts: np.ndarray) -> dict[str, float]:
        mse, nll, coverage_95, std, variance = (self.table @ counts / (self.n or NAN)).tolist()
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
            "alignment_error": drawn.alignment_error(ALIGNMENT_BINS),
            "ause": drawn.ause(),
            **{name: of_both(counts) for name, of_both in self.correlations.items()},
            "mean_std": std,
            "sharpness": variance**0.5,
        }


def _reason(name: str, value: float, forecasts: Forecasts) -> str | None:
    """Why a metric is undefined on all rows; `None` where it is defined."""
    if not np.isnan(value):
        return None
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
