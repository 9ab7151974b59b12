"""What CONTRIBUTING.md says is enough to add an objective, a scorer, a calibrator or a quality: one registry line."""

import datasets
import numpy as np
import pytest
import torch
from class_models import digit_splits, train_resnet
from helpers import make_model

from clue_hf import ClassificationEvaluator, CLUEConfig, CLUETrainer, UncertaintyEvaluator
from clue_hf.metrics import QUALITIES, quality_signature, sentence_quality
from clue_hf.objectives import OBJECTIVES, Objective
from clue_hf.posthoc import CALIBRATORS, Calibrator
from clue_hf.scorers import SCORERS, Scorer


ROWS = datasets.Dataset.from_dict(
    {"source": ["the cat", "a dog sat", "the mat", "a cat sat"], "target": ["le chat", "un chien", "le tapis", "un"]}
)


def test_an_objective(tokenizer, tmp_path, monkeypatch):
    class Hinge(Objective):
        """Punishes only overconfidence: an error above the uncertainty."""

        def item_loss(self, error, uncertainty, logits=None, labels=None):
            return error + torch.relu(error - uncertainty) ** 2

    monkeypatch.setitem(OBJECTIVES, "hinge", Hinge)
    losses = {}
    for objective in ("hinge", "ce"):
        config = CLUEConfig(str(tmp_path), objective=objective, report_to=[], seed=0)
        torch.manual_seed(0)
        trainer = CLUETrainer(make_model("t5"), config, eval_dataset=ROWS, processing_class=tokenizer)
        losses[objective] = trainer.evaluate()["eval_loss"]
    assert losses["hinge"] > losses["ce"]


def test_a_scorer_and_a_quality(tokenizer, monkeypatch):
    class LeastProbable(Scorer):
        """The error of the least probable token."""

        def score(self, collected):
            return float(-collected.output.log_probability.min(initial=0.0))

    def same_length(predictions, references):
        """1 where prediction and reference have equally many words, else 0."""
        return [len(a.split()) == len(b.split()) for a, b in zip(predictions, references, strict=True)]

    monkeypatch.setitem(SCORERS, "least_probable", LeastProbable)
    monkeypatch.setitem(QUALITIES, "same_length", same_length)
    report = UncertaintyEvaluator(
        make_model("t5"), tokenizer, scorers=["least_probable"], quality="same_length", max_new_tokens=4, resamples=5
    ).evaluate(ROWS)
    for row in report.examples:
        assert row["scores"]["least_probable"] == pytest.approx(-min(row["token_log_probabilities"]), abs=1e-6)
        assert row["quality"] == (len(row["output"].split()) == len(row["reference"].split()))
    assert report.metrics["quality"]["same_length"]["corpus"].value == pytest.approx(100 * report.quality().mean())
    assert report.description["quality"]["same_length"].startswith("1 where prediction")
    assert "least_probable" in report.table()
    assert "same_length: corpus" in report.summary()


def test_a_quality_of_pairs_judges_several_references(monkeypatch):
    def same_length(predictions, references):
        """1 where prediction and reference have equally many words, else 0."""
        return [len(a.split()) == len(b.split()) for a, b in zip(predictions, references, strict=True)]

    monkeypatch.setitem(QUALITIES, "same_length", same_length)
    assert sentence_quality("same_length", ["a b", "a", "a"], [["a", "c d"], "b", ["a b"]]).tolist() == [1, 1, 0]
    assert quality_signature("same_length", None).endswith("else 0, best of the references")


def test_a_calibrator(tmp_path, monkeypatch):
    class Priors(Calibrator):
        """The shares of the classes in the validation data, whatever the input."""

        name = "priors"

        def __init__(self, shares):
            self.shares = shares

        @classmethod
        def _fit(cls, answers):
            return cls(np.bincount(answers.labels, minlength=answers.probabilities.shape[1]) / answers.n)

        def _map(self, probabilities):
            return np.tile(self.shares, (len(probabilities), 1))

    monkeypatch.setitem(CALIBRATORS, "priors", Priors)
    splits = digit_splits()
    model, processor = train_resnet(tmp_path)
    evaluator = ClassificationEvaluator(model, processor, calibrator="priors", resamples=5)
    report = evaluator.evaluate(splits["test"].select(range(30)), splits["validation"].select(range(40)))
    shares = np.bincount(splits["validation"].labels[:40], minlength=10) / 40
    np.testing.assert_allclose(report.calibrated.probabilities, np.tile(shares, (30, 1)))
