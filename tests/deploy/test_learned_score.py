"""A learned score from `clue-hf calibrate` to everything that loads the model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from learned_scores import linear_score
from sklearn.isotonic import IsotonicRegression
from transformers import pipeline as transformers_pipeline

from clue_hf import generate_with_uncertainty, pipeline
from clue_hf.cli.main import main
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.deploy.token_calibration import Parts
from clue_hf.metrics.quality import QUALITIES
from clue_hf.models.loading import load_text_model, load_tokenizer
from clue_hf.models.uncertainty_file import read_uncertainty, write_uncertainty
from clue_hf.posthoc import AbstentionThresholds, reference_quantiles
from clue_hf.posthoc.calibration_file import UncertaintyCalibration
from clue_hf.posthoc.learned import JudgedOutputs, LearnedScore, token_features


MODEL = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"
ROWS = phrase_rows("validation", 260)
CALIBRATE = ["calibrate", "model", "--config", "run.yaml", "--token_calibrator", "none"]
EVALUATE = ["evaluate", "model", "--config", "run.yaml", "--resamples", "50", "--scorers"]


def number_of_words(predictions, references):
    """More words are better: the single scores say the opposite, and the number of tokens tells."""
    return [min(len(text.split()) / 13, 1.0) for text in predictions]


@pytest.fixture
def here(tmp_path, monkeypatch):
    shutil.copytree(MODEL, tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[:30]))
    (tmp_path / "run.yaml").write_text(
        "validation_file: rows.jsonl\ntest_file: few.jsonl\nmax_target_length: 16\nquality: number_of_words\n"
    )
    monkeypatch.setitem(QUALITIES, "number_of_words", number_of_words)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outputs_of(rows):
    """Features, scores and qualities of the outputs, by the functions that have tests of their own."""
    model, tokenizer = load_text_model(str(MODEL)), load_tokenizer(str(MODEL))
    sources = [row["source"] for row in rows]
    names = ["msp", "perplexity", "mean_token_entropy"]
    outputs = generate_with_uncertainty(model, tokenizer, sources, names, max_new_tokens=16)
    features = [
        token_features(
            output.token_log_probabilities,
            output.token_entropies,
            len(tokenizer(source)["input_ids"]),
            output.tokens[-1] == tokenizer.eos_token,
        )
        for source, output in zip(sources, outputs, strict=True)
    ]
    scores = {name: np.array([output.scores[name] for output in outputs]) for name in names}
    quality = np.array(number_of_words([output.text for output in outputs], sources))
    return JudgedOutputs(np.array(features), scores, quality, sources)


@pytest.mark.usefixtures("without_pictures")
def test_a_score_that_wins_is_used_everywhere(here, capsys):
    assert main([*CALIBRATE, "--scorer", "learned", "--risks", "0.3,0.6"]) == 0
    printed = capsys.readouterr().out
    outputs, parts = outputs_of(ROWS), Parts.split([row["source"] for row in ROWS], 42)
    learned, uncertainty = LearnedScore.fit(outputs, parts.fit, parts.choose, seed=42)
    stored = LearnedScore.from_checked_dict(read_uncertainty("model")["learned_score"])
    assert not stored.is_single
    assert stored.rows == {"fit": len(parts.fit), "choose": len(parts.choose)}
    assert f"Learned score: {stored.explanation}" in printed
    assert stored.gain == pytest.approx(learned.gain, abs=0.02)
    # thresholds and percentiles are of rows that neither fitted nor chose; the confidence of those that fitted, by
    # the score that they would have had as new ones
    found = UncertaintyCalibration.read("model")
    assert (found.scorer, found.data["rows"]) == ("learned", len(parts.certify))
    quantiles = reference_quantiles(uncertainty[parts.certify]).quantiles
    np.testing.assert_allclose(found.reference_quantiles.quantiles, quantiles, atol=1e-3)
    expected = AbstentionThresholds.fit(
        uncertainty[parts.certify], 1 - outputs.quality[parts.certify], (0.3, 0.6), 0.1, test="hoeffding-bentkus"
    )
    coverages = [entry.coverage for entry in expected.thresholds]
    assert [entry.coverage for entry in found.abstention.thresholds] == coverages
    isotonic = IsotonicRegression(increasing=False, out_of_bounds="clip")
    isotonic.fit(uncertainty[parts.fit], outputs.quality[parts.fit])
    new = uncertainty[parts.certify]
    assert np.mean(np.abs(found.confidence(new) - isotonic.predict(new)) < 0.02) > 0.9
    # the commands and the pipelines
    row = parts.certify[3]
    answer = pipeline("model", device="cpu")(ROWS[row]["source"], abstain_at_risk=0.6)
    assert answer["uncertainty"] == pytest.approx(uncertainty[row], abs=1e-3)
    assert answer["confidence"] == pytest.approx(float(found.confidence(answer["uncertainty"])))
    theirs = transformers_pipeline("text-uncertainty", model="model", device="cpu")(ROWS[row]["source"])
    assert theirs["uncertainty"] == pytest.approx(answer["uncertainty"], abs=0.01)  # in float16, as it is stored
    assert main(["predict", "model", "--input", "few.jsonl", "--output", "answers.jsonl"]) == 0
    answers = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    assert main([*EVALUATE, "msp,learned"]) == 0
    report = json.loads(Path("model/uncertainty_report/report.json").read_text())
    assert list(report["metrics"]["scorers"]) == ["msp", "learned", *({stored.single} - {"msp"})]
    assert report["metrics"]["learned"]["prr_gain"]["value"] > 0
    assert "PRR of learned minus that of" in capsys.readouterr().out
    examples = [json.loads(line) for line in Path("model/uncertainty_report/examples.jsonl").read_text().splitlines()]
    assert [example["scores"]["learned"] for example in examples] == pytest.approx(
        [answer["uncertainty"] for answer in answers], abs=1e-5
    )


def test_else_it_is_the_best_single_scorer(here, capsys):
    """100 rows leave 50 to fit on: too few. A calibration for another scorer takes it out again."""
    options = ["--scorer", "learned", "--quality", "chrf", "--max_eval_samples", "100"]
    assert main([*CALIBRATE, *options, "--learned_scores", "pmi"]) == 0
    stored = LearnedScore.from_checked_dict(read_uncertainty("model")["learned_score"])
    assert stored.is_single
    assert stored.single in ("msp", "perplexity", "mean_token_entropy", "pmi")
    sentence = f"learned is {stored.single}, the best single scorer: 50 rows are too few"
    assert sentence in capsys.readouterr().out
    assert sentence in read_uncertainty("model")["definitions"]["uncertainty"]
    source = ROWS[7]["source"]
    same = [pipeline("model", device="cpu", scorer=name)(source)["uncertainty"] for name in ("learned", stored.single)]
    assert same[0] == same[1]
    assert main([*CALIBRATE, "--max_eval_samples", "30"]) == 0
    assert "learned_score" not in read_uncertainty("model")
    assert main([*EVALUATE, "learned"]) == 2
    assert "clue-hf calibrate MODEL --config CONFIG.yaml --scorer learned" in capsys.readouterr().err


def test_mistakes(here, capsys):
    assert main([*CALIBRATE, "--scorer", "learned", "--max_eval_samples", "3"]) == 2
    assert "3 rows are too few for a learned score" in capsys.readouterr().err
    assert main([*CALIBRATE, "--learned_scores", "pmi"]) == 2
    assert "`learned_scores` is for --scorer learned" in capsys.readouterr().err
    assert main([*CALIBRATE, "--scorer", "learned", "--learned_scores", "learned"]) == 2
    assert "not 'learned'" in capsys.readouterr().err
    content = linear_score({"tokens": 0.1}).to_dict()
    content["regressor"]["coefficients"].pop()
    write_uncertainty("model", learned_score=content)
    assert main([*EVALUATE, "learned"]) == 2
    assert "'learned_score' in uncertainty.json of 'model' is damaged" in capsys.readouterr().err
    assert main([*EVALUATE, "msp", "--max_eval_samples", "4"]) == 0  # which does not need it
