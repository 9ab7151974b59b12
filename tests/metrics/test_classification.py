"""Calibration errors are also checked against recorded numbers: see tests/fixtures/calibration/record.py."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.metrics import brier_score_loss, log_loss

from clue_hf.metrics import confidence_calibration_error
from clue_hf.metrics.classification import (
    adaptive_calibration_error,
    brier_score,
    classification_error,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    negative_log_likelihood,
    normalized_entropy,
)


RECORDED = json.loads((Path(__file__).parents[1] / "fixtures/calibration/recorded.json").read_text())
OF_ANSWERS = [
    classification_error,
    negative_log_likelihood,
    brier_score,
    expected_calibration_error,
    adaptive_calibration_error,
    classwise_calibration_error,
    debiased_calibration_error,
]


@st.composite
def answers(draw, min_size=1, max_size=40):
    """Probabilities in steps, with ties, zeros, ones and values on the edges of bins, and labels."""
    classes = draw(st.integers(2, 4))
    n = draw(st.integers(min_size, max_size))
    row = st.lists(st.integers(0, 5), min_size=classes, max_size=classes).filter(any)
    weights = np.array(draw(st.lists(row, min_size=n, max_size=n)), dtype=float)
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    return weights / weights.sum(axis=1, keepdims=True), np.array(labels)


def random_answers(seed, n=200, classes=5):
    generator = np.random.default_rng(seed)
    probabilities = softmax(generator.normal(size=(n, classes)) * 2, axis=1)
    return probabilities, generator.integers(classes, size=n)


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: str(len(case["logits"][0])))
def test_calibration_errors_of_other_libraries(case):
    probabilities = softmax(np.array(case["logits"]), axis=1)
    recorded = case["metrics"]
    # torchmetrics sums in single precision
    assert expected_calibration_error(probabilities, case["labels"]) == pytest.approx(recorded["ece"], abs=1e-6)
    classwise = classwise_calibration_error(probabilities, case["labels"])
    assert classwise == pytest.approx(recorded["ece_classwise"], abs=1e-6)
    debiased = debiased_calibration_error(probabilities, case["labels"])
    assert debiased == pytest.approx(recorded["ece_debiased"], abs=1e-9)


def test_the_recorded_cases_tell_something():
    debiased = [case["metrics"]["ece_debiased"] for case in RECORDED["cases"]]
    assert min(debiased) == 0 < sorted(debiased)[1]
    assert all(case["metrics"]["ece"] > 0.05 for case in RECORDED["cases"])


def test_an_edge_belongs_to_the_bin_below_it():
    edges = RECORDED["edges"]
    confidence, correct, ours = np.array(edges["confidence"]), np.array(edges["correct"]), edges["bins"]
    # (0.25, 0.5], (0.5, 0.75] and (0.75, 1]
    by_hand = abs(1 - 0.5) + abs(0 + 0 - 0.75 - 0.6) + abs(1 + 0 - 1 - 0.8)
    assert confidence_calibration_error(confidence, correct, ours) == pytest.approx(by_hand / 5)
    # torchmetrics: [0.5, 0.75), [0.75, 1) and 1 by itself
    theirs = abs(1 + 0 - 0.5 - 0.6) + abs(0 + 0 - 0.75 - 0.8) + abs(1 - 1)
    assert edges["ece"] == pytest.approx(theirs / 5, abs=1e-6)
    probabilities = np.column_stack([confidence, 1 - confidence])
    assert expected_calibration_error(probabilities, 1 - correct, num_bins=4) == pytest.approx(by_hand / 5)
    for k in range(1, 15):  # k / 15 and what is above it are in two bins: their gaps do not cancel
        edge = k / 15
        above = edge + 1e-12
        gaps = [abs(1 - edge), abs(0 - above)]
        assert confidence_calibration_error([edge, above], [1, 0]) == pytest.approx(sum(gaps) / 2), k
        assert confidence_calibration_error([edge, edge - 1 / 30], [1, 0]) == pytest.approx(
            abs(1 - edge - edge + 1 / 30) / 2
        )


@given(answers())
def test_scores_against_scikit_learn(pair):
    probabilities, labels = pair
    classes = np.arange(probabilities.shape[1])
    expected = log_loss(labels, probabilities, labels=classes)
    assert negative_log_likelihood(probabilities, labels) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    expected = brier_score_loss(labels, probabilities, labels=classes, scale_by_half=False)
    assert brier_score(probabilities, labels) == pytest.approx(expected, abs=1e-12)
    assert classification_error(probabilities, labels) == np.mean(probabilities.argmax(axis=1) != labels)
    expected = entropy(probabilities, axis=1) / np.log(len(classes))
    assert normalized_entropy(probabilities) == pytest.approx(expected, abs=1e-12)


@given(answers())
def test_bounds(pair):
    probabilities, labels = pair
    correct = probabilities.argmax(axis=1) == labels
    overall = abs(correct.mean() - probabilities.max(axis=1).mean())
    for metric in (expected_calibration_error, adaptive_calibration_error):
        assert overall - 1e-12 <= metric(probabilities, labels) <= 1
        assert metric(probabilities, labels, num_bins=1) == pytest.approx(overall)
    assert 0 <= classwise_calibration_error(probabilities, labels) <= 1
    assert ((normalized_entropy(probabilities) >= 0) & (normalized_entropy(probabilities) <= 1)).all()


@given(answers(), st.randoms())
def test_order_of_the_examples_does_not_matter(pair, random):
    probabilities, labels = pair
    rows = list(range(len(labels)))
    random.shuffle(rows)
    for metric in OF_ANSWERS:
        expected = pytest.approx(metric(probabilities, labels), abs=1e-9, nan_ok=True)
        assert metric(probabilities[rows], labels[rows]) == expected, metric


def test_adaptive_bins_hold_equally_many():
    probabilities, labels = random_answers(0, n=157)
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    bins = np.array_split(np.argsort(confidence), 15)
    expected = sum(len(rows) * abs(correct[rows].mean() - confidence[rows].mean()) for rows in bins) / 157
    assert adaptive_calibration_error(probabilities, labels) == pytest.approx(expected)


def test_classwise_error_sees_what_the_answers_hide():
    # always right with 0.6, as the confidence says in the mean; but the other two classes are confused
    probabilities = np.array([[0.6, 0.4, 0.0]] * 10)
    labels = np.array([0] * 6 + [2] * 4)
    assert expected_calibration_error(probabilities, labels) == pytest.approx(0)
    assert classwise_calibration_error(probabilities, labels) == pytest.approx((0 + 0.4 + 0.4) / 3)


def test_debiased_error_is_less_biased():
    """Of calibrated answers the error is 0; on 100 of them the plain estimates are far from it."""
    generator = np.random.default_rng(1)
    squares, plain = [], []
    for _ in range(300):
        confidence = generator.uniform(0.5, 1, size=100)
        probabilities = np.column_stack([confidence, 1 - confidence])
        labels = (generator.random(100) > confidence).astype(int)
        squares.append(debiased_calibration_error(probabilities, labels) ** 2)
        plain.append(expected_calibration_error(probabilities, labels) ** 2)
    assert np.mean(squares) < np.mean(plain) / 2
    assert debiased_calibration_error([[0.9, 0.1]] * 2, [1, 1]) == pytest.approx(0.9)
    assert debiased_calibration_error([[0.9, 0.1]] * 10, [0] * 9 + [1]) == 0
    # the bin of one example counts as 0, but in n
    several = [[0.9, 0.1]] * 2 + [[0.6, 0.4]]
    assert debiased_calibration_error(several, [1, 1, 1]) == pytest.approx(math.sqrt(2 / 3) * 0.9)
    assert math.isnan(debiased_calibration_error([[0.9, 0.1], [0.6, 0.4]], [1, 1]))


def test_certain_and_uniform_rows():
    assert normalized_entropy([[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]]).tolist() == pytest.approx([0, 1])
    assert normalized_entropy(np.full((1, 5), 1 / 5))[0] == 1  # not above, by rounding
    assert normalized_entropy([[1.0000001, 0]])[0] == 0
    assert negative_log_likelihood([[1.0, 0.0]], [1]) == pytest.approx(-math.log(np.finfo(float).eps))
    assert brier_score([[1.0, 0.0]], [1]) == 2
    assert expected_calibration_error([[0.0, 1.0]], [0]) == 1
    single = np.array([[0.9999999, 1e-7, 4e-8]], dtype=np.float32)  # sums to 1 but for rounding
    assert classification_error(single, [0]) == 0


@pytest.mark.parametrize("metric", OF_ANSWERS)
def test_bad_input_is_located(metric):
    good = [[0.5, 0.5], [0.2, 0.8]]
    with pytest.raises(ValueError, match=r"`probabilities` is nan at position \(1, 0\)"):
        metric([[0.5, 0.5], [math.nan, 0.8]], [0, 1])
    with pytest.raises(ValueError, match=r"`probabilities` is -0.1 at position \(0, 1\)"):
        metric([[1.1, -0.1], [0.2, 0.8]], [0, 1])
    with pytest.raises(ValueError, match="sums to 1.5 at position 1"):
        metric([[0.5, 0.5], [0.7, 0.8]], [0, 1])
    for labels, shown in (([0, 2], "2 at position 1"), ([-100, 0], "-100 at position 0"), ([0, 0.5], "0.5")):
        with pytest.raises(ValueError, match=f"`labels` is {shown}"):
            metric(good, labels)
    with pytest.raises(ValueError, match="2 rows of probabilities and 3 labels"):
        metric(good, [0, 1, 1])
    for bad in ([0.1, 0.9], [[1.0], [1.0]]):
        with pytest.raises(ValueError, match=r"it must be \(examples, classes\)"):
            metric(bad, [0, 0])
    assert math.isnan(metric([], []))
    assert math.isnan(metric(np.zeros((0, 3)), []))


@settings(max_examples=30)
@given(answers())
def test_lists_and_tensors_are_as_good_as_arrays(pair):
    import torch

    probabilities, labels = pair
    for metric in OF_ANSWERS:
        expected = pytest.approx(metric(probabilities, labels), abs=0, nan_ok=True)
        assert metric(probabilities.tolist(), labels.tolist()) == expected
        assert metric(torch.tensor(probabilities), torch.tensor(labels)) == expected
