import copy
import json
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch
from learned_scores import linear_score
from scipy.stats import spearmanr
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from clue_hf import EvaluationReport, UncertaintyEvaluator
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.errors import UserError
from clue_hf.evaluation.text import evaluator as module
from clue_hf.evaluation.text.measures import read_texts
from clue_hf.metrics import corpus_quality, prediction_rejection_ratio, sentence_quality
from clue_hf.scorers import DEFAULT_SCORERS


FOLDER = Path(__file__).parents[2] / "fixtures/lm_polygraph"
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
        assert example["scores"]["msp"] == pytest.approx(-sum(example["token_log_probabilities"]), abs=1e-4)


SEVERAL = [
    {**row, "target": [row["target"], ROWS[number - 1]["target"]][: 1 + number % 2]} for number, row in enumerate(ROWS)
]


def test_outputs_are_judged_against_all_references(parts, report, tmp_path):
    qualities = ["bleu", "chrf", "rouge1", "exact_match"]
    several = evaluate(parts, SEVERAL, scorers=["msp"], quality=qualities)
    outputs, references = read_texts(several.examples)
    assert references == [row["target"] for row in SEVERAL]
    for name in qualities:
        expected = sentence_quality(name, outputs, references)
        assert [example["qualities"][name] for example in several.examples] == expected.tolist()
        assert several.metrics["quality"][name]["corpus"].value == corpus_quality(name, outputs, references)
    assert several.quality().sum() > report.quality().sum()
    assert "nrefs:var" in several.description["quality"]["bleu"]
    assert several.description["quality"]["rouge1"].endswith("best of the references")
    assert "1 to 2 references each (60 in all)" in several.summary()
    for one, other in zip(report.examples, several.examples, strict=True):  # the tokens are those of the first
        assert one["reference"] == other["reference"]
        assert one["reference_errors"] == other["reference_errors"]
        assert ("references" in other) == (other["row"] % 2)
    several.save(tmp_path)
    assert EvaluationReport.load(tmp_path).metrics["n"] == 40


def test_lists_of_one_reference_give_the_same_report(parts):
    rows = [{**row, "target": [row["target"]]} for row in ROWS[:8]]
    plain, listed = (evaluate(parts, data, scorers=["msp"]) for data in (ROWS[:8], rows))
    assert listed.examples == plain.examples
    assert listed.metrics == plain.metrics
    assert listed.description == plain.description


def test_a_resumed_evaluation_notices_other_references(parts, tmp_path):
    evaluator = UncertaintyEvaluator(*parts, scorers=["msp"], max_new_tokens=32, resamples=0)
    whole = evaluator.evaluate(SEVERAL[:6], folder=tmp_path)
    whole.save(tmp_path)
    assert list(evaluator.evaluate(SEVERAL[:6], folder=tmp_path, resume=True).examples) == list(whole.examples)
    changed = copy.deepcopy(SEVERAL[:6])
    changed[3]["target"][1] = "autre chose"
    with pytest.raises(UserError, match=r"row 3 \(counted from 0\) of the input has changed"):
        evaluator.evaluate(changed, folder=tmp_path, resume=True)


def test_metrics_follow_from_the_examples(report):
    quality = [example["quality"] for example in report.examples]
    outputs = [example["output"] for example in report.examples]
    expected = [
        sacrebleu.sentence_bleu(output, [row["target"]]).score / 100 for output, row in zip(outputs, ROWS, strict=True)
    ]
    assert quality == pytest.approx(expected)
    corpus = report.metrics["quality"]["bleu"]["corpus"]
    assert corpus["value"] == pytest.approx(sacrebleu.corpus_bleu(outputs, [[row["target"] for row in ROWS]]).score)
    assert corpus["low"] < corpus["value"] < corpus["high"]
    for name in DEFAULT_SCORERS:
        entry = report.metrics["scorers"][name]["prr"]
        scores = [example["scores"][name] for example in report.examples]
        assert entry["value"] == pytest.approx(prediction_rejection_ratio(scores, quality))
        assert entry["low"] <= entry["high"]
    assert report.metrics["scorers"]["perplexity"]["prr"]["value"] > 0.5
    assert report.metrics["references"]["tokens"] > 40


def test_every_metric_has_a_definition_a_number_of_examples_and_an_interval_or_a_reason(report):
    definitions = report.description["metrics"]
    for metrics in (*report.metrics["scorers"].values(), report.metrics["references"]):
        for name, entry in metrics.items():
            if name in ("tokens", "true_entropy_correlation"):
                continue
            assert name in definitions
            assert entry["n"] == 40
            assert entry["low"] <= entry["high"] if entry["value"] is not None else entry["reason"]


def test_several_qualities_and_what_is_said_about_the_outputs(parts):
    report = evaluate(parts, ROWS[:20], quality=["chrf", "rougeL"], scorers=["perplexity", "cpmi"])
    for example in report.examples:
        assert example["quality"] == example["qualities"]["chrf"]
    assert list(report.metrics["other_qualities"]) == ["rougeL"]
    expected = prediction_rejection_ratio(
        report.uncertainty("cpmi"), [example["qualities"]["rougeL"] for example in report.examples]
    )
    assert report.metrics["other_qualities"]["rougeL"]["cpmi"]["prr"]["value"] == pytest.approx(expected)
    values = [value for example in report.examples for value in example["token_log_probabilities"]]
    assert report.metrics["outputs"]["exp_perplexity"] == pytest.approx(np.exp(-np.mean(values)), rel=1e-6)
    entropies = np.concatenate([example["token_entropies"] for example in report.examples])
    assert report.metrics["outputs"]["share_of_tokens_above_cpmi_tau"] == np.mean(entropies >= 3.599)


@pytest.mark.usefixtures("without_pictures")
def test_sources_that_were_cut_are_counted(parts, tmp_path):
    rows = [{**row, "source": "the cat . " * 200_000} if place == 3 else row for place, row in enumerate(ROWS[:12])]
    report = evaluate(parts, rows, scorers=["msp"], max_new_tokens=6)
    report.save(tmp_path)
    assert report.metrics["outputs"]["cut_sources"] == 1
    assert [example.get("source_was_cut", False) for example in report.examples] == [row == 3 for row in range(12)]
    assert "1 sources were cut at 512 tokens" in report.summary()
    assert "2,000,000 characters" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "report.html").stat().st_size < 1_000_000  # the page stays one that opens


def test_outputs_that_were_cut_are_counted(parts):
    whole, short = (evaluate(parts, ROWS[:12], scorers=["msp"], max_new_tokens=limit) for limit in (48, 6))
    assert whole.metrics["outputs"]["cut"] == 0
    assert "were cut" not in whole.summary()
    expected = sum(len(example["tokens"]) > 6 for example in whole.examples)
    assert short.metrics["outputs"]["cut"] == sum(not example["ended"] for example in short.examples) == expected > 0
    assert f"{expected} outputs were cut at 6 tokens" in short.summary()


def test_rank_correlation_with_the_true_entropy(parts):
    rows = phrase_rows("test", 60, seed=2)
    report = UncertaintyEvaluator(*parts, scorers=["mc_sequence_entropy"], max_new_tokens=32, resamples=0).evaluate(
        rows, entropy_column="entropy"
    )
    expected = spearmanr(report.uncertainty("mc_sequence_entropy"), [row["entropy"] for row in rows]).statistic
    found = report.metrics["scorers"]["mc_sequence_entropy"]["true_entropy_correlation"]
    assert found["value"] == pytest.approx(expected)
    assert found["value"] > 0.3
    assert "Rank correlation with the true entropy" in report.summary()


def test_the_mode_of_another_library_is_named(parts):
    report = evaluate(parts, ROWS[:10], scorers=["pmi", "cpmi"], compat="lm-polygraph")
    recorded = json.loads((FOLDER / "recorded.json").read_text())
    assert report.description["compat"] == "lm-polygraph"
    assert "computed as in lm-polygraph" in report.summary()
    assert "3.599" in report.description["scorers"]["cpmi"]
    assert report.uncertainty("pmi") == pytest.approx(recorded["scores"]["pmi"][:10], abs=1e-3)


def test_shards_batches_and_streams_give_the_same_report(parts, report, monkeypatch):
    monkeypatch.setattr(module, "SHARD", 7)
    other = evaluate(parts, rows=iter(ROWS), batch_size=3)
    assert [row["output"] for row in other.examples] == [row["output"] for row in report.examples]
    for one, two in zip(report.examples, other.examples, strict=True):
        assert one["scores"] == pytest.approx(two["scores"], rel=1e-4, abs=1e-4)
    for name in ("error", "uncertainty", "token_ece"):
        found, expected = (one.metrics["references"][name]["value"] for one in (other, report))
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_it_saves_and_loads(report, tmp_path):
    report.save(tmp_path / "report")
    loaded = EvaluationReport.load(tmp_path / "report")
    assert list(loaded.examples) == list(report.examples)
    assert loaded.examples[3:5] == report.examples[3:5]
    assert loaded.metrics == report.metrics
    summary = (tmp_path / "report/summary.md").read_text()
    assert "| perplexity" in summary
    assert "nrefs:1" in summary
    assert all(name in report.table() for name in DEFAULT_SCORERS)
    files = {file.name for file in (tmp_path / "report").iterdir()}
    assert {"report.json", "examples.jsonl", "summary.md", "report.html"} <= files
    for name in ("rejection_curves", "risk_coverage", "reliability", "score_histograms"):
        assert {f"{name}.png", f"{name}.svg"} <= files
    assert not any(name.endswith((".tmp", "unfinished.jsonl")) for name in files)


class Interrupted(Exception):
    pass


def stop_after(rows, count):
    """The rows as a stream that breaks off; it is read a shard at a time."""
    yield from rows[:count]
    raise Interrupted


@pytest.mark.usefixtures("without_pictures")
@pytest.mark.parametrize("cut", [0, 7])
def test_an_interrupted_run_goes_on_where_it_stopped(parts, report, tmp_path, monkeypatch, cut):
    monkeypatch.setattr(module, "SHARD", 8)
    folder, unfinished = tmp_path / "report", tmp_path / "report" / "examples.unfinished.jsonl"
    settings = {"max_new_tokens": 32, "num_samples": 3, "resamples": 50, "batch_size": 3}
    with pytest.raises(Interrupted):
        UncertaintyEvaluator(*parts, **settings).evaluate(stop_after(ROWS, 24), folder=folder)
    lines = unfinished.read_bytes()
    assert lines.count(b"\n") == 1 + 24
    unfinished.write_bytes(lines[: len(lines) - cut])  # in the middle of a line
    with pytest.raises(UserError, match="--resume"):
        UncertaintyEvaluator(*parts, **settings).evaluate(ROWS, folder=folder)
    with pytest.raises(UserError, match="another max_new_tokens: 32, now 16"):
        UncertaintyEvaluator(*parts, **{**settings, "max_new_tokens": 16}).evaluate(ROWS, folder=folder, resume=True)
    changed = [{**ROWS[0], "source": "another"}, *ROWS[1:]]
    with pytest.raises(UserError, match="row 0 .* has changed"):
        UncertaintyEvaluator(*parts, **settings).evaluate(changed, folder=folder, resume=True)

    evaluator, generated = UncertaintyEvaluator(*parts, **settings), []
    judged = evaluator._judged
    monkeypatch.setattr(
        evaluator, "_judged", lambda batch, *rest: generated.extend(batch.rows) or judged(batch, *rest)
    )
    resumed = evaluator.evaluate(ROWS, folder=folder, resume=True)
    again = {row for row in generated if row < 24}
    assert len(again) <= 3 if cut else not again
    assert set(range(24, 40)) <= set(generated)
    assert [example["row"] for example in resumed.examples] == list(range(40))
    assert [example["output"] for example in resumed.examples] == [row["output"] for row in report.examples]
    assert resumed.metrics["scorers"]["msp"]["prr"]["value"] == pytest.approx(
        report.metrics["scorers"]["msp"]["prr"]["value"], abs=1e-4
    )
    resumed.save(folder)

    generated.clear()
    finished = evaluator.evaluate(ROWS, folder=folder, resume=True)
    assert generated == []
    assert list(finished.examples) == list(resumed.examples)


@pytest.mark.usefixtures("without_pictures")
def test_a_run_that_fails_while_it_measures_or_writes_its_page_keeps_its_outputs(parts, tmp_path, monkeypatch):
    evaluator = UncertaintyEvaluator(*parts, scorers=["msp"], max_new_tokens=8, resamples=0)

    def fail(*_, **__):
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(module, "measure", fail)
        with pytest.raises(Interrupted):
            evaluator.evaluate(ROWS[:6], folder=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(evaluator, "_judged", fail)  # nothing is generated again
        report = evaluator.evaluate(ROWS[:6], folder=tmp_path, resume=True)
        patch.setattr(EvaluationReport, "write_page", fail)
        with pytest.raises(Interrupted):
            report.save(tmp_path)
        again = evaluator.evaluate(ROWS[:6], folder=tmp_path, resume=True)
    again.save(tmp_path)
    assert [path.name for path in tmp_path.glob("*.jsonl")] == ["examples.jsonl"]
    assert (tmp_path / "report.html").exists()


def test_sampled_outputs_do_not_depend_on_the_batch(parts):
    settings = {"scorers": ["msp"], "do_sample": True, "temperature": 1.5, "resamples": 0}
    one, two = (evaluate(parts, ROWS[:10], batch_size=size, **settings) for size in (1, 10))
    other = evaluate(parts, ROWS[:10], seed=1, **settings)
    texts = [[example["output"] for example in found.examples] for found in (one, two, other)]
    assert texts[0] == texts[1] != texts[2]
    np.testing.assert_allclose(one.uncertainty("msp"), two.uncertainty("msp"), rtol=1e-4, atol=1e-4)


def test_confidence_is_learned_from_the_other_examples(report):
    confidence = report.confidence("perplexity")
    assert confidence.shape == (40,)
    assert np.all((confidence >= 0) & (confidence <= 1))
    assert np.corrcoef(confidence, report.quality())[0, 1] > 0.3
    assert report.metrics["scorers"]["perplexity"]["confidence_ece"]["value"] < 0.2


def test_without_resamples_it_says_that_there_are_no_intervals(parts):
    report = evaluate(parts, ROWS[:4], scorers=["msp"], resamples=0)
    assert "Intervals: none computed (0 resamples)." in report.summary()
    assert "bootstrap" not in report.summary()
    assert "[" not in report.table()


def test_a_metric_that_is_not_defined_says_why(parts):
    rows = [{"source": row["source"], "target": "zzz"} for row in ROWS[:4]]
    report = evaluate(parts, rows, scorers=["msp"], quality="rouge2")
    entry = report.metrics["scorers"]["msp"]["prr"]
    assert entry["value"] is None
    assert entry["reason"] == "all qualities are equal"
    assert "| -" in report.table()


@pytest.mark.parametrize(
    ("rows", "settings", "error", "message"),
    [
        ([], {}, ValueError, "no rows"),
        ([{"a": "x", "b": "y"}], {}, UserError, "the columns are a, b"),
        ([{"source": "x", "target": None}], {}, UserError, "row 0"),
        (ROWS, {"scorers": ["mps"]}, ValueError, "scorers"),
        (ROWS, {"quality": "blue"}, ValueError, "quality"),
        (ROWS, {"scorers": []}, ValueError, "at least one"),
        (ROWS, {"batch_size": 0}, ValueError, "`batch_size` must be at least 1"),
        (ROWS, {"compat": "lm-poligraph"}, ValueError, "compat"),
        (ROWS, {"pmi_source": "none"}, ValueError, "pmi_source"),
    ],
)
def test_mistakes_are_explained(parts, rows, settings, error, message):
    with pytest.raises(error, match=message):
        evaluate(parts, rows, **settings)


def test_a_model_that_has_diverged_is_an_error(parts):
    model = copy.deepcopy(parts[0])
    with torch.no_grad():
        model.shared.weight[5] = float("nan")
    with pytest.raises(UserError, match="is nan: the model's probabilities are not finite"):
        evaluate((model, parts[1]), ROWS[:3], scorers=["msp"])


def test_token_calibration_is_that_of_the_trainer(parts, report, tmp_path):
    from helpers import make_trainer

    from clue_hf.evaluation import token_statistics

    trainer = make_trainer(parts[0], tmp_path, processing_class=parts[1])
    data = trainer.task.prepare(
        [{"source": row["source"], "target": row["target"]} for row in ROWS], trainer.args, "test"
    )
    found = token_statistics(trainer, data).summary()
    for name in ("error", "uncertainty", "alignment_error", "token_ece"):
        assert report.metrics["references"][name]["value"] == pytest.approx(found[name], rel=1e-3, abs=1e-5)
    assert np.isfinite(found["gap"])


@pytest.mark.usefixtures("without_pictures")
def test_a_learned_score_is_compared_with_the_single_one_of_its_calibration(parts, tmp_path):
    """Which is evaluated too, although it was not asked for."""
    learned = linear_score({"max_of_entropy": -0.1})
    report = evaluate(parts, scorers=["msp", "learned"], learned_score=learned, resamples=200)
    assert report.scorers == ["msp", "learned", "perplexity"]
    quality = report.quality()
    draws = np.random.default_rng(1).integers(0, 40, (2000, 40))
    scores = [report.uncertainty(name) for name in ("learned", "perplexity")]
    differences = [
        np.subtract(*(prediction_rejection_ratio(score[rows], quality[rows]) for score in scores)) for rows in draws
    ]
    gain = report.metrics["learned"]["prr_gain"]
    assert gain.value == np.subtract(*(prediction_rejection_ratio(score, quality) for score in scores))
    np.testing.assert_allclose([gain.low, gain.high], np.quantile(differences, [0.025, 0.975]), atol=0.1)
    report.save(tmp_path)
    loaded = EvaluationReport.load(tmp_path)
    assert loaded.metrics["learned"] == {"single": "perplexity", "prr_gain": gain}
    assert "prr_gain" in loaded.description["metrics"]
    sentence = (
        f"minus that of perplexity, the best single scorer when it was fitted: {gain.value:+.3f} [{gain.low:+.3f}"
    )
    assert sentence in (tmp_path / "summary.md").read_text()
    assert learned.explanation in (tmp_path / "summary.md").read_text()
    assert sentence in (tmp_path / "report.html").read_text().replace("&#43;", "+")
    assert "learned" not in evaluate(parts, ROWS[:6], scorers=["msp"], learned_score=learned).metrics
