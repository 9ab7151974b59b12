"""The scorers of a density from `clue-hf calibrate` to everything that loads the model."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from clue_hf import pipeline
from clue_hf.cli.main import main
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.hub.push import OTHER_FILES
from clue_hf.models.loading import load_text_model, load_tokenizer
from clue_hf.models.uncertainty_file import DENSITY_FILE
from clue_hf.predictors.text import TextPredictor
from clue_hf.scorers import SCORERS, needs_density
from clue_hf.scorers.density import Density


MODEL = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"
BY_DENSITY = [name for name in SCORERS if needs_density(name)]
CALIBRATE = ["calibrate", "model", "--config", "run.yaml", "--token_calibrator", "none", "--scorer"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    shutil.copytree(MODEL, tmp_path / "model")
    for name, rows in (("train", 80), ("validation", 60), ("test", 20)):
        lines = [json.dumps(row) + "\n" for row in phrase_rows(name, rows)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    (tmp_path / "run.yaml").write_text(
        "train_file: train.jsonl\nvalidation_file: validation.jsonl\ntest_file: test.jsonl\nmax_target_length: 16\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@torch.no_grad()
def mean_state(model, tokenizer, source, tokens):
    """The mean of the decoder's last hidden states of a text, times what T5 scales them by; one text alone."""
    ids, start = torch.tensor([tokenizer(source)["input_ids"]]), model.config.decoder_start_token_id
    states = model(input_ids=ids, decoder_input_ids=torch.tensor([[start, *tokens[:-1]]]), output_hidden_states=True)
    scale = model.config.d_model**-0.5 if model.config.scale_decoder_outputs else 1
    return states.decoder_hidden_states[-1][0].double().mean(0).numpy() * scale


@pytest.mark.usefixtures("without_pictures")
def test_from_training_rows_to_answers(here, capsys):
    assert main([*CALIBRATE, "mahalanobis", "--density_split", "train"]) == 0
    assert "Fitted on train: mahalanobis, relative_mahalanobis, rde" in capsys.readouterr().out
    model, tokenizer = load_text_model("model"), load_tokenizer("model")
    rows = {row["source"]: row for row in phrase_rows("train", 80)}.values()
    pairs = [(tokenizer(row["target"])["input_ids"][:16], tokenizer("")["input_ids"], row["source"]) for row in rows]
    vectors = np.stack([mean_state(model, tokenizer, source, target) for target, _, source in pairs])
    background = np.stack([mean_state(model, tokenizer, "", target) for target, _, _ in pairs])
    expected, stored = Density.fit(vectors, background, seed=42), Density.load("model", model)
    np.testing.assert_allclose(stored.mean, expected.mean, atol=1e-5)
    np.testing.assert_allclose(stored.background_mean, expected.background_mean, atol=1e-5)
    # every command scores the output with it
    assert main(["evaluate", "model", "--config", "run.yaml", "--resamples", "20", "--scorers", "all"]) == 0
    report = json.loads(Path("model/uncertainty_report/report.json").read_text())
    assert set(BY_DENSITY) <= set(report["metrics"]["scorers"])
    assert sorted(report["description"]["unavailable_scorers"]) == ["learned", "p_true"]
    assert "p_true could not be computed: it needs a causal language model" in capsys.readouterr().out
    examples = [json.loads(line) for line in Path("model/uncertainty_report/examples.jsonl").read_text().splitlines()]
    for example in examples[:5]:
        tokens = tokenizer.convert_tokens_to_ids(example["tokens"])
        vector = mean_state(model, tokenizer, example["source"], tokens)
        assert example["scores"]["mahalanobis"] == pytest.approx(stored.distance(vector), rel=1e-4)
        relative = stored.distance(vector) - stored.background_distance(vector)
        assert example["scores"]["relative_mahalanobis"] == pytest.approx(relative, rel=1e-3, abs=1e-3)
        assert example["scores"]["rde"] == pytest.approx(stored.robust_distance(vector), rel=1e-3)
    answer = pipeline("model", device="cpu")(examples[0]["source"])
    assert answer["uncertainty"] == pytest.approx(examples[0]["scores"]["mahalanobis"], rel=1e-4)
    assert "confidence" in answer
    assert main(["predict", "model", "--input", "test.jsonl", "--output", "answers.jsonl"]) == 0
    answers = [json.loads(line) for line in Path("answers.jsonl").read_text().splitlines()]
    assert [entry["uncertainty"] for entry in answers] == pytest.approx(
        [example["scores"]["mahalanobis"] for example in examples], rel=1e-4
    )
    # a copy has it too, and so does the Hub
    assert main([*CALIBRATE, "perplexity", "--output_dir", "copy"]) == 0
    assert Path("copy", DENSITY_FILE).read_bytes() == Path("model", DENSITY_FILE).read_bytes()
    assert DENSITY_FILE in OTHER_FILES


def test_scores_do_not_depend_on_the_batch(here):
    model, tokenizer = load_text_model("model"), load_tokenizer("model")
    generator = np.random.default_rng(0)
    density = Density.fit(*generator.normal(size=(2, 60, model.config.d_model)))
    sources = [row["source"] for row in phrase_rows("test", 6)]
    alone, together = (
        TextPredictor(model, tokenizer, BY_DENSITY, density=density, max_new_tokens=16, batch_size=size)
        for size in (1, 6)
    )
    for one, other in zip(*(part.collector.collect(sources) for part in (alone, together)), strict=True):
        assert alone.scores(one, 0) == pytest.approx(together.scores(other, 0), rel=1e-5, abs=1e-5)


def test_mistakes(here, capsys):
    assert main([*CALIBRATE, "rde"]) == 2
    assert "The scorer 'rde' cannot run: it has not been fitted for this model" in capsys.readouterr().err
    assert main([*CALIBRATE, "perplexity", "--density_split", "test"]) == 2
    assert "20 texts are too few for a density: use 50 or more" in capsys.readouterr().err
    words = ["calibrate", "model", "--config", "run.yaml", "--density_split", "train", "--bake", "baked"]
    assert main(words) == 2
    assert "`bake` changes the hidden states" in capsys.readouterr().err
