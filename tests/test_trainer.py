import json
import math
from pathlib import Path

import datasets
import pytest
import torch
import torch.nn.functional as F
from helpers import (
    CAUSAL,
    SENTENCES,
    TRANSLATIONS,
    VOCABULARY,
    log_lines,
    make_batch,
    make_data,
    make_model,
    make_tokenizer,
    make_trainer,
)
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Trainer,
    TrainingArguments,
)

from clue_hf import CLUEConfig, CLUETrainer, UncertaintyEvaluator
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.functional import compute_loss_func


LAYOUTS = [(16, 1), (4, 4), (1, 16)]


def first_steps(kind, tmp_path, steps=2, **settings):
    trainer = make_trainer(make_model(kind), tmp_path, make_data(kind), max_steps=steps, **settings)
    trainer.train()
    return trainer


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("clue_gradient", ["both", "error"])
@pytest.mark.parametrize("fused_head", ["on", "off"])
def test_loss_and_gradient_do_not_depend_on_the_layout_of_the_batch(kind, level, clue_gradient, fused_head, tmp_path):
    found = []
    for batch, accumulation in LAYOUTS:
        trainer = first_steps(
            kind, tmp_path, level=level, clue_gradient=clue_gradient, fused_head=fused_head, alpha=0.7,
            per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
        )  # fmt: skip
        found.append([(line["loss"], line["grad_norm"], line["error"]) for line in log_lines(trainer)])
    torch.testing.assert_close(torch.tensor(found[1]), torch.tensor(found[0]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.tensor(found[2]), torch.tensor(found[0]), rtol=1e-5, atol=1e-5)


def test_ce_is_torchs_token_mean_and_alpha_one_is_ce_bit_for_bit(kind, tmp_path):
    plain = first_steps(kind, tmp_path, objective="ce", per_device_train_batch_size=16)
    clue = first_steps(kind, tmp_path, objective="clue", alpha=1.0, per_device_train_batch_size=16)
    for name, weight in plain.model.state_dict().items():
        assert torch.equal(weight, clue.model.state_dict()[name]), name
    assert [line["loss"] for line in log_lines(plain)] == [line["loss"] for line in log_lines(clue)]

    model = make_model(kind)
    batch = dict(DataCollatorForSeq2Seq(make_tokenizer())(make_data(kind).to_list()))
    logits, labels = model(**batch).logits, batch["labels"]
    if kind in CAUSAL:
        logits, labels = logits[:, :-1], labels[:, 1:]
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    assert log_lines(plain)[0]["loss"] == pytest.approx(expected.item(), rel=1e-6)


def test_training_logs_the_parts_of_the_loss(kind, tmp_path):
    for line in log_lines(first_steps(kind, tmp_path, alpha=0.8)):
        assert line["alpha"] == 0.8
        assert line["loss"] == pytest.approx(0.8 * line["error"] + 0.2 * line["calibration"], rel=1e-6)
        assert line["normalized_uncertainty"] == pytest.approx(line["uncertainty"] / math.log(VOCABULARY), rel=1e-6)
        assert "skipped_batches" not in line


def test_training_lowers_the_error(kind, tmp_path):
    trainer = first_steps(kind, tmp_path, steps=30, per_device_train_batch_size=16, learning_rate=3e-2)
    lines = log_lines(trainer)
    assert lines[-1]["error"] < 0.8 * lines[0]["error"]


def test_batches_without_labels_to_learn_are_counted(kind, tmp_path):
    data = make_data(kind, 8).map(
        lambda row, i: {"labels": [-100] * len(row["labels"])} if i < 4 else {}, with_indices=True
    )
    trainer = make_trainer(make_model(kind), tmp_path, data)
    trainer.train()
    first, second = log_lines(trainer)
    assert (first["loss"], first["grad_norm"], first["skipped_batches"]) == (0, 0, 1)
    assert second["loss"] > 0
    assert "skipped_batches" not in second


@pytest.mark.parametrize("settings", [{}, {"predict_with_generate": True}, {"level": "sequence"}])
def test_evaluation_is_token_weighted_whatever_the_batch_size(kind, settings, tmp_path):
    found = []
    for batch_size in (1, 3, 16):
        trainer = make_trainer(
            make_model(kind), tmp_path, evaluation=make_data(kind, 7), per_device_eval_batch_size=batch_size,
            compute_metrics=lambda prediction: {"rows": len(prediction.label_ids)}, max_target_length=4, **settings,
        )  # fmt: skip
        found.append(trainer.evaluate())
        assert found[-1]["eval_rows"] == 7
    for name in ("loss", "error", "uncertainty", "calibration", "alpha"):
        values = [metrics[f"eval_{name}"] for metrics in found]
        assert values == pytest.approx([values[0]] * 3, rel=1e-5), name


def test_evaluation_is_the_mean_over_all_tokens(kind, tmp_path):
    model, data = make_model(kind), make_data(kind, 7)
    metrics = make_trainer(model, tmp_path, evaluation=data, per_device_eval_batch_size=2, objective="ce").evaluate()
    batch = dict(DataCollatorForSeq2Seq(make_tokenizer())(data.to_list()))
    with torch.no_grad():
        assert metrics["eval_loss"] == pytest.approx(model(**batch).loss.item(), rel=1e-5)
    assert metrics["eval_loss"] == metrics["eval_error"]


def test_several_evaluation_sets_keep_their_numbers_apart(tmp_path):
    sets = {"near": make_data("t5", 4, seed=3), "far": make_data("t5", 5, seed=4)}
    together = make_trainer(make_model("t5"), tmp_path, evaluation=sets).evaluate()
    for name, data in sets.items():
        alone = make_trainer(make_model("t5"), tmp_path, evaluation=data).evaluate()
        assert together[f"eval_{name}_error"] == pytest.approx(alone["eval_error"], rel=1e-6)


def test_predictions_keep_the_order_of_the_data(kind, tmp_path):
    data = make_data(kind, 9)
    trainer = make_trainer(make_model(kind), tmp_path, train_sampling_strategy="group_by_length")
    labels = trainer.predict(data).label_ids
    assert [[token for token in row if token != -100] for row in labels.tolist()] == [
        [token for token in row if token != -100] for row in data["labels"]
    ]


def test_generation_matches_generate(kind, tmp_path):
    model, data = make_model(kind), make_data(kind, 3)
    trainer = make_trainer(model, tmp_path, predict_with_generate=True, max_target_length=5)
    found = trainer.predict(data).predictions
    for row, ids, labels in zip(found, data["input_ids"], data["labels"], strict=True):
        prompt = [token for token, label in zip(ids, labels, strict=True) if label == -100] if kind in CAUSAL else ids
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=5)[0]
        expected = expected[len(prompt) :] if kind in CAUSAL else expected
        kept = [token for token in row.tolist() if token not in (-100, 0)]
        assert kept == [token for token in expected.tolist() if token != 0]


def test_plain_steps_then_a_ramp(tmp_path):
    trainer = first_steps("t5", tmp_path, steps=8, alpha=0.6, plain_steps=2, alpha_warmup_steps=4)
    assert [line["alpha"] for line in log_lines(trainer)] == pytest.approx([1, 1, 1, 0.9, 0.8, 0.7, 0.6, 0.6])


def test_plain_epochs_are_counted_in_optimizer_steps(tmp_path):
    trainer = first_steps("t5", tmp_path, steps=5, alpha=0.6, plain_epochs=1.5, per_device_train_batch_size=8)
    assert [line["alpha"] for line in log_lines(trainer)] == [1, 1, 1, 0.6, 0.6]


@pytest.mark.parametrize("sampling", ["random", "group_by_length"])
def test_a_resumed_run_equals_an_uninterrupted_one(kind, sampling, tmp_path):
    settings = {
        "max_steps": 7, "alpha": 0.5, "plain_steps": 2, "alpha_warmup_steps": 3, "save_strategy": "steps",
        "save_steps": 5, "train_sampling_strategy": sampling,
    }  # fmt: skip
    whole = make_trainer(make_model(kind, dropout=True), tmp_path / "whole", make_data(kind), **settings)
    whole.train()
    resumed = make_trainer(make_model(kind, seed=5, dropout=True), tmp_path / "resumed", make_data(kind), **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-5"))
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name
    assert log_lines(whole)[-1]["loss"] == log_lines(resumed)[-1]["loss"]


def test_length_grouping_gives_each_row_once_and_similar_neighbours(tmp_path):
    data = make_data("t5", 64, longest=40)
    trainer = make_trainer(make_model("t5"), tmp_path, data, train_sampling_strategy="group_by_length")
    order = list(trainer._get_train_sampler())
    assert sorted(order) == list(range(64))
    assert order != sorted(order)
    lengths = [len(data[i]["input_ids"]) + len(data[i]["labels"]) for i in order]
    spread = sum(max(lengths[i : i + 4]) - min(lengths[i : i + 4]) for i in range(0, 64, 4)) / 16
    whole = max(lengths) - min(lengths)
    assert spread < whole / 4


@pytest.mark.parametrize(
    "settings",
    [{"bf16": True}, {"gradient_checkpointing": True}, {"optim": "adafactor", "optim_args": "scale_parameter=True"}],
)
def test_ways_of_training(kind, settings, tmp_path):
    trainer = first_steps(kind, tmp_path, **settings)
    plain = first_steps(kind, tmp_path)
    tolerance = 3e-2 if "bf16" in settings else 1e-5
    assert log_lines(trainer)[0]["loss"] == pytest.approx(log_lines(plain)[0]["loss"], rel=tolerance)
    assert log_lines(trainer)[-1]["loss"] != log_lines(trainer)[0]["loss"]


def test_adafactor_hears_its_settings(tmp_path):
    trainer = make_trainer(
        make_model("t5"), tmp_path, optim="adafactor", optim_args="scale_parameter=True,clip_threshold=0.5"
    )
    group = trainer.create_optimizer().param_groups[0]
    assert (group["scale_parameter"], group["clip_threshold"], group["relative_step"]) == (True, 0.5, False)


def test_torch_compile(tmp_path):
    compiled, plain = (
        make_trainer(
            make_model("t5", num_layers=1), tmp_path, make_data("t5"), per_device_train_batch_size=16, **settings
        )
        for settings in ({"torch_compile": True, "torch_compile_backend": "aot_eager"}, {})
    )
    compiled.train()
    plain.train()
    assert log_lines(compiled)[-1]["loss"] == pytest.approx(log_lines(plain)[-1]["loss"], rel=1e-4)


@pytest.mark.parametrize("checkpointing", [True, False])
def test_lora_trains_the_adapter_only(kind, checkpointing, tmp_path):
    from peft import LoraConfig

    model = make_model(kind)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    config = LoraConfig(task_type="CAUSAL_LM" if kind in CAUSAL else "SEQ_2_SEQ_LM", r=2)
    trainer = make_trainer(
        model, tmp_path, make_data(kind), make_data(kind, 4), peft_config=config, gradient_checkpointing=checkpointing
    )
    trainer.train()
    assert log_lines(trainer)[0]["grad_norm"] > 0
    assert "eval_error" in trainer.evaluate()
    after = {name.replace(".base_layer", ""): w for name, w in trainer.model.get_base_model().state_dict().items()}
    assert all(torch.equal(after[name], old) for name, old in before.items())
    trainer.save_model()
    assert (tmp_path / "adapter_model.safetensors").exists()


def test_a_model_by_its_folder_and_raw_pairs(tmp_path, tokenizer):
    folder = str(tmp_path / "model")
    make_model("t5").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    pairs = [{"source": source, "target": target} for source, target in zip(SENTENCES, TRANSLATIONS, strict=True)]
    trainer = CLUETrainer(
        folder, CLUEConfig(str(tmp_path / "out"), max_steps=1, use_cpu=True, disable_tqdm=True), train_dataset=pairs
    )
    assert trainer.train().global_step == 1
    batch = next(iter(trainer.get_train_dataloader()))
    assert set(batch) == {"input_ids", "attention_mask", "labels"}


def test_a_tokenizer_that_cannot_pad_is_given_the_end_token(tmp_path):
    tokenizer = make_tokenizer(end_every_text=False)
    tokenizer.pad_token = None
    pairs = [{"prompt": source, "completion": target} for source, target in zip(SENTENCES, TRANSLATIONS, strict=True)]
    trainer = make_trainer(make_model("gpt2"), tmp_path, pairs, processing_class=tokenizer)
    trainer.train()
    assert tokenizer.pad_token == tokenizer.eos_token
    assert log_lines(trainer)[-1]["error"] > 0


def test_the_stock_trainer_with_our_loss_equals_ours(kind, tmp_path):
    ours = first_steps(kind, tmp_path, alpha=0.7, gradient_accumulation_steps=2)
    model = make_model(kind)
    args = TrainingArguments(
        str(tmp_path), max_steps=2, per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=1,
        save_strategy="no", disable_tqdm=True, train_sampling_strategy="sequential", max_grad_norm=1e9,
        learning_rate=1e-2, use_cpu=True, report_to="none",
    )  # fmt: skip
    stock = Trainer(
        model, args, train_dataset=make_data(kind),
        data_collator=DataCollatorForSeq2Seq(make_tokenizer(), model=None if kind in CAUSAL else model),
        compute_loss_func=compute_loss_func(alpha=0.7, shift=kind in CAUSAL),
    )  # fmt: skip
    stock.train()
    for mine, theirs in zip(log_lines(ours), log_lines(stock), strict=True):
        assert theirs["loss"] == pytest.approx(mine["loss"], rel=1e-5)
        assert theirs["grad_norm"] == pytest.approx(mine["grad_norm"], rel=1e-4)


def test_trackers_hear_the_parts(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    first_steps("t5", tmp_path, report_to="tensorboard")
    events = EventAccumulator(str(next((tmp_path / "board").rglob("events*")).parent))
    events.Reload()
    assert {"train/error", "train/uncertainty", "train/calibration", "train/alpha"} <= set(events.Tags()["scalars"])


def test_a_flat_model_is_warned_about_once(tmp_path, caplog):
    model = make_model("gpt2")
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1e-3)
    import transformers

    transformers.utils.logging.enable_propagation()
    trainer = make_trainer(model, tmp_path, make_data("gpt2"), learning_rate=0.0)
    trainer.train()
    assert sum("close to guessing" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1.2}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"alpha": "half"}, "alpha"),
        ({"objective": "clu"}, "objective"),
        ({"level": "word"}, "level"),
        ({"clue_gradient": "none"}, "clue_gradient"),
        ({"clue_gradient": "error", "variance_head": True}, "variance head would learn nothing"),
        ({"fused_head": "yes"}, "fused_head"),
        ({"task": "chess"}, "task"),
        ({"plain_steps": -1}, "plain_steps"),
        ({"plain_steps": 1, "plain_epochs": 1}, "not both"),
        ({"max_target_length": 0}, "max_target_length"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor"),
        ({"use_liger_kernel": True}, "use_liger_kernel"),
        ({"sortish_sampler": True}, "group_by_length"),
    ],
)
def test_settings_are_honoured_or_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        CLUEConfig(str(tmp_path), use_cpu=True, **settings)


def test_the_best_model_is_not_chosen_by_a_loss_that_prefers_flat_ones(tmp_path):
    settings = {"eval_strategy": "steps", "save_strategy": "steps", "load_best_model_at_end": True, "use_cpu": True}
    for form in ("uncertainty", "error"):
        detached = CLUEConfig(str(tmp_path), clue_gradient=form, **settings)
        assert (detached.metric_for_best_model, detached.greater_is_better) == ("error", False)
    assert CLUEConfig(str(tmp_path), **settings).metric_for_best_model == "loss"
    chosen = CLUEConfig(str(tmp_path), clue_gradient="uncertainty", metric_for_best_model="loss", **settings)
    assert (chosen.metric_for_best_model, chosen.greater_is_better) == ("loss", False)


def test_label_smoothing_of_the_plain_objective_is_honoured(tmp_path):
    trainer = first_steps("t5", tmp_path, objective="ce", label_smoothing_factor=0.3)
    assert trainer.args.objective == "label_smoothing"
    assert trainer.training_objective.smoothing == 0.3
    assert CLUEConfig(str(tmp_path), objective="label_smoothing", use_cpu=True).label_smoothing_factor == 0.1


@pytest.mark.parametrize("objective", ["brier", "eaft", "dft", "maxsup", "label_smoothing"])
def test_other_objectives_do_not_depend_on_the_layout_of_the_batch(kind, objective, tmp_path):
    found = []
    for fused_head, (batch, accumulation) in [("off", LAYOUTS[0]), *(("on", layout) for layout in LAYOUTS)]:
        trainer = first_steps(
            kind, tmp_path, objective=objective, fused_head=fused_head, per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
        )  # fmt: skip
        found.append([(line["loss"], line["grad_norm"], line["error"]) for line in log_lines(trainer)])
    for other in found[1:]:
        torch.testing.assert_close(torch.tensor(other), torch.tensor(found[0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("objective", ["ce_pe", "focal", "label_smoothing", "maxsup", "brier", "eaft", "dft"])
def test_other_objectives_train(kind, objective, tmp_path):
    lines = log_lines(first_steps(kind, tmp_path, steps=3, objective=objective))
    assert "alpha" not in lines[0]
    assert lines[-1]["loss"] != lines[0]["loss"]


def test_what_the_trainer_refuses(tmp_path):
    with pytest.raises(ValueError, match="needs a `model`"):
        CLUETrainer(None, CLUEConfig(str(tmp_path), use_cpu=True))


def test_the_saved_model_is_a_plain_transformers_model(tmp_path, kind):
    trainer = first_steps(kind, tmp_path)
    trainer.save_model(str(tmp_path / "saved"))
    loaded = type(trainer.model).from_pretrained(tmp_path / "saved")
    batch = make_batch(kind)
    torch.testing.assert_close(loaded.eval()(**batch).logits, trainer.model.eval()(**batch).logits)
    assert "calibration" in json.dumps(trainer.model.model_tags)


def test_uncertainty_metrics_during_training(tmp_path):
    name = Path(__file__).parent / "fixtures/lm_polygraph/model"  # a T5 that has learned these phrases
    rows = datasets.Dataset.from_list(phrase_rows("validation", 12))
    trainer = make_trainer(
        AutoModelForSeq2SeqLM.from_pretrained(name), tmp_path, processing_class=AutoTokenizer.from_pretrained(name),
        train=rows, evaluation=rows, max_steps=3, learning_rate=1e-3, eval_strategy="steps", eval_steps=1,
        save_strategy="steps", save_steps=1, load_best_model_at_end=True, metric_for_best_model="prr_perplexity",
        evaluator=UncertaintyEvaluator(
            scorers=["msp", "perplexity"], quality="chrf", max_new_tokens=8, resamples=0, max_rows=9
        ),
    )  # fmt: skip
    trainer.train()
    lines = log_lines(trainer, "eval_prr_perplexity")
    assert len(lines) == 3
    assert all({"eval_prr_msp", "eval_mean_chrf", "eval_error"} <= line.keys() for line in lines)
    assert trainer.state.best_metric == max(line["eval_prr_perplexity"] for line in lines)
    # the evaluator looks at the model as it is now, and at raw rows of the evaluation data only
    report = trainer.evaluator.evaluate(rows)
    assert report.metrics["n"] == 9
    assert report.metrics["scorers"]["perplexity"]["prr"]["value"] == pytest.approx(
        trainer.state.best_metric, abs=1e-5
    )
    assert not any("prr" in name for name in trainer.predict(trainer.eval_dataset).metrics)
