import numpy as np
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from clue_hf.metrics import bootstrap_interval, is_right_or_wrong, metric_info, right_or_wrong_report


RNG = np.random.default_rng(0)
RIGHT = RNG.integers(0, 2, 200)
UNCERTAINTY = (RNG.normal(size=200) - RIGHT).round(1)  # with ties
CONFIDENCE = RNG.uniform(size=200)


def test_values_are_those_of_scikit_learn_and_intervals_those_of_the_bootstrap():
    report = right_or_wrong_report(UNCERTAINTY, RIGHT, CONFIDENCE, resamples=30)
    judges = {
        "auroc": (lambda u, r: roc_auc_score(1 - r, u), UNCERTAINTY),
        "aupr": (lambda u, r: average_precision_score(1 - r, u), UNCERTAINTY),
        "confidence_brier": (lambda c, r: brier_score_loss(r, c), CONFIDENCE),
    }
    assert list(report) == list(judges)
    for name, (metric, values) in judges.items():
        expected = bootstrap_interval(metric, values, RIGHT, resamples=30)
        assert report[name].value == pytest.approx(expected.value)
        assert (report[name].low, report[name].high) == pytest.approx((expected.low, expected.high))
        assert metric_info(name, "text").definition


@pytest.mark.parametrize("right", [0, 1])
def test_where_all_are_right_or_all_wrong_only_the_brier_score_is_defined(right):
    report = right_or_wrong_report(UNCERTAINTY, np.full(200, right), CONFIDENCE, resamples=5)
    assert report["auroc"]["value"] is None
    assert report["aupr"].reason == f"all outputs are {'right' if right else 'wrong'}"
    assert report["confidence_brier"].value == pytest.approx(((CONFIDENCE - right) ** 2).mean())
    assert "too few" in right_or_wrong_report([1.0], [right], None, 0)["confidence_brier"].reason


def test_what_is_right_or_wrong():
    assert is_right_or_wrong(np.array([0.0, 1.0, 1.0]))
    assert not is_right_or_wrong(np.array([0.0, 0.5]))
