import csv
import io

import numpy as np
import pytest

from clue_hf.experiments.comparison_results import as_csv, as_latex, as_markdown, compare_methods, holm
from clue_hf.metrics import bootstrap_interval, classification_error, classification_report


def answers(seed, wrong, n=200, classes=3):
    """Probabilities and labels of a classifier that is wrong in a share of the examples."""
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    given = np.where(np.arange(n) < wrong * n, (labels + 1) % classes, labels)
    probabilities = generator.dirichlet(np.ones(classes), n)
    probabilities = 0.3 * probabilities + 0.7 * np.eye(classes)[given]
    return probabilities, labels


def runs(wrongs, resamples=400):
    return [classification_report(*answers(seed, wrong), resamples=resamples) for seed, wrong in enumerate(wrongs)]


def test_holm_by_hand():
    # 0.01 * 4, 0.02 * 3, 0.03 * 2, and 0.04 may not fall below the one before
    assert holm({"d": 0.04, "a": 0.01, "c": 0.03, "b": 0.02}) == pytest.approx(
        {"a": 0.04, "b": 0.06, "c": 0.06, "d": 0.06}
    )
    assert holm({"a": 0.6, "b": 0.9}) == {"a": 1.0, "b": 1.0}


def test_one_seed_has_the_interval_of_its_examples():
    found = compare_methods({"ce": runs([0.1])}, "ce", ["error"])["ce"]["error"]
    plain = bootstrap_interval(classification_error, *answers(0, 0.1), resamples=400)
    assert (found.value, found.low, found.high) == pytest.approx((plain.value, plain.low, plain.high))


def test_seeds_that_differ_widen_the_interval_and_the_mean_is_theirs():
    same, spread = (
        compare_methods({"ce": runs(wrongs)}, "ce", ["error"])["ce"]["error"]
        for wrongs in ([0.2] * 3, [0.0, 0.2, 0.4])
    )
    assert same.value == pytest.approx(0.2)
    assert spread.value == pytest.approx(0.2)
    assert spread.high - spread.low > 2 * (same.high - same.low)


def test_differences_are_paired_and_corrected():
    methods = {"ce": runs([0.2] * 3), "same": runs([0.2] * 3), "worse": runs([0.3] * 3)}
    found = compare_methods(methods, "ce", ["error", "ece"])
    assert found["same"]["error"].difference == 0
    assert (found["same"]["error"].difference_low, found["same"]["error"].difference_high) == (0, 0)
    assert found["same"]["error"].p_value == 1
    assert found["worse"]["error"].difference == pytest.approx(0.1)
    assert 0.05 < found["worse"]["error"].difference_low < 0.1 < found["worse"]["error"].difference_high < 0.15
    assert found["worse"]["error"].p_value == pytest.approx(2 * 2 / 401)


def test_tables():
    found = compare_methods({"ce": runs([0.2]), "my_method": runs([0.4])}, "ce", ["error"])
    headings = {"error": "error"}
    markdown = as_markdown(found, headings)
    assert "| my_method | 0.400* [" in markdown
    assert "| ce        | 0.200 [" in markdown
    latex = as_latex(found, headings)
    assert r"my\_method & 0.400* [" in latex
    assert latex.startswith(r"\begin{tabular}{lr}")
    lines = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [(line["method"], line["metric"]) for line in lines] == [("ce", "error"), ("my_method", "error")]
    assert float(lines[1]["difference"]) == pytest.approx(0.2)
