"""Quantile recalibration against scikit-learn, numerical integration, scipy's truncated Gaussian, closed forms."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm, truncnorm
from sklearn.isotonic import IsotonicRegression

from clue_hf.metrics import (
    calibration_error_of_pit,
    gaussian_nll,
    interval_coverage,
    probability_integral_transform,
    regression_calibration_error,
)
from clue_hf.posthoc import QuantileCalibrator


def make_data(seed, n=2000, factor=0.4, shift=0.0, noise=None):
    """Standard deviations that are `factor` times the true ones, means that are `shift` of these too low."""
    generator = np.random.default_rng(seed)
    mean, true = generator.normal(size=n), np.exp(0.3 * generator.normal(size=n))
    noise = generator.normal(size=n) if noise is None else noise(generator, n)
    return mean, factor * true, mean + true * (noise + shift)


def mirrored(calibrator):
    """The calibrator of the mirrored targets, but for which side of a knot counts."""
    values = [1 - value for value in reversed(calibrator.values)]
    return QuantileCalibrator([-score for score in reversed(calibrator.scores)], values)


@st.composite
def calibrators(draw):
    """Fitted to standard scores in steps, with ties, some of them beyond what Phi tells from 1."""
    scores = np.array(draw(st.lists(st.integers(-60, 60), min_size=1, max_size=30))) / 4
    if draw(st.booleans()):
        scores = scores**3
    return QuantileCalibrator.fit(np.zeros(len(scores)), np.ones(len(scores)), scores)


@pytest.mark.parametrize("n", [1, 2, 30, 1000])
def test_the_map_is_that_of_scikit_learn(n):
    mean, std, target = make_data(0, n, factor=0.7)
    tied = slice(n // 2, None)
    mean[tied], std[tied], target[tied] = 0, 0.7, np.round(target[tied] - mean[tied], 1)
    predicted = norm.cdf(target, mean, std)
    observed = np.array([np.sum(predicted <= p) / (len(predicted) + 1) for p in predicted])
    fitted = IsotonicRegression().fit(np.r_[0, predicted, 1], np.r_[0, observed, 1])
    calibrator = QuantileCalibrator.fit(mean, std, target)
    grid = np.linspace(0, 1, 997)
    assert calibrator.cdf(grid) == pytest.approx(fitted.predict(grid), abs=1e-9)
    assert calibrator.pit(mean, std, target) == pytest.approx(observed, abs=1e-12)


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_moments_by_integration(factor):
    """Mean and variance of the CDF R(Phi), whose density between two knots is a multiple of the Gaussian's."""
    calibrator = QuantileCalibrator.fit(*make_data(1, 12, factor, shift=0.5))
    knots, values = [-np.inf, *calibrator.scores, np.inf], [0, *calibrator.values, 1]
    moments = np.zeros(3)
    for low, high, mass in zip(knots[:-1], knots[1:], np.diff(values), strict=True):
        slope = mass / (norm.sf(low) - norm.sf(high) if low > 0 else norm.cdf(high) - norm.cdf(low))
        for power in range(3):
            moments[power] += slope * quad(lambda z, power=power: z**power * norm.pdf(z), low, high, epsabs=1e-13)[0]
    assert moments[0] == pytest.approx(1)
    assert calibrator.shift == pytest.approx(moments[1], rel=1e-7)
    assert calibrator.factor**2 == pytest.approx(moments[2] - moments[1] ** 2, rel=1e-7)


@pytest.mark.parametrize("scores", [[-12.0, -9.5, -9.4, 20.0], [8.5, 8.6, 15.0, 30.0], [-31.0, 0.1, 31.0]])
def test_moments_in_the_tails(scores):
    n = len(scores)
    values = (np.arange(1, n + 1) / (n + 1)).tolist()
    segments = truncnorm([-np.inf, *scores], [*scores, np.inf])
    means, variances = segments.mean(), segments.var()
    calibrator = QuantileCalibrator(scores, values)
    assert calibrator.shift == pytest.approx(means.mean(), rel=1e-6)
    assert calibrator.factor**2 == pytest.approx(variances.mean() + means.var(), rel=1e-6)


@pytest.mark.parametrize("score", [50.0, 1e4, 1e6])
def test_scores_of_any_size(score):
    """All mass below -score: an exponential with mean 1 / score from there on."""
    calibrator = QuantileCalibrator([-score, score], [1.0, 1.0])
    assert calibrator.shift == pytest.approx(-score - 1 / score)
    assert 0 <= calibrator.factor < 0.1
    upper = QuantileCalibrator([-score, score], [0.0, 0.0])
    assert upper.shift == pytest.approx(score + 1 / score)
    halves = QuantileCalibrator([-score, score], [0.5, 0.5])
    assert (halves.shift, halves.factor) == (pytest.approx(0, abs=1e-12 * score), pytest.approx(score, rel=1e-3))
    low, high = halves.interval([0.0], [1.0], level=0.5)
    # half of the tail's mass lies beyond ln 2 / score
    assert [*low, *high] == pytest.approx([-score - math.log(2) / score, score + math.log(2) / score], rel=1e-6)
    assert halves.pit([0.0, 0.0], [1.0, 1.0], [*low, *high]) == pytest.approx([0.25, 0.75], abs=1e-4)


def test_a_calibrated_model_stays():
    probabilities = np.arange(1, 10) / 10
    calibrator = QuantileCalibrator(norm.ppf(probabilities).tolist(), probabilities.tolist())
    assert (calibrator.shift, calibrator.factor) == (pytest.approx(0, abs=1e-12), pytest.approx(1))
    grid = np.linspace(0, 1, 101)
    assert calibrator.cdf(grid) == pytest.approx(grid, abs=1e-12)
    assert calibrator.quantile(grid) == pytest.approx(grid, abs=1e-12)
    mean, std = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    assert calibrator.mean(mean, std) == pytest.approx(mean)
    assert calibrator.std(mean, std) == pytest.approx(std)
    for level in (0.0, 0.3, 0.95):
        low, high = calibrator.interval(mean, std, level)
        assert [*low, *high] == pytest.approx(np.concatenate(norm.interval(level, mean, std)), abs=1e-9)


@pytest.mark.parametrize(("factor", "shift"), [(0.3, 0.0), (3.0, 0.0), (1.0, 0.8), (0.5, -1.0)])
def test_it_finds_factor_and_shift(factor, shift):
    mean, std, target = make_data(2, 40_000, factor, shift)
    fit, new = slice(0, 20_000), slice(20_000, None)
    calibrator = QuantileCalibrator.fit(mean[fit], std[fit], target[fit])
    assert calibrator.factor == pytest.approx(1 / factor, rel=0.03)
    assert calibrator.shift == pytest.approx(shift / factor, abs=0.03 / factor)
    test = mean[new], std[new], target[new]
    before, after = regression_calibration_error(*test), calibration_error_of_pit(calibrator.pit(*test))
    assert after < 0.01 < 0.05 < before
    calibrated = calibrator.mean(*test[:2]), calibrator.std(*test[:2])
    assert gaussian_nll(*calibrated, target[new]) < gaussian_nll(*test) - 0.1
    best = gaussian_nll(test[0] + shift * test[1] / factor, test[1] / factor, target[new])
    assert gaussian_nll(*calibrated, target[new]) == pytest.approx(best, abs=0.01)


def test_skewed_targets():
    """What no Gaussian fits is calibrated too: coverage comes from the map itself."""
    mean, std, target = make_data(3, 20_000, 0.5, noise=lambda generator, n: generator.exponential(size=n))
    fit, new = slice(0, 10_000), slice(10_000, None)
    calibrator = QuantileCalibrator.fit(mean[fit], std[fit], target[fit])
    test = mean[new], std[new], target[new]
    assert calibration_error_of_pit(calibrator.pit(*test)) < 0.01
    low, high = calibrator.interval(*test[:2], level=0.8)
    inside = (low <= test[2]) & (test[2] <= high)
    assert inside.mean() == pytest.approx(0.8, abs=0.015)
    assert inside.mean() == interval_coverage(*test, level=0.8, pit=calibrator.pit(*test))
    # the constants stay those of the distribution: the scores are exponential with mean 2
    assert (calibrator.shift, calibrator.factor) == (pytest.approx(2, rel=0.05), pytest.approx(2, rel=0.05))


@settings(max_examples=50)
@given(calibrators(), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_map_and_its_inverse(calibrator, probabilities):
    p = np.sort(probabilities)
    mapped = calibrator.cdf(p)
    assert (np.diff(mapped) >= -1e-12).all()
    assert ((mapped >= 0) & (mapped <= 1)).all()
    assert calibrator.cdf([0, 1]).tolist() == [0, 1]
    # through standard scores, which lose nothing in the upper tail: R(R^-1(p)) = p
    low, high = calibrator.interval([0.0], [1.0], level=0.9)
    ends = calibrator.pit([0, 0], [1, 1], [*low, *high])
    assert ends == pytest.approx([0.05, 0.95], abs=1e-5)
    back = calibrator.quantile(p)
    assert (np.diff(back) >= 0).all()
    # the least probability that is mapped to p or more
    assert (calibrator.cdf(np.minimum(back * (1 + 1e-9) + 1e-15, 1)) >= p - 1e-6).all()
    assert (calibrator.quantile(mapped) <= p + 1e-9).all()


@settings(max_examples=50)
@given(calibrators(), st.floats(0.01, 0.999), st.lists(st.floats(-20, 20), min_size=1, max_size=20))
def test_a_target_is_inside_just_if_its_cdf_is(calibrator, level, targets):
    n = len(targets)
    mean, std = np.full(n, 1.0), np.full(n, 2.0)
    low, high = calibrator.interval(mean, std, level)
    central = np.abs(2 * calibrator.pit(mean, std, targets) - 1)
    clear = np.abs(central - level) > 1e-9
    inside = (low <= targets) & (targets <= high)
    assert (inside == (central <= level))[clear].all()
    assert (low <= high).all()


@settings(max_examples=50)
@given(calibrators(), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_both_tails_are_alike(calibrator, probabilities):
    mirror = mirrored(calibrator)
    size = 1 + max(np.abs(calibrator.scores))
    assert mirror.shift == pytest.approx(-calibrator.shift, abs=1e-9 * size)
    assert mirror.factor == pytest.approx(calibrator.factor, abs=1e-6 * size)
    scores = norm.ppf(np.clip(probabilities, 1e-12, 1 - 1e-12))
    zero, one = np.zeros(len(scores)), np.ones(len(scores))
    assert mirror.pit(zero, one, -scores) == pytest.approx(1 - calibrator.pit(zero, one, scores), abs=1e-9)
    low, high = calibrator.interval([0.0], [1.0], 0.7)
    other_low, other_high = mirror.interval([0.0], [1.0], 0.7)
    assert [*other_low, *other_high] == pytest.approx([-high[0], -low[0]], rel=1e-6, abs=1e-6)


def test_probabilities_and_scores_are_one_map():
    mean, std, target = make_data(4, 300)
    calibrator = QuantileCalibrator.fit(mean, std, target)
    new = make_data(5, 300)
    expected = calibrator.cdf(probability_integral_transform(*new))
    assert calibrator.pit(*new) == pytest.approx(expected, abs=1e-6)


def test_level_one_and_a_std_of_zero():
    calibrator = QuantileCalibrator.fit(*make_data(6, 50))
    low, high = calibrator.interval([1.0, 2.0], [1.0, 0.0], level=1.0)
    assert low.tolist() == [-math.inf, 2]
    assert high.tolist() == [math.inf, 2]
    assert calibrator.pit([0, 0, 0], [0, 0, 0], [-1, 0, 1]).tolist() == [0, calibrator.cdf([0.5])[0], 1]
    assert calibrator.std([1.0], [0.0]).tolist() == [0]


def test_the_floor_of_the_variance():
    mean, std, target = make_data(7, 100)
    least = float(np.median(std)) ** 2
    expected = QuantileCalibrator.fit(mean, np.maximum(std, np.sqrt(least)), target)
    assert QuantileCalibrator.fit(mean, std, target, min_variance=least) == expected
    raised = np.maximum(std, np.sqrt(least))
    assert (expected.pit(mean, std, target, min_variance=least) == expected.pit(mean, raised, target)).all()


def test_saved_and_loaded_it_is_the_same(tmp_path):
    calibrator = QuantileCalibrator.fit(*make_data(8, 100))
    calibrator.save(tmp_path / "calibrator.json")
    content = json.loads((tmp_path / "calibrator.json").read_text())
    assert (content["name"], content["version"], len(content["scores"])) == ("quantile", 1, 100)
    loaded = QuantileCalibrator.load(tmp_path / "calibrator.json")
    assert loaded == calibrator
    new = make_data(9, 100)
    assert (loaded.pit(*new) == calibrator.pit(*new)).all()
    assert (loaded.shift, loaded.factor) == (calibrator.shift, calibrator.factor)


def test_bad_input_is_located():
    with pytest.raises(ValueError, match="nothing to fit"):
        QuantileCalibrator.fit([], [], [])
    with pytest.raises(ValueError, match="`std` is 0.0 at position 1, where the error is 3; .* give a `min_variance`"):
        QuantileCalibrator.fit([0, 0], [1, 0], [1, 3])
    with pytest.raises(ValueError, match="`std` is 0.0 at position 0"):
        QuantileCalibrator.fit([0, 0], [0, 1], [0, 3])
    with pytest.raises(ValueError, match="`std` is -1.0 at position 1"):
        QuantileCalibrator.fit([0, 0], [1, -1], [1, 3])
    calibrator = QuantileCalibrator.fit([0, 0], [1, 1], [1, 3])
    with pytest.raises(ValueError, match="`pit` is 1.5 at position 0"):
        calibrator.cdf([1.5])
    with pytest.raises(ValueError, match="`p` is -0.1 at position 1"):
        calibrator.quantile([0.5, -0.1])
    with pytest.raises(ValueError, match="`level` is 95.0"):
        calibrator.interval([0], [1], level=95)
    with pytest.raises(ValueError, match="`std` is -2.0 at position 0"):
        calibrator.std([0], [-2])
    with pytest.raises(ValueError, match="differ in length"):
        calibrator.mean([0, 1], [1])
