import numpy as np
import pytest

from clue_hf.metrics import bootstrap_interval, conformal_interval_report, metric_info, prediction_set_report


def values(report, metric):
    return {group: metrics[metric]["value"] for group, metrics in report.items()}


def test_sets_by_hand():
    sets = [[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 0]]
    report = prediction_set_report(sets, [0, 2, 1, 0, 3, 2], resamples=10)
    assert values(report, "conformal_coverage") == pytest.approx(
        {"all": 4 / 6, "1": 2 / 3, "2": 1.0, "3 or more": 1 / 2}
    )
    assert values(report, "prediction_set_size") == pytest.approx({"all": 2.0, "1": 1, "2": 2, "3 or more": 3.5})
    assert values(report, "group_share") == pytest.approx({"all": 1, "1": 1 / 2, "2": 1 / 6, "3 or more": 1 / 3})
    assert [metrics["conformal_coverage"]["n"] for metrics in report.values()] == [6, 3, 1, 2]


def test_a_group_without_rows_is_undefined_with_a_reason():
    report = prediction_set_report([[True, False]] * 5, [0] * 5, resamples=5)
    entry = report["2"]["conformal_coverage"]
    assert (entry["value"], entry["reason"], entry["n"]) == (None, "no items", 0)
    assert report["2"]["group_share"]["value"] == 0


def test_intervals_by_hand_and_equal_widths_stay_together():
    low, high = np.zeros(6), np.array([1.0, 6, 2, 5, 3, 4])
    report = conformal_interval_report(low, high, [0.5, 7, 3, 5, 3, -1], resamples=0)
    assert values(report, "conformal_coverage") == pytest.approx(
        {"all": 1 / 2, "narrow": 1 / 2, "medium": 1 / 2, "wide": 1 / 2}
    )
    assert values(report, "interval_width") == pytest.approx({"all": 3.5, "narrow": 1.5, "medium": 3.5, "wide": 5.5})
    assert "low" not in report["all"]["interval_width"]
    equal = conformal_interval_report(np.zeros(7), np.ones(7), np.zeros(7), resamples=0)
    assert values(equal, "group_share") == {"all": 1, "narrow": 1, "medium": 0, "wide": 0}


def test_the_intervals_are_those_of_the_bootstrap():
    generator = np.random.default_rng(0)
    sets, labels = generator.random((80, 4)) < 0.6, generator.integers(4, size=80)
    report = prediction_set_report(sets, labels, resamples=50)
    held = sets[np.arange(80), labels]
    expected = bootstrap_interval(np.mean, held, resamples=50)
    entry = report["all"]["conformal_coverage"]
    assert (entry["value"], entry["low"], entry["high"]) == pytest.approx(
        (expected["value"], expected["low"], expected["high"])
    )
    two = bootstrap_interval(lambda held, size: held[size == 2].mean(), held, sets.sum(axis=1), resamples=50)
    assert report["2"]["conformal_coverage"]["low"] == pytest.approx(two["low"])


def test_every_metric_is_registered():
    for kind, report in (
        ("classes", prediction_set_report([[True, False]], [0], 0)),
        ("numbers", conformal_interval_report([0.0], [1.0], [0.5], 0)),
    ):
        for metrics in report.values():
            for name in metrics:
                assert metric_info(name, kind).definition
