"""Losses, steps and labels that go wrong, for texts, images and numbers alike."""

import math

import datasets
import pytest
import torch
from classifiers import class_trainer, image_batch, image_data, image_rows, make_vit
from helpers import log_lines, make_batch, make_data, make_model, make_trainer
from models.networks import make_resnet
from number_models import TARGET, make_preprocessor, make_tabular
from reliability.kinds import KINDS, Watch, make_kind, weights_of
from torch import nn

from clue_hf.data.embedded.diabetes import load_diabetes_splits
from clue_hf.errors import UserError
from clue_hf.objectives import CLUE
from clue_hf.tasks import ClassificationTask, RegressionTask, TextTask


@pytest.mark.parametrize("kind", KINDS)
def test_every_layout_has_the_same_gradients(kind, tmp_path):
    found = []
    for batch, accumulation in ((16, 1), (4, 4), (1, 16)):
        trainer = make_kind(
            kind, tmp_path, dropout=False, rows=32, alpha=0.7, per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
        )  # fmt: skip
        watch = Watch(trainer)
        trainer.train()
        found.append(watch.gradients[0])
    for other in found[1:]:
        assert (other - found[0]).norm() / found[0].norm() < 1e-5
        assert (other - found[0]).abs().max() / found[0].abs().max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_the_evaluation_loss_does_not_depend_on_the_batch_size(kind, tmp_path):
    """Seven rows: the last batch is short."""
    found = [
        make_kind(kind, tmp_path, dropout=False, per_device_eval_batch_size=size).evaluate() for size in (1, 3, 7, 16)
    ]
    for name in ("eval_loss", "eval_error", "eval_uncertainty", "eval_calibration"):
        assert [metrics[name] for metrics in found] == pytest.approx([found[0][name]] * 4, rel=1e-5), name


# ---- rows without a label ----


class Unchecked(torch.utils.data.Dataset):
    """Images of a dataset that nobody looks at before it is asked for; the first ones have another label."""

    def __init__(self, rows, changed, label=-100):
        self.images, self.labels = image_rows(rows)
        self.labels[:changed] = label

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return {"pixel_values": self.images[row], "labels": int(self.labels[row])}


class Listed(torch.utils.data.Dataset):
    """Tokenised rows of which nobody knows before they are asked for."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return self.rows[row]


def test_a_batch_of_images_without_any_label_is_counted(tmp_path):
    trainer = class_trainer(make_vit(0.3), tmp_path, Unchecked(8, 4), Unchecked(6, 4), per_device_eval_batch_size=4)
    watch = Watch(trainer)
    trainer.train()
    first, second = log_lines(trainer)
    assert (first["loss"], first["grad_norm"], first["skipped_batches"]) == (0, 0, 1)
    assert (watch.gradients[0] == 0).all()
    assert second["loss"] > 0
    assert "skipped_batches" not in second
    metrics = trainer.evaluate()
    assert metrics["eval_skipped_batches"] == 1
    assert math.isfinite(metrics["eval_loss"])
    assert metrics["eval_loss"] > 0


def test_a_batch_of_texts_without_any_label_is_counted_in_evaluation(tmp_path):
    data = make_data("t5", 6).map(
        lambda row, i: {"labels": [-100] * len(row["labels"])} if i < 4 else {}, with_indices=True
    )
    kept = data.select(range(4, 6))
    whole, part = (
        make_trainer(make_model("t5"), tmp_path, evaluation=rows, per_device_eval_batch_size=4).evaluate()
        for rows in (data, kept)
    )
    assert whole["eval_skipped_batches"] == 1
    assert whole["eval_loss"] == pytest.approx(part["eval_loss"], rel=1e-5)


def test_minus_100_is_a_number_like_any_other(tmp_path):
    """Where numbers are predicted no label stands for a missing one."""
    table = {"x": [0.0, 1.0, 2.0, 3.0] * 4, "y": [-100.0, 0.0, 100.0, 200.0] * 4}
    data = datasets.Dataset.from_dict(table)
    from clue_hf.inputs.table_preprocessor import TablePreprocessor

    preprocessor = TablePreprocessor.fit(data, "y")
    task = RegressionTask(make_tabular(preprocessor, variance_head=True))
    batch = preprocessor(data)
    batch["labels"][:4] = -100.0
    assert task.count([batch]).tolist() == [16, 16]
    trainer = make_trainer(
        make_tabular(preprocessor, variance_head=True), tmp_path, data, processing_class=preprocessor, max_steps=1
    )
    trainer.train()
    assert "skipped_batches" not in log_lines(trainer)[0]


# ---- extreme outputs ----


def check_finite(prediction, objective, counts, model, largest):
    loss, _ = prediction.reduce(objective, counts)
    loss.backward()
    assert math.isfinite(loss.item())
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)
    assert prediction.uncertainty.min() >= 0
    assert prediction.uncertainty.max() <= largest + 1e-5


@pytest.mark.parametrize("passes", [0, 4])
def test_extreme_logits_of_a_classifier_stay_finite(passes):
    model, batch, objective = make_vit(0.3).train(), image_batch(12), CLUE(0.5)
    with torch.no_grad():
        model.classifier.weight.mul_(1e4)
        model.classifier.bias.copy_(torch.tensor([1e4, -1e4, 0.0]))
    task = ClassificationTask(model, passes)
    assert task.logits(model, batch).abs().max() > 1e4
    prediction = task.predict(model, batch, objective)
    check_finite(prediction, objective, task.count([batch]), model, math.log(3))


@pytest.mark.parametrize("passes", [0, 4])
def test_a_class_that_is_impossible_leaves_the_others_as_they_are(passes):
    model, batch, objective = make_vit(0.3).train(), image_batch(12), CLUE(0.5)
    batch["labels"].clamp_(max=1)
    with torch.no_grad():
        model.classifier.bias[2] = -math.inf
    model.classifier.bias.requires_grad_(False)
    task = ClassificationTask(model, passes)
    prediction = task.predict(model, batch, objective)
    check_finite(prediction, objective, task.count([batch]), model, math.log(2))


@pytest.mark.parametrize("fused", ["on", "off"])
def test_extreme_logits_of_a_language_model_stay_finite(fused):
    model, batch, objective = make_model("t5"), make_batch("t5"), CLUE(0.5)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1e3)
    task = TextTask(model, fused_head=fused)
    assert task.logits(model, *task.split_labels(model, batch)).abs().max() > 1e4
    loss, sums = task.predict(model, batch, objective).reduce(objective, task.count([batch]))
    loss.backward()
    assert math.isfinite(loss.item())
    assert sums.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)
    described = task.describe(model, batch)
    entropy = described[..., 1][~described[..., 1].isnan()]
    assert entropy.min() >= 0
    assert entropy.max() <= math.log(61) + 1e-5


@pytest.mark.parametrize("fused", ["on", "off"])
def test_a_vocabulary_of_one_is_certain(fused):
    model, objective = make_model("t5", vocabulary=1, eos_token_id=0, bos_token_id=0), CLUE(0.5)
    batch = {name: torch.zeros(2, 3, dtype=torch.long) for name in ("input_ids", "labels")}
    task = TextTask(model, fused_head=fused)
    loss, _ = task.predict(model, batch, objective).reduce(objective, task.count([batch]))
    loss.backward()
    assert loss.item() == 0
    assert all((weight.grad == 0).all() for weight in model.parameters() if weight.grad is not None)
    assert task.describe(model, batch)[..., :2].abs().max() == 0


def test_extreme_numbers_stay_finite():
    """Predictions of +-1e4, and a predicted variance that is zero."""
    preprocessor = make_preprocessor(load_diabetes_splits()["train"])
    model = make_tabular(preprocessor, variance_head=True)
    batch = preprocessor(load_diabetes_splits()["test"].select(range(12)))
    with torch.no_grad():
        model.head.weight[0].mul_(1e4)
        model.head.bias.copy_(torch.tensor([1e4, -1e4]))
    task, objective = RegressionTask(model), CLUE(0.5)
    prediction = task.predict(model, batch, objective)
    assert (prediction.uncertainty == task.min_variance).all()
    loss, _ = prediction.reduce(objective, task.count([batch]))
    loss.backward()
    assert math.isfinite(loss.item())
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


# ---- steps that are not finite ----


def poisoned(kind, folder, steps, **settings):
    """A trainer whose model gives NaN in some steps, counted from 0."""
    trainer = make_kind(kind, folder, max_steps=6, **settings)
    plain = trainer.compute_loss

    def compute_loss(*arguments, **options):
        loss = plain(*arguments, **options)
        return loss * float("nan") if trainer.state.global_step in steps else loss

    trainer.compute_loss = compute_loss
    return trainer


@pytest.mark.parametrize("kind", ["image", "number"])
def test_a_step_that_is_not_finite_is_skipped_and_counted(kind, tmp_path):
    trainer = poisoned(kind, tmp_path, {2})
    watch = Watch(trainer)
    trainer.train()
    learned = [name for name, _ in trainer.model.named_parameters()]
    assert all(torch.equal(watch.weights[2][name], watch.weights[3][name]) for name in learned)
    assert not all(torch.equal(watch.weights[3][name], watch.weights[4][name]) for name in learned)
    assert all(weight.isfinite().all() for weight in trainer.model.state_dict().values())
    assert [line.get("nonfinite_steps", 0) for line in log_lines(trainer)] == [0, 0, 1, 0, 0, 0]


def normalised(kind, folder, **settings):
    """A trainer of a model whose BatchNorms learn, and where its examples go in."""
    if kind == "image":
        torch.manual_seed(0)
        model = make_resnet(num_labels=3)
        trainer = class_trainer(model, folder, image_data(24), image_data(7, seed=5), **settings)
        return trainer, next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    splits = load_diabetes_splits()
    preprocessor = make_preprocessor(splits["train"])
    model = make_tabular(preprocessor, variance_head=True)
    rows = (splits["train"].select(range(24)), splits["test"].select(range(7)))
    trainer = make_trainer(model, folder, *rows, preprocessor, **settings)
    return trainer, next(module for module in model.modules() if isinstance(module, nn.BatchNorm1d))


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("value", [math.inf, math.nan, 1e30])
@pytest.mark.parametrize("kind", ["image", "number"])
def test_statistics_of_a_step_that_is_skipped_are_taken_back(kind, value, accumulation, tmp_path):
    """Of 1e30 only the variance is infinite: what is divided by it is 0, and so are the gradients."""
    trainer, place = normalised(kind, tmp_path, max_steps=4, gradient_accumulation_steps=accumulation)
    watch = Watch(trainer)

    def spoil(module, arguments):
        if module.training and trainer.state.global_step == 2:
            return (arguments[0].clone().index_fill_(0, torch.tensor([0]), value),)
        return None

    place.register_forward_pre_hook(spoil)
    trainer.train()
    assert [line.get("nonfinite_steps", 0) for line in log_lines(trainer)] == [0, 0, 1, 0]
    assert all(torch.equal(weight, watch.weights[3][name]) for name, weight in watch.weights[2].items())
    changed = {name for name, weight in weights_of(trainer).items() if not torch.equal(weight, watch.weights[3][name])}
    assert any("running_mean" in name for name in changed)
    assert all(weight.isfinite().all() for weight in trainer.model.state_dict().values())
    assert all(math.isfinite(trainer.evaluate()[name]) for name in ("eval_loss", "eval_error", "eval_uncertainty"))


@pytest.mark.parametrize("kind", ["image", "number"])
def test_too_many_of_them_end_the_training_with_advice(kind, tmp_path):
    with pytest.raises(UserError, match=r"3 consecutive steps, up to step 4, .* Lower learning_rate"):
        poisoned(kind, tmp_path, range(1, 6), max_nonfinite_steps=3).train()


def test_a_t5_that_overflows_in_float16_is_told_to_use_bf16(tmp_path):
    """Really in half precision: its logits exceed 65504."""
    model = make_model("t5")
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1e4)
    trainer = make_trainer(model.half(), tmp_path, make_data("t5"), max_steps=5, max_nonfinite_steps=2)
    with pytest.raises(UserError, match="float16 overflows .* use bf16, or float32"):
        trainer.train()
    assert trainer.state.global_step < 5


# ---- labels that are none ----


def started(trainer):
    """Steps that a training has begun when it fails, and what it says."""
    steps = Watch(trainer)
    with pytest.raises(ValueError) as raised:
        trainer.train()
    return len(steps.gradients), str(raised.value)


@pytest.mark.parametrize("fused", ["on", "off"])
@pytest.mark.parametrize("label", [-1, 61])
def test_a_token_outside_the_vocabulary_is_named_before_the_first_step(fused, label, tmp_path):
    rows = make_data("t5", 16).to_list()
    rows[14]["labels"][0] = label
    data = datasets.Dataset.from_list(rows)
    with pytest.raises(
        UserError, match=rf"^Row 14 .* train(ing)? data has the token {label} in 'labels'.*of 61 entries"
    ):
        make_trainer(make_model("t5"), tmp_path, data, fused_head=fused)
    rows[0]["labels"][0] = label  # what is no dataset shows its labels when they come
    steps, message = started(make_trainer(make_model("t5"), tmp_path, Listed(rows), fused_head=fused))
    assert steps == 0
    assert message.startswith(f"Label {label} is outside the vocabulary of 61 entries")


@pytest.mark.parametrize("label", [-1, 3])
def test_a_class_outside_the_models_is_named_before_the_first_step(label, tmp_path):
    with pytest.raises(UserError, match=rf"label.? {label}|'label' {label}"):
        class_trainer(make_vit(), tmp_path, image_data(4).map(lambda row: {"label": label}))
    steps, message = started(class_trainer(make_vit(), tmp_path, Unchecked(4, 1, label)))
    assert steps == 0
    assert f"Label {label} is outside" in message


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("text", make_data("t5").remove_columns("labels"), "Set source_column and target_column"),
        ("image", image_data(4).remove_columns("label"), "Set label_column"),
        ("number", load_diabetes_splits()["train"].remove_columns(TARGET), TARGET),
    ],
)
def test_data_without_labels_is_refused_before_the_first_step(kind, data, message, tmp_path):
    made = make_kind(kind, tmp_path)
    with pytest.raises(UserError, match=message):
        make_trainer(made.model, tmp_path, data, processing_class=made.processing_class)


def test_a_target_of_the_wrong_type_is_named(tmp_path):
    splits = load_diabetes_splits()["train"]
    words = splits.map(lambda row: {TARGET: "much"}, features=datasets.Features(
        {**splits.features, TARGET: datasets.Value("string")}))  # fmt: skip
    made = make_kind("number", tmp_path)
    with pytest.raises(UserError, match=f"(?s){TARGET}.*much"):
        make_trainer(made.model, tmp_path, words, processing_class=made.processing_class)
    images = image_data(4).to_dict()
    with pytest.raises(UserError, match="'label' 0.5, which is not a class number"):
        class_trainer(make_vit(), tmp_path, datasets.Dataset.from_dict({**images, "label": [0.5] * 4}))
    pairs = datasets.Dataset.from_dict({"source": ["a", "b"], "target": [1, 2]})
    with pytest.raises(UserError, match="must hold text"):
        make_trainer(make_model("t5"), tmp_path, pairs)
