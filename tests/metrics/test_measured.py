"""The one type of a measured number: what its entry holds, how it is read back, and the difference of two."""

import json
import math
import pickle

import numpy as np
import pytest

from clue_hf.metrics import (
    Measured,
    bootstrap_interval,
    interval_description,
    paired_bootstrap,
    read_metrics,
    regression_report,
)


def measured(seed=0, resamples=20, **options):
    values = np.random.default_rng(seed).normal(size=30)
    return bootstrap_interval(np.mean, values, resamples=resamples, **options)


def test_it_is_the_entry_of_a_report():
    found = measured()
    assert found == {"value": found.value, "reason": None, "n": 30, "low": found.low, "high": found.high}
    assert found["value"] == found.value
    assert found.get("p_value") is None
    assert json.loads(json.dumps({"prr": found}))["prr"] == found
    assert set(measured(resamples=0)) == {"value", "reason", "n"}
    undefined = Measured(math.nan, "all qualities are equal", 3)
    assert math.isnan(undefined.value)
    assert undefined == {"value": None, "reason": "all qualities are equal", "n": 3}
    assert measured().with_details(tau=0.5)["tau"] == 0.5


@pytest.mark.parametrize(
    "entry",
    [
        {"value": 0.5, "reason": None, "n": 3},
        {"value": 0.5, "reason": None, "n": 3, "low": 0.1, "high": 0.7, "p_value": 0.2},
        {"value": 0.5, "reason": None, "n": 3, "low": 0.1, "high": 0.7, "undefined": 2, "tau": 0.3, "floored": 4},
        {"value": None, "reason": "no rows", "n": 0, "low": None, "high": None, "p_value": None},
    ],
)
def test_what_a_file_holds_is_read_back(entry):
    found = Measured.from_dict(entry)
    assert found.to_dict() == entry
    assert list(found) == list(entry)
    assert math.isnan(found.value) == (entry["value"] is None)
    for copy in (pickle.loads(pickle.dumps(found)), Measured.from_dict(found)):
        assert copy == entry
        assert (copy.n, copy.reason, copy.has_interval) == (found.n, found.reason, found.has_interval)


def test_a_tree_of_metrics_is_read_back():
    generator = np.random.default_rng(0)
    report = regression_report(*generator.uniform(1, 2, (3, 20)), resamples=10, min_variance=4.0)
    tree = {"n": 20, "raw": report, "notes": ["x"], "area": {"difference": 0.5}}
    again = read_metrics(json.loads(json.dumps(tree)))
    assert again == tree
    assert all(isinstance(found, Measured) for found in again["raw"].values())
    assert again["raw"]["nll"].details == {"clamped": 20}
    assert not isinstance(again["area"], Measured)
    assert read_metrics(tree)["raw"]["mse"] is report["mse"]


def test_the_difference_of_two_is_the_paired_bootstrap():
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 40))
    difference = bootstrap_interval(np.mean, a, resamples=50) - bootstrap_interval(np.mean, b, resamples=50)
    plain = paired_bootstrap(np.mean, [a], [b], resamples=50)
    assert difference == pytest.approx(plain)
    assert difference.p_value == plain.p_value
    narrow = measured(1).minus(measured(2), level=0.5)
    wide = measured(1).minus(measured(2))
    assert wide.low < narrow.low < narrow.high < wide.high
    lost = Measured.from_dict(measured())
    with pytest.raises(ValueError, match="which files do not hold"):
        lost - measured()
    assert (measured(resamples=0) - measured(1, resamples=0)).to_dict().keys() == {"value", "reason", "n"}


def test_the_intervals_of_a_report_in_words():
    assert interval_description(2000, "rows") == "95 % percentile bootstrap over rows, 2000 resamples, seed 0"
    assert interval_description(0, "rows") == "none computed (0 resamples)"
