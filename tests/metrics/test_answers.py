"""Answers are checked once, for all metrics, and not copied."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from clue_hf.metrics import (
    adaptive_calibration_error,
    answers,
    brier_score,
    checked_answers,
    classification_error,
    classification_report,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    negative_log_likelihood,
    normalized_entropy,
)
from clue_hf.metrics.resampled import classification as resampled


OF_ANSWERS = [
    classification_error,
    negative_log_likelihood,
    brier_score,
    expected_calibration_error,
    adaptive_calibration_error,
    classwise_calibration_error,
    debiased_calibration_error,
]


def make_answers(n=300, classes=7, dtype=np.float32):
    generator = np.random.default_rng(n + classes)
    probabilities = softmax(2 * generator.normal(size=(n, classes)), axis=1).astype(dtype)
    return probabilities, generator.integers(classes, size=n)


@pytest.fixture
def checks(monkeypatch):
    """The shapes of all tables that are checked."""
    shapes, check = [], answers._are_distributions
    monkeypatch.setattr(answers, "_are_distributions", lambda table: shapes.append(table.shape) or check(table))
    return shapes


def test_a_report_checks_once(checks):
    probabilities, labels = make_answers()
    expected = classification_report(probabilities, labels, resamples=3)
    assert checks == [(300, 7)]
    checked = checked_answers(probabilities, labels)
    assert classification_report(checked, resamples=3) == expected
    for metric in OF_ANSWERS:
        metric(checked)
    normalized_entropy(checked)
    assert checks == [(300, 7)] * 2
    for metric in OF_ANSWERS:
        assert metric(checked) == metric(probabilities, labels)
    np.testing.assert_array_equal(normalized_entropy(checked), normalized_entropy(probabilities))


def test_labels_are_given_once():
    checked = checked_answers(*make_answers())
    with pytest.raises(ValueError, match="do not give `labels` too"):
        brier_score(checked, [0] * 300)
    with pytest.raises(ValueError, match="`labels` is missing"):
        brier_score(checked.probabilities)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_are_not_copied(dtype):
    probabilities, labels = make_answers(100_000, 100, dtype)
    checked = checked_answers(probabilities, labels)
    assert np.shares_memory(checked.probabilities, probabilities)
    assert np.shares_memory(checked.labels, labels)
    limits = dict.fromkeys(OF_ANSWERS, 0.25) | {lambda *pair: classification_report(*pair, resamples=0): 0.5}
    for metric, limit in limits.items():
        tracemalloc.start()
        metric(probabilities, labels)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < limit * 4 * probabilities.size, metric  # of the array in single precision


@pytest.mark.parametrize("resamples", [0, 4])
def test_single_precision_is_as_good_as_double(resamples):
    probabilities, labels = make_answers()
    single = classification_report(probabilities, labels, resamples=resamples)
    double = classification_report(probabilities.astype(np.float64), labels.astype(np.int8), resamples=resamples)
    assert single == {name: pytest.approx(entry, abs=1e-12) for name, entry in double.items()}


def test_blocks_of_rows_and_large_tables_do_not_matter(monkeypatch):
    pair = make_answers()
    expected = classification_report(*pair, resamples=4)
    monkeypatch.setattr(answers, "BLOCK", 50)  # seven rows
    monkeypatch.setattr(resampled, "TABLE_LIMIT", 0)
    assert classification_report(*pair, resamples=4) == {
        name: pytest.approx(entry, abs=1e-12) for name, entry in expected.items()
    }
    for metric in OF_ANSWERS:
        assert metric(*pair) == pytest.approx(metric(*(array[::-1] for array in pair)), abs=1e-12)


@given(st.lists(st.integers(0, 50), min_size=3, max_size=9).filter(any), st.randoms())
def test_equal_probabilities_in_other_places_are_exact_ties(weights, random):
    rows = [random.sample(weights, len(weights)) for _ in range(6)]
    probabilities = np.array(rows) / sum(weights)
    for dtype in (np.float32, np.float64):
        assert len(set(normalized_entropy(probabilities.astype(dtype)).tolist())) == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, int])
def test_the_place_of_a_bad_row_in_a_later_block(dtype, monkeypatch):
    monkeypatch.setattr(answers, "BLOCK", 8)
    table = np.array([[1, 0], [0, 1]] * 20, dtype=dtype)
    labels = np.zeros(40, int)
    assert checked_answers(table, labels).n == 40
    table[31] = [2, -1]
    with pytest.raises(ValueError, match=r"is -1.* at position \(31, 1\)"):
        checked_answers(table, labels)
    table[31] = [2, 0]
    with pytest.raises(ValueError, match="sums to 2 at position 31"):
        checked_answers(table, labels)
    if dtype is not int:
        for bad in (math.nan, math.inf):
            table[37, 0] = bad
            with pytest.raises(ValueError, match=rf"is {bad} at position \(37, 0\)"):
                checked_answers(table, labels)


def test_sums_within_the_tolerance_are_accepted():
    for total, accepted in ((1.00095, True), (0.99905, True), (1.0011, False)):
        table = np.array([[0.5, total - 0.5]], dtype=np.float32)
        if accepted:
            checked_answers(table, [0])
        else:
            with pytest.raises(ValueError, match="sums to 1.0011 at position 0"):
                checked_answers(table, [0])
