"""Metrics of hardly any rows, of rows that are all alike, and of uncertainties that are no numbers."""

import json
import math
import warnings

import numpy as np
import pytest

from clue_hf.metrics import (
    classification_report,
    corpus_quality,
    corpus_quality_interval,
    regression_report,
    rejection_report,
)


def texts(n, quality=None, uncertainty=None):
    generator = np.random.default_rng(0)
    quality = generator.random(n) if quality is None else np.full(n, quality)
    return rejection_report(generator.random(n) if uncertainty is None else uncertainty, quality, resamples=20)


def classes(n, right=None, uncertainty=None):
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet([1.0] * 3, n)
    answers = probabilities.argmax(1) if n else np.zeros(0, int)
    labels = generator.integers(3, size=n) if right is None else (answers + (0 if right else 1)) % 3
    return classification_report(probabilities, labels, uncertainty, resamples=20, tau=0.5)


def numbers(n, std=None, error=None):
    generator = np.random.default_rng(0)
    mean, target = generator.normal(size=n), generator.normal(size=n)
    std = 0.5 + generator.random(n) if std is None else std
    return regression_report(mean, std, target if error is None else mean + error, resamples=20)


REPORTS = {"text": texts, "image": classes, "number": numbers}


def check(report):
    """A number with an interval around it, or nothing and the reason."""
    json.dumps(report, allow_nan=False)
    for name, entry in report.items():
        assert (entry["value"] is None) == (entry["reason"] is not None), name
        assert entry["value"] is None or math.isfinite(entry["value"]), name


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", REPORTS)
def test_hardly_any_rows(kind, n):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = REPORTS[kind](n)
    check(report)
    values = [entry["value"] for entry in report.values()]
    assert all(value is None for value in values) if n == 0 else any(value is not None for value in values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: texts(20, quality=1.0),
        lambda: texts(20, quality=0.0),
        lambda: classes(20, right=True),
        lambda: classes(20, right=False),
        lambda: numbers(20, error=0.0),
        lambda: numbers(20, error=1e6),
    ],
    ids=["best texts", "worst texts", "right", "wrong", "exact", "far off"],
)
def test_all_right_or_all_wrong(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = make()
    check(report)
    if "prr" in report:
        assert (report["prr"]["value"], report["prr"]["reason"]) == (None, "all qualities are equal")
    else:
        assert report["corr_error_var"]["value"] is None or abs(report["corr_error_var"]["value"]) <= 1


@pytest.mark.parametrize("value", [0.0, 0.3, 1e-300])
@pytest.mark.parametrize("kind", REPORTS)
def test_an_uncertainty_that_is_always_the_same(kind, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # not one, let alone one for every resample
        report = (
            numbers(20, std=np.full(20, value)) if kind == "number" else REPORTS[kind](20, uncertainty=[value] * 20)
        )
    check(report)
    if kind != "number":
        assert report["prr"]["value"] == 0.0
    names = {"text": [], "image": ["residual_correlation_nll"], "number": ["corr_error_var", "corr_error_pe"]}[kind]
    for name in names:
        assert report[name]["value"] is None
        assert "constant" in report[name]["reason"] or "is 0" in report[name]["reason"]


def test_it_gains_nothing_in_any_order_of_the_rows():
    generator = np.random.default_rng(1)
    quality = generator.random(50)
    for _ in range(20):
        assert rejection_report(np.full(50, 0.7), generator.permutation(quality), resamples=0)["prr"]["value"] == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_an_error_and_never_certain(bad):
    uncertainty = np.linspace(0, 1, 6)
    uncertainty[4] = bad
    with pytest.raises(ValueError, match=f"`uncertainty` is {bad} at position 4"):
        texts(6, uncertainty=uncertainty)
    with pytest.raises(ValueError, match=f"`uncertainty` is {bad} at position 4"):
        classes(6, uncertainty=uncertainty)
    with pytest.raises(ValueError, match=f"`std` is {bad} at position 4"):
        numbers(6, std=uncertainty)


@pytest.mark.parametrize("name", ["bleu", "chrf", "rouge2"])
def test_references_that_are_nested_wrongly(name):
    """[[a, b]] instead of [a, b]: one list of references for all texts, or lists in the lists of each."""
    for references in ([["a b c", "d e f"]], [[["a b c"]], [["d e f"]]], [["a b c"], []], [["a b c"], [None]]):
        with pytest.raises((TypeError, ValueError), match="reference"):
            corpus_quality(name, ["a b c", "d e f"], references)
        with pytest.raises((TypeError, ValueError), match="reference"):
            corpus_quality_interval(name, ["a b c", "d e f"], references, resamples=3)
    with pytest.raises((TypeError, ValueError)):
        corpus_quality(name, "a b c", ["a b c"])
