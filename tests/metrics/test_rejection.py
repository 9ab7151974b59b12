import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.metrics import (
    augrc,
    aurc,
    coverage_at_risk,
    e_aurc,
    prediction_rejection_ratio,
    rejection_area,
    rejection_area_minmax,
    rejection_curve,
    risk_at_coverage,
    split_of_area_gain,
)


shares = st.sampled_from([0.25, 0.5, 0.8, 1.0])
# few different values, so that ties are common
rows = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 8)), min_size=1, max_size=30)
AREAS = [rejection_area, rejection_area_minmax, prediction_rejection_ratio, aurc, e_aurc, augrc]
METRICS = [*AREAS, partial(risk_at_coverage, coverage=0.6), partial(coverage_at_risk, risk=0.4)]


def columns(pairs):
    uncertainty, quality = np.array(pairs, dtype=float).T
    return uncertainty, quality / 8


def items(seed, n=50):
    """Items without ties, with an uncertainty that says something about the quality."""
    generator = np.random.default_rng(seed)
    quality = generator.beta(1, 3, n)
    return generator.normal(size=n) - 2 * quality, quality


def kept_by_the_book(uncertainty, quality, k):
    """Mean quality of the k most certain: those below the k-th smallest value, and a share of those equal to it."""
    limit = sorted(uncertainty)[k - 1]
    below = [q for u, q in zip(uncertainty, quality, strict=True) if u < limit]
    tied = [q for u, q in zip(uncertainty, quality, strict=True) if u == limit]
    return (sum(below) + (k - len(below)) * sum(tied) / len(tied)) / k


def area_by_the_book(uncertainty, quality, max_rejection=1.0):
    n = len(quality)
    kept = range(n - int(max_rejection * n) + 1, n + 1)
    return sum(kept_by_the_book(uncertainty, quality, k) for k in kept) / len(kept)


def lm_polygraph_area(uncertainty, quality, max_rejection=1.0):
    """LM-Polygraph's `prr`: min-max, argsort, mean of the prefix means."""
    quality = (quality - quality.min()) / (quality.max() - quality.min())
    ranked = quality[np.argsort(uncertainty)]
    prefix_means = np.cumsum(ranked) / np.arange(1, len(ranked) + 1)
    return prefix_means[-int(max_rejection * len(ranked)) :].mean()


def test_three_items_by_hand():
    uncertainty, quality = [0.2, 0.9, 0.5], [0.6, 0.0, 0.9]  # kept in turn: 0.6, 0.9, 0.0
    assert rejection_curve(uncertainty, quality) == pytest.approx([0.5, 0.75, 0.6])
    assert rejection_area(uncertainty, quality) == pytest.approx(1.85 / 3)
    assert rejection_area(uncertainty, quality, max_rejection=0.67) == pytest.approx(1.25 / 2)
    assert rejection_area_minmax(uncertainty, quality) == pytest.approx(1.85 / 2.7)
    # oracle: 0.9, 0.75, 0.5
    assert prediction_rejection_ratio(uncertainty, quality) == pytest.approx((1.85 - 1.5) / (2.15 - 1.5))
    assert prediction_rejection_ratio(uncertainty, quality, max_rejection=0.67) == pytest.approx(1)
    assert aurc(uncertainty, quality) == pytest.approx((0.4 + 0.25 + 0.5) / 3)
    assert e_aurc(uncertainty, quality) == pytest.approx(0.3 / 3)
    assert augrc(uncertainty, quality) == pytest.approx((0.4 + 0.5 + 1.5) / 9)


def test_a_tie_by_hand():
    uncertainty, quality = [1, 1, 0], [1.0, 0.0, 0.8]  # kept in turn: 0.8, 0.5, 0.5
    assert rejection_curve(uncertainty, quality) == pytest.approx([0.6, 0.65, 0.8])
    assert augrc(uncertainty, quality) == pytest.approx((0.2 + 0.7 + 1.2) / 9)


def test_risk_and_coverage_by_hand():
    uncertainty, quality = range(10), [1, 1, 1, 0, 1, 1, 1, 0, 0, 0]
    risks = {0.05: 0, 0.1: 0, 0.3: 0, 0.31: 1 / 4, 0.4: 1 / 4, 0.5: 1 / 5, 0.7: 1 / 7, 1.0: 0.4}
    for coverage, risk in risks.items():
        assert risk_at_coverage(uncertainty, quality, coverage) == pytest.approx(risk, abs=1e-12)
    coverages = {0: 0.3, 0.14: 0.3, 1 / 7: 0.7, 0.24: 0.7, 0.25: 0.8, 0.4: 1.0, 1: 1.0}
    for risk, coverage in coverages.items():
        assert coverage_at_risk(uncertainty, quality, risk) == pytest.approx(coverage)
    assert coverage_at_risk([0, 1], [0, 1], 0.1) == 0
    assert risk_at_coverage(np.arange(100), np.arange(100) < 7, 0.07) == pytest.approx(0, abs=1e-12)  # not 8 items
    for bad in (0, 1.1, float("nan")):
        with pytest.raises(ValueError, match="`coverage` is"):
            risk_at_coverage([1], [1], bad)
    with pytest.raises(ValueError, match="`risk` is -0.1"):
        coverage_at_risk([1], [1], -0.1)


@given(rows, shares)
def test_against_the_definition(pairs, share):
    uncertainty, quality = columns(pairs)
    n = len(quality)
    kept = [kept_by_the_book(uncertainty, quality, k) for k in range(1, n + 1)]
    assert rejection_curve(uncertainty, quality) == pytest.approx(kept[::-1], abs=1e-12)
    assert augrc(uncertainty, quality) == pytest.approx(
        sum(k * (1 - q) for k, q in enumerate(kept, start=1)) / n**2, abs=1e-12
    )
    for risk in (0.1, 0.4):
        safe = [k for k, q in enumerate(kept, start=1) if 1 - q <= risk + 1e-12]
        assert coverage_at_risk(uncertainty, quality, risk) == max(safe, default=0) / n
    assert risk_at_coverage(uncertainty, quality, share) == pytest.approx(
        1 - kept[math.ceil(share * n) - 1], abs=1e-12
    )
    if int(share * n) == 0:
        assert math.isnan(rejection_area(uncertainty, quality, share))
        return
    area, oracle = (area_by_the_book(u, quality, share) for u in (uncertainty, -quality))
    assert rejection_area(uncertainty, quality, share) == pytest.approx(area, abs=1e-12)
    ratio = prediction_rejection_ratio(uncertainty, quality, share)
    if int(share * n) < 2 or len(set(quality)) == 1:
        assert math.isnan(ratio)
    else:
        assert ratio == pytest.approx((area - quality.mean()) / (oracle - quality.mean()), abs=1e-9)
        assert ratio <= 1 + 1e-12


@pytest.mark.parametrize("metric", [*AREAS, partial(risk_at_coverage, coverage=0.5)])
def test_a_tie_counts_as_the_mean_over_its_orders(metric):
    uncertainty, quality = np.array([0.0, 1, 1, 1, 2, 2]), np.array([0.3, 0.9, 0.1, 0.4, 0.8, 0.0])
    broken = []
    for first, second in itertools.product(itertools.permutations(range(3)), itertools.permutations(range(2))):
        broken.append(metric(uncertainty + 0.1 * np.array([0, *first, *second]), quality))
    assert np.ptp(broken) > 0.01
    assert metric(uncertainty, quality) == pytest.approx(np.mean(broken), abs=1e-12)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=60), st.floats(-5, 5), shares)
def test_a_constant_score_gains_exactly_nothing(quality, constant, share):
    for order in (quality, sorted(quality), sorted(quality, reverse=True)):
        ratio = prediction_rejection_ratio([constant] * len(order), order, share)
        assert ratio == 0.0 or math.isnan(ratio)
        area = rejection_area([constant] * len(order), order, share)
        assert area == np.mean(order) or int(share * len(order)) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60), shares)
def test_a_constant_score_has_the_mean_risk_everywhere(quality, share):
    constant, risk = [0.3] * len(quality), 1 - np.mean(quality)
    n = len(quality)
    assert aurc(constant, quality) == pytest.approx(risk, abs=1e-12)
    assert augrc(constant, quality) == pytest.approx(risk * (n + 1) / (2 * n), abs=1e-12)
    assert risk_at_coverage(constant, quality, share) == pytest.approx(risk, abs=1e-12)
    assert coverage_at_risk(constant, quality, min(1, risk + 1e-6)) == 1
    if risk > 1e-6:
        assert coverage_at_risk(constant, quality, risk - 1e-6) == 0


@pytest.mark.parametrize("n", [3, 10, 101, 1000])
def test_a_constant_score_is_defined(n):
    quality = np.random.default_rng(n).uniform(size=n)
    for order in (quality, np.sort(quality), np.sort(quality)[::-1]):
        assert prediction_rejection_ratio(np.full(n, 0.1), order) == 0.0


@given(st.lists(st.integers(0, 8), min_size=4, max_size=40).filter(lambda q: len(set(q)) > 1), shares)
def test_the_oracle_has_ratio_one_and_its_opposite_is_below_zero(quality, share):
    quality = np.array(quality) / 8
    if int(share * len(quality)) < 2:
        return
    assert prediction_rejection_ratio(-quality, quality, share) == 1
    assert prediction_rejection_ratio(quality, quality, share) < 0
    assert e_aurc(-quality, quality) == 0
    assert e_aurc(quality, quality) > 0


@given(rows, st.randoms(), st.floats(0.1, 50), st.floats(-20, 20))
def test_what_must_not_matter_does_not(pairs, random, scale, shift):
    uncertainty, quality = columns(pairs)
    shuffled = pairs.copy()
    random.shuffle(shuffled)
    for metric in METRICS:
        value = pytest.approx(metric(uncertainty, quality), abs=1e-12, nan_ok=True)
        assert metric(np.exp(uncertainty), quality) == value
        assert metric(uncertainty**3, quality) == value
        assert metric(*columns(shuffled)) == value
    for metric in (prediction_rejection_ratio, rejection_area_minmax):
        value = pytest.approx(metric(uncertainty, quality), abs=1e-9, nan_ok=True)
        assert metric(uncertainty, scale * quality + shift) == value
    area = rejection_area(uncertainty, quality)
    assert rejection_area(uncertainty, scale * quality + shift) == pytest.approx(scale * area + shift, abs=1e-9)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_random_orders_average_to_the_mean_quality(share):
    _, quality = items(0, n=40)
    generator = np.random.default_rng(0)
    areas = [rejection_area(generator.permutation(40), quality, share) for _ in range(4000)]
    assert np.mean(areas) == pytest.approx(quality.mean(), abs=4 * np.std(areas) / 4000**0.5)
    assert np.std(areas) < 0.2 * quality.mean()


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_lm_polygraph_agrees_without_ties(seed, share):
    uncertainty, quality = items(seed)
    area, oracle = (lm_polygraph_area(u, quality, share) for u in (uncertainty, -quality))
    scaled = (quality - quality.min()) / np.ptp(quality)
    assert rejection_area_minmax(uncertainty, quality, share) == pytest.approx(area, abs=1e-12)
    ratio = (area - scaled.mean()) / (oracle - scaled.mean())
    assert prediction_rejection_ratio(uncertainty, quality, share) == pytest.approx(ratio, abs=1e-12)


@given(rows)
def test_risk_is_the_mirror_of_quality(pairs):
    uncertainty, quality = columns(pairs)
    assert aurc(uncertainty, quality) == pytest.approx(1 - area_by_the_book(uncertainty, quality), abs=1e-12)
    best = 1 - area_by_the_book(-quality, quality)
    assert e_aurc(uncertainty, quality) == pytest.approx(aurc(uncertainty, quality) - best, abs=1e-12)


def test_augrc_of_right_and_wrong_is_a_function_of_the_auroc():
    from sklearn.metrics import roc_auc_score

    generator = np.random.default_rng(3)
    wrong = generator.uniform(size=2000) < 0.3
    uncertainty = np.round(generator.normal(size=2000) + wrong, 1)  # with ties
    share = wrong.mean()
    expected = (1 - roc_auc_score(wrong, uncertainty)) * share * (1 - share) + share**2 / 2
    assert augrc(uncertainty, ~wrong) == pytest.approx(expected, abs=share / 2000)


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_split_adds_up(seed, share):
    a, b = items(seed, 60), items(seed + 100, 45)
    split = split_of_area_gain(*a, *b, share)
    assert split["difference"] == pytest.approx(area_by_the_book(*a, share) - area_by_the_book(*b, share), abs=1e-12)
    assert split["ranking"] + split["quality"] == pytest.approx(split["difference"], abs=1e-12)


def test_the_split_tells_ranking_from_quality():
    uncertainty, quality = items(0)
    better = split_of_area_gain(uncertainty, quality * 1.2, uncertainty, quality)
    assert better["ranking"] == pytest.approx(0, abs=1e-12)
    assert better["quality"] == pytest.approx(0.2 * rejection_area(uncertainty, quality))
    sharper = split_of_area_gain(-quality, quality, uncertainty, quality)
    assert sharper["quality"] == pytest.approx(0, abs=1e-12)
    assert sharper["ranking"] == pytest.approx(
        rejection_area(-quality, quality) - rejection_area(uncertainty, quality)
    )
    undefined = split_of_area_gain(uncertainty, quality, uncertainty, np.full(50, 0.2))
    assert undefined["difference"] == pytest.approx(rejection_area(uncertainty, quality) - 0.2)
    assert math.isnan(undefined["ranking"])
    assert math.isnan(undefined["quality"])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_policies(metric, bad):
    uncertainty, quality = [3.0, bad, 1.0, 2.0, bad], [0.2, 0.1, 0.9, 0.7, 0.6]
    with pytest.raises(ValueError, match=f"`uncertainty` is {bad} at position 1"):
        metric(uncertainty, quality)
    most_uncertain = metric([3.0, 4.0, 1.0, 2.0, 4.0], quality)
    assert metric(uncertainty, quality, nan_policy="reject_last") == pytest.approx(most_uncertain)
    without = metric([3.0, 1.0, 2.0], [0.2, 0.9, 0.7])
    assert metric(uncertainty, quality, nan_policy="drop") == pytest.approx(without)
    assert most_uncertain != pytest.approx(without, abs=1e-6)
    for policy in ("error", "reject_last", "drop"):
        with pytest.raises(ValueError, match="`quality` is nan at position 1"):
            metric([1.0, 1.0 if policy == "error" else bad], [1.0, float("nan")], nan_policy=policy)
        with pytest.raises(ValueError, match="differ in length"):
            metric([1.0, 2.0], [1.0], nan_policy=policy)
    with pytest.raises(ValueError, match="`nan_policy` is 'ignore'"):
        metric(uncertainty, quality, nan_policy="ignore")
    assert math.isnan(metric([bad, bad], [0.1, 0.2], nan_policy="drop"))


def test_bad_input_is_located():
    for metric in (aurc, e_aurc, augrc):
        with pytest.raises(ValueError, match="`quality` is 1.5 at position 2"):
            metric([1, 2, 3], [0, 1, 1.5])
    with pytest.raises(ValueError, match="`quality` is -1.0 at position 0"):
        risk_at_coverage([1], [-1], 0.5)
    with pytest.raises(ValueError, match="`quality` is 50.0 at position 0"):
        coverage_at_risk([1], [50], 0.5)
    with pytest.raises(ValueError, match="`uncertainty` is nan at position 0"):
        rejection_curve([float("nan")], [1])
    for metric in (rejection_area, rejection_area_minmax, prediction_rejection_ratio):
        for bad in (0, -0.5, 1.5, float("nan")):
            with pytest.raises(ValueError, match="`max_rejection` is"):
                metric([1, 2], [1, 1], max_rejection=bad)


def test_few_items():
    assert rejection_curve([], []).shape == (0,)
    for metric in METRICS:
        assert math.isnan(metric([], []))
    assert rejection_curve([5], [0.3]).tolist() == [0.3]
    assert rejection_area([5], [0.3]) == 0.3
    assert math.isnan(rejection_area([5], [0.3], max_rejection=0.5))
    assert math.isnan(prediction_rejection_ratio([5], [0.3]))
    assert (aurc([5], [0.3]), e_aurc([5], [0.3]), augrc([5], [0.3])) == (0.7, 0, 0.7)
    assert prediction_rejection_ratio([1, 2], [1, 0]) == 1
    assert prediction_rejection_ratio([1, 2], [0, 1]) == -1
    assert prediction_rejection_ratio([1, 1], [0, 1]) == 0
    assert math.isnan(prediction_rejection_ratio([1, 2], [1, 0], max_rejection=0.5))


@pytest.mark.parametrize("value", [0.0, 0.1, 0.3, 7.7])
def test_equal_qualities_have_no_ratio(value):
    uncertainty, quality = np.arange(7), np.full(7, value)
    assert math.isnan(prediction_rejection_ratio(uncertainty, quality))
    assert math.isnan(rejection_area_minmax(uncertainty, quality))
    assert rejection_area(uncertainty, quality) == quality.mean()
    assert e_aurc(uncertainty, quality / 10) == 0
    quality[3] = np.nextafter(value, 9) if value else 0  # equal up to rounding is equal
    assert math.isnan(prediction_rejection_ratio(uncertainty, quality))


def test_scale_and_offset_do_not_spoil_the_ratio():
    uncertainty, quality = items(1)
    expected = prediction_rejection_ratio(uncertainty, quality)
    assert prediction_rejection_ratio(uncertainty, quality + 1e6) == pytest.approx(expected, abs=1e-7)
    assert prediction_rejection_ratio(uncertainty, quality * 1e-300) == pytest.approx(expected)
    assert prediction_rejection_ratio([1, 2, 3], [5e-324, 0, 0]) == 1
