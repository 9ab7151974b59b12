"""Thresholds against a plain loop with scipy's tests, and their guarantee against laws whose true risk is known."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from clue_hf.posthoc.abstention import (
    MAX_RISKS,
    AbstentionThreshold,
    AbstentionThresholds,
    _p_values,
    abstention_threshold,
)


def p_value(losses, max_risk, test):
    """The chance of so little loss, for one candidate, by scipy."""
    rows, total = len(losses), math.fsum(losses)
    if test == "binomial":
        return binomtest(round(total), rows, max_risk, alternative="less").pvalue
    mean = min(total / rows, max_risk)
    divergence = (1 - mean) * math.log((1 - mean) / (1 - max_risk))
    if mean > 0:
        divergence += mean * math.log(mean / max_risk)
    return min(math.exp(-rows * divergence), math.e * binom.cdf(math.ceil(round(total, 9)), rows, max_risk))


def by_a_loop(uncertainty, loss, max_risk, delta, min_coverage, first_loss, test):
    """The definition, candidate by candidate."""
    n, found = len(loss), None
    for candidate in [*sorted(set(uncertainty)), math.inf]:
        below = [value for u, value in zip(uncertainty, loss, strict=True) if u < candidate]
        possible = below and p_value([first_loss * max_risk] * len(below), max_risk, "hoeffding-bentkus") <= delta
        if len(below) < n and (len(below) < min_coverage * n or not possible):
            continue
        if p_value(below, max_risk, test) > delta:
            break
        found = candidate
    return found


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0, 0, 0, 0, 0, 1])), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.25, 0.3, 0.5]),
    st.sampled_from([0.05, 0.1, 0.3]),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
)
def test_binomial_is_the_definition(rows, max_risk, delta, min_coverage):
    uncertainty, loss = zip(*rows, strict=True)
    found = abstention_threshold(uncertainty, loss, max_risk, delta, min_coverage)
    assert found.test == "binomial"
    assert found.threshold == by_a_loop(uncertainty, loss, max_risk, delta, min_coverage, 0.0, found.test)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([0, 0.02, 0.1, 0.3])), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.25, 0.3, 0.5]),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
)
def test_hoeffding_bentkus_is_the_definition(rows, max_risk, min_coverage):
    uncertainty, loss = zip(*rows, strict=True)
    test = "hoeffding-bentkus"
    found = abstention_threshold(uncertainty, loss, max_risk, 0.1, min_coverage, test)
    assert found.threshold == by_a_loop(uncertainty, loss, max_risk, 0.1, min_coverage, 0.2, test)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.sampled_from([0.05, 0.3, 0.8]))
def test_p_values_are_those_of_scipy(losses, max_risk):
    def ours(values, test):
        return _p_values(np.array([sum(values)]), np.array([len(values)]), max_risk, test)

    coins = [float(loss > 0.7) for loss in losses]
    assert ours(coins, "binomial") == pytest.approx(p_value(coins, max_risk, "binomial"))
    for values in (losses, coins, [loss / 9 for loss in losses]):
        assert ours(values, "hoeffding-bentkus") == pytest.approx(p_value(values, max_risk, "hoeffding-bentkus"))


def test_bentkus_is_the_better_far_from_the_risk():
    """Of many coins; without it the test would be Hoeffding's alone."""
    p = _p_values(np.array([30.0]), np.array([1000]), 0.05, "hoeffding-bentkus")
    assert p == pytest.approx(math.e * binom.cdf(30, 1000, 0.05))


@pytest.mark.parametrize("test", ["binomial", "hoeffding-bentkus"])
def test_p_values_never_err_more_often_than_they_say(test):
    """At a risk of exactly `max_risk`, exactly: the chance of p <= x is at most x, for coins the worst of losses."""
    for rows in (1, 2, 7, 50, 400):
        for risk in (0.01, 0.1, 0.5, 0.9):
            total = np.arange(rows + 1)
            p = _p_values(total.astype(float), np.full(rows + 1, rows), risk, test)
            assert (np.diff(p) >= -1e-15).all()
            assert (binom.cdf(total, rows, risk) <= p * (1 + 1e-9)).all()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.floats(0, 1)), min_size=20, max_size=80),
    st.sampled_from([0.2, 0.4, 0.6]),
    st.randoms(use_true_random=False),
)
def test_only_the_order_of_the_uncertainty_matters(rows, max_risk, random):
    found = abstention_threshold(*zip(*rows, strict=True), max_risk)
    random.shuffle(rows)
    uncertainty, loss = map(np.array, zip(*rows, strict=True))
    again = abstention_threshold(np.exp(uncertainty / 5), loss, max_risk)
    assert (again.coverage, again.reason) == (found.coverage, found.reason)
    answered = ~found.abstains(uncertainty)
    assert found.coverage == answered.mean()
    assert (answered == ~again.abstains(np.exp(uncertainty / 5))).all()
    if found.threshold is None:
        assert found.empirical_risk is None
        assert found.reason
        assert not answered.any()
    else:
        assert found.empirical_risk == pytest.approx(loss[answered].mean(), abs=1e-12)
        assert found.empirical_risk < max_risk
        assert found.reason is None


def draw(law, generator, n):
    """Uncertainty, loss; a law is a mean loss of u, the number of tied levels (or none), and whether it is graded."""
    mean_loss, levels, graded = law
    uncertainty = generator.random(n)
    if levels:
        uncertainty = np.floor(uncertainty * levels) / levels
    mean = mean_loss(uncertainty)
    if graded:
        return uncertainty, generator.beta(2 * mean + 1e-12, 2 * (1 - mean))
    return uncertainty, (generator.random(n) < mean).astype(float)


def true_risk(law, threshold):
    """The mean of the loss below the threshold: a finite sum at ties, else by the midpoint rule."""
    mean_loss, levels, _ = law
    threshold = min(threshold, 1.0)
    if levels:
        return mean_loss(np.arange(round(threshold * levels)) / levels).mean()
    return mean_loss((np.arange(2000) + 0.5) / 2000 * threshold).mean()


LAWS = {
    "rising": (lambda u: u**2 / 2, None, False),
    "falls, then rises": (lambda u: 0.03 + 0.9 * (u - 0.3) ** 2, None, False),
    "too high from the start": (lambda u: 0.1001 + 0.1 * u, None, False),
    "ties": (lambda u: (u + 0.05) ** 2 / 2, 10, False),
    "ties, up and down": (lambda u: 0.105 - 0.095 * np.cos(np.pi * 8 * u), 8, False),
    "graded": (lambda u: u**2 / 2, None, True),
}


@pytest.mark.parametrize("n", [200, 600])
@pytest.mark.parametrize("name", LAWS)
def test_the_risk_is_exceeded_as_rarely_as_promised(name, n):
    """In 1,000 calibration sets; a share of delta stays within the bound with probability 99.9 %."""
    law, delta, generator = LAWS[name], 0.1, np.random.default_rng(n)
    thresholds = [abstention_threshold(*draw(law, generator, n), 0.1, delta).threshold for _ in range(1000)]
    found = [threshold for threshold in thresholds if threshold is not None]
    exceeded = sum(true_risk(law, threshold) > 0.1 for threshold in found)
    assert exceeded <= binom.ppf(0.999, 1000, delta)
    if name in ("rising", "ties", "graded"):
        # and it is of use: of the 77 % (70 % at ties) that could be answered
        assert np.mean([threshold or 0 for threshold in thresholds]) > (0.35 if n == 200 else 0.55)


def test_the_highest_threshold_that_looks_safe_is_not():
    """So the bound above can fail: without a test, the risk is exceeded in half of the sets."""
    law, generator, exceeded = LAWS["rising"], np.random.default_rng(0), 0
    for _ in range(300):
        uncertainty, loss = draw(law, generator, 1000)
        order = np.argsort(uncertainty)
        safe = np.flatnonzero(np.cumsum(loss[order]) <= 0.1 * np.arange(1, 1001))
        exceeded += true_risk(law, uncertainty[order][safe[-1]]) > 0.1
    assert exceeded > 100


def test_rows_at_the_threshold_are_not_answered():
    uncertainty = np.repeat([1.0, 2.0, 3.0], 60)
    loss = np.repeat([0.0, 1.0, 1.0], 60)
    found = abstention_threshold(uncertainty, loss, 0.05)
    assert (found.threshold, found.coverage, found.empirical_risk) == (2.0, 60 / 180, 0.0)
    assert found.abstains([1.0, 1.99, 2.0, 2.01, 9.0]).tolist() == [False, False, True, True, True]


def test_what_comes_after_the_first_failure_does_not_count():
    loss = np.repeat([0.0, 1.0, 0.0], [100, 30, 2000])
    found = abstention_threshold(np.arange(len(loss)), loss, 0.05, min_coverage=0.0)
    # 1 wrong of 101 passes (p = 0.04), 2 of 102 do not (p = 0.11); 30 of 2,130 would again
    assert found.threshold == 101
    assert abstention_threshold(np.arange(len(loss)), loss, 0.05, min_coverage=0.9).threshold == math.inf


def test_everything_may_be_answered():
    for uncertainty in (np.arange(60.0), np.ones(60)):
        found = abstention_threshold(uncertainty, np.zeros(60), 0.05)
        assert (found.threshold, found.coverage, found.empirical_risk) == (math.inf, 1.0, 0.0)
        assert not found.abstains([1e300]).any()


def test_the_reason_is_named():
    def reason(n, wrong, max_risk):
        found = abstention_threshold(np.arange(n), np.arange(n) < wrong, max_risk)
        assert (found.threshold, found.coverage, found.empirical_risk) == (None, 0.0, None)
        return found.reason

    assert "Too few rows: at least 45 without any loss are needed to certify a risk of 0.05" in reason(44, 0, 0.05)
    assert abstention_threshold(np.arange(45), np.zeros(45), 0.05).threshold == math.inf
    assert "the 200 most certain rows (20% of 1000) is already 0.25, above 0.05" in reason(1000, 50, 0.05)
    assert "the 200 most certain rows (20% of 1000) is 0.04, too close to 0.05" in reason(1000, 8, 0.05)
    assert "p = 0.33, above delta = 0.1" in reason(1000, 8, 0.05)


def test_thresholds_for_several_risks():
    generator = np.random.default_rng(1)
    uncertainty, loss = draw(LAWS["rising"], generator, 2000)
    fitted = AbstentionThresholds.fit(uncertainty, loss, [0.2, 0.05, 0.1, 0.01])
    assert [entry.max_risk for entry in fitted.thresholds] == [0.01, 0.05, 0.1, 0.2]
    new = generator.random(100)
    for risk in (0.05, 0.1, 0.2):
        alone = abstention_threshold(uncertainty, loss, risk)
        assert fitted.at(risk) == fitted.at(min_quality=1 - risk) == alone
        assert (fitted.abstains(new, risk) == alone.abstains(new)).all()
        assert (fitted.abstains(new, min_quality=round(1 - risk, 2)) == (new >= alone.threshold)).all()
        assert alone.min_quality == pytest.approx(1 - risk)
    assert [entry.max_risk for entry in AbstentionThresholds.fit(uncertainty, loss).thresholds] == list(MAX_RISKS)
    with pytest.raises(ValueError, match=r"no threshold for `max_risk` 0.3; those stored are 0.01, 0.05, 0.1, 0.2\."):
        fitted.abstains(new, 0.3)
    with pytest.raises(ValueError, match=r"no threshold for `min_quality` 0.7; those stored are 0.99, 0.95, 0.9, 0.8"):
        fitted.abstains(new, min_quality=0.7)
    for both in ({}, {"max_risk": 0.1, "min_quality": 0.9}):
        with pytest.raises(ValueError, match="either `max_risk` or `min_quality`"):
            fitted.at(**both)


def test_saved_and_loaded_they_are_the_same(tmp_path):
    uncertainty, loss = draw(LAWS["graded"], np.random.default_rng(2), 300)
    fitted = AbstentionThresholds.fit(uncertainty, loss)
    assert {entry.threshold for entry in fitted.thresholds} > {None, math.inf}
    fitted.save(tmp_path / "thresholds.json")
    assert AbstentionThresholds.load(tmp_path / "thresholds.json") == fitted
    content = json.loads((tmp_path / "thresholds.json").read_text())
    assert (content["name"], content["version"]) == ("abstention_thresholds", 1)
    assert (content["thresholds"][0]["threshold"], content["thresholds"][-1]["threshold"]) == (None, "Infinity")
    for entry in fitted.thresholds:
        entry.save(tmp_path / "threshold.json")
        assert AbstentionThreshold.load(tmp_path / "threshold.json") == entry
    with pytest.raises(ValueError, match="Expected 'abstention_threshold', version 1, got 'beta'"):
        AbstentionThresholds.from_dict({**content, "thresholds": [{"name": "beta"}]})


def test_bad_input_is_located():
    for loss, others, message in (
        ([0.0, 1.5], {}, r"`loss` is 1.5 at position 1; it must lie in \[0, 1\]"),
        ([0.0, np.nan], {}, "`loss` is nan at position 1"),
        ([0.0], {}, "differ in length"),
        ([0.0, 0.5], {"test": "binomial"}, "`loss` is 0.5 at position 1; the binomial test needs losses of 0 and 1"),
        ([0.0, 0.5], {"test": "normal"}, "`test` is 'normal'; it must be 'binomial' or 'hoeffding-bentkus'"),
        ([0.0, 0.5], {"max_risk": 5}, "`max_risk` is 5; it must lie between 0 and 1"),
        ([0.0, 0.5], {"delta": 0}, "`delta` is 0; it must lie between 0 and 1"),
        ([0.0, 0.5], {"min_coverage": 20}, r"`min_coverage` is 20; it must lie in \[0, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            abstention_threshold([1.0, 2.0], loss, **{"max_risk": 0.1, **others})
    with pytest.raises(ValueError, match="no rows"):
        abstention_threshold([], [], 0.1)
    with pytest.raises(ValueError, match="`max_risks` is empty"):
        AbstentionThresholds.fit([1.0], [0.0], [])
    with pytest.raises(ValueError, match="`uncertainty` is nan at position 0"):
        abstention_threshold([1.0], [0.0], 0.95).abstains([np.nan])
