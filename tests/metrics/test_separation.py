import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr, wasserstein_distance
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
    roc_curve,
)

from clue_hf.metrics import bootstrap_interval
from clue_hf.metrics.classification import binary_flip
from clue_hf.metrics.resampled.ood import ood_detection, ood_report
from clue_hf.metrics.separation import (
    Correlation,
    best_threshold,
    residual_correlation,
    uncertainty_accuracy,
    uncertainty_accuracy_at,
    uncertainty_auc,
    uncertainty_calibration_error,
    uncertainty_gap,
    wasserstein_separation,
)


# few different values, so that ties are common
rows = st.lists(st.tuples(st.integers(-3, 3).map(float) | st.floats(-3, 3), st.booleans()), min_size=1, max_size=40)
METRICS = [
    uncertainty_accuracy,
    best_threshold,
    uncertainty_auc,
    residual_correlation,
    wasserstein_separation,
    uncertainty_gap,
    uncertainty_calibration_error,
]


def columns(pairs):
    uncertainty, wrong = np.array(pairs, dtype=float).T
    return uncertainty, wrong > 0


@given(rows)
def test_area_distance_and_gap(pairs):
    uncertainty, wrong = columns(pairs)
    if wrong.all() or not wrong.any():
        for metric in (uncertainty_auc, wasserstein_separation, uncertainty_gap):
            assert math.isnan(metric(uncertainty, wrong))
        return
    assert uncertainty_auc(uncertainty, wrong) == pytest.approx(roc_auc_score(wrong, uncertainty), abs=1e-12)
    expected = wasserstein_distance(uncertainty[wrong], uncertainty[~wrong])
    assert wasserstein_separation(uncertainty, wrong) == pytest.approx(expected, abs=1e-12)
    gap = uncertainty_gap(uncertainty, wrong)
    assert gap == pytest.approx(uncertainty[wrong].mean() - uncertainty[~wrong].mean(), abs=1e-12)
    assert abs(gap) <= expected + 1e-12


@given(rows)
def test_accuracy_is_the_best_over_all_thresholds(pairs):
    uncertainty, wrong = columns(pairs)
    thresholds = [-math.inf, *uncertainty]
    shares = [uncertainty_accuracy_at(uncertainty, wrong, tau) for tau in thresholds]
    assert shares == [np.mean((uncertainty > tau) == wrong) for tau in thresholds]
    assert uncertainty_accuracy(uncertainty, wrong) == max(shares)
    tau = best_threshold(uncertainty, wrong)
    assert uncertainty_accuracy_at(uncertainty, wrong, tau) == max(shares)
    assert math.isfinite(tau)
    larger = [share for share, threshold in zip(shares, thresholds, strict=True) if threshold > tau]
    assert all(share < max(shares) for share in larger)


@given(rows)
def test_correlation(pairs):
    uncertainty, wrong = columns(pairs)
    for residual in (wrong, uncertainty**2 + wrong):
        if len(uncertainty) < 2 or min(np.ptp(uncertainty), np.ptp(residual.astype(float))) < 1e-6:
            continue
        expected = pearsonr(uncertainty, residual.astype(float)).statistic
        assert residual_correlation(uncertainty, residual) == pytest.approx(expected, abs=1e-7)


def test_correlation_of_extreme_and_constant_numbers():
    wrong = [0, 1, 0, 1, 1]
    for scale in (1e-200, 1.0, 1e200):
        assert residual_correlation(np.array([1, 2, 1, 2, 2]) * scale, wrong) == pytest.approx(1)
        assert residual_correlation(np.array([2, 1, 2, 1, 1]) * scale, wrong) == pytest.approx(-1)
    assert math.isnan(residual_correlation([0.1] * 5, wrong))
    assert math.isnan(residual_correlation([1, 2, 3], [1, 1, 1]))
    assert math.isnan(residual_correlation([1.0], [1.0]))
    # a resample of one answer alone: the mean of three times 0.39 is not 0.39
    correlation = Correlation(np.array([0, 0.39, 1]), np.array([0, 0.39, 1]))
    assert math.isnan(correlation(np.array([0, 3, 0])))
    assert correlation(np.array([1, 2, 0])) == pytest.approx(1)


def test_known_cases():
    uncertainty, wrong = [0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1]
    assert uncertainty_accuracy(uncertainty, wrong) == uncertainty_auc(uncertainty, wrong) == 1
    assert best_threshold(uncertainty, wrong) == 0.2
    assert wasserstein_separation(uncertainty, wrong) == pytest.approx(0.7)
    # upside down: no threshold is better than none, and the distance does not see it
    assert uncertainty_auc(uncertainty, [1, 1, 0, 0]) == 0
    assert uncertainty_accuracy(uncertainty, [1, 1, 0, 0]) == 0.5
    assert wasserstein_separation(uncertainty, [1, 1, 0, 0]) == pytest.approx(0.7)
    assert uncertainty_gap(uncertainty, [1, 1, 0, 0]) == pytest.approx(-0.7)
    # a constant: everything certain, or everything uncertain
    assert (uncertainty_accuracy([0.5] * 4, [1, 0, 0, 0]), best_threshold([0.5] * 4, [1, 0, 0, 0])) == (0.75, 0.5)
    assert uncertainty_accuracy([0.5] * 4, [1, 1, 1, 0]) == 0.75
    assert best_threshold([0.5] * 4, [1, 1, 1, 0]) == np.nextafter(0.5, 0)
    assert uncertainty_auc([0.5] * 4, [1, 0, 0, 0]) == 0.5
    assert uncertainty_calibration_error([0.25] * 4, [1, 0, 0, 0]) == pytest.approx(0)
    assert uncertainty_calibration_error([0.0, 1.0], [1, 0]) == 1


@pytest.mark.parametrize("metric", METRICS)
def test_bad_input_is_located(metric):
    assert math.isnan(metric([], []))
    with pytest.raises(ValueError, match="`uncertainty` is nan at position 1"):
        metric([0.1, math.nan], [0, 1])
    with pytest.raises(ValueError, match="differ in length"):
        metric([0.1, 0.2], [0, 1, 1])
    if metric is not residual_correlation:  # which takes any residual
        with pytest.raises(ValueError, match="`wrong` is 2.0 at position 1; it must be 0 or 1"):
            metric([0.1, 0.2], [0, 2])


def test_calibration_of_an_uncertainty_beyond_one_is_refused():
    with pytest.raises(ValueError, match=r"`uncertainty` is 1.2 at position 1; it must lie in \[0, 1\]"):
        uncertainty_calibration_error([0.1, 1.2], [0, 1])


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3)), min_size=1, max_size=30), st.integers(-1, 3)
)
def test_flip_against_scikit_learn(triples, tau):
    predictions, labels, uncertainty = np.array(triples, dtype=float).T
    flipped = np.where(uncertainty > tau, 1 - predictions, predictions)
    for positive in (0, 1):
        found = binary_flip(predictions, labels, uncertainty, tau, positive=positive)
        options = {"pos_label": positive, "zero_division": np.nan}
        expected = {
            "error": np.mean(predictions != labels),
            "flip_error": np.mean(flipped != labels),
            "flip_f1": f1_score(labels, flipped, **options),
            "flip_precision": precision_score(labels, flipped, **options),
            "flip_tpr": recall_score(labels, flipped, **options),
            "flip_tnr": recall_score(labels, flipped, **{**options, "pos_label": 1 - positive}),
        }
        assert found == pytest.approx(expected, nan_ok=True)
    accuracy = uncertainty_accuracy_at(uncertainty, predictions != labels, tau)
    assert found["flip_error"] == pytest.approx(1 - accuracy)


def test_the_best_threshold_leaves_the_fewest_errors_after_the_flip():
    generator = np.random.default_rng(0)
    uncertainty = generator.random(200)
    predictions = generator.integers(2, size=200)
    labels = np.where(generator.random(200) < uncertainty, 1 - predictions, predictions)
    tau = best_threshold(uncertainty, predictions != labels)
    errors = [binary_flip(predictions, labels, uncertainty, other)["flip_error"] for other in uncertainty]
    found = binary_flip(predictions, labels, uncertainty, tau)
    assert found["flip_error"] == min(errors) < found["error"]


def test_flip_takes_probabilities_too():
    probabilities = [[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]]
    expected = binary_flip([0, 1, 1], [0, 0, 1], [0.1, 0.9, 0.8], 0.85)
    assert binary_flip(probabilities, [0, 0, 1], [0.1, 0.9, 0.8], 0.85) == expected
    assert expected["flip_error"] == 0
    assert all(math.isnan(value) for value in binary_flip([], [], [], 0.5).values())
    with pytest.raises(ValueError, match="`labels` is 2 at position 2"):
        binary_flip(probabilities, [0, 0, 2], [0.1, 0.9, 0.8], 0.5)
    with pytest.raises(ValueError, match="`positive` is 2"):
        binary_flip(probabilities, [0, 0, 1], [0.1, 0.9, 0.8], 0.5, positive=2)
    with pytest.raises(ValueError, match="differ in length"):
        binary_flip([0, 1], [0, 1], [0.1], 0.5)


numbers = st.lists(st.integers(0, 9).map(float) | st.floats(0, 9), min_size=1, max_size=40)


@given(numbers, numbers)
def test_detection_against_scikit_learn(inside, outside):
    found = ood_detection(inside, outside)
    scores, truth = [*inside, *outside], [0] * len(inside) + [1] * len(outside)
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    expected = {
        "ood_auroc": roc_auc_score(truth, scores),
        "ood_aupr": average_precision_score(truth, scores),
        "ood_fpr95": false[true >= 0.95].min(),
    }
    assert found == pytest.approx(expected, abs=1e-12)


def test_detection_finds_the_ninety_fifth_percent_exactly():
    # 19 of 20 are above all of the others, so that is all it takes
    assert ood_detection(range(5), [-1] + [10] * 19)["ood_fpr95"] == 0
    assert ood_detection(range(5), [-1] + [10] * 18)["ood_fpr95"] == 1


@pytest.mark.parametrize("digits", [6, 1])
def test_detection_intervals_are_those_of_the_plain_bootstrap(digits):
    generator = np.random.default_rng(2)
    inside, outside = np.round(generator.random(40), digits), np.round(generator.random(25) + 0.3, digits)
    scores, truth = np.append(inside, outside), np.repeat([0, 1], [40, 25])
    report = ood_report(inside, outside, resamples=50, level=0.8, seed=3)
    assert list(report) == ["ood_auroc", "ood_aupr", "ood_fpr95"]
    for name, entry in report.items():

        def metric(scores, truth, name=name):
            return ood_detection(scores[truth == 0], scores[truth == 1])[name]

        plain = bootstrap_interval(metric, scores, truth, resamples=50, level=0.8, seed=3)
        assert entry == {
            "value": pytest.approx(plain.value),
            "low": pytest.approx(plain.low),
            "high": pytest.approx(plain.high),
            "n": 65,
            "reason": None,
        }


def test_detection_needs_examples_of_both():
    assert all(math.isnan(value) for value in ood_detection([], [1.0]).values())
    assert all(math.isnan(value) for value in ood_detection([], []).values())
    entry = {"value": None, "low": None, "high": None, "n": 2, "reason": "no examples from out of the distribution"}
    assert ood_report([1.0, 2.0], [], resamples=5)["ood_aupr"] == entry
    assert ood_report([], [1.0], resamples=0)["ood_fpr95"]["reason"] == "no examples from within the distribution"
    with pytest.raises(ValueError, match="`uncertainty_out` is inf at position 0"):
        ood_detection([1.0], [math.inf])
