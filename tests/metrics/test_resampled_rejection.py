import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clue_hf.metrics import (
    METRICS,
    augrc,
    aurc,
    bootstrap_interval,
    coverage_at_risk,
    e_aurc,
    metric_info,
    paired_bootstrap,
    paired_rejection_differences,
    prediction_rejection_ratio,
    rejection_area,
    rejection_area_minmax,
    rejection_report,
    rejection_reports,
    risk_at_coverage,
)


def mean_quality(uncertainty, quality):
    return float(np.mean(quality)) if len(quality) else float("nan")


def oracle_area(uncertainty, quality, max_rejection=1.0):
    return rejection_area(-np.asarray(quality), quality, max_rejection)


# every metric of a report with default options, one array function each
FUNCTIONS = {
    "mean_quality": mean_quality,
    "random_area": mean_quality,
    "prr": prediction_rejection_ratio,
    "prr_0.5": partial(prediction_rejection_ratio, max_rejection=0.5),
    "rejection_area": rejection_area,
    "rejection_area_0.5": partial(rejection_area, max_rejection=0.5),
    "rejection_area_minmax": rejection_area_minmax,
    "rejection_area_minmax_0.5": partial(rejection_area_minmax, max_rejection=0.5),
    "oracle_area": oracle_area,
    "oracle_area_0.5": partial(oracle_area, max_rejection=0.5),
    "aurc": aurc,
    "e_aurc": e_aurc,
    "augrc": augrc,
    "risk_at_coverage_0.5": partial(risk_at_coverage, coverage=0.5),
    "risk_at_coverage_0.8": partial(risk_at_coverage, coverage=0.8),
    "coverage_at_risk_0.1": partial(coverage_at_risk, risk=0.1),
    "coverage_at_risk_0.2": partial(coverage_at_risk, risk=0.2),
}
# few different values, so that ties are common
rows = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 8)), min_size=1, max_size=25)


def columns(pairs):
    uncertainty, quality = np.array(pairs, dtype=float).T
    return uncertainty, quality / 8


def items(seed, n=50, digits=6):
    """Items with an uncertainty that says something about the quality; tied where it has few digits."""
    generator = np.random.default_rng(seed)
    quality = np.round(generator.beta(3, 1, n), digits)
    return np.round(generator.normal(size=n) - 2 * quality, digits), quality


def close(report):
    """The same report up to rounding."""
    return {name: pytest.approx(entry, abs=1e-9, nan_ok=True) for name, entry in report.items()}


def without_nan(value):
    return None if math.isnan(value) else value


def test_values_are_those_of_the_functions():
    uncertainty, quality = items(2)
    report = rejection_report(uncertainty, quality)
    assert {name: entry["value"] for name, entry in report.items()} == {
        name: metric(uncertainty, quality) for name, metric in FUNCTIONS.items()
    }
    assert all(entry == {"value": entry["value"], "reason": None, "n": 50} for entry in report.values())


@pytest.mark.parametrize("level", [0.95, 0.5])
@pytest.mark.parametrize(
    ("n", "digits"), [(200, 6), (60, 1), (60, 0), (4, 6), (3, 0)], ids=["no ties", "ties", "many ties", "few", "three"]
)
def test_intervals_are_those_of_the_plain_bootstrap(n, digits, level):
    uncertainty, quality = items(n + digits, n, digits)
    options = {"resamples": 40, "level": level, "seed": 7}
    report = rejection_report(uncertainty, quality, **options)
    assert list(report) == list(FUNCTIONS)
    for name, metric in FUNCTIONS.items():
        plain = bootstrap_interval(metric, uncertainty, quality, **options)
        entry = report[name]
        if entry["reason"]:
            assert math.isnan(plain.value)
            assert entry == {"value": None, "reason": entry["reason"], "n": n, "low": None, "high": None}
            continue
        assert [entry["value"], entry["low"], entry["high"]] == pytest.approx(
            [plain.value, plain.low, plain.high], abs=1e-12
        ), name
        assert entry.get("undefined", 0) == plain.undefined
        assert entry["n"] == plain.n == n


@settings(deadline=None)
@given(rows, st.integers(0, 5))
def test_one_resample_of_any_items(pairs, seed):
    """With one resample both ends of the interval are the metric on it."""
    uncertainty, quality = columns(pairs)
    drawn = np.random.default_rng(seed).integers(len(pairs), size=len(pairs))
    report = rejection_report(uncertainty, quality, resamples=1, seed=seed)
    for name, metric in FUNCTIONS.items():
        if report[name]["reason"] is None:
            expected = pytest.approx(without_nan(metric(uncertainty[drawn], quality[drawn])), abs=1e-12)
            assert report[name]["low"] == expected, name
            assert report[name]["high"] == expected


def test_scorers_share_the_draws_but_nothing_else():
    uncertainty, quality = items(3)
    gaps = np.where(np.arange(50) % 10 == 0, np.nan, uncertainty)
    scorers = {"one": uncertainty, "gaps": gaps, "two": np.round(uncertainty), "same gaps": 2 * gaps}
    options = {"nan_policy": "drop", "resamples": 20}
    reports = rejection_reports(scorers, quality, **options)
    assert list(reports) == list(scorers)
    for name, scores in scorers.items():
        assert reports[name] == rejection_report(scores, quality, **options)
    assert [report["prr"]["n"] for report in reports.values()] == [50, 45, 50, 45]
    assert reports["same gaps"] == reports["gaps"]
    assert reports["one"]["mean_quality"] == reports["two"]["mean_quality"]
    assert reports["one"]["prr"] != reports["two"]["prr"]


@settings(deadline=None)
@given(rows, st.randoms())
def test_what_must_not_matter_does_not(pairs, random):
    uncertainty, quality = columns(pairs)
    shuffled = pairs.copy()
    random.shuffle(shuffled)
    assert rejection_report(*columns(shuffled)) == close(rejection_report(uncertainty, quality))
    expected = rejection_report(uncertainty, quality, resamples=3)
    for transformed in (np.exp(uncertainty), uncertainty**3, 1e6 * uncertainty - 5):
        assert rejection_report(transformed, quality, resamples=3) == expected


@settings(deadline=None)
@given(rows, st.lists(st.booleans(), min_size=25, max_size=25), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_nan_policies(pairs, holes, bad):
    uncertainty, quality = columns(pairs)
    holes = np.array(holes[: len(pairs)])
    broken = np.where(holes, bad, uncertainty)
    last = rejection_report(np.where(holes, 99, uncertainty), quality, resamples=3)
    assert rejection_report(broken, quality, resamples=3, nan_policy="reject_last") == last
    left = rejection_report(uncertainty[~holes], quality[~holes], resamples=3)
    assert rejection_report(broken, quality, resamples=3, nan_policy="drop") == left
    if holes.any():
        with pytest.raises(ValueError, match=f"`uncertainty` is {bad} at position {holes.argmax()}"):
            rejection_report(broken, quality)


@pytest.mark.parametrize(
    ("quality", "reasons"),
    [
        ([], {"mean_quality": "no items", "prr": "no items", "aurc": "no items", "coverage_at_risk_0.1": "no items"}),
        (
            [0.3],
            {
                "mean_quality": None,
                "prr": "max_rejection 1 of 1 items is 1 rejections",
                "rejection_area": None,
                "rejection_area_0.5": "max_rejection 0.5 of 1 items is 0 rejections",
                "rejection_area_minmax": "all qualities are equal",
                "aurc": None,
            },
        ),
        ([0.3] * 5, {"prr": "all qualities are equal", "oracle_area": None, "e_aurc": None}),
        ([0.1, 30.0, 2.0, 1.0], {"prr": None, "prr_0.5": None, "aurc": "a quality lies outside [0, 1]"}),
        ([0.1, 0.2, 0.3], {"prr": None, "prr_0.5": "max_rejection 0.5 of 3 items is 1 rejections"}),
    ],
)
def test_report_gives_the_reason_where_a_metric_is_undefined(quality, reasons):
    report = rejection_report(np.arange(len(quality)), quality, resamples=5)
    assert {name: report[name]["reason"] for name in reasons} == reasons
    for entry in report.values():
        assert (entry["value"] is None) == (entry["reason"] is not None)
    json.dumps(report, allow_nan=False)


def test_a_quality_beyond_one_that_some_resamples_miss_still_has_no_risk():
    report = rejection_report([1.0, 2.0, 3.0], [0.1, 0.5, 7.0], resamples=50)
    assert report["aurc"]["low"] is None
    assert report["prr"]["low"] is not None


def test_options():
    uncertainty, quality = items(4)
    report = rejection_report(uncertainty, quality, max_rejections=(0.3,), coverages=(1.0, 0.25), risks=(0,))
    assert report["prr_0.3"]["value"] == prediction_rejection_ratio(uncertainty, quality, 0.3)
    assert report["risk_at_coverage_1"]["value"] == pytest.approx(1 - quality.mean())
    assert "prr" not in report
    assert "coverage_at_risk_0" in report
    for bad in ({"max_rejections": (0,)}, {"coverages": (1.5,)}, {"risks": (-0.1,)}):
        with pytest.raises(ValueError, match="it must lie in"):
            rejection_report(uncertainty, quality, **bad)
    for bad in ({"resamples": -1}, {"resamples": 5, "level": 95}):
        with pytest.raises(ValueError, match="Expected resamples"):
            rejection_report(uncertainty, quality, **bad)


def test_every_metric_has_a_definition():
    report = rejection_report(*items(5))
    definitions = {name: metric_info(name).definition for name in report}
    assert definitions["prr_0.5"].endswith("max_rejection = 0.5")
    assert definitions["prr"].endswith("max_rejection = 1")
    assert definitions["risk_at_coverage_0.8"].endswith("coverage = 0.8")
    assert definitions["aurc"] == METRICS["shared"]["aurc"].definition
    assert len(set(definitions.values())) == len(report)
    for name in ("ratio", "prr_", "prr_half", "aurc_0.5", "risk_at_coverage", "prr_2"):
        with pytest.raises(ValueError, match="no rejection metric"):
            rejection_report(*items(5), metrics=[name])
    for name in ("ratio", "prr_", "prr_half", "aurc_0.5", "prr_2"):
        with pytest.raises(ValueError, match="no metric"):
            metric_info(name)


def two_models(n=80, digits=6):
    """Two scorers of two models on the same items."""
    (good, quality_a), (bad, quality_b) = items(6, n, digits), items(7, n, digits)
    a, b = {"first": good, "second": bad, "only a": bad}, {"first": bad, "second": good - quality_b}
    return a, quality_a, b, quality_b


@pytest.mark.parametrize("digits", [6, 1])
def test_differences_are_those_of_the_paired_bootstrap(digits):
    a, quality_a, b, quality_b = two_models(digits=digits)
    found = paired_rejection_differences(a, quality_a, b, quality_b, resamples=40, seed=3)
    assert list(found) == ["first", "second"]
    for scorer, entries in found.items():
        assert list(entries) == ["prr", "prr_0.5", "rejection_area", "aurc", "augrc", "mean_quality"]
        for name, entry in entries.items():
            pairs = (a[scorer], quality_a), (b[scorer], quality_b)
            plain = paired_bootstrap(FUNCTIONS[name], *pairs, resamples=40, seed=3)
            assert (entry.pop("reason"), plain.undefined) == (None, 0)
            expected = {key: getattr(plain, key) for key in ("value", "low", "high", "p_value", "n")}
            assert entry == pytest.approx(expected, abs=1e-12), name


def test_differences_that_are_undefined():
    a, b = {"u": [1.0, 2.0, 3.0, 4.0]}, {"u": [4.0, 3.0, 2.0, 1.0]}
    found = paired_rejection_differences(a, [0.5] * 4, b, [0.1, 0.2, 0.3, 3.0], resamples=30)["u"]
    assert found["prr"] == {
        "value": None, "reason": "all qualities are equal", "n": 4, "low": None, "high": None, "p_value": None,
    }  # fmt: skip
    assert found["aurc"]["reason"] == "a quality lies outside [0, 1]"
    assert found["mean_quality"]["value"] == pytest.approx(-0.4)
    some = paired_rejection_differences(a, [1.0, 0, 0, 0], b, [0.1, 0.2, 0.3, 0.4], resamples=30)["u"]["prr"]
    assert 0 < some["undefined"] < 30
    json.dumps([found, some], allow_nan=False)
    without = paired_rejection_differences(a, [1.0, 0, 0, 0], b, [0.1, 0.2, 0.3, 0.4], resamples=0)["u"]["prr"]
    assert without == {"value": some["value"], "reason": None, "n": 4}


def test_differences_leave_an_item_out_of_both_models():
    a, quality_a, b, quality_b = two_models()
    holes_a, holes_b = np.arange(80) % 7 == 0, np.arange(80) % 5 == 0
    broken = ({"first": np.where(holes, np.nan, model["first"])} for holes, model in ((holes_a, a), (holes_b, b)))
    broken_a, broken_b = broken
    left = ~holes_a & ~holes_b
    expected = paired_rejection_differences(
        {"first": a["first"][left]}, quality_a[left], {"first": b["first"][left]}, quality_b[left], resamples=10
    )
    options = {"resamples": 10, "nan_policy": "drop"}
    assert paired_rejection_differences(broken_a, quality_a, broken_b, quality_b, **options) == expected
    with pytest.raises(ValueError, match="`uncertainty` is nan at position 0"):
        paired_rejection_differences(broken_a, quality_a, broken_b, quality_b, resamples=10)


def test_differences_need_the_same_items_and_known_metrics():
    with pytest.raises(ValueError, match="2 and 3 items"):
        paired_rejection_differences({"u": [1, 2]}, [1, 0], {"u": [1, 2, 3]}, [1, 0, 1])
    with pytest.raises(ValueError, match="no rejection metric 'bleu'"):
        paired_rejection_differences({"u": [1, 2]}, [1, 0], {"u": [1, 2]}, [1, 0], metrics=["bleu"])
