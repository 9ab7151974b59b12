import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax, xlogy

from clue_hf.metrics import (
    METRICS,
    alignment_error,
    augrc,
    aurc,
    bootstrap_interval,
    coverage_at_risk,
    e_aurc,
    metric_info,
    paired_bootstrap,
    prediction_rejection_ratio,
    risk_at_coverage,
)
from clue_hf.metrics.classification import (
    adaptive_calibration_error,
    binary_flip,
    brier_score,
    classification_error,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    negative_log_likelihood,
    normalized_entropy,
)
from clue_hf.metrics.resampled.classification import (
    REJECTION_METRICS,
    classification_report,
    paired_classification_differences,
)
from clue_hf.metrics.separation import (
    best_threshold,
    residual_correlation,
    uncertainty_accuracy,
    uncertainty_accuracy_at,
    uncertainty_auc,
    uncertainty_calibration_error,
    uncertainty_gap,
    wasserstein_separation,
)


TAU = 0.6
# the metrics of a report but those of rejection, and of other data or prediction sets
OTHERS = ("mean_uncertainty", "conformal_coverage", "prediction_set_size", "group_share")
NAMES = [name for name in METRICS["classes"] if name not in OTHERS and not name.startswith("ood_")]


def wrong(p, y):
    return p.argmax(axis=1) != y


def of_wrong(metric):
    """A metric of the uncertainty and of what is wrong, as one of all three."""
    return lambda p, y, u: metric(u, wrong(p, y))


def of_right(metric, **options):
    return lambda p, y, u: metric(u, 1 - wrong(p, y), **options)


def of_probabilities(metric):
    return lambda p, y, u: metric(p, y)


def loss(p, y):
    return -np.log(np.maximum(p[np.arange(len(y)), y], np.finfo(float).eps))


def entropy_in_nats(p):
    return np.sort(-xlogy(p, p), axis=1).sum(axis=1)


# every metric of a report, one function of probabilities, labels and uncertainty each
FUNCTIONS = {
    "error": of_probabilities(classification_error),
    "ece": of_probabilities(expected_calibration_error),
    "ece_adaptive": of_probabilities(adaptive_calibration_error),
    "ece_debiased": of_probabilities(debiased_calibration_error),
    "ece_classwise": of_probabilities(classwise_calibration_error),
    "brier": of_probabilities(brier_score),
    "nll": of_probabilities(negative_log_likelihood),
    "alignment_error": lambda p, y, u: alignment_error(loss(p, y), entropy_in_nats(p)),
    "uce": of_wrong(uncertainty_calibration_error),
    "uncertainty_accuracy": of_wrong(uncertainty_accuracy),
    "uncertainty_accuracy_val": of_wrong(partial(uncertainty_accuracy_at, tau=TAU)),
    "uncertainty_auc": of_wrong(uncertainty_auc),
    "residual_correlation": of_wrong(residual_correlation),
    "residual_correlation_probability": lambda p, y, u: residual_correlation(u, 1 - p[np.arange(len(y)), y]),
    "residual_correlation_nll": lambda p, y, u: residual_correlation(u, loss(p, y)),
    "wasserstein": of_wrong(wasserstein_separation),
    "uncertainty_gap": of_wrong(uncertainty_gap),
    "flip_error": lambda p, y, u: binary_flip(p, y, u, TAU)["flip_error"],
    "flip_f1": lambda p, y, u: binary_flip(p, y, u, TAU)["flip_f1"],
    "flip_precision": lambda p, y, u: binary_flip(p, y, u, TAU)["flip_precision"],
    "flip_tpr": lambda p, y, u: binary_flip(p, y, u, TAU)["flip_tpr"],
    "flip_tnr": lambda p, y, u: binary_flip(p, y, u, TAU)["flip_tnr"],
    "prr": of_right(prediction_rejection_ratio),
    "prr_0.5": of_right(prediction_rejection_ratio, max_rejection=0.5),
    "aurc": of_right(aurc),
    "e_aurc": of_right(e_aurc),
    "augrc": of_right(augrc),
    "risk_at_coverage_0.5": of_right(risk_at_coverage, coverage=0.5),
    "risk_at_coverage_0.8": of_right(risk_at_coverage, coverage=0.8),
    "coverage_at_risk_0.1": of_right(coverage_at_risk, risk=0.1),
    "coverage_at_risk_0.2": of_right(coverage_at_risk, risk=0.2),
}


def functions(classes):
    return {name: metric for name, metric in FUNCTIONS.items() if classes == 2 or not name.startswith("flip")}


def make_answers(seed, n=60, classes=3, digits=6):
    """Probabilities (tied where they have few digits), labels that they say something about, and an uncertainty."""
    generator = np.random.default_rng(seed)
    weights = np.round(softmax(generator.normal(size=(n, classes)) * 2, axis=1), digits) + 10.0**-digits
    probabilities = weights / weights.sum(axis=1, keepdims=True)
    labels = np.array([generator.choice(classes, p=row) for row in probabilities])
    return probabilities, labels, np.round(generator.random(n), digits)


def without_nan(value):
    return None if math.isnan(value) else value


def test_values_are_those_of_the_functions():
    for classes in (2, 5):
        arrays = make_answers(1, 300, classes)
        report = classification_report(*arrays, resamples=0, tau=TAU)
        assert list(report) == list(functions(classes))
        for name, metric in functions(classes).items():
            assert report[name]["value"] == pytest.approx(metric(*arrays), abs=1e-12), name
            assert report[name]["n"] == 300
            assert {"low", "high"}.isdisjoint(report[name])


@pytest.mark.parametrize(
    ("n", "classes", "digits"),
    [(200, 3, 6), (60, 2, 1), (60, 4, 0), (20, 2, 6), (3, 3, 6), (1, 2, 6)],
    ids=["no ties", "ties", "many ties", "less than two in a bin", "three", "one"],
)
def test_intervals_are_those_of_the_plain_bootstrap(n, classes, digits):
    arrays = make_answers(n + digits, n, classes, digits)
    options = {"resamples": 40, "level": 0.8, "seed": 7}
    report = classification_report(*arrays, tau=TAU, **options)
    for name, metric in functions(classes).items():
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
def answers(draw):
    """Probabilities in steps, with ties, zeros, ones and values on the edges of bins; labels; uncertainties."""
    classes, n = draw(st.integers(2, 4)), draw(st.integers(1, 25))
    row = st.lists(st.integers(0, 5), min_size=classes, max_size=classes).filter(any)
    weights = np.array(draw(st.lists(row, min_size=n, max_size=n)), dtype=float)
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    uncertainty = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    return weights / weights.sum(axis=1, keepdims=True), np.array(labels), np.array(uncertainty) / 5


@settings(deadline=None, max_examples=60)
@given(answers(), st.integers(0, 5))
def test_one_resample_of_any_answers(arrays, seed):
    """With one resample both ends of the interval are the metric on it."""
    n, classes = arrays[0].shape
    drawn = np.random.default_rng(seed).integers(n, size=n)
    report = classification_report(*arrays, resamples=1, tau=TAU, seed=seed)
    for name, metric in functions(classes).items():
        assert report[name]["value"] == pytest.approx(without_nan(metric(*arrays)), abs=1e-9), name
        if report[name]["reason"] is None:
            expected = pytest.approx(without_nan(metric(*(array[drawn] for array in arrays))), abs=1e-9)
            assert report[name]["low"] == expected, name
            assert report[name]["high"] == expected
    json.dumps(report, allow_nan=False)


def test_blocks_of_resamples_do_not_matter(monkeypatch):
    arrays = make_answers(3)
    expected = classification_report(*arrays, resamples=30)
    monkeypatch.setattr("clue_hf.metrics.resampled.classification.BLOCK", 1)
    report = classification_report(*arrays, resamples=30)
    assert report == {name: pytest.approx(entry, abs=1e-12) for name, entry in expected.items()}


def test_uncertainty_is_the_normalised_entropy_by_default():
    probabilities, labels, _ = make_answers(4)
    expected = classification_report(probabilities, labels, normalized_entropy(probabilities), resamples=5)
    assert classification_report(probabilities, labels, resamples=5) == expected
    tau = best_threshold(normalized_entropy(probabilities), wrong(probabilities, labels))
    assert expected["uncertainty_accuracy"]["tau"] == tau
    at_tau = classification_report(probabilities, labels, resamples=0, tau=tau)
    assert at_tau["uncertainty_accuracy_val"]["value"] == expected["uncertainty_accuracy"]["value"]
    assert "uncertainty_accuracy_val" not in expected
    assert not any(name.startswith("flip") for name in at_tau)  # three classes


def test_reasons():
    probabilities, labels, uncertainty = make_answers(5, n=12, classes=2)
    right = probabilities.argmax(axis=1)
    cases = {
        ("uncertainty_auc", "all answers are right"): (probabilities, right, uncertainty),
        ("wasserstein", "all answers are wrong"): (probabilities, 1 - right, uncertainty),
        ("residual_correlation", "all answers are right"): (probabilities, right, uncertainty),
        ("residual_correlation_nll", "the uncertainty is constant"): (probabilities, labels, [0.3] * 12),
        ("residual_correlation_probability", "the residual is constant"): ([[0.5, 0.5]] * 12, labels, uncertainty),
        ("uce", "an uncertainty lies outside [0, 1]"): (probabilities, labels, uncertainty + 0.5),
        ("prr", "all qualities are equal"): (probabilities, right, uncertainty),
        ("ece_debiased", "no bin holds two examples"): (probabilities[:1], labels[:1], uncertainty[:1]),
        ("flip_tpr", "no label is positive"): (probabilities, [0] * 12, uncertainty),
        ("flip_tnr", "no label is negative"): (probabilities, [1] * 12, uncertainty),
        ("flip_precision", "no answer is positive"): ([[0.9, 0.1]] * 12, labels, [0.1] * 12),
        ("flip_f1", "no label and no answer is positive"): ([[0.9, 0.1]] * 12, [0] * 12, [0.1] * 12),
    }
    for (name, reason), arrays in cases.items():
        report = classification_report(*arrays, resamples=3, tau=TAU)
        assert report[name]["reason"] == reason
        assert (report[name]["value"], report[name]["low"]) == (None, None)
        for found in report.values():
            assert (found["value"] is None) == (found["reason"] is not None)
    # a reason for one metric is none for the others
    assert report["ece"]["reason"] is None


def test_no_examples():
    report = classification_report([], [], resamples=3, tau=TAU)
    assert {found["value"] for found in report.values()} == {None}
    assert {report[name]["reason"] for name in NAMES} == {"no examples"}
    json.dumps(report, allow_nan=False)


def test_labels_of_no_probability_are_counted():
    probabilities = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    report = classification_report(probabilities, [1, 1, 0], resamples=3)
    floored = {name for name, found in report.items() if found.get("floored") == 1}
    assert floored == {"nll", "alignment_error", "residual_correlation_nll"}
    assert "floored" not in classification_report(probabilities, [0, 1, 0], resamples=0)["nll"]


def test_the_positive_class_and_the_number_of_bins():
    arrays = make_answers(6, classes=2)
    report = classification_report(*arrays, resamples=0, tau=TAU, positive=0, num_bins=4)
    assert report["flip_f1"]["value"] == pytest.approx(binary_flip(*arrays, TAU, positive=0)["flip_f1"])
    p, y, u = arrays
    expected = {
        "ece": expected_calibration_error(p, y, num_bins=4),
        "ece_adaptive": adaptive_calibration_error(p, y, num_bins=4),
        "ece_debiased": debiased_calibration_error(p, y, num_bins=4),
        "ece_classwise": classwise_calibration_error(p, y, num_bins=4),
        "uce": uncertainty_calibration_error(u, wrong(p, y), num_bins=4),
        "alignment_error": alignment_error(loss(p, y), entropy_in_nats(p), num_bins=4),
    }
    assert {name: report[name]["value"] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_differences_are_those_of_the_plain_paired_bootstrap(classes):
    p_a, labels, u_a = make_answers(8, 40, classes)
    p_b, _, u_b = make_answers(9, 40, classes)
    options = {"resamples": 30, "level": 0.9, "seed": 2}
    found = paired_classification_differences(p_a, p_b, labels, u_a, u_b, TAU, TAU, **options)
    assert list(found) == list(functions(classes))
    for name, metric in functions(classes).items():
        plain = paired_bootstrap(metric, (p_a, labels, u_a), (p_b, labels, u_b), **options)
        entry = found[name]
        assert [entry["value"], entry["low"], entry["high"]] == pytest.approx(
            [plain.value, plain.low, plain.high], abs=1e-9
        ), name
        assert (entry["p_value"], entry["n"], entry["reason"]) == (pytest.approx(plain.p_value), 40, None)


def test_differences_of_what_both_have():
    probabilities, labels, uncertainty = make_answers(10)
    same = paired_classification_differences(probabilities, probabilities, labels, tau_a=0.5, resamples=5)
    assert "uncertainty_accuracy_val" not in same
    assert {entry["value"] for entry in same.values()} == {0}
    assert {entry["p_value"] for entry in same.values()} == {1}
    beyond = paired_classification_differences(
        probabilities, probabilities, labels, uncertainty_b=uncertainty + 2, resamples=5
    )
    assert beyond["uce"]["reason"] == "an uncertainty lies outside [0, 1]"
    assert beyond["uce"]["value"] is None
    with pytest.raises(ValueError, match="59 rows of probabilities and 60 labels"):
        paired_classification_differences(probabilities[1:], probabilities, labels)
    with pytest.raises(ValueError, match="Expected resamples"):
        paired_classification_differences(probabilities, probabilities, labels, resamples=-1)


def test_every_metric_has_a_definition():
    report = classification_report(*make_answers(11, classes=2), resamples=0, tau=TAU)
    assert list(report) == [*NAMES, *REJECTION_METRICS]
    definitions = {name: metric_info(name, "classes").definition for name in report}
    assert len(set(definitions.values())) == len(definitions)
    assert definitions["prr_0.5"].endswith("max_rejection = 0.5; quality = 1{right}")
    with pytest.raises(ValueError, match="no metric 'bleu'"):
        metric_info("bleu", "classes")


def test_bad_input_is_located():
    probabilities, labels, uncertainty = make_answers(12)
    uncertainty[7] = math.nan
    with pytest.raises(ValueError, match="`uncertainty` is nan at position 7"):
        classification_report(probabilities, labels, uncertainty)
    with pytest.raises(ValueError, match="differ in length"):
        classification_report(probabilities, labels, uncertainty[:5])
    for bad in ({"resamples": -1}, {"resamples": 5, "level": 95}):
        with pytest.raises(ValueError, match="Expected resamples"):
            classification_report(probabilities, labels, **bad)
