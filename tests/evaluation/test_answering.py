"""How much can be answered at which quality, against a loop over thresholds."""

import numpy as np
import pytest

from clue_hf.evaluation.answering import answering


def by_hand(uncertainty, quality, threshold):
    kept = quality[uncertainty <= threshold]
    return len(kept), kept.mean()


@pytest.mark.parametrize("ties", [False, True])
def test_shares_are_those_below_a_threshold(ties):
    rng = np.random.default_rng(0)
    quality = rng.random(203)
    uncertainty = (1 - quality) + 0.2 * rng.random(203)
    if ties:
        uncertainty = uncertainty.round(1)
    advice = answering(uncertainty, quality, "msp")
    assert advice.rows[0]["count"] == 203
    for row in advice.rows:
        assert (row["count"], pytest.approx(row["quality"])) == by_hand(uncertainty, quality, row["at_most"])
        assert row["share"] == row["count"] / 203


def test_the_sentences_name_the_largest_share_that_reaches_a_quality():
    uncertainty, quality = np.arange(10.0), np.array([1, 1, 1, 1, 0, 1, 0, 0, 0, 0], float)
    first, *targets = answering(uncertainty, quality, "msp", noun="answers", measure="accuracy").sentences()
    assert first == "The accuracy of all 10 answers is 0.500."
    assert targets[0].startswith("For 0.6, answer the most certain 80 %: msp at most 7")
    assert targets[1].startswith("For 0.7, answer the most certain 70 %: msp at most 6")


def test_a_quality_that_is_out_of_reach_is_said():
    sentences = answering(np.arange(4.0), np.array([0.2, 0.9, 0.9, 0.2]), "msp").sentences()
    assert sentences[-1] == "No share of the most certain ones reaches 0.7."


def test_nothing_is_said_of_what_is_not_finite_or_alone():
    assert answering(np.array([1.0, np.nan]), np.array([1.0, 0.0]), "msp") is None
    assert answering(np.array([1.0]), np.array([1.0]), "msp") is None
