"""Dropout that is really drawn from in evaluation, -100 that nobody decodes, and outputs that are empty."""

import math

import numpy as np
import pytest
import torch
from classifiers import image_batch, make_processor
from classifiers import make_vit as make_class_vit
from helpers import SENTENCES, TRANSLATIONS, make_batch, make_data, make_model, make_tokenizer, make_trainer
from number_models import make_number_bert, number_texts
from reliability.kinds import make_kind
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from clue_hf import ClassificationEvaluator, RegressionEvaluator, UncertaintyEvaluator, UserError
from clue_hf.models.mc_dropout import active_dropout
from clue_hf.scorers import DEFAULT_SCORERS
from clue_hf.tasks import ClassificationTask, TextTask


ROWS = [{"source": source, "target": target} for source, target in zip(SENTENCES, TRANSLATIONS, strict=True)]


def only_attention(model, rate=0.3):
    """The model with dropout inside its attention and nowhere else."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "dropout_prob", "dropout_rate"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, rate if "Attention" in type(module).__name__ else 0.0)
    return model.eval()


def test_the_attention_of_a_t5_is_dropped_from():
    """It has no layer for it, only a number: what looks for layers misses it."""
    model, batch = only_attention(make_model("t5")), make_batch("t5")
    assert not any(isinstance(module, nn.Dropout) and module.p for module in model.modules())
    task = TextTask(model)
    plain = task.describe(model, batch)
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    with active_dropout(model, seed=1):
        one = task.describe(model, batch)
        other = task.describe(model, batch)
    kept = ~plain[..., 0].isnan()
    assert not torch.allclose(one[kept], plain[kept], rtol=1e-3)
    assert not torch.allclose(one[kept], other[kept], rtol=1e-3)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(task.describe(model, batch)[kept], plain[kept])


def test_the_attention_of_a_vision_transformer_is_dropped_from():
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.4, num_labels=3,
    )  # fmt: skip
    model, batch = ViTForImageClassification(config).eval(), image_batch()
    with torch.no_grad():
        model.classifier.weight.normal_()
    one, other = (ClassificationTask(model, 1, seed).log_probabilities(model, batch) for seed in (1, 2))
    assert not torch.allclose(one, other, rtol=1e-3)
    assert not any(module.training for module in model.modules())


# ---- evaluation uses as many draws as it says ----


@pytest.mark.parametrize("kind", ["image", "number"])
def test_the_trainers_evaluation_uses_all_its_draws(kind, tmp_path):
    """The mean and the spread over the draws, from the outputs of the last layer."""
    draws, rows = 6, 7
    trainer = make_kind(kind, tmp_path, mc_samples=draws, per_device_eval_batch_size=rows)
    last = trainer.model.classifier if kind == "image" else trainer.model.head
    seen = []
    hook = last.register_forward_hook(lambda module, inputs, output: seen.append(output.detach().double()))
    metrics = trainer.evaluate()
    hook.remove()
    outputs = torch.cat(seen).reshape(draws, rows, -1)
    assert all(not torch.allclose(outputs[0], other, rtol=1e-3) for other in outputs[1:])
    labels = trainer.data_collator([trainer.eval_dataset[row] for row in range(rows)])["labels"]
    if kind == "image":
        mean = outputs.softmax(-1).mean(0)
        error = -mean[range(rows), labels].log()
        uncertainty = -(mean * mean.log()).sum(-1)
    else:
        error = (outputs[..., 0].mean(0) - labels.double().flatten()) ** 2
        uncertainty = outputs[..., 0].var(0, correction=1)
    assert metrics["eval_error"] == pytest.approx(error.mean().item(), rel=1e-4)
    assert metrics["eval_uncertainty"] == pytest.approx(uncertainty.mean().item(), rel=1e-4)


@pytest.mark.parametrize("kind", ["image", "number"])
def test_the_trainers_evaluation_does_not_depend_on_the_batch_size(kind, tmp_path):
    """Rows share their masks, so that this holds with dropout too."""
    metrics = [
        make_kind(kind, tmp_path, mc_samples=4, per_device_eval_batch_size=size).evaluate() for size in (1, 3, 16)
    ]
    for name in ("eval_loss", "eval_error", "eval_uncertainty"):
        values = [found[name] for found in metrics]
        assert values == pytest.approx([values[0]] * 3, rel=1e-4), name


@pytest.mark.parametrize("kind", ["image", "number"])
def test_an_evaluator_uses_all_its_draws(kind):
    if kind == "image":
        model = make_class_vit(0.4)
        found = ClassificationEvaluator(model, make_processor(), mc_samples=6, resamples=0, batch_size=16)
        from classifiers import image_data

        data = image_data(8)
    else:
        model, tokenizer = make_number_bert()
        found = RegressionEvaluator(model, tokenizer, mc_samples=6, resamples=0, batch_size=32)
        data = number_texts()
    seen = []
    hook = model.classifier.register_forward_hook(lambda module, inputs, output: seen.append(output.detach()))
    report = found.evaluate(data)
    hook.remove()
    outputs = torch.cat(seen).double().reshape(6, len(data), -1)
    assert all(not torch.allclose(outputs[0], other, rtol=1e-3) for other in outputs[1:])
    if kind == "image":
        np.testing.assert_allclose(report.raw.probabilities, outputs.softmax(-1).mean(0), rtol=1e-4, atol=1e-5)
    else:
        spread = outputs[..., 0].std(0, correction=1) * 10.0  # what SCALE makes of it
        assert sorted(report.raw.std) == pytest.approx(sorted(spread.tolist()), rel=1e-3)


def test_the_scores_of_texts_use_all_their_draws():
    model, tokenizer = make_model("t5", dropout=True), make_tokenizer()
    plain, drawn = [], []
    for draws, seen in ((0, plain), (6, drawn)):
        hook = model.decoder.register_forward_hook(
            lambda module, inputs, output, seen=seen: seen.append((model.decoder.dropout.training, output[0].detach()))
        )
        UncertaintyEvaluator(
            model, tokenizer, ["msp"], mc_samples=draws, max_new_tokens=5, resamples=0, batch_size=8
        ).evaluate(ROWS)
        hook.remove()
    assert not any(training for training, _ in plain)
    passes = [hidden for training, hidden in drawn if training]
    assert len(passes) >= 6
    assert len(passes) % 6 == 0
    for start in range(0, len(passes), 6):
        first, *others = passes[start : start + 6]
        assert all(hidden.shape == first.shape and not torch.allclose(hidden, first) for hidden in others)


def test_an_evaluation_of_texts_without_dropout_is_refused():
    with pytest.raises((ValueError, UserError), match="leave mc_samples at 0"):
        UncertaintyEvaluator(make_model("t5"), make_tokenizer(), ["msp"], mc_samples=2, resamples=0).evaluate(ROWS[:2])


# ---- what is decoded ----


def test_minus_100_never_reaches_the_tokenizer(tmp_path, monkeypatch):
    """Predictions and labels are padded with -100 between batches of unequal lengths."""
    from clue_hf.cli.main import main

    monkeypatch.chdir(tmp_path)
    make_model("t5").save_pretrained("model")
    make_tokenizer().save_pretrained("model")
    long = "le chat mange " * 8  # longer than what transformers pads generated texts to
    lines = [
        f'{{"source": "the cat", "target": "{long}"}}',
        '{"source": "you see the old car .", "target": "tu vois"}',
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines * 3) + "\n")
    decoded = []
    kind = type(make_tokenizer())
    plain = kind.decode

    def watched(self, token_ids, *rest, **options):
        rows = token_ids if np.ndim(token_ids[0]) else [token_ids]
        decoded.extend(np.asarray(row) for row in rows)
        return plain(self, token_ids, *rest, **options)

    monkeypatch.setattr(kind, "decode", watched)
    words = ["--model_name_or_path", "model", "--train_file", "rows.jsonl", "--validation_file", "rows.jsonl",
             "--test_file", "rows.jsonl", "--max_steps", "1", "--output_dir", "out", "--use_cpu", "true",
             "--predict_with_generate", "true", "--eval_strategy", "steps", "--eval_steps", "1", "--quality", "chrf",
             "--per_device_eval_batch_size", "1", "--max_target_length", "40", "--save_strategy", "no"]  # fmt: skip
    assert main(["train", *words]) == 0
    assert len(decoded) >= 12
    assert all((row >= 0).all() for row in decoded)


def test_what_is_padded_between_batches_is_minus_100(tmp_path):
    """So the test above has something to find."""
    trainer = make_trainer(
        make_model("t5"), tmp_path, predict_with_generate=True, max_target_length=40, per_device_eval_batch_size=1
    )
    assert (trainer.predict(make_data("t5", 6, longest=40)).label_ids == -100).any()


# ---- outputs that are empty ----


def test_an_output_that_ends_at_once_counts_with_quality_zero():
    model = make_model("t5", dropout=True)
    model.generation_config.forced_eos_token_id = 1
    settings = {"max_new_tokens": 1, "num_samples": 2, "resamples": 10, "mc_samples": 2}
    report = UncertaintyEvaluator(model, make_tokenizer(), list(DEFAULT_SCORERS), quality="chrf", **settings).evaluate(
        ROWS
    )
    assert report.metrics["n"] == report.metrics["empty_outputs"] == len(report.examples) == len(ROWS)
    for example in report.examples:
        assert (example["output"], example["quality"]) == ("", 0)
        assert all(math.isfinite(score) for score in example["scores"].values())
    assert f"{len(ROWS)} empty" in report.summary()
