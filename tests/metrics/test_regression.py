"""
Regression metrics against closed forms, scipy, slow references, and numbers that tests/fixtures/regression/record.py
recorded.

uncertainty-toolbox has our calibration errors under `prop_type="interval"` with its 100 levels `linspace(0, 1, 100)`;
its proportions below quantiles are those of `mean - target`, so the recorded Kuleshov error has the two swapped.
torch-uncertainty breaks ties by position (ours: by their mean) and calls an area 0 where all errors are (ours: nan);
the recorded cases have neither.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.stats import norm, pearsonr

from clue_hf.metrics import alignment_error
from clue_hf.metrics.regression import (
    LEVELS,
    ause,
    calibration_error_of_pit,
    corr_error_pe,
    corr_error_var,
    coverage_gap,
    ence,
    gaussian_nll,
    interval_coverage,
    kuleshov_error,
    mean_squared_error,
    mean_std,
    probability_integral_transform,
    regression_alignment_error,
    regression_calibration_error,
    root_mean_squared_calibration_error,
    sharpness,
)


RECORDED = json.loads((Path(__file__).parents[1] / "fixtures/regression/recorded.json").read_text())
OF_COVERAGE = [
    regression_calibration_error,
    root_mean_squared_calibration_error,
    kuleshov_error,
    interval_coverage,
    coverage_gap,
]
OF_ALL = [*OF_COVERAGE, gaussian_nll, ence, ause, regression_alignment_error, corr_error_pe, corr_error_var]
#: ends of the central intervals, and quantiles, of each level
QUANTILES = norm.ppf(0.5 - LEVELS / 2), norm.ppf(0.5 + LEVELS / 2), norm.ppf(LEVELS)
#: the metrics that only see the target in units of the standard deviation, or relative to all errors
WITHOUT_UNITS = [*OF_COVERAGE, ence, ause, corr_error_var]


@st.composite
def forecasts(draw, min_size=1, max_size=40, least=1):
    """Mean, std (with ties) and target in steps, some targets met exactly."""
    n = draw(st.integers(min_size, max_size))

    def column(low, high):
        return np.array(draw(st.lists(st.integers(low, high), min_size=n, max_size=n))) / 4

    return column(-12, 12), column(least, 9), column(-12, 12)


def random_forecasts(seed, n=200, factor=1.0):
    """Targets drawn from the Gaussians whose std is then multiplied by a factor."""
    generator = np.random.default_rng(seed)
    mean, std = generator.normal(size=n), np.exp(0.5 * generator.normal(size=n))
    return mean, factor * std, mean + std * generator.normal(size=n)


def sharing_ties(std, error):
    """The errors in ascending order of std, each the mean of its tie group."""
    return np.array([error[std == s].mean() for s in np.sort(std)])


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: case["name"])
def test_metrics_of_other_libraries(case):
    arrays = mean, std, target = [np.array(case[name]) for name in ("mean", "std", "target")]
    found = {
        "regression_ece": regression_calibration_error(*arrays),
        "rmsce": root_mean_squared_calibration_error(*arrays),
        "kuleshov_error": kuleshov_error(*arrays),
        "coverage_95": interval_coverage(*arrays),
        "nll": gaussian_nll(*arrays),
        "sharpness": sharpness(std),
        "ause": ause(*arrays),
    }
    assert found == {name: pytest.approx(value, rel=1e-10, abs=1e-10) for name, value in case["metrics"].items()}


def test_the_recorded_cases_tell_something():
    metrics = [case["metrics"] for case in RECORDED["cases"]]
    assert len(metrics) == 10
    assert min(entry["regression_ece"] for entry in metrics) < 0.02
    assert max(entry["regression_ece"] for entry in metrics) > 0.3
    assert max(entry["ause"] for entry in metrics) > 1


@settings(max_examples=50)
@given(forecasts())
def test_against_scipy(arrays):
    mean, std, target = arrays
    assert gaussian_nll(*arrays) == pytest.approx(-norm.logpdf(target, mean, std).mean(), rel=1e-12)
    assert probability_integral_transform(*arrays) == pytest.approx(norm.cdf(target, mean, std), abs=1e-15)
    assert mean_squared_error(mean, target) == pytest.approx(np.mean((target - mean) ** 2))
    low, high = norm.interval(0.5, mean, std)
    assert interval_coverage(*arrays, level=0.5) == np.mean((low <= target) & (target <= high))
    assert coverage_gap(*arrays, level=0.5) == abs(interval_coverage(*arrays, level=0.5) - 0.5)
    assert (mean_std(std), sharpness(std)) == (pytest.approx(std.mean()), pytest.approx(np.sqrt((std**2).mean())))


@settings(max_examples=50)
@given(forecasts(min_size=3))
def test_correlations_against_scipy(arrays):
    mean, std, target = arrays
    error = (target - mean) ** 2
    assume(np.ptp(error) > 0 and np.ptp(std) > 0)
    entropy = norm.entropy(mean, std)
    assert corr_error_pe(*arrays) == pytest.approx(pearsonr(error, entropy).statistic, abs=1e-9)
    assert corr_error_var(*arrays) == pytest.approx(pearsonr(error, std**2).statistic, abs=1e-9)


@settings(max_examples=50)
@given(forecasts())
def test_calibration_errors_by_their_definition(arrays):
    mean, std, target = arrays
    score = (target - mean) / std
    central, below = [], []
    for p, low, high, quantile in zip(LEVELS, *QUANTILES, strict=True):
        central.append(np.mean((low <= score) & (score <= high)) - p)
        below.append(np.mean(score <= quantile) - p)
    assert regression_calibration_error(*arrays) == pytest.approx(np.abs(central).mean(), abs=1e-12)
    assert root_mean_squared_calibration_error(*arrays) == pytest.approx(np.sqrt(np.square(central).mean()), abs=1e-12)
    assert kuleshov_error(*arrays) == pytest.approx(np.square(below).sum(), abs=1e-12)


@settings(max_examples=50)
@given(forecasts(least=0), st.integers(1, 12))
def test_ence_by_its_definition(arrays, num_bins):
    mean, std, target = arrays
    error = sharing_ties(std, (target - mean) ** 2)
    terms = []
    for variances, errors in zip(
        np.array_split(np.sort(std) ** 2, num_bins), np.array_split(error, num_bins), strict=True
    ):
        if len(variances) and variances.any():
            rmv = math.sqrt(variances.mean())
            terms.append(abs(rmv - math.sqrt(errors.mean())) / rmv)
    expected = sum(terms) / len(terms) if terms else math.nan
    assert ence(*arrays, num_bins=num_bins) == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True)


@settings(max_examples=50)
@given(forecasts(min_size=2, least=0))
def test_ause_by_its_definition(arrays):
    mean, std, target = arrays
    error, n = (target - mean) ** 2, len(mean)
    assume(error.any())

    def curve(ordered):
        return np.array([ordered[: n - k].mean() for k in range(n)]) / error.mean()

    apart = curve(sharing_ties(std, error)) - curve(np.sort(error))
    expected = trapezoid(apart, np.arange(n) / n)
    assert ause(*arrays) == pytest.approx(expected, abs=1e-12)


def test_a_calibrated_model():
    arrays = random_forecasts(0, n=200_000)
    assert regression_calibration_error(*arrays) < 0.003
    assert root_mean_squared_calibration_error(*arrays) < 0.003
    assert kuleshov_error(*arrays) < 0.001
    assert coverage_gap(*arrays) < 0.002
    assert ence(*arrays) < 0.01
    mean, std, _ = arrays
    assert regression_alignment_error(*arrays) < 0.02 * np.mean(std**2)
    expected = norm.entropy(0, std).mean()
    assert gaussian_nll(*arrays) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("factor", [0.3, 0.8, 1.5, 4.0])
def test_a_wrong_scale(factor):
    arrays = random_forecasts(1, n=200_000, factor=factor)
    coverage = 2 * norm.cdf(factor * norm.ppf((1 + LEVELS) / 2)) - 1
    gaps = np.abs(coverage - LEVELS)
    assert regression_calibration_error(*arrays) == pytest.approx(gaps.mean(), abs=0.003)
    assert root_mean_squared_calibration_error(*arrays) == pytest.approx(np.sqrt((gaps**2).mean()), abs=0.003)
    assert interval_coverage(*arrays) == pytest.approx(2 * norm.cdf(factor * norm.ppf(0.975)) - 1, abs=0.003)
    assert ence(*arrays) == pytest.approx(abs(factor - 1) / factor, rel=0.05)
    scale_cost = np.log(factor) + (1 / factor**2 - 1) / 2
    true = arrays[0], arrays[1] / factor, arrays[2]
    assert gaussian_nll(*arrays) - gaussian_nll(*true) == pytest.approx(scale_cost, abs=0.02 / factor**2)
    assert ause(*arrays) == pytest.approx(ause(*true), abs=1e-12)  # the order stays


@settings(max_examples=50)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.sampled_from([0.25, 0.5, 2.0]), st.integers(0, 9))
def test_errors_that_are_a_multiple_of_the_std(true, factor, seed):
    """With errors of exactly one true std the scale alone decides, whatever the bins."""
    true = np.array(true, dtype=float)
    target = true * np.random.default_rng(seed).choice([-1, 1], size=len(true))
    arrays = np.zeros(len(true)), factor * true, target
    assert ence(*arrays) == pytest.approx(abs(factor - 1) / factor)
    assert regression_alignment_error(*arrays) == pytest.approx(abs(1 - factor**2) * np.mean(true**2))
    if len(true) > 1:
        assert ause(*arrays) == 0


def test_extremes():
    target = np.arange(1.0, 51.0)
    mean, ones = np.zeros(50), np.ones(50)
    # all intervals but that of level 0 hold all; where all targets are met, that too
    assert regression_calibration_error(mean, 1e9 * ones, target) == pytest.approx(0.49)
    assert regression_calibration_error(target, ones, target) == pytest.approx(0.5)
    assert regression_calibration_error(mean, 1e-9 * ones, target) == pytest.approx((LEVELS.sum() - 1) / 100)
    assert kuleshov_error(mean, 1e-9 * ones, target) == pytest.approx((LEVELS[:-1] ** 2).sum())
    assert kuleshov_error(target, 1e-9 * ones, mean) == pytest.approx(((1 - LEVELS[1:]) ** 2).sum())
    # at a std of 0 an interval holds just its mean
    assert probability_integral_transform([0, 0, 0], [0, 0, 0], [-1, 0, 1]).tolist() == [0, 0.5, 1]
    assert interval_coverage([0, 0, 0], [0, 0, 0], [-1, 0, 1]) == pytest.approx(1 / 3)
    assert interval_coverage([0, 0, 0], [0, 0, 0], [-1, 0, 1], level=1) == 1


@settings(max_examples=50)
@given(forecasts(min_size=2), st.randoms())
def test_the_order_of_the_rows_does_not_matter(arrays, random):
    rows = list(range(len(arrays[0])))
    random.shuffle(rows)
    for metric in OF_ALL:
        expected = pytest.approx(metric(*arrays), rel=1e-9, abs=1e-12, nan_ok=True)
        assert metric(*(array[rows] for array in arrays)) == expected, metric


@settings(max_examples=50)
@given(forecasts(min_size=2), st.integers(-8, 8), st.sampled_from([0.25, 0.5, 2.0, 16.0]))
def test_units(arrays, shift, scale):
    """Powers of two and quarters: exact in binary, so no row changes its interval by rounding."""
    mean, std, target = arrays
    other = (mean * scale + shift, std * scale, target * scale + shift)
    for metric in WITHOUT_UNITS:
        assert metric(*other) == pytest.approx(metric(*arrays), rel=1e-9, abs=1e-12, nan_ok=True), metric
    assert gaussian_nll(*other) == pytest.approx(gaussian_nll(*arrays) + np.log(scale), abs=1e-9)
    expected = regression_alignment_error(*arrays) * scale**2
    assert regression_alignment_error(*other) == pytest.approx(expected, abs=1e-9)
    correlation = corr_error_pe(*arrays)
    assert corr_error_pe(*other) == pytest.approx(correlation, abs=1e-6, nan_ok=True)


@settings(max_examples=50)
@given(forecasts(min_size=2))
def test_a_mirrored_target(arrays):
    mean, std, target = arrays
    for metric in set(OF_ALL) - {kuleshov_error}:
        assert metric(-mean, std, -target) == pytest.approx(metric(*arrays), abs=1e-12, nan_ok=True), metric


@settings(max_examples=50)
@given(forecasts(min_size=2, least=0))
def test_bounds(arrays):
    mean, std, target = arrays
    assert 0 <= regression_calibration_error(*arrays) <= 0.5 + 1e-12
    assert regression_calibration_error(*arrays) <= root_mean_squared_calibration_error(*arrays) + 1e-12 <= 1
    assert 0 <= kuleshov_error(*arrays) <= 100
    assert mean_std(std) <= sharpness(std) + 1e-12
    bias = abs(np.mean((target - mean) ** 2) - np.mean(std**2))
    assert regression_alignment_error(*arrays) >= bias - 1e-12
    assert regression_alignment_error(*arrays, num_bins=1) == pytest.approx(bias, abs=1e-12)
    if (target != mean).any():
        assert ause(*arrays) >= 0
        assert ause(mean, np.abs(target - mean), target) == 0
        # the reverse of the best order is the worst
        assert ause(*arrays) <= ause(mean, 9 - np.abs(target - mean), target) + 1e-12


@settings(max_examples=50)
@given(forecasts(min_size=2))
def test_only_the_order_of_the_std_matters_to_the_area(arrays):
    mean, std, target = arrays
    assert ause(mean, std**3 + 1, target) == pytest.approx(ause(*arrays), abs=1e-12, nan_ok=True)


def test_the_likelihood_is_best_at_the_truth():
    mean, std, target = random_forecasts(2, n=20_000)
    best = gaussian_nll(mean, std, target)
    assert best < min(gaussian_nll(mean, std * c, target) for c in (0.9, 1.1))
    assert best < min(gaussian_nll(mean + c, std, target) for c in (-0.2, 0.2))


def test_another_cdf():
    mean, std, target = random_forecasts(3, factor=0.4)
    uniform = (np.arange(200) + 0.5) / 200
    assert calibration_error_of_pit(uniform) < 0.005
    for metric in OF_COVERAGE:
        own = probability_integral_transform(mean, std, target)
        assert metric(mean, std, target, pit=own) == metric(mean, std, target)
        assert metric(mean, std, target, pit=uniform) != metric(mean, std, target)
    assert regression_calibration_error(mean, std, target, pit=uniform) == calibration_error_of_pit(uniform)
    assert calibration_error_of_pit([0.5] * 7) == pytest.approx(0.5)
    # Kuleshov's also sees that all targets are below the mean
    assert kuleshov_error(mean, std, target, pit=uniform / 2) > 5
    assert kuleshov_error(mean, std, target, pit=uniform) < 0.01


def test_the_floor_of_the_variance():
    mean, std, target = random_forecasts(4)
    least = float(np.median(std)) ** 2
    raised = np.maximum(std, np.sqrt(least))
    for metric in OF_ALL:
        expected = metric(mean, raised, target)
        assert metric(mean, std, target, min_variance=least) == pytest.approx(expected, rel=1e-12), metric
        assert metric(mean, std, target) != pytest.approx(expected, rel=1e-6), metric
    assert mean_std(std, min_variance=least) == pytest.approx(raised.mean())
    assert sharpness(std, min_variance=least) == pytest.approx(sharpness(raised))
    zero = np.zeros(200)
    assert math.isfinite(gaussian_nll(mean, zero, target, min_variance=1e-6))


def test_alignment_is_that_of_error_and_variance():
    mean, std, target = random_forecasts(5)
    expected = alignment_error((target - mean) ** 2, std**2, num_bins=7)
    assert regression_alignment_error(mean, std, target, num_bins=7) == expected


def test_undefined():
    for metric in OF_ALL:
        assert math.isnan(metric([], [], [])), metric
    assert math.isnan(mean_squared_error([], []))
    assert math.isnan(mean_std([]))
    assert math.isnan(sharpness([]))
    assert math.isnan(calibration_error_of_pit([]))
    assert math.isnan(gaussian_nll([0, 0], [1, 0], [1, 1]))
    assert math.isnan(gaussian_nll([0, 0], [1, 0], [1, 0]))  # met exactly: minus infinity
    assert math.isnan(gaussian_nll([0], [1e-300], [1]))
    assert math.isnan(corr_error_pe([0, 0, 0], [1, 0, 2], [1, 2, 3]))
    assert corr_error_var([0, 0, 0], [1, 0, 2], [2, 1, 5]) > 0
    assert math.isnan(corr_error_var([0, 0], [1, 1], [1, 2]))
    assert math.isnan(corr_error_var([0, 0], [1, 2], [1, -1]))
    assert math.isnan(ence([0, 0], [0, 0], [1, 2]))
    assert math.isnan(ause([0], [1], [1]))
    assert math.isnan(ause([0, 0], [1, 2], [0, 0]))


def test_bad_input_is_located():
    good = [1.0, 2.0, 3.0]
    for metric in OF_ALL:
        with pytest.raises(ValueError, match="`std` is -1.0 at position 1; it must not be negative"):
            metric(good, [1, -1, -2], good)
        with pytest.raises(ValueError, match="`target` is nan at position 2"):
            metric(good, good, [1, 2, math.nan])
        with pytest.raises(ValueError, match="differ in length"):
            metric(good, good[:2], good)
        with pytest.raises(ValueError, match="`min_variance` is -1"):
            metric(good, good, good, min_variance=-1)
    for metric in OF_COVERAGE:
        with pytest.raises(ValueError, match=r"`pit` is 1.5 at position 1; it must lie in \[0, 1\]"):
            metric(good, good, good, pit=[0.1, 1.5, 0.2])
        with pytest.raises(ValueError, match="differ in length"):
            metric(good, good, good, pit=[0.1, 0.5])
    with pytest.raises(ValueError, match="`pit` is -0.5 at position 0"):
        calibration_error_of_pit([-0.5])
    with pytest.raises(ValueError, match="`level` is 95"):
        interval_coverage(good, good, good, level=95)
    with pytest.raises(ValueError, match="`num_bins` is 0"):
        ence(good, good, good, num_bins=0)
    with pytest.raises(ValueError, match="`std` is -1.0 at position 0"):
        sharpness([-1])
