import math

import numpy as np
import pytest

from clue_hf.metrics import Measured, bootstrap_interval, paired_bootstrap, prediction_rejection_ratio


def test_interval_of_a_mean_is_close_to_the_normal_one():
    values = np.random.default_rng(0).normal(size=400)
    interval = bootstrap_interval(np.mean, values)
    half = 1.96 * values.std() / 20
    assert interval.value == values.mean()
    assert (interval.n, interval.undefined) == (400, 0)
    assert [interval.low, interval.high] == pytest.approx([values.mean() - half, values.mean() + half], abs=0.1 * half)
    narrow = bootstrap_interval(np.mean, values, level=0.5)
    half = 0.6745 * values.std() / 20
    assert [narrow.low, narrow.high] == pytest.approx([values.mean() - half, values.mean() + half], abs=0.15 * half)


def test_interval_covers_the_true_mean_as_often_as_it_says():
    generator = np.random.default_rng(1)
    covered = 0
    for trial in range(300):
        interval = bootstrap_interval(np.mean, generator.exponential(size=60), resamples=300, level=0.9, seed=trial)
        covered += interval.low <= 1 <= interval.high
    # the standard error of the share is 0.017; percentile intervals of skewed data cover a little less than they say
    assert 0.83 <= covered / 300 <= 0.95


def test_all_arrays_are_drawn_by_the_same_rows():
    table = np.arange(60.0).reshape(20, 3)

    def metric(first, second):
        assert first.shape == (20, 3)
        assert (first[:, 0] == second).all()
        return first.mean()

    interval = bootstrap_interval(metric, table, list(table[:, 0]), resamples=20)
    assert interval.low < interval.value < interval.high


def test_seed_decides_and_the_global_generator_stays_as_it_was():
    values = np.random.default_rng(2).normal(size=50)
    np.random.seed(7)
    before = np.random.get_state()
    first = bootstrap_interval(np.mean, values, resamples=50)
    assert paired_bootstrap(np.mean, [values], [values**2], resamples=50) == paired_bootstrap(
        np.mean, [values], [values**2], resamples=50
    )
    after = np.random.get_state()
    assert before[2] == after[2]
    assert (before[1] == after[1]).all()
    np.random.seed(8)
    assert bootstrap_interval(np.mean, values, resamples=50) == first
    assert bootstrap_interval(np.mean, values, resamples=50, seed=1).low != first.low


def test_undefined_resamples_are_counted_and_left_out():
    # the ratio is undefined where a resample misses the only good item: (3/4)^4 = 0.316 of all, or draws it four times
    interval = bootstrap_interval(prediction_rejection_ratio, [1.0, 2, 3, 4], [1.0, 0, 0, 0])
    assert interval.undefined / 2000 == pytest.approx(0.75**4 + 0.25**4, abs=0.04)
    assert (interval.value, interval.low, interval.high) == (1, 1, 1)
    nothing = bootstrap_interval(prediction_rejection_ratio, [1.0, 2], [0.5, 0.5], resamples=10)
    assert nothing.undefined == 10
    assert all(math.isnan(value) for value in (nothing.value, nothing.low, nothing.high))
    pair = paired_bootstrap(prediction_rejection_ratio, ([1.0, 2], [0.5, 0.5]), ([1.0, 2], [0.5, 0.7]), resamples=10)
    assert pair.undefined == 10
    assert math.isnan(pair.p_value)


def test_no_items():
    empty = bootstrap_interval(prediction_rejection_ratio, [], [], resamples=10)
    assert (empty.n, empty.undefined) == (0, 10)
    assert math.isnan(empty.value)
    assert math.isnan(empty.low)


def test_pairs_of_a_mean_are_the_interval_of_the_differences():
    generator = np.random.default_rng(3)
    shared = generator.normal(size=100) * 10  # would drown the difference if the draws were not paired
    a, b = shared + 0.5 + 0.1 * generator.normal(size=100), shared
    pair = paired_bootstrap(np.mean, (a,), (b,), resamples=200)
    interval = bootstrap_interval(np.mean, a - b, resamples=200)
    assert isinstance(pair, Measured)
    assert pair.to_dict() == pytest.approx({**interval, "p_value": 2 / 201})
    opposite = paired_bootstrap(np.mean, (b,), (a,), resamples=200)
    assert (opposite.low, opposite.high) == pytest.approx((-pair.high, -pair.low))
    assert opposite.p_value == pair.p_value


def test_p_value_of_no_difference():
    values = np.random.default_rng(4).normal(size=30)
    same = paired_bootstrap(np.mean, (values,), (values,), resamples=100)
    assert (same.value, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    # under no difference a share of about 10 % of the p-values lies below 0.1 (standard error 0.02)
    generator = np.random.default_rng(5)
    p_values = []
    for seed in range(200):
        a, b = generator.normal(size=(2, 80))
        p_values.append(paired_bootstrap(np.mean, (a,), (b,), resamples=200, seed=seed).p_value)
    assert 0.04 <= np.mean(np.array(p_values) < 0.1) <= 0.18
    assert 0.4 <= np.mean(p_values) <= 0.6


def test_p_value_counts_the_smaller_side():
    outcomes = iter([-1.0, 2, 3, 4, 5, 6, 7, 8, 9, 0, 99])  # ten resamples and the value on all items
    pair = paired_bootstrap(lambda x: next(outcomes) if x[0] else 0.0, ([1.0],), ([0.0],), resamples=10)
    assert pair.value == 99
    assert pair.p_value == pytest.approx(2 * (1 + 2) / 11)  # -1 and 0 are at or below zero


def test_bad_input():
    with pytest.raises(ValueError, match=r"differ in length: \[2, 3\]"):
        bootstrap_interval(prediction_rejection_ratio, [1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="differ in length"):
        paired_bootstrap(np.mean, ([1, 2],), ([1, 2, 3],))
    with pytest.raises(ValueError, match="a tuple of arrays per model"):
        paired_bootstrap(np.mean, [1.0, 2.0], [1.0, 3.0])
    with pytest.raises(ValueError, match="one or more arrays"):
        bootstrap_interval(np.mean)
    for options in ({"resamples": -1}, {"level": 0}, {"level": 95}):
        with pytest.raises(ValueError, match="Expected resamples"):
            bootstrap_interval(np.mean, [1.0, 2.0], **options)
    alone = bootstrap_interval(np.mean, [1.0, 2.0], resamples=0)
    assert alone.value == 1.5
    assert np.isnan(alone.low)
