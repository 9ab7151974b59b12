import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clue_hf.metrics import METRICS, bootstrap_interval, metric_info, paired_bootstrap
from clue_hf.metrics.regression import (
    ause,
    corr_error_pe,
    corr_error_var,
    coverage_gap,
    ence,
    gaussian_nll,
    interval_coverage,
    kuleshov_error,
    mean_squared_error,
    mean_std,
    regression_alignment_error,
    regression_calibration_error,
    root_mean_squared_calibration_error,
    sharpness,
)
from clue_hf.metrics.resampled.regression import (
    paired_regression_differences,
    regression_report,
)


# every metric of a report, one function of mean, std and target each
FUNCTIONS = {
    "mse": lambda mean, std, target: mean_squared_error(mean, target),
    "nll": gaussian_nll,
    "regression_ece": regression_calibration_error,
    "rmsce": root_mean_squared_calibration_error,
    "kuleshov_error": kuleshov_error,
    "coverage_95": interval_coverage,
    "coverage_95_gap": coverage_gap,
    "ence": ence,
    "alignment_error": regression_alignment_error,
    "ause": ause,
    "corr_error_pe": corr_error_pe,
    "corr_error_var": corr_error_var,
    "mean_std": lambda mean, std, target: mean_std(std),
    "sharpness": lambda mean, std, target: sharpness(std),
}
OF_COVERAGE = ["regression_ece", "rmsce", "kuleshov_error", "coverage_95", "coverage_95_gap"]


def make_forecasts(seed, n=60, digits=6):
    """Mean, std (tied where it has few digits) and target; some targets are met exactly where there are ties."""
    generator = np.random.default_rng(seed)
    mean = np.round(generator.normal(size=n), digits)
    std = np.round(np.exp(0.5 * generator.normal(size=n)), digits) + 10.0**-digits
    return mean, std, np.round(mean + 1.3 * std * generator.normal(size=n), digits)


def without_nan(value):
    return None if math.isnan(value) else value


@pytest.mark.parametrize("digits", [6, 1])
def test_values_are_those_of_the_functions(digits):
    arrays = make_forecasts(1, 300, digits)
    report = regression_report(*arrays, resamples=0)
    assert list(report) == list(FUNCTIONS)
    for name, metric in FUNCTIONS.items():
        assert report[name]["value"] == pytest.approx(metric(*arrays), rel=1e-12, abs=1e-12), name
        assert report[name]["n"] == 300
        assert {"low", "high", "clamped", "skipped_bins"}.isdisjoint(report[name])


@pytest.mark.parametrize(
    ("n", "digits"),
    [(200, 6), (60, 1), (60, 0), (12, 6), (3, 6), (1, 6)],
    ids=["no ties", "ties", "many ties", "about one in a bin", "three", "one"],
)
def test_intervals_are_those_of_the_plain_bootstrap(n, digits):
    arrays = make_forecasts(n + digits, n, digits)
    options = {"resamples": 40, "level": 0.8, "seed": 7}
    report = regression_report(*arrays, **options)
    for name, metric in FUNCTIONS.items():
        plain, found = bootstrap_interval(metric, *arrays, **options), report[name]
        if found["reason"]:
            assert math.isnan(plain.value), name
            assert [found[key] for key in ("value", "low", "high", "n")] == [None, None, None, n]
            continue
        assert [found["value"], found["low"], found["high"]] == pytest.approx(
            [plain.value, plain.low, plain.high], abs=1e-9
        ), name
        assert found.get("undefined", 0) == plain.undefined, name
        assert found["n"] == plain.n == n


@st.composite
def forecasts(draw):
    """Mean, std (with ties and zeros) and target in steps, some targets met exactly."""
    n = draw(st.integers(1, 25))

    def column(low, high):
        return np.array(draw(st.lists(st.integers(low, high), min_size=n, max_size=n))) / 4

    return column(-8, 8), column(draw(st.integers(0, 1)), 6), column(-8, 8)


@settings(max_examples=50)
@given(forecasts(), st.integers(0, 5))
def test_one_resample_of_any_rows(arrays, seed):
    """With one resample both ends of the interval are the metric on it."""
    n = len(arrays[0])
    drawn = np.random.default_rng(seed).integers(n, size=n)
    report = regression_report(*arrays, resamples=1, seed=seed)
    for name, metric in FUNCTIONS.items():
        expected = without_nan(metric(*arrays))
        assert report[name]["value"] == (expected and pytest.approx(expected, rel=1e-12, abs=1e-12)), name
        assert (report[name]["value"] is None) == (report[name]["reason"] is not None)
        if report[name]["reason"] is None:
            expected = pytest.approx(without_nan(metric(*(array[drawn] for array in arrays))), abs=1e-9)
            assert report[name]["low"] == expected, name
            assert report[name]["high"] == expected
    json.dumps(report, allow_nan=False)


def test_another_cdf():
    arrays = make_forecasts(2)
    pit = np.random.default_rng(2).random(60) ** 2
    plain, other = (regression_report(*arrays, resamples=20, pit=given) for given in (None, pit))
    for name in FUNCTIONS:
        if name not in OF_COVERAGE:
            assert other[name] == plain[name]
            continue

        def metric(mean, std, target, pit, name=name):
            return FUNCTIONS[name](mean, std, target, pit=pit)

        expected = bootstrap_interval(metric, *arrays, pit, resamples=20)
        assert other[name]["value"] != plain[name]["value"]
        assert [other[name][key] for key in ("value", "low", "high")] == pytest.approx(
            [expected.value, expected.low, expected.high]
        )


def test_the_floor_of_the_variance_is_counted():
    mean, std, target = make_forecasts(3)
    floor = float(np.sort(std)[7]) ** 2
    least = float(np.sqrt(floor))
    report = regression_report(mean, std, target, resamples=5, min_variance=floor)
    raised = regression_report(mean, np.maximum(std, least), target, resamples=5)
    clamped = int((std < least).sum())
    assert clamped in (7, 8)
    for name, entry in report.items():
        assert entry.pop("clamped", 0) == (0 if name == "mse" else clamped), name
        assert entry == pytest.approx(raised[name], nan_ok=True)
    report = regression_report(mean, std, target, pit=np.full(60, 0.3), resamples=0, min_variance=floor)
    assert {name for name, entry in report.items() if "clamped" in entry} == set(FUNCTIONS) - {"mse", *OF_COVERAGE}


def test_bins_without_variance_are_counted():
    mean, std, target = make_forecasts(4, n=100)
    std[:25] = 0
    report = regression_report(mean, std, target, resamples=5)
    assert report["ence"]["skipped_bins"] == 2  # the third holds five rows with a variance
    assert report["ence"]["value"] == pytest.approx(ence(mean, std, target))
    assert report["nll"]["reason"] == report["corr_error_pe"]["reason"]
    assert report["nll"]["reason"] == "a standard deviation is 0: give a min_variance"
    assert report["regression_ece"]["reason"] is None


def test_reasons():
    mean, std, target = make_forecasts(5, n=12)
    ones = np.ones(12)
    cases = {
        ("nll", "a standard deviation is 0: give a min_variance"): (mean, 0 * std, target),
        ("nll", "an error is too large for its standard deviation"): (mean, 1e-200 * std, target),
        ("ence", "all standard deviations are 0"): (mean, 0 * std, target),
        ("ause", "fewer than two rows"): (mean[:1], std[:1], target[:1]),
        ("ause", "all errors are 0"): (mean, std, mean),
        ("corr_error_var", "the variance is constant"): (mean, ones, target),
        ("corr_error_pe", "the variance is constant"): (mean, ones, target),
        ("corr_error_var", "the error is constant"): (mean, std, mean),
    }
    for (name, reason), arrays in cases.items():
        report = regression_report(*arrays, resamples=3)
        assert report[name]["reason"] == reason
        assert (report[name]["value"], report[name]["low"]) == (None, None)
        for found in report.values():
            assert (found["value"] is None) == (found["reason"] is not None)
        assert report["mse"]["reason"] is None


def test_no_rows():
    report = regression_report([], [], [], resamples=3)
    assert {found["value"] for found in report.values()} == {None}
    assert {found["reason"] for found in report.values()} == {"no rows"}
    json.dumps(report, allow_nan=False)
    for found in regression_report([], [], [], resamples=3).values():
        assert len(found.resampled) == 3
        assert np.isnan(found.resampled).all()


def test_measurements_are_those_of_the_report():
    arrays = make_forecasts(6)
    measured = regression_report(*arrays, resamples=30, seed=3)
    report = regression_report(*arrays, resamples=30, seed=3, level=0.5)
    assert list(measured) == list(report)
    for name, found in measured.items():
        assert (found.value, found.n, found.reason) == (report[name]["value"], 60, None)
        assert len(found.resampled) == 30
        assert np.quantile(found.resampled, [0.25, 0.75]) == pytest.approx([report[name]["low"], report[name]["high"]])
    floored = regression_report(*arrays, resamples=0, min_variance=4.0)
    assert floored["mean_std"].value == pytest.approx(np.maximum(arrays[1], 2).mean())


def test_differences_are_those_of_the_plain_paired_bootstrap():
    mean_a, std_a, target = make_forecasts(8, 40)
    mean_b, std_b, _ = make_forecasts(9, 40)
    options = {"resamples": 30, "level": 0.9, "seed": 2}
    found = paired_regression_differences(mean_a, std_a, mean_b, std_b, target, **options)
    assert list(found) == list(FUNCTIONS)
    for name, metric in FUNCTIONS.items():
        plain = paired_bootstrap(metric, (mean_a, std_a, target), (mean_b, std_b, target), **options)
        entry = found[name]
        assert [entry["value"], entry["low"], entry["high"]] == pytest.approx(
            [plain.value, plain.low, plain.high], abs=1e-9
        ), name
        assert (entry["p_value"], entry["n"], entry["reason"]) == (pytest.approx(plain.p_value), 40, None)


def test_differences_to_oneself_and_to_what_is_undefined():
    mean, std, target = make_forecasts(10)
    same = paired_regression_differences(mean, std, mean, std, target, resamples=5)
    assert {entry["value"] for entry in same.values()} == {0}
    assert {entry["p_value"] for entry in same.values()} == {1}
    other = paired_regression_differences(mean, std, mean, np.ones(60), target, resamples=5)
    assert (other["corr_error_var"]["value"], other["corr_error_var"]["reason"]) == (None, "the variance is constant")
    pit = np.full(60, 0.5)
    moved = paired_regression_differences(mean, std, mean, std, target, pit_b=pit, resamples=5)
    expected = regression_calibration_error(mean, std, target) - 0.5
    assert moved["regression_ece"]["value"] == pytest.approx(expected)
    assert moved["mse"]["value"] == 0
    with pytest.raises(ValueError, match="differ in length"):
        paired_regression_differences(mean, std, mean[1:], std[1:], target)
    with pytest.raises(ValueError, match="Expected resamples"):
        paired_regression_differences(mean, std, mean, std, target, resamples=-1)


def test_every_metric_has_a_definition():
    fitted = ("conformal_coverage", "interval_width", "group_share")  # only where an interval was fitted
    names = [name for name in METRICS["numbers"] if name not in fitted]
    assert list(regression_report(*make_forecasts(11), resamples=0)) == names
    definitions = [metric_info(name, "numbers").definition for name in METRICS["numbers"]]
    assert len(set(definitions)) == len(definitions)
    with pytest.raises(ValueError, match="no metric 'bleu'; the metrics are mse, nll"):
        metric_info("bleu", "numbers")


def test_bad_input_is_located():
    mean, std, target = make_forecasts(12)
    broken = std.copy()
    broken[7] = math.nan
    with pytest.raises(ValueError, match="`std` is nan at position 7"):
        regression_report(mean, broken, target)
    with pytest.raises(ValueError, match="`std` is -1.0 at position 0"):
        regression_report(mean, -np.ones(60), target)
    with pytest.raises(ValueError, match="differ in length"):
        regression_report(mean, std, target[:5])
    for bad in ({"resamples": -1}, {"resamples": 5, "level": 95}):
        with pytest.raises(ValueError, match="Expected resamples"):
            regression_report(mean, std, target, **bad)
