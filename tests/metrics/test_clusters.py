import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.metrics import (
    Measured,
    alignment_error,
    bootstrap_interval,
    calibration_intervals,
    cluster_mean_interval,
    confidence_calibration_error,
    confidence_calibration_interval,
)


def tokens(seed, examples=40, digits=6):
    """Tokens of some examples, in any order: error, uncertainty, confidence, correct, and whose token it is."""
    generator = np.random.default_rng(seed)
    example = generator.permutation(np.repeat(np.arange(examples), generator.integers(1, 12, examples)))
    shift = generator.normal(size=examples)[example]  # tokens of one example go wrong together
    uncertainty = np.round(generator.exponential(size=len(example)), digits)
    error = uncertainty * np.exp(0.5 * shift)
    confidence = np.round(generator.uniform(size=len(example)), digits)
    correct = (generator.uniform(size=len(example)) < confidence - 0.2 * shift).astype(float)
    return error, uncertainty, confidence, correct, example


def equal(found: Measured, expected: Measured) -> None:
    assert found == pytest.approx(expected, abs=1e-12)
    assert found.undefined == expected.undefined


def test_a_mean_over_clusters_is_the_plain_bootstrap_of_their_sums():
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 9, 60)
    sums = counts * generator.normal(size=60)
    options = {"resamples": 50, "level": 0.8, "seed": 4}
    expected = bootstrap_interval(lambda s, c: s.sum() / c.sum(), sums, counts, **options)
    equal(cluster_mean_interval(sums, counts, **options), expected)


def test_clusters_are_less_certain_than_their_parts_would_be():
    values = np.repeat(np.random.default_rng(1).normal(size=100), 20)  # 20 equal tokens in each of 100 texts
    together = cluster_mean_interval(values.reshape(100, 20).sum(axis=1), np.full(100, 20), resamples=400)
    apart = bootstrap_interval(np.mean, values, resamples=400)
    assert together.value == pytest.approx(apart.value)
    assert (together.high - together.low) / (apart.high - apart.low) == pytest.approx(20**0.5, rel=0.2)


def test_a_mean_over_nothing():
    for sums, counts in (([], []), ([0.0, 0.0], [0, 0])):
        interval = cluster_mean_interval(sums, counts, resamples=5)
        assert (interval.n, interval.undefined) == (len(sums), 5)
        assert math.isnan(interval.value)
    some = cluster_mean_interval([6.0, 0.0], [3, 0], resamples=100)
    assert (some.value, some.low, some.high) == (2, 2, 2)
    assert some.undefined == pytest.approx(25, abs=15)  # both draws hit the empty one
    with pytest.raises(ValueError, match="differ in length"):
        cluster_mean_interval([1.0], [1, 2])
    with pytest.raises(ValueError, match="Expected resamples"):
        cluster_mean_interval([1.0], [1], resamples=-1)


def drawn_tokens(example, drawn):
    """The positions of the tokens of the drawn examples."""
    return np.concatenate([np.flatnonzero(example == number) for number in drawn])


@pytest.mark.parametrize("digits", [6, 1], ids=["no ties", "ties"])
def test_calibration_error_of_confidence_is_the_plain_bootstrap_of_examples(digits):
    error, uncertainty, confidence, correct, example = tokens(2, digits=digits)

    def metric(drawn):
        rows = drawn_tokens(example, drawn)
        return confidence_calibration_error(confidence[rows], correct[rows])

    found = calibration_intervals(error, uncertainty, confidence, correct, example, resamples=30, seed=5)
    equal(found["confidence_calibration_error"], bootstrap_interval(metric, np.unique(example), resamples=30, seed=5))


@pytest.mark.parametrize("digits", [6, 1], ids=["no ties", "ties"])
@pytest.mark.parametrize("num_bins", [1, 4, 15])
def test_alignment_error_is_the_plain_bootstrap_within_fixed_bins(digits, num_bins):
    error, uncertainty, confidence, correct, example = tokens(3, digits=digits)
    order = np.argsort(uncertainty, kind="stable")
    in_bin = np.zeros((num_bins, len(error)))
    for number, rows in enumerate(np.array_split(order, num_bins)):
        in_bin[number, rows] = 1
    for value in np.unique(uncertainty):  # equal uncertainties share the bins they fall into
        in_bin[:, uncertainty == value] = in_bin[:, uncertainty == value].mean(axis=1, keepdims=True)

    def metric(drawn):
        rows = drawn_tokens(example, drawn)
        return np.abs(in_bin[:, rows] @ (error - uncertainty)[rows]).sum() / len(rows)

    options = {"resamples": 30, "level": 0.9, "seed": 6}
    found = calibration_intervals(error, uncertainty, confidence, correct, example, num_bins=num_bins, **options)
    equal(found["alignment_error"], bootstrap_interval(metric, np.unique(example), **options))
    assert found["alignment_error"].value == pytest.approx(alignment_error(error, uncertainty, num_bins))


def test_fixed_bins_are_close_to_bins_of_each_resample():
    error, uncertainty, confidence, correct, example = tokens(4, examples=400)

    def metric(drawn):
        rows = drawn_tokens(example, drawn)
        return alignment_error(error[rows], uncertainty[rows])

    fixed = calibration_intervals(error, uncertainty, confidence, correct, example, resamples=200)["alignment_error"]
    own = bootstrap_interval(metric, np.arange(400), resamples=200)
    assert [fixed.low, fixed.high] == pytest.approx([own.low, own.high], abs=0.15 * (own.high - own.low))


def test_names_of_examples_do_not_matter_and_input_is_checked():
    error, uncertainty, confidence, correct, example = tokens(5)
    expected = calibration_intervals(error, uncertainty, confidence, correct, example, resamples=10)
    names = np.array([f"text {number:03d}" for number in example])
    assert calibration_intervals(error, uncertainty, confidence, correct, names, resamples=10) == expected
    assert expected["alignment_error"].n == 40
    with pytest.raises(ValueError, match=r"tokens but `example_of_token` has 3 entries"):
        calibration_intervals(error, uncertainty, confidence, correct, [0, 1, 2])
    for interval in calibration_intervals([], [], [], [], [], resamples=5).values():
        assert (interval.n, interval.undefined) == (0, 5)
        assert math.isnan(interval.value)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), max_size=40), st.integers(1, 15))
def test_the_interval_of_the_confidence_is_that_of_the_bootstrap(rows, num_bins):
    confidence, correct = np.array(rows, dtype=float).reshape(-1, 2).T
    fast = confidence_calibration_interval(confidence, correct, num_bins, resamples=30, seed=3)

    def metric(*drawn):
        return confidence_calibration_error(*drawn, num_bins=num_bins)

    slow = bootstrap_interval(metric, confidence, correct, resamples=30, seed=3)
    np.testing.assert_allclose(
        [fast.value, fast.low, fast.high], [slow.value, slow.low, slow.high], rtol=1e-9, atol=1e-12
    )
    assert (fast.n, fast.reason) == (slow.n, slow.reason)
