"""The learned score: its numbers against scikit-learn's, when it is used, and what of a stored one is refused."""

import copy
import json
import re

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import utils

from clue_hf.errors import UserError
from clue_hf.metrics import prediction_rejection_ratio
from clue_hf.posthoc.learned import (
    PENALTIES,
    TOKEN_FEATURES,
    JudgedOutputs,
    LearnedScore,
    QualityRegressor,
    _out_of_fold,
    token_features,
)
from clue_hf.posthoc.saved import stored_learned_score


WIDTH = len(TOKEN_FEATURES)


@pytest.fixture
def warnings_seen(caplog):
    utils.logging.enable_propagation()
    yield caplog
    utils.logging.disable_propagation()


def make_outputs(n, gain=1.0, seed=0):
    """
    Synthetic outputs whose quality depends on two features; the single scores know one of them, and of the other only
    what `gain` leaves.
    """
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(n, WIDTH))
    quality = 1 / (1 + np.exp(-features[:, 3] - gain * features[:, 9] ** 2 + generator.normal(size=n) / 2))
    scores = {
        "perplexity": -features[:, 3] + generator.normal(size=n) / 5,
        "msp": generator.normal(size=n),
    }
    return JudgedOutputs(features, scores, quality, [f"text {row}" for row in range(n)])


def test_the_features_of_an_output():
    log_probability, entropy = np.array([-0.1, -2.0, -0.5, -0.3, -4.0]), np.array([0.2, 1.5, 0.9, 0.4, 2.5])
    found = dict(zip(TOKEN_FEATURES, token_features(log_probability, entropy, 10, True), strict=True))
    assert len(found) == 3 + 3 * 12 + 1
    assert (found["tokens"], found["source_tokens"], found["tokens_per_source_token"], found["ended"]) == (
        5,
        10,
        0.5,
        1,
    )
    for name, values in (
        ("log_probability", log_probability),
        ("entropy", entropy),
        ("both", log_probability + entropy),
    ):
        expected = {
            "sum": sum(values), "mean": sum(values) / 5, "min": min(values), "max": max(values),
            "std": np.sqrt(np.mean((values - np.mean(values)) ** 2)), "quantile_0.5": sorted(values)[2],
            "quantile_0.25": sorted(values)[1], "quantile_0.1": sorted(values)[0] * 0.6 + sorted(values)[1] * 0.4,
            "quantile_0.75": sorted(values)[3], "quantile_0.9": sorted(values)[3] * 0.4 + sorted(values)[4] * 0.6,
            "mean_of_3_lowest": sum(sorted(values)[:3]) / 3, "mean_of_3_highest": sum(sorted(values)[2:]) / 3,
        }  # fmt: skip
        for statistic, value in expected.items():
            assert found[f"{statistic}_of_{name}"] == pytest.approx(value, abs=1e-12), (statistic, name)
    one = dict(zip(TOKEN_FEATURES, token_features([-0.5], [0.25], 0, False), strict=True))
    assert one["tokens_per_source_token"] == 1
    assert one["mean_of_3_lowest_of_both"] == one["max_of_both"] == -0.25
    assert not token_features([], [], 0, False).any()


@pytest.mark.parametrize("rows", [30, 150, 900])
def test_predictions_are_those_of_scikit_learn(rows):
    """Also at the thresholds themselves, far outside of what was fitted on, and of a model that came from a file."""
    generator = np.random.default_rng(rows)
    features = generator.normal(size=(rows, WIDTH))
    features[:, 5] = features[:, 5].round(1)  # many ties
    features[:, 6] = 3.0
    features[:, 7] = generator.integers(0, 2, rows)
    quality = np.clip(features[:, 5] + features[:, 7] / 2 + generator.normal(size=rows) / 4, 0, 1)
    fitted = QualityRegressor.fit(features, quality)
    fitted.check()
    boosted = HistGradientBoostingRegressor(
        max_iter=200, learning_rate=0.04, max_leaf_nodes=8, early_stopping=False
    ).fit(features, quality)
    ridge = make_pipeline(StandardScaler(), RidgeCV(PENALTIES)).fit(features, quality)
    stored = QualityRegressor.from_checked_dict(json.loads(json.dumps(fitted.to_dict())))
    assert stored == fitted
    at_thresholds = np.repeat(features[:1], 300, 0)
    splits = [
        (f, t) for tree in zip(fitted.feature, fitted.threshold, strict=True) for f, t in zip(*tree, strict=True)
    ]
    for row, (feature, threshold) in zip(at_thresholds, splits, strict=False):
        row[feature] = threshold
    assert bool(splits) == (rows > 40)  # with fewer rows than that no leaf is large enough
    new = generator.normal(size=(500, WIDTH))
    for inputs in (features, new, at_thresholds, 1e6 * new, np.full((1, WIDTH), 1e300), np.full((1, WIDTH), -1e300)):
        expected = np.clip((ridge.predict(inputs) + boosted.predict(inputs)) / 2, 0, 1)
        np.testing.assert_allclose(stored.predict(inputs), expected, rtol=0, atol=1e-9)
    assert len(fitted.predict(features[:0])) == 0
    with pytest.raises(ValueError, match="shape"):
        fitted.predict(features[:, :-1])


def test_a_score_that_ranks_better_is_used():
    outputs = make_outputs(1000)
    fit, choose, rest = range(500), range(500, 700), range(700, 1000)
    learned, uncertainty = LearnedScore.fit(outputs, fit, choose)
    assert learned.single == "perplexity"
    assert not learned.is_single
    assert 0 < learned.bound < learned.gain
    assert f"{learned.gain:+.3f}" in learned.explanation
    assert learned.prr["learned"] > learned.prr["perplexity"] > learned.prr["msp"]
    quality = outputs.quality
    gain = prediction_rejection_ratio(uncertainty[choose], quality[choose]) - prediction_rejection_ratio(
        outputs.scores["perplexity"][choose], quality[choose]
    )
    assert learned.gain == pytest.approx(gain, abs=1e-12)
    assert uncertainty[rest[3]] == learned(outputs.features[rest[3]], [])
    on_others = prediction_rejection_ratio(uncertainty[rest], quality[rest])
    assert on_others > prediction_rejection_ratio(outputs.scores["perplexity"][rest], quality[rest])
    # what fitted is scored by models that did not see it: as well as others, not better
    again = 1 - learned.regressor.predict(outputs.features[fit])
    assert prediction_rejection_ratio(again, quality[fit]) > learned.prr["learned"] + 0.02
    assert learned.prr["learned"] == pytest.approx(on_others, abs=0.1)


def test_rows_of_one_source_are_in_one_fold():
    """Where every source comes four times, with the same features and quality, folds by row would give it away."""
    generator = np.random.default_rng(0)
    features, quality = generator.normal(size=(100, 6)), generator.random(100)  # nothing to learn
    rows = np.repeat(np.arange(100), 4)
    by_source, by_row = (
        _out_of_fold(features[rows], quality[rows], [f"text {number}" for number in numbers], 0)
        for numbers in (rows, range(400))
    )
    assert prediction_rejection_ratio(-by_source, quality[rows]) < 0.4
    assert prediction_rejection_ratio(-by_row, quality[rows]) > 0.7


@pytest.mark.parametrize(
    ("outputs", "choose", "why"),
    [
        (make_outputs(240, gain=0), range(160, 240), r"is [+-]0\.\d+, and at least -0\.\d+ with probability 0.9"),
        (make_outputs(160), [], "cannot be told"),
        (make_outputs(161), [160], "cannot be told"),
    ],
)
def test_else_it_is_the_best_single_score(outputs, choose, why, warnings_seen):
    learned, uncertainty = LearnedScore.fit(outputs, range(160), choose)
    assert learned.is_single
    assert learned.used_scores == ["perplexity"]
    np.testing.assert_array_equal(uncertainty, outputs.scores["perplexity"])
    assert learned(outputs.features[0], [0.25]) == 0.25
    assert learned.explanation.startswith("learned is perplexity, the best single scorer")
    assert re.search(why, learned.explanation)
    assert "160 rows: with fewer than 1,000 it rarely" in warnings_seen.text
    assert LearnedScore.from_checked_dict(json.loads(json.dumps(learned.to_dict()))) == learned


def test_too_few_rows_and_constant_quality():
    outputs = make_outputs(300)
    for rows in ([], [5], [1, 2, 3], range(99)):
        learned, uncertainty = LearnedScore.fit(outputs, rows, range(200, 300))
        assert learned.is_single
        assert f"{len(rows)} rows are too few" in learned.explanation
        np.testing.assert_array_equal(uncertainty, outputs.scores[learned.single])
    constant = JudgedOutputs(outputs.features, outputs.scores, np.full(300, 0.5), outputs.sources)
    learned, uncertainty = LearnedScore.fit(constant, range(200), range(200, 300))
    assert learned.is_single
    assert learned.single == "perplexity"  # the first
    assert "cannot be told" in learned.explanation
    assert json.loads(json.dumps(learned.to_dict(), allow_nan=False))["prr"]["perplexity"] is None


def test_other_scores_are_features():
    outputs = make_outputs(500)
    generator = np.random.default_rng(9)
    outputs.scores["pmi"] = -(outputs.features[:, 9] ** 2) + generator.normal(size=500) / 9
    hidden = np.where(np.arange(WIDTH) == 9, generator.normal(size=(500, WIDTH)), outputs.features)
    outputs = JudgedOutputs(hidden, outputs.scores, outputs.quality, outputs.sources)
    without, _ = LearnedScore.fit(outputs, range(300), range(300, 500))
    learned, uncertainty = LearnedScore.fit(outputs, range(300), range(300, 500), ["pmi"])
    assert learned.prr["learned"] > without.prr["learned"] + 0.1
    assert learned.used_scores == ["pmi"]
    assert uncertainty[450] == pytest.approx(learned(hidden[450], [outputs.scores["pmi"][450]]), abs=1e-12)
    assert np.isnan(learned(hidden[450], [np.nan]))
    with pytest.raises(ValueError, match="shape"):
        learned(hidden[450], [])


def damaged_contents():
    content = LearnedScore.fit(make_outputs(400), range(200), range(200, 400))[0].to_dict()
    assert content["regressor"]["feature"][0]

    def edited(change):
        other = copy.deepcopy(content)
        change(other["regressor"], other)
        return other

    return [
        "learned",
        {},
        edited(lambda r, c: c.update(version=2)),
        edited(lambda r, c: c.pop("single")),
        edited(lambda r, c: c.update(single=None)),
        edited(lambda r, c: c.update(scores=["pmi"])),
        edited(lambda r, c: c.update(regressor="none")),
        edited(lambda r, c: r.pop("left")),
        edited(lambda r, c: r["mean"].pop()),
        edited(lambda r, c: r["mean"].__setitem__(0, float("nan"))),
        edited(lambda r, c: r["scale"].__setitem__(0, 0.0)),
        edited(lambda r, c: r.update(intercept="0")),
        edited(lambda r, c: r["leaves"].pop()),
        edited(lambda r, c: r["leaves"][0].pop()),
        edited(lambda r, c: r["leaves"][0].__setitem__(0, None)),
        edited(lambda r, c: r["feature"][0].__setitem__(0, WIDTH)),
        edited(lambda r, c: r["feature"][0].__setitem__(0, 1.5)),
        edited(lambda r, c: r["left"][0].__setitem__(0, 0)),  # would never end
        edited(lambda r, c: r["right"][0].__setitem__(0, 99)),
        edited(lambda r, c: r["right"][0].__setitem__(0, -99)),
    ]


def test_a_damaged_part_is_named():
    assert stored_learned_score("a model", {}) is None
    for content in damaged_contents():
        pattern = "'learned_score' in uncertainty.json of 'a model' is damaged .*clue-hf calibrate --scorer learned"
        with pytest.raises(UserError, match=pattern):
            stored_learned_score("a model", {"learned_score": content})
