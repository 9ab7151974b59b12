"""What scripts written for transformers' Trainer rely on: the same with CLUETrainer in its place."""

import math

import datasets
import numpy as np
import pytest
import torch
from helpers import SENTENCES, TRANSLATIONS, VOCABULARY, log_lines, make_data, make_model, make_tokenizer, make_trainer
from number_models import make_number_bert, number_texts
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from stock import QUIET, both, same_weights
from torch.nn import functional as F
from transformers import (
    DataCollatorForLanguageModeling,
    DataCollatorForSeq2Seq,
    GenerationConfig,
    MixtralConfig,
    MixtralForCausalLM,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
    TrainingArguments,
)

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.data.targets import TargetScale
from clue_hf.errors import UserError


# ---- losses of users ----


class ScaledLoss:
    """A loss of its own, without ours."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        loss = 3 * outputs.loss
        return (loss, outputs) if return_outputs else loss


class ScaledStock(ScaledLoss, Seq2SeqTrainer):
    pass


class ScaledOurs(ScaledLoss, CLUETrainer):
    pass


@pytest.mark.parametrize("accumulation", [1, 2])
def test_an_overridden_loss_is_trained_and_logged_as_it_is(kind, accumulation, tmp_path):
    settings = {"gradient_accumulation_steps": accumulation, "per_device_eval_batch_size": 3}
    data, few = make_data(kind), make_data(kind, 6)
    stock, ours = both(lambda: make_model(kind), tmp_path, data, few, (ScaledStock, ScaledOurs), settings)
    for trainer in (stock, ours):
        trainer.train()
    names = ("loss", "grad_norm")
    lines = [[[line[name] for name in names] for line in log_lines(trainer)] for trainer in (stock, ours)]
    np.testing.assert_allclose(*lines, rtol=1e-5)
    same_weights(stock, ours)
    assert ours.evaluate()["eval_loss"] == pytest.approx(stock.evaluate()["eval_loss"], rel=1e-5)
    assert "uncertainty" not in log_lines(ours)[0]


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_loss_that_builds_on_ours(kind, accumulation, tmp_path):
    class Doubled(CLUETrainer):
        def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
            loss, outputs = super().compute_loss(model, inputs, return_outputs=True)
            assert outputs.logits.shape[-1] == VOCABULARY
            assert outputs.loss == outputs["loss"] == loss
            return (2 * loss, outputs) if return_outputs else 2 * loss

    settings = {"gradient_accumulation_steps": accumulation, "per_device_train_batch_size": 8 // accumulation}
    plain, doubled = both(
        lambda: make_model(kind), tmp_path, make_data(kind), make_data(kind, 5), (CLUETrainer, Doubled), settings
    )
    plain.train()
    doubled.train()
    first, second = log_lines(plain)[0], log_lines(doubled)[0]
    assert second["loss"] == pytest.approx(2 * first["loss"], rel=1e-5)
    assert second["grad_norm"] == pytest.approx(2 * first["grad_norm"], rel=1e-4)
    assert second["error"] == pytest.approx(first["error"], rel=1e-5)
    assert doubled.evaluate()["eval_loss"] == pytest.approx(2 * doubled.evaluate()["eval_error"], rel=1e-5)


def test_compute_loss_func(tmp_path):
    def squared(outputs, labels, num_items_in_batch=None):
        logits, targets = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        return (F.cross_entropy(logits, targets, reduction="none") ** 2).sum() / num_items_in_batch

    settings = {"gradient_accumulation_steps": 2}
    stock, ours = both(
        lambda: make_model("gpt2"), tmp_path, make_data("gpt2"), settings=settings, compute_loss_func=squared
    )
    stock.train()
    ours.train()
    assert [line["loss"] for line in log_lines(ours)] == [line["loss"] for line in log_lines(stock)]
    same_weights(stock, ours)


# ---- auxiliary losses ----


def make_mixtral(coefficient=1.0):
    torch.manual_seed(0)
    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, num_local_experts=4, output_router_logits=True, router_aux_loss_coef=coefficient,
        )
    )  # fmt: skip


@pytest.mark.parametrize("fused_head", ["on", "off"])
def test_the_auxiliary_loss_of_experts_is_added(fused_head, tmp_path):
    data = make_data("gpt2", 8)
    stock, ours = both(
        make_mixtral,
        tmp_path,
        data,
        data,
        settings={"per_device_eval_batch_size": 8, "per_device_train_batch_size": 8},
    )
    ours.task.fused_head = fused_head
    expected, metrics = stock.evaluate()["eval_loss"], ours.evaluate()
    assert metrics["eval_loss"] == pytest.approx(expected, rel=1e-5)
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_error"] + metrics["eval_aux_loss"], rel=1e-6)
    stock.train()
    ours.train()
    lines = [[(line["loss"], line["grad_norm"]) for line in log_lines(trainer)] for trainer in (stock, ours)]
    np.testing.assert_allclose(*lines, rtol=1e-4)
    same_weights(stock, ours, rtol=1e-3, atol=1e-5)
    assert log_lines(ours)[0]["aux_loss"] == pytest.approx(metrics["eval_aux_loss"], rel=1e-5)


def test_over_several_batches_it_is_a_mean(tmp_path):
    alone, doubled = make_data("gpt2", 4), datasets.concatenate_datasets([make_data("gpt2", 4)] * 2)
    found = []
    for data, accumulation in ((alone, 1), (doubled, 2)):
        trainer = make_trainer(make_mixtral(), tmp_path, data, max_steps=1, gradient_accumulation_steps=accumulation)
        trainer.train()
        line = log_lines(trainer)[0]
        found.append([line[name] for name in ("loss", "grad_norm", "aux_loss")])
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_auxiliary_losses_that_cannot_be_read_are_refused(tmp_path):
    config = SwitchTransformersConfig(
        VOCABULARY=VOCABULARY, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, num_experts=2
    )
    config.output_router_logits = True
    model = SwitchTransformersForConditionalGeneration(config)
    with pytest.raises(UserError, match="auxiliary losses"):
        CLUETrainer(model, CLUEConfig(str(tmp_path), use_cpu=True))


# ---- predictions ----


def test_predictions_have_the_shapes_of_the_stock_trainer(kind, tmp_path):
    data, seen = make_data(kind, 7), {}

    def best(logits, labels):
        seen.setdefault(len(seen), type(logits))
        return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)

    for options in ({}, {"preprocess_logits_for_metrics": best}):
        stock, ours = both(lambda: make_model(kind), tmp_path, None, data, **options)
        expected, found = stock.predict(data), ours.predict(data)
        assert isinstance(found.predictions, type(expected.predictions))
        pairs = zip(_listed(expected.predictions), _listed(found.predictions), strict=True)
        for one, other in pairs:
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found.label_ids, expected.label_ids)
    assert len(set(seen.values())) == 1


def _listed(predictions):
    return predictions if isinstance(predictions, tuple) else (predictions,)


def test_further_labels(tmp_path):
    data, settings = make_data("gpt2", 4), {"label_names": ["labels", "attention_mask"]}
    stock, ours = both(lambda: make_model("gpt2"), tmp_path, None, data, settings=settings)
    expected, found = stock.predict(data), ours.predict(data)
    assert isinstance(found.label_ids, tuple)
    for one, other in zip(expected.label_ids, found.label_ids, strict=True):
        np.testing.assert_array_equal(other, one)


def _with_lengths(**lengths):
    model = make_model("t5")
    for name, value in lengths.items():
        setattr(model.generation_config, name, value)
    return model


TOKENS = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
GENERATION = {
    "the model's max_length": (lambda: _with_lengths(max_length=9), {}, {}),
    "the model's max_new_tokens": (lambda: _with_lengths(max_new_tokens=4), {}, {}),
    "the arguments' config": (
        lambda: _with_lengths(max_length=9), {"generation_config": GenerationConfig(max_new_tokens=4, **TOKENS)}, {}
    ),
    "generation_max_length": (lambda: _with_lengths(max_length=9), {"generation_max_length": 6}, {}),
    "the call's max_length": (lambda: make_model("t5"), {"generation_max_length": 6}, {"max_length": 5}),
    "the call's max_new_tokens": (lambda: make_model("t5"), {"generation_max_length": 6}, {"max_new_tokens": 3}),
    "the call's config": (
        lambda: _with_lengths(max_length=9), {},
        {"generation_config": GenerationConfig(max_length=4, **TOKENS)},
    ),
    "beams": (lambda: _with_lengths(max_length=6), {"generation_num_beams": 2}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", GENERATION)
def test_what_is_generated(case, tmp_path):
    make, settings, call = GENERATION[case]
    seen = []

    def metrics(prediction):
        seen.append((prediction.predictions, prediction.label_ids))
        return {}

    settings = {"predict_with_generate": True, **settings}
    trainers = both(make, tmp_path, None, make_data("t5", 5), settings=settings, compute_metrics=metrics)
    for trainer in trainers:
        trainer.evaluate(**call)
        output = trainer.predict(make_data("t5", 5), **call)
        np.testing.assert_array_equal(output.predictions, seen[-1][0])
    for one, other in zip(seen[0], seen[2], strict=True):
        np.testing.assert_array_equal(other, one)


def test_several_sequences_of_each_row(tmp_path):
    settings = {"predict_with_generate": True, "per_device_eval_batch_size": 4}
    stock, ours = both(lambda: _with_lengths(max_length=6), tmp_path, None, settings=settings)
    found = [t.predict(make_data("t5", 6), num_beams=2, num_return_sequences=2).predictions for t in (stock, ours)]
    assert len(found[0]) == 12
    np.testing.assert_array_equal(*found)


def test_without_any_length_it_is_max_target_length(tmp_path):
    settings = {"predict_with_generate": True, "max_target_length": 30}
    trainer = make_trainer(make_model("t5"), tmp_path, None, make_data("t5", 3), **settings)
    trainer.model.generation_config.eos_token_id = None  # so that nothing ends before
    assert trainer.predict(make_data("t5", 3)).predictions.shape == (3, 31)


def test_raw_data_in_evaluate_and_predict(kind, tmp_path):
    raw = datasets.Dataset.from_dict({"source": SENTENCES, "target": TRANSLATIONS})
    trainer = make_trainer(make_model(kind), tmp_path, None, raw, source_column="source", target_column="target")
    expected = trainer.evaluate()
    assert trainer.evaluate(raw)["eval_loss"] == expected["eval_loss"]
    assert trainer.predict(raw).metrics["test_loss"] == pytest.approx(expected["eval_loss"], rel=1e-6)
    assert trainer.evaluate({"a": raw, "b": raw})["eval_b_loss"] == expected["eval_loss"]


def test_regression_predicts_a_number_for_each_row(tmp_path):
    model, tokenizer = make_number_bert()
    data = number_texts()
    config = CLUEConfig(str(tmp_path), use_cpu=True, report_to="none", mc_samples=2, target_column="score")
    output = CLUETrainer(model, config, train_dataset=data, processing_class=tokenizer).predict(data)
    assert output.predictions.shape == output.label_ids.shape == (len(data),)


# ---- collators ----


def test_tokens_for_a_collator_of_ones_own_are_left_alone(tmp_path):
    tokenizer = make_tokenizer()
    data = datasets.Dataset.from_dict({"input_ids": [list(range(3, 3 + length)) for length in (4, 50, 9, 20)]})
    stock, ours = both(
        lambda: make_model("llama"), tmp_path, data, data,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )  # fmt: skip
    assert ours.train_dataset.column_names == ["input_ids"]
    stock.train()
    ours.train()
    assert log_lines(ours)[0]["loss"] == pytest.approx(log_lines(stock)[0]["loss"], rel=1e-5)


@pytest.mark.parametrize("kind_of_model", ["gpt2", "numbers"])
def test_raw_rows_reach_a_collator_of_ones_own(kind_of_model, tmp_path):
    seen = []
    model, tokenizer = (make_model("gpt2"), make_tokenizer()) if kind_of_model == "gpt2" else make_number_bert()

    def collate(rows):
        seen.append(rows)
        batch = tokenizer([row["text"] for row in rows], return_tensors="pt", padding=True)
        labels = batch["input_ids"] if kind_of_model == "gpt2" else torch.tensor([row["score"] for row in rows])
        return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}

    data = datasets.Dataset.from_dict({"text": SENTENCES, "score": [float(len(text)) for text in SENTENCES]})
    config = CLUEConfig(str(tmp_path), remove_unused_columns=False, **QUIET)
    trainer = CLUETrainer(model, config, collate, data, processing_class=tokenizer)
    trainer.train()
    assert seen[0][0] == {"text": SENTENCES[0], "score": float(len(SENTENCES[0]))}


# ---- arguments ----


@pytest.mark.parametrize("arguments", [TrainingArguments, Seq2SeqTrainingArguments])
def test_arguments_of_transformers(arguments, tmp_path):
    settings = {name: value for name, value in QUIET.items() if name != "logging_steps"}
    args = arguments(str(tmp_path), **settings)
    trainer = CLUETrainer(make_model("gpt2"), args, None, make_data("gpt2"), None, make_tokenizer())
    assert isinstance(trainer.args, CLUEConfig)
    assert (trainer.args.logging_steps, trainer.args.alpha) == (500, 0.9)
    trainer.train()


def test_positions_of_the_arguments(tmp_path):
    """As Seq2SeqTrainer has them: model, args, collator, data, tokenizer, model_init, loss, metrics, callbacks ..."""
    data, tokenizer = make_data("gpt2", 4), make_tokenizer()
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters())
    trainer = CLUETrainer(
        make_model("gpt2"), CLUEConfig(str(tmp_path), **QUIET), DataCollatorForSeq2Seq(tokenizer), data, data,
        tokenizer, None, None, lambda prediction: {"rows": 4}, [], (optimizer, None),
        lambda logits, labels: logits.argmax(-1),
    )  # fmt: skip
    assert trainer.optimizer is optimizer
    assert trainer.evaluate()["eval_rows"] == 4
    assert trainer.predict(data).predictions.ndim == 2


@pytest.mark.parametrize("peft", [PromptTuningConfig, PrefixTuningConfig])
def test_virtual_tokens_are_refused(peft, tmp_path):
    model = get_peft_model(make_model("gpt2"), peft(task_type="CAUSAL_LM", num_virtual_tokens=2))
    with pytest.raises(ValueError, match="virtual tokens"):
        CLUETrainer(model, CLUEConfig(str(tmp_path), use_cpu=True))


def test_lengths_of_the_users_own(tmp_path):
    data = make_data("gpt2")
    data = data.add_column("cost", [row % 7 for row in range(len(data))])
    settings = {"train_sampling_strategy": "group_by_length", "length_column_name": "cost"}
    assert make_trainer(make_model("gpt2"), tmp_path, data, **settings)._get_train_sampler().lengths == data["cost"][:]


@pytest.mark.parametrize("filtered", [True, False])
def test_losses_that_are_not_finite_are_filtered_from_the_log_only_if_wanted(filtered, tmp_path):
    model = make_model("gpt2")
    trainer = make_trainer(
        model, tmp_path, make_data("gpt2"), make_data("gpt2", 4), max_steps=3, logging_nan_inf_filter=filtered
    )
    with torch.no_grad():
        model.transformer.h[0].mlp.c_fc.weight.fill_(float("nan"))
    trainer.train()
    assert all(math.isnan(line["loss"]) != filtered for line in log_lines(trainer))
    assert math.isnan(trainer.evaluate()["eval_loss"])


# ---- models that are made anew ----


def test_model_init(tmp_path):
    calls = []

    def make():
        calls.append(torch.initial_seed())
        return make_model("gpt2", seed=int(torch.randint(9, (1,))))

    config = CLUEConfig(str(tmp_path), **QUIET, generation_config=GenerationConfig(max_new_tokens=3))
    lora = LoraConfig(task_type="CAUSAL_LM", r=2)
    data, tokenizer = make_data("gpt2"), make_tokenizer()
    trainer = CLUETrainer(
        None, config, model_init=make, train_dataset=data, processing_class=tokenizer, peft_config=lora
    )
    assert len(calls) == 1
    first = trainer.model
    losses = []
    for _ in range(2):
        trainer.train()
        losses.append([line["loss"] for line in log_lines(trainer)])
    assert trainer.model is not first
    assert len(calls) == 3
    assert len(set(calls)) == 1
    assert losses[0] == losses[1]
    assert trainer.model.peft_config
    assert trainer.model.generation_config.max_new_tokens == 3
    with pytest.raises(ValueError, match="`model` .* or a `model_init`"):
        CLUETrainer(None, config)


def test_a_model_made_anew_knows_the_scale_of_its_targets(tmp_path):
    _, tokenizer = make_number_bert()
    config = CLUEConfig(str(tmp_path), **QUIET, mc_samples=2, target_column="score")
    trainer = CLUETrainer(
        None,
        config,
        model_init=lambda: make_number_bert()[0],
        train_dataset=number_texts(),
        processing_class=tokenizer,
    )
    scale = TargetScale.of_config(trainer.model.config)
    trainer.train()
    assert TargetScale.of_config(trainer.model.config) == scale is not None


def test_hyperparameter_search(tmp_path):
    pytest.importorskip("optuna")
    config = CLUEConfig(
        str(tmp_path), **{**QUIET, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps"}
    )
    trainer = CLUETrainer(
        None, config, model_init=lambda: make_model("gpt2"), train_dataset=make_data("gpt2"),
        eval_dataset=make_data("gpt2", 4), processing_class=make_tokenizer(),
    )  # fmt: skip
    alphas = []

    def space(trial):
        alphas.append(trial.suggest_float("alpha", 0.2, 0.9))
        return {"alpha": alphas[-1]}

    best = trainer.hyperparameter_search(
        space, compute_objective=lambda metrics: metrics["eval_error"], n_trials=3, backend="optuna"
    )
    assert best.hyperparameters["alpha"] in alphas
    assert trainer.training_objective.alpha == alphas[-1]
    assert log_lines(trainer)[-1]["alpha"] == alphas[-1]
    assert len(set(alphas)) == 3


@pytest.mark.parametrize("with_metrics", [False, True])
def test_what_a_search_minimises_by_default(with_metrics, tmp_path):
    pytest.importorskip("optuna")
    config = CLUEConfig(str(tmp_path), **QUIET)
    trainer = CLUETrainer(
        None, config, model_init=lambda: make_model("gpt2"), train_dataset=make_data("gpt2"),
        eval_dataset=make_data("gpt2", 4), processing_class=make_tokenizer(),
        compute_metrics=(lambda prediction: {"one": 1.5, "two": 2.0}) if with_metrics else None,
    )  # fmt: skip
    best = trainer.hyperparameter_search(lambda trial: {}, n_trials=1, backend="optuna")
    assert best.objective == (3.5 if with_metrics else log_lines(trainer, "eval_loss")[-1]["eval_loss"])
