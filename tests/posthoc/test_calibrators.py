"""Calibrators against scikit-learn, and against numbers recorded by tests/fixtures/calibration/record.py."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression

from clue_hf.metrics.classification import expected_calibration_error, negative_log_likelihood
from clue_hf.posthoc.calibrators import (
    CALIBRATORS,
    TEMPERATURES,
    BetaCalibrator,
    IsotonicCalibrator,
    PlattCalibrator,
    TemperatureCalibrator,
    load_calibrator,
)


RECORDED = json.loads((Path(__file__).parents[1] / "fixtures/calibration/recorded.json").read_text())
#: how closely the recorded calibrators were fitted
AGREEMENT = {"temperature": 2e-6, "isotonic": 1e-8, "beta": 5e-6, "beta_betacal": 5e-5}
every_calibrator = pytest.mark.parametrize("name", CALIBRATORS)


def make_data(seed, n=2000, classes=4, factor=3.0):
    """Logits that are `factor` times those by which the labels are drawn."""
    generator = np.random.default_rng(seed)
    truth = generator.normal(size=(n, classes)) * 1.5
    labels = np.array([generator.choice(classes, p=row) for row in softmax(truth, axis=1)])
    return softmax(factor * truth, axis=1), labels, softmax(truth, axis=1)


class Given(ClassifierMixin, BaseEstimator):
    """A classifier that says what it is given."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return self.classes_[X.argmax(axis=1)]


def by_scikit_learn(method, scores, labels, new):
    """scikit-learn's own calibration of given scores: class by class, then divided by the sum."""
    fitted = CalibratedClassifierCV(FrozenEstimator(Given().fit(scores, labels)), method=method).fit(scores, labels)
    return fitted.predict_proba(new)


def assert_rows_are_distributions(probabilities):
    assert np.isfinite(probabilities).all()
    assert (probabilities >= 0).all()
    assert probabilities.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: str(len(case["logits"][0])))
def test_calibrators_of_other_libraries(case):
    probabilities, labels = softmax(np.array(case["logits"]), axis=1), np.array(case["labels"])
    half = len(labels) // 2
    for name, recorded in case["calibrated"].items():
        calibrator = CALIBRATORS[name.removesuffix("_betacal")].fit(probabilities[:half], labels[:half])
        raw = probabilities[half : half + len(recorded)]
        mapped, recorded = calibrator(raw), np.array(recorded)
        if recorded.ndim == 1:
            raw, mapped = raw[:, 1], mapped[:, 1]
        assert np.abs(raw - recorded).max() > 0.02, "there was nothing to calibrate"
        assert np.abs(mapped - recorded).max() < AGREEMENT[name], name


def test_every_calibrator_was_recorded():
    assert {name for case in RECORDED["cases"] for name in case["calibrated"]} == set(AGREEMENT)


@pytest.mark.parametrize("classes", [2, 4])
def test_isotonic_is_that_of_scikit_learn(classes):
    probabilities, labels, _ = make_data(0, classes=classes)
    fit, new = slice(0, 1000), probabilities[1000:]
    mapped = np.column_stack([
        IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        .fit(probabilities[fit, c], labels[fit] == c)
        .predict(new[:, c])
        for c in range(classes)
    ])  # fmt: skip
    mapped /= mapped.sum(axis=1, keepdims=True)
    assert IsotonicCalibrator.fit(probabilities[fit], labels[fit])(new) == pytest.approx(mapped, abs=1e-12)
    assert (mapped.argmax(axis=1) != new.argmax(axis=1)).any()  # it may change the answer
    if classes > 2:
        theirs = by_scikit_learn("isotonic", probabilities[fit], labels[fit], new)
        assert theirs == pytest.approx(mapped, abs=1e-12)


def test_isotonic_leaves_a_row_that_would_be_all_zero():
    probabilities = np.array([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2], [0.3, 0.2, 0.5], [0.9, 0.05, 0.05]] * 3)
    labels = np.array([1, 2, 0, 0] * 3)
    calibrator = IsotonicCalibrator(knots=[[0.4, 0.6]] * 3, values=[[0.0, 1.0]] * 3)
    row = [0.4, 0.35, 0.25]
    assert calibrator([row, [0.5, 0.3, 0.2]]).tolist() == [row, [1, 0, 0]]
    assert_rows_are_distributions(IsotonicCalibrator.fit(probabilities, labels)(probabilities))


@pytest.mark.parametrize("factor", [3.0, 1.0, 0.4])
def test_temperature_finds_the_factor(factor):
    probabilities, labels, truth = make_data(1, n=8000, factor=factor)
    calibrator = TemperatureCalibrator.fit(probabilities, labels)
    assert calibrator.temperature == pytest.approx(factor, rel=0.05)
    assert calibrator(probabilities) == pytest.approx(truth, abs=0.03)
    assert (calibrator(probabilities).argmax(axis=1) == probabilities.argmax(axis=1)).all()


def test_temperature_is_the_best_and_that_of_scikit_learn():
    probabilities, labels, _ = make_data(2)
    best = TemperatureCalibrator.fit(probabilities, labels)
    loss = negative_log_likelihood(best(probabilities), labels)
    for factor in (0.99, 1.01):
        other = TemperatureCalibrator(best.temperature * factor)
        assert negative_log_likelihood(other(probabilities), labels) > loss
    theirs = by_scikit_learn("temperature", np.log(probabilities), labels, np.log(probabilities))
    assert best(probabilities) == pytest.approx(theirs, abs=1e-8)


def test_temperature_of_logits_is_exact():
    logits = np.random.default_rng(3).normal(size=(50, 5)) * 10
    mapped = TemperatureCalibrator(2.5)(softmax(logits, axis=1))
    assert mapped == pytest.approx(softmax(logits / 2.5, axis=1), abs=1e-12)


def test_platt_is_that_of_scikit_learn():
    probabilities, labels, _ = make_data(4)
    fit, new = slice(0, 300), probabilities[300:]
    theirs = by_scikit_learn("sigmoid", logit(probabilities[fit]), labels[fit], logit(new))
    assert PlattCalibrator.fit(probabilities[fit], labels[fit])(new) == pytest.approx(theirs, abs=1e-6)


def beta_by_bounded_minimisation(probability, target):
    features = np.column_stack([np.log(probability), -np.log1p(-probability)])

    def loss(abc):
        return np.logaddexp(0, np.where(target, -1, 1) * (features @ abc[:2] + abc[2])).mean()

    return minimize(loss, [1.0, 1.0, 0.0], bounds=[(0, None), (0, None), (None, None)], tol=1e-14).x


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [(2.0, 0.5, 1.0), (0.0, 1.5, 0.3), (1.2, 0.0, -1.0), (-1.0, 2.0, 0.0), (1.0, -1.0, 0.5), (-1.0, -2.0, 0.0)],
)
def test_beta_is_the_best_under_its_constraints(a, b, c):
    """Labels drawn by a beta map, some of which break the constraints; the optimum by another way."""
    generator = np.random.default_rng(5)
    probability = generator.beta(1.2, 1.2, size=3000)
    labels = generator.random(3000) < expit(a * np.log(probability) - b * np.log1p(-probability) + c)
    probabilities = np.column_stack([1 - probability, probability])
    calibrator = BetaCalibrator.fit(probabilities, labels)
    found = calibrator.a[1], calibrator.b[1], calibrator.c[1]
    assert found == pytest.approx(beta_by_bounded_minimisation(probability, labels), abs=2e-3)
    if min(a, b) >= 0:
        assert found == pytest.approx((a, b, c), abs=0.35)
    # the other class is the mirror image, so that nothing is left to normalise
    assert (calibrator.b[0], calibrator.a[0], -calibrator.c[0]) == pytest.approx(found, abs=1e-3)


@every_calibrator
def test_calibration_helps_on_new_data(name):
    probabilities, labels, truth = make_data(6, n=6000)
    calibrator = CALIBRATORS[name].fit(probabilities[:3000], labels[:3000])
    mapped, new, raw = calibrator(probabilities[3000:]), labels[3000:], probabilities[3000:]
    assert_rows_are_distributions(mapped)
    assert expected_calibration_error(mapped, new) < expected_calibration_error(raw, new) / 3
    # of the loss above that of the truth, most goes
    best = negative_log_likelihood(truth[3000:], new)
    assert negative_log_likelihood(mapped, new) - best < (negative_log_likelihood(raw, new) - best) / 3


@every_calibrator
def test_saved_and_loaded_it_is_the_same(name, tmp_path):
    probabilities, labels, _ = make_data(7, n=300)
    calibrator = CALIBRATORS[name].fit(probabilities, labels)
    path = tmp_path / "calibrator.json"
    calibrator.save(path)
    for loaded in (
        CALIBRATORS[name].load(path),
        load_calibrator(path),
        type(calibrator).from_dict(calibrator.to_dict()),
    ):
        assert type(loaded) is CALIBRATORS[name]
        assert loaded == calibrator
        assert (loaded(probabilities) == calibrator(probabilities)).all()
    content = json.loads(path.read_text())
    assert (content["name"], content["version"]) == (name, 1)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "calibrator.json"
    TemperatureCalibrator(2.0).save(path)
    with pytest.raises(ValueError, match="Expected 'beta', version 1, got 'temperature', version 1"):
        BetaCalibrator.load(path)
    content = json.loads(path.read_text())
    for changed, message in (
        ({**content, "version": 2}, "got 'temperature', version 2"),
        ({"name": "temperature", "version": 1}, r"Expected the keys \['temperature'\]"),
        ({**content, "bias": 1}, r"got \['temperature', 'bias'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            TemperatureCalibrator.from_dict(changed)
    path.write_text('{"name": "histogram"}')
    with pytest.raises(ValueError, match="holds 'histogram', which is none of isotonic, temperature, platt, beta"):
        load_calibrator(path)


CERTAIN = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]] * 4)
UNSURE = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]] * 4)


@every_calibrator
@pytest.mark.parametrize(
    ("probabilities", "labels"),
    [
        (UNSURE, [0, 1, 0, 0, 1, 1] * 2),
        (UNSURE, [0] * 12),
        (UNSURE, [0, 1, 2] * 4),
        (UNSURE, [1, 2, 0] * 4),
        (CERTAIN, [0, 1, 2] * 4),
        (CERTAIN, [1, 2, 0] * 4),
        (CERTAIN, [0, 1, 2, 1, 1, 2] * 2),
        (UNSURE[:1], [0]),
        (UNSURE[:1], [2]),
        (np.full((6, 3), 1 / 3), [0, 1, 2, 0, 1, 0]),
    ],
    ids=[
        "a class missing", "one class", "all right", "all wrong", "certain and right", "certain and wrong",
        "certain and some wrong", "one, right", "one, wrong", "uniform",
    ],
)  # fmt: skip
def test_degenerate_data(name, probabilities, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrator = CALIBRATORS[name].fit(probabilities, labels)
        for new in (probabilities, CERTAIN, UNSURE, np.zeros((0, 3))):
            mapped = calibrator(new)
            assert mapped.shape == new.shape
            assert_rows_are_distributions(mapped)
    assert type(calibrator).from_dict(json.loads(json.dumps(calibrator.to_dict(), allow_nan=False))) == calibrator


@pytest.mark.parametrize("name", ["isotonic", "platt", "beta"])
def test_a_class_without_evidence_keeps_its_probability(name):
    calibrator = CALIBRATORS[name].fit(UNSURE, [0] * 12)
    assert calibrator(UNSURE) == pytest.approx(UNSURE, abs=1e-12)
    # the last class was never seen: before the rows are divided by their sums it stays
    calibrator = CALIBRATORS[name].fit(UNSURE, [0, 1, 0, 1, 0, 1] * 2)
    mapped = calibrator(UNSURE)
    assert (mapped[:, 2] > 0.05).all()


def test_temperature_stops_at_its_bounds():
    assert TemperatureCalibrator.fit(UNSURE, [0, 1, 2] * 4).temperature == TEMPERATURES[0]
    assert TemperatureCalibrator.fit(UNSURE, [2, 2, 0] * 4).temperature == TEMPERATURES[1]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(*[st.integers(0, 4)] * 3, st.integers(0, 2)).filter(lambda row: any(row[:3])), min_size=1),
    st.sampled_from(list(CALIBRATORS)),
)
def test_any_data_gives_distributions(rows, name):
    table = np.array(rows, dtype=float)
    probabilities = table[:, :3] / table[:, :3].sum(axis=1, keepdims=True)
    calibrator = CALIBRATORS[name].fit(probabilities, table[:, 3])
    assert_rows_are_distributions(calibrator(probabilities))
    assert_rows_are_distributions(calibrator(CERTAIN))


@every_calibrator
def test_bad_input_is_located(name):
    with pytest.raises(ValueError, match="no examples"):
        CALIBRATORS[name].fit([], [])
    with pytest.raises(ValueError, match="`labels` is 3 at position 1"):
        CALIBRATORS[name].fit(UNSURE[:2], [0, 3])
    with pytest.raises(ValueError, match="sums to 3 at position 0"):
        CALIBRATORS[name].fit([[1.0, 2.0]], [0])
    calibrator = CALIBRATORS[name].fit(UNSURE, [0, 1, 2] * 4)
    with pytest.raises(ValueError, match=r"`probabilities` is nan at position \(0, 1\)"):
        calibrator([[0.5, np.nan, 0.5]])
    if name != "temperature":
        with pytest.raises(ValueError, match="has 2 classes; the calibrator has 3"):
            calibrator([[0.5, 0.5]])
