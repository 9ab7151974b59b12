"""Classifiers through the trainer: layouts, resuming, precision, raw rows of images and texts."""

import datasets
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from classifiers import (
    NAMES,
    NEVER,
    class_trainer,
    image_data,
    image_rows,
    make_frozen_resnet,
    make_text_classifier,
    make_vit,
    text_rows,
)
from helpers import log_lines
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification

from clue_hf.inputs.images import ImageTransform
from clue_hf.training.collect import class_log_probabilities


MODELS = {"vit": make_vit, "resnet": make_frozen_resnet}
LAYOUTS = [(16, 1), (4, 4), (1, 16)]


def train(model, folder, data=None, **settings):
    trainer = class_trainer(model, folder, data or image_data(32), **settings)
    trainer.train()
    return trainer


def assert_same_weights(model, other):
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name]), name


def plain_logits(trainer, rows, data=None):
    """The model's logits of some rows, and their labels."""
    data = trainer.train_dataset if data is None else data
    batch = trainer.data_collator([data[row] for row in rows])
    with torch.no_grad():
        return trainer.model.eval()(pixel_values=batch["pixel_values"]).logits, batch["labels"]


# ---- the loss ----


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize(("passes", "rate"), [(0, 0.0), (1, NEVER), (5, NEVER)])
def test_loss_and_gradient_do_not_depend_on_the_layout_of_the_batch(kind, passes, rate, tmp_path):
    found = []
    for batch, accumulation in LAYOUTS:
        trainer = train(
            MODELS[kind](rate), tmp_path, alpha=0.7, mc_samples=passes, per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
        )  # fmt: skip
        found.append([(line["loss"], line["grad_norm"], line["error"]) for line in log_lines(trainer)])
    assert len(found[0]) == 2
    torch.testing.assert_close(torch.tensor(found[1]), torch.tensor(found[0]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.tensor(found[2]), torch.tensor(found[0]), rtol=1e-5, atol=1e-5)
    trainer.model = MODELS[kind](rate)
    logits, labels = plain_logits(trainer, range(16))
    error, p = F.cross_entropy(logits, labels, reduction="none"), logits.softmax(-1)
    entropy = -(p * p.log()).sum(-1)
    expected = (0.7 * error + 0.3 * (error - entropy) ** 2).mean().item()
    assert found[0][0][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("passes", [0, 5])
def test_alpha_one_is_plain_training_bit_for_bit(passes, tmp_path):
    plain, clue = (
        train(make_vit(0.4), tmp_path, mc_samples=passes, max_steps=4, **settings)
        for settings in ({"objective": "ce"}, {"objective": "clue", "alpha": 1.0})
    )
    assert_same_weights(plain.model, clue.model)
    assert [line["loss"] for line in log_lines(plain)] == [line["loss"] for line in log_lines(clue)]


def test_training_logs_the_parts_of_the_loss(tmp_path):
    for line in log_lines(train(make_vit(0.4), tmp_path, alpha=0.8)):
        assert line["alpha"] == 0.8
        assert line["loss"] == pytest.approx(0.8 * line["error"] + 0.2 * line["calibration"], rel=1e-6)
        assert line["normalized_uncertainty"] == pytest.approx(line["uncertainty"] / np.log(3), rel=1e-6)


@pytest.mark.parametrize(
    "objective", ["clue", "ce", "ce_pe", "euat", "cals", "focal", "label_smoothing", "maxsup", "brier"]
)
@pytest.mark.parametrize("kind", list(MODELS))
def test_every_objective_learns(kind, objective, tmp_path):
    trainer = train(
        MODELS[kind](0.1), tmp_path, objective=objective, mc_samples=2, max_steps=25, learning_rate=2e-2,
        per_device_train_batch_size=16, cals_margin=6.0, logging_steps=25, plain_steps=2,
    )  # fmt: skip
    logits, labels = plain_logits(trainer, range(32))
    before = class_trainer(MODELS[kind](0.1), tmp_path, image_data(32))
    start, _ = plain_logits(before, range(32))
    assert F.cross_entropy(logits, labels) < 0.7 * F.cross_entropy(start, labels)


def test_plain_epochs_and_then_clue(tmp_path):
    trainer = train(make_vit(0.2), tmp_path, plain_epochs=1, alpha=0.6, max_steps=3, per_device_train_batch_size=16)
    assert [line["alpha"] for line in log_lines(trainer)] == [1.0, 1.0, 0.6]


# ---- evaluation ----


@pytest.mark.parametrize("kind", list(MODELS))
def test_evaluation_is_the_mean_over_all_rows_whatever_the_batch_size(kind, tmp_path):
    found = []
    for batch_size in (1, 3, 16):
        trainer = class_trainer(
            MODELS[kind](), tmp_path, evaluation=image_data(7), per_device_eval_batch_size=batch_size, alpha=0.7,
            compute_metrics=lambda prediction: {"rows": len(prediction.predictions)},
        )  # fmt: skip
        found.append(trainer.evaluate())
        assert found[-1]["eval_rows"] == 7
    logits, labels = plain_logits(trainer, range(7), trainer.eval_dataset)
    assert found[0]["eval_error"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)
    for name in ("loss", "error", "uncertainty", "calibration"):
        values = [metrics[f"eval_{name}"] for metrics in found]
        assert values == pytest.approx([values[0]] * 3, rel=1e-5), name


def test_predictions_keep_the_order_of_the_data(tmp_path):
    trainer = class_trainer(make_vit(), tmp_path, evaluation=image_data(9), per_device_eval_batch_size=4)
    found = trainer.predict(trainer.eval_dataset)
    assert found.label_ids.tolist() == image_rows(9)[1].tolist()
    logits, _ = plain_logits(trainer, range(9), trainer.eval_dataset)
    np.testing.assert_allclose(found.predictions, logits, rtol=1e-5, atol=1e-5)


def test_evaluation_with_dropout_is_the_same_every_time(tmp_path):
    trainer = class_trainer(make_vit(0.5), tmp_path, evaluation=image_data(9), per_device_eval_batch_size=4)
    first, second = trainer.evaluate(), trainer.evaluate()
    assert first["eval_loss"] == second["eval_loss"]
    assert trainer.task.mc_samples == 5


def test_several_evaluation_sets_of_images_and_of_texts(tmp_path):
    sets = {"near": image_data(4, seed=3), "far": image_data(5, seed=4)}
    together = class_trainer(make_vit(), tmp_path, evaluation=sets).evaluate()
    for name, data in sets.items():
        alone = class_trainer(make_vit(), tmp_path, evaluation=data).evaluate()
        assert together[f"eval_{name}_error"] == pytest.approx(alone["eval_error"], rel=1e-6)
    model, tokenizer = make_text_classifier()
    texts = {"some": text_rows(1), "more": text_rows(2)}
    found = class_trainer(model, tmp_path, evaluation=texts, processing_class=tokenizer, mc_samples=0).evaluate()
    assert {"eval_some_error", "eval_more_error"} <= found.keys()


@pytest.mark.parametrize("passes", [0, 5])
def test_log_probabilities_of_a_dataset(passes, tmp_path):
    trainer = class_trainer(
        make_vit(0.3), tmp_path, image_data(11), mc_samples=passes, per_device_eval_batch_size=4, augment="crop_flip"
    )
    trainer.model.train()
    before = torch.get_rng_state()
    found = class_log_probabilities(trainer, trainer.train_dataset)
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.model.training
    assert found.labels.tolist() == image_rows(11)[1].tolist()
    np.testing.assert_allclose(found.probabilities.sum(-1), 1, rtol=1e-6)
    again = class_log_probabilities(trainer, trainer.train_dataset)
    assert np.array_equal(found.log_probabilities, again.log_probabilities)
    if not passes:
        logits, _ = plain_logits(trainer, range(11))
        np.testing.assert_allclose(found.log_probabilities, logits.log_softmax(-1), rtol=1e-4, atol=1e-5)


# ---- resuming ----

RESUMED = {
    "clue": {"objective": "clue", "alpha": 0.7, "plain_steps": 2, "alpha_warmup_steps": 2},
    "euat": {"objective": "euat"},
    "euat after plain steps": {"objective": "euat", "plain_steps": 2},
    "euat after a plain epoch": {"objective": "euat", "plain_epochs": 1},
    "cals": {"objective": "cals", "cals_margin": 0.2},
    "cals after a plain epoch": {"objective": "cals", "cals_margin": 0.2, "plain_epochs": 1},
}


def resumable(kind, folder, seed=0, **settings):
    """A trainer with dropout; twelve rows are three steps an epoch, sixteen are four."""
    rows = settings.pop("rows", 12)
    settings = {
        "mc_samples": 5, "augment": "crop_flip", "train_sampling_strategy": "random", "cals_margin": 0.5,
        "per_device_train_batch_size": 4, "save_strategy": "steps", "save_steps": 1, **settings,
    }  # fmt: skip
    if kind == "bert":
        model, tokenizer = make_text_classifier(seed, 0.4, sharpness=16)
        texts = datasets.Dataset.from_list(text_rows(3))
        parts = texts.shuffle(0).select(range(rows)), texts.shuffle(1).select(range(5))
        return class_trainer(model, folder, *parts, processing_class=tokenizer, **settings)
    return class_trainer(MODELS[kind](0.4, seed), folder, image_data(rows), image_data(5, seed=8), **settings)


@pytest.mark.parametrize("name", list(RESUMED))
@pytest.mark.parametrize("kind", ["resnet", "bert"])
def test_a_resumed_run_equals_an_uninterrupted_one(name, kind, tmp_path):
    settings = {"max_steps": 6, "optim": "sgd", "optim_args": "momentum=0.9", "learning_rate": 2e-3, **RESUMED[name]}
    whole = resumable(kind, tmp_path / "whole", **settings)
    whole.train()
    if "cals" in name:
        assert 1e-3 < whole.training_objective.lam.max() < 1e3
    for step in (2, 3, 4):  # within the first epoch, at its end, within the second
        resumed = resumable(kind, tmp_path / "resumed", seed=5, **settings)
        resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{step}"))
        assert_same_weights(whole.model, resumed.model)
        assert log_lines(whole)[-1]["loss"] == log_lines(resumed)[-1]["loss"]
        state, expected = resumed.training_objective.state_dict(), whole.training_objective.state_dict()
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[key], expected[key]) for key in state)


@pytest.mark.parametrize("objective", ["clue", "euat", "cals"])
@pytest.mark.parametrize("save_strategy", ["steps", "epoch"])
def test_a_run_that_ended_goes_on_as_if_it_had_not(objective, save_strategy, tmp_path):
    settings = {"objective": objective, "save_strategy": save_strategy, "lr_scheduler_type": "constant", "rows": 16}
    whole = resumable("resnet", tmp_path / "whole", max_steps=6, **settings)
    whole.train()
    resumable("resnet", tmp_path / "parts", max_steps=3, **settings).train()  # within its first epoch
    second = resumable("resnet", tmp_path / "parts", seed=5, max_steps=6, **settings)
    second.train(resume_from_checkpoint=True)
    assert_same_weights(whole.model, second.model)
    assert second.state.global_step == 6


def test_a_resumed_vision_transformer_equals_an_uninterrupted_one(tmp_path):
    whole = resumable("vit", tmp_path / "whole", max_steps=4)
    whole.train()
    resumed = resumable("vit", tmp_path / "resumed", seed=5, max_steps=4)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    # transformers saves it under former names of its layers, and its trainer would not read them back
    assert_same_weights(whole.model, resumed.model)


# ---- precision, raw rows, saved folders ----


@pytest.mark.parametrize("kind", list(MODELS))
def test_bfloat16_is_close_to_float32(kind, tmp_path):
    settings = {"alpha": 0.7, "mc_samples": 5, "max_steps": 5, "per_device_train_batch_size": 16}
    half, whole = (train(MODELS[kind](NEVER), tmp_path, bf16=bf16, **settings) for bf16 in (True, False))
    found, expected = ([line["loss"] for line in log_lines(trainer)] for trainer in (half, whole))
    assert found == pytest.approx(expected, rel=5e-2, abs=5e-2)
    assert found != expected
    assert found[-1] < found[0]
    assert next(half.model.parameters()).dtype == torch.float32


def image_columns():
    images, labels = image_rows(24)
    pictures = [Image.fromarray(image) for image in images]
    words = [NAMES[label] for label in labels]
    make = datasets.Dataset.from_dict
    named = datasets.Features(img=datasets.Image(), label=datasets.ClassLabel(names=NAMES))
    return {
        "lists of pixels, numbers": make({"image": images.tolist(), "label": labels.tolist()}),
        "img, names": make({"img": pictures, "label": words}),
        "img, ClassLabel": make({"img": pictures, "label": labels.tolist()}, named),
        "rows": [{"image": picture, "label": word} for picture, word in zip(pictures, words, strict=True)],
    }


@pytest.mark.parametrize("kind", list(image_columns()))
def test_images_and_labels_as_they_come(kind, tmp_path):
    settings = {"alpha": 0.7, "max_steps": 30, "per_device_train_batch_size": 12, "learning_rate": 2e-2}
    trainer = train(make_vit(0.1), tmp_path, image_columns()[kind], **settings)
    lines = log_lines(trainer)
    assert trainer.task.mc_samples == 5
    assert lines[-1]["loss"] < 0.5 * lines[0]["loss"]
    expected = train(make_vit(0.1), tmp_path, image_columns()["lists of pixels, numbers"], **settings)
    assert_same_weights(trainer.model, expected.model)


def sentences(kind):
    rows = text_rows(2)
    if kind == "names":
        return rows
    numbers = [int(row["label"] == "good") for row in rows]
    if kind == "numbers":
        return datasets.Dataset.from_dict({"text": [row["sentence"] for row in rows], "label": numbers})
    features = datasets.Features(sentence=datasets.Value("string"), label=datasets.ClassLabel(names=["bad", "good"]))
    return datasets.Dataset.from_dict({"sentence": [row["sentence"] for row in rows], "label": numbers}, features)


@pytest.mark.parametrize("kind", ["names", "numbers", "ClassLabel"])
def test_texts_and_labels_as_they_come(kind, tmp_path):
    model, tokenizer = make_text_classifier()
    trainer = train(
        model, tmp_path, sentences(kind), processing_class=tokenizer, alpha=0.9, max_steps=30,
        per_device_train_batch_size=16, learning_rate=2e-2,
    )  # fmt: skip
    lines = log_lines(trainer)
    assert trainer.task.mc_samples == 5
    assert lines[-1]["loss"] < 0.5 * lines[0]["loss"]
    found = class_log_probabilities(trainer, trainer.train_dataset)
    assert (found.log_probabilities.argmax(-1) == found.labels).mean() > 0.9
    assert found.labels.tolist() == [int(row["label"] == "good") for row in text_rows(2)]


def test_the_saved_folder_holds_model_and_processor(tmp_path):
    trainer = train(make_vit(0.3), tmp_path, image_data(16))
    trainer.save_model(str(tmp_path / "saved"))
    model = AutoModelForImageClassification.from_pretrained(tmp_path / "saved")
    processor = AutoImageProcessor.from_pretrained(tmp_path / "saved")
    images, _ = image_rows(16)
    inputs = processor([Image.fromarray(image) for image in images], return_tensors="pt")
    logits, _ = plain_logits(trainer, range(16))
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs).logits, logits, rtol=1e-4, atol=1e-4)
    assert model.config.id2label == dict(enumerate(NAMES))
    assert ImageTransform.from_processor(processor) == trainer.task.data.inputs.transform
