"""The registry of metrics, and the one way in which their numbers are written."""

import math

import pytest

from clue_hf.metrics import METRICS, Measured, format_interval, format_metric, metric_info


def test_every_metric_has_a_heading_a_direction_and_a_definition_of_its_own():
    for infos in METRICS.values():
        for name, info in infos.items():
            assert info.name == name
            assert info.heading
            assert info.definition
            assert info.direction in (-1, 0, 1)
            assert info.unit in ("", "nats", "target", "target²", "%")
        for texts in ([info.heading for info in infos.values()], [info.definition for info in infos.values()]):
            assert len(set(texts)) == len(texts)


def test_one_name_has_one_heading_in_all_kinds():
    kinds = [METRICS[kind] for kind in ("text", "classes", "numbers")]
    for name in {name for infos in kinds for name in infos}:
        assert len({(infos[name].heading, infos[name].direction) for infos in kinds if name in infos}) == 1
        assert name not in METRICS["shared"]


def test_names_with_a_number_and_names_of_a_kind():
    half = metric_info("prr_0.5")
    assert (half.name, half.heading, half.direction) == ("prr_0.5", "PRR 0.5", 1)
    assert metric_info("risk_at_coverage_0.8", "classes").definition.endswith("; coverage = 0.8; quality = 1{right}")
    assert "share of wrong answers" in metric_info("error", "classes").definition
    assert "cross-entropy" in metric_info("error", "text").definition
    assert metric_info("alignment_error", "numbers").unit == "target²"
    with pytest.raises(ValueError, match="no metric 'mse'; the metrics are error, ece"):
        metric_info("mse", "classes")
    with pytest.raises(KeyError):
        metric_info("mse", "images")


@pytest.mark.parametrize(
    ("entry", "name", "kind", "expected"),
    [
        ({"value": 0.12345, "low": -0.1, "high": 0.2}, "ece", "classes", "0.123 [-0.100, 0.200]"),
        ({"value": 0.12345}, "", "", "0.123"),
        ({"value": 5.4321, "low": 5.0, "high": 6.0}, "bleu", "text", "5.4 [5.0, 6.0]"),
        ({"value": 99.5, "low": 98.0, "high": 101.0}, "nll", "numbers", "99.5 [98.0, 101.0]"),
        ({"value": 0.0012345, "low": 0.001, "high": 0.0021}, "mse", "numbers", "0.001234 [0.001000, 0.002100]"),
        ({"value": 12345.6, "low": 900.0, "high": 23456.7}, "mean_std", "numbers", "12346 [900, 23457]"),
        ({"value": None, "reason": "no rows", "low": None, "high": None}, "mse", "numbers", "-"),
        ({"value": math.nan}, "mse", "numbers", "-"),
        (None, "mse", "numbers", "-"),
    ],
)
def test_digits(entry, name, kind, expected):
    assert format_metric(entry, name, kind) == expected
    if entry is not None and entry["value"] is not None:
        assert format_metric(Measured.from_dict(entry), name, kind) == expected


def test_signs_and_intervals():
    entry = {"value": -0.25, "low": -0.5, "high": 0.125}
    assert format_metric(entry, sign="+") == "-0.250 [-0.500, +0.125]"
    assert format_metric(entry, minus="−", interval=None) == "−0.250"
    assert format_interval(entry, minus="−") == "−0.500 to 0.125"
    assert format_interval({"value": 1.0}) == format_interval(None) == ""
