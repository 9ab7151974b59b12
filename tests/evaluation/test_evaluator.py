import json
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from clue_hf import EvaluationReport, UncertaintyEvaluator
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.errors import UserError
from clue_hf.evaluation import evaluator as module
from clue_hf.metrics import prediction_rejection_ratio
from clue_hf.scorers import SCORERS


FOLDER = Path(__file__).parents[1] / "fixtures/lm_polygraph"
ROWS = phrase_rows("test", 40, seed=1)


@pytest.fixture(scope="module")
def parts():
    """A small T5 that has learned the phrases."""
    model = AutoModelForSeq2SeqLM.from_pretrained(FOLDER / "model", dtype="float32")
    return model, AutoTokenizer.from_pretrained(FOLDER / "model")


def evaluate(parts, rows=ROWS, **settings):
    return UncertaintyEvaluator(
        *parts, **{"max_new_tokens": 32, "num_samples": 3, "resamples": 50, **settings}
    ).evaluate(rows)


@pytest.fixture(scope="module")
def report(parts):
    return evaluate(parts)


def test_outputs_and_scores_are_those_recorded_with_another_library(report):
    recorded = json.loads((FOLDER / "recorded.json").read_text())
    texts = [row["output"] for row in report.examples]
    assert len(texts) == 40
    assert all(text in json.dumps(recorded, ensure_ascii=False) for text in texts)
    for example in report.examples:
        assert len(example["tokens"]) == len(example["token_log_probabilities"]) == len(example["token_entropies"])
        assert example["scores"]["msp"] == pytest.approx(-sum(example["token_log_probabilities"]), rel=1e-6)


def test_metrics_follow_from_the_examples(report):
    quality = [example["quality"] for example in report.examples]
    outputs = [example["output"] for example in report.examples]
    expected = [
        sacrebleu.sentence_bleu(output, [row["target"]]).score / 100 for output, row in zip(outputs, ROWS, strict=True)
    ]
    assert quality == pytest.approx(expected)
    assert report.metrics["corpus_bleu"] == sacrebleu.corpus_bleu(outputs, [[row["target"] for row in ROWS]]).score
    for name in SCORERS:
        entry = report.metrics["scorers"][name]["prr"]
        scores = [example["scores"][name] for example in report.examples]
        assert entry["value"] == pytest.approx(prediction_rejection_ratio(scores, quality))
        assert entry["low"] <= entry["high"]
    assert report.metrics["scorers"]["perplexity"]["prr"]["value"] > 0.5
    assert report.metrics["references"]["tokens"] > 40


def test_shards_batches_and_streams_give_the_same_report(parts, report, monkeypatch):
    monkeypatch.setattr(module, "SHARD", 7)
    other = evaluate(parts, rows=iter(ROWS), batch_size=3)
    assert [row["output"] for row in other.examples] == [row["output"] for row in report.examples]
    for one, two in zip(report.examples, other.examples, strict=True):
        assert one["scores"] == pytest.approx(two["scores"], rel=1e-4, abs=1e-4)
    for name in ("error", "uncertainty", "token_ece"):
        assert other.metrics["references"][name] == pytest.approx(report.metrics["references"][name], rel=1e-4)


def test_it_saves_and_loads(report, tmp_path):
    report.save(tmp_path / "report")
    loaded = EvaluationReport.load(tmp_path / "report")
    assert loaded.examples == report.examples
    assert loaded.metrics == report.metrics
    summary = (tmp_path / "report/summary.md").read_text()
    assert "| perplexity" in summary
    assert "nrefs:1" in summary
    assert all(name in report.table() for name in SCORERS)


def test_a_metric_that_is_not_defined_says_why(parts):
    rows = [{"source": row["source"], "target": "zzz"} for row in ROWS[:4]]
    report = evaluate(parts, rows, scorers=["msp"], quality="rouge2")
    entry = report.metrics["scorers"]["msp"]["prr"]
    assert entry == {"value": None, "reason": "all qualities are equal"}
    assert "| -" in report.table()


@pytest.mark.parametrize(
    ("rows", "settings", "error", "message"),
    [
        ([], {}, ValueError, "no rows"),
        ([{"a": "x", "b": "y"}], {}, UserError, "The columns are a, b"),
        ([{"source": "x", "target": None}], {}, UserError, "row 0"),
        (ROWS, {"scorers": ["mps"]}, ValueError, "scorers"),
        (ROWS, {"quality": "blue"}, ValueError, "quality"),
    ],
)
def test_mistakes_are_explained(parts, rows, settings, error, message):
    with pytest.raises(error, match=message):
        evaluate(parts, rows, **settings)


def test_token_calibration_is_that_of_the_trainer(parts, report, tmp_path):
    from helpers import make_trainer

    from clue_hf.evaluation import token_statistics

    trainer = make_trainer(parts[0], tmp_path, processing_class=parts[1])
    data = trainer.task.prepare(
        [{"source": row["source"], "target": row["target"]} for row in ROWS], trainer.args, "test"
    )
    found = token_statistics(trainer, data).summary()
    for name in ("error", "uncertainty", "alignment_error", "token_ece"):
        assert report.metrics["references"][name] == pytest.approx(found[name], rel=1e-3, abs=1e-5)
    assert np.isfinite(found["gap"])
