"""Regressors through the trainer: layouts, resuming, precision; tables, images and texts."""

import datasets
import numpy as np
import pytest
import torch
from classifiers import BAD, GOOD, NEVER, image_rows, make_processor, make_text_classifier, make_vit
from helpers import log_lines, make_trainer
from torch import nn
from transformers import T5Config, T5ForSequenceClassification

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.data.embedded.diabetes import TARGET, load_diabetes_splits
from clue_hf.data.targets import TargetScale
from clue_hf.inputs.table_preprocessor import TablePreprocessor
from clue_hf.models.tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression
from clue_hf.models.tokenizer import train_tokenizer
from clue_hf.training.collect import predicted_numbers


LAYOUTS = [(16, 1), (4, 4), (2, 8)]
SPLITS = load_diabetes_splits()
PREPROCESSOR = TablePreprocessor.fit(SPLITS["train"], TARGET)


def make_table_model(dropout=0.3, frozen=False, **settings):
    torch.manual_seed(0)
    config = CLUETabularResNetConfig(
        num_numeric=PREPROCESSOR.num_numeric, hidden_size=16, num_blocks=2, dropout=dropout, **settings
    )
    model = CLUETabularResNetForRegression(config)
    for module in model.modules():
        if frozen and isinstance(module, nn.BatchNorm1d):
            module.momentum, module.train = 0.0, lambda mode=True, module=module: nn.Module.train(module, False)
    return model


def train(model, folder, rows=64, **settings):
    settings = {"max_steps": 2, "logging_steps": 1, "per_device_train_batch_size": 16, **settings}
    trainer = make_trainer(
        model, folder, train=SPLITS["train"].select(range(rows)), processing_class=PREPROCESSOR, **settings
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("passes", "rate", "head", "objective"),
    [(0, 0.0, True, "clue"), (3, NEVER, True, "clue"), (0, 0.0, True, "crps"), (0, 0.0, True, "beta_nll")],
)
def test_loss_and_gradient_do_not_depend_on_the_layout_of_the_batch(passes, rate, head, objective, tmp_path):
    found = []
    for batch, accumulation in LAYOUTS:
        trainer = train(
            make_table_model(rate, frozen=True, variance_head=head), tmp_path, alpha=0.7, mc_samples=passes,
            objective=objective, per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
        )  # fmt: skip
        found.append([(line["loss"], line["grad_norm"], line["error"]) for line in log_lines(trainer)])
    for other in found[1:]:
        torch.testing.assert_close(torch.tensor(other), torch.tensor(found[0]), rtol=1e-5, atol=1e-5)


def test_alpha_one_is_plain_training_bit_for_bit(tmp_path):
    plain, clue = (
        train(make_table_model(), tmp_path, max_steps=5, mc_samples=4, **settings)
        for settings in ({"objective": "mse"}, {"objective": "clue", "alpha": 1.0})
    )
    for name, weight in plain.model.state_dict().items():
        assert torch.equal(weight, clue.model.state_dict()[name]), name


def test_resuming_is_exact(tmp_path):
    settings = {"max_steps": 6, "mc_samples": 4, "plain_steps": 2, "plain_mc_samples": 1, "objective": "clue"}
    whole = train(make_table_model(), tmp_path / "a", save_strategy="steps", save_steps=3, **settings)
    again = make_trainer(
        make_table_model(), tmp_path / "a", train=SPLITS["train"].select(range(64)),
        processing_class=PREPROCESSOR, per_device_train_batch_size=16, logging_steps=1, **settings,
    )  # fmt: skip
    again.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-3"))
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name]), name


def test_bf16(tmp_path):
    trainer = train(make_table_model(), tmp_path, bf16=True, mc_samples=4)
    assert all(np.isfinite(line["loss"]) for line in log_lines(trainer))


def test_the_preprocessing_is_saved_with_the_model_and_reports_the_units(tmp_path):
    trainer = train(make_table_model(), tmp_path, max_steps=30, mc_samples=4, learning_rate=1e-2)
    trainer.save_model(str(tmp_path / "model"))
    again = TablePreprocessor.from_pretrained(tmp_path / "model")
    model = CLUETabularResNetForRegression.from_pretrained(tmp_path / "model")
    inputs = again(SPLITS["test"], target=False)
    with torch.no_grad():
        found = model(**inputs).logits[:, 0] * again.target_std + again.target_mean
        standardised = trainer.model.eval()(**inputs).logits[:, 0]
        expected = standardised * PREPROCESSOR.target_std + PREPROCESSOR.target_mean
    torch.testing.assert_close(found, expected)
    assert 25 < found.mean() < 346


@pytest.mark.parametrize("variance_head", [False, True])
def test_images_with_a_number(variance_head, tmp_path):
    images, classes = image_rows(48)
    target = 1000.0 + 200.0 * classes
    data = datasets.Dataset.from_dict({"image": images.tolist(), "target": target.tolist()})
    model = make_vit(0.1)
    model.config.num_labels = model.num_labels = 2 if variance_head else 1
    model.config.problem_type, model.config.variance_head = "regression", variance_head
    model.classifier = nn.Linear(model.config.hidden_size, model.config.num_labels)
    from clue_hf.models.mc_dropout import add_classifier_dropout

    model = add_classifier_dropout(model, 0.1)
    trainer = make_trainer(
        model, tmp_path, train=data, processing_class=make_processor(), max_steps=120, learning_rate=1e-2,
        mc_samples=4, alpha=0.5,
        per_device_train_batch_size=16, logging_steps=60,
    )  # fmt: skip
    trainer.train()
    assert TargetScale.of_config(trainer.model.config).mean == pytest.approx(target.mean())
    found = predicted_numbers(trainer, trainer.train_dataset)
    assert np.corrcoef(found.mean, classes)[0, 1] > 0.9


def test_texts_with_a_number(tmp_path):
    texts, target = (GOOD + BAD) * 4, ([5.0] * 4 + [1.0] * 4) * 4
    data = datasets.Dataset.from_dict({"text": texts, "score": target})
    model, tokenizer = make_text_classifier()
    model.config.num_labels = model.num_labels = 1
    model.config.problem_type = "regression"
    model.classifier = nn.Linear(model.config.hidden_size, 1)
    trainer = make_trainer(
        model, tmp_path, train=data, processing_class=tokenizer, max_steps=60, learning_rate=1e-2,
        mc_samples=4, alpha=0.5, per_device_train_batch_size=16, logging_steps=30, objective="clue",
    )  # fmt: skip
    trainer.train()
    found = predicted_numbers(trainer, trainer.train_dataset)
    assert np.corrcoef(found.mean, target)[0, 1] > 0.9


def test_a_model_of_any_kind_is_loaded_by_name(tmp_path):
    train(make_table_model(), tmp_path / "a").save_model(str(tmp_path / "table"))
    vit = make_vit(0.2)
    vit.save_pretrained(tmp_path / "vit")
    make_processor().save_pretrained(tmp_path / "vit")
    for name, dropout in (("table", 0.3), ("vit", 0.2)):
        trainer = CLUETrainer(str(tmp_path / name), CLUEConfig(str(tmp_path / "b"), use_cpu=True, report_to="none"))
        rates = [module.p for module in trainer.model.modules() if isinstance(module, nn.Dropout) and module.p]
        assert (rates or [trainer.model.classifier.dropout])[0] == dropout
        assert type(trainer.task).__name__ == {"table": "RegressionTask", "vit": "ClassificationTask"}[name]
        assert trainer.processing_class is not None


def test_a_t5_with_a_number(tmp_path):
    tokenizer = train_tokenizer([*GOOD, *BAD], 80, True)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, num_heads=2, num_layers=1, d_ff=16, num_labels=1,
        decoder_start_token_id=tokenizer.pad_token_id, **ids,
    )  # fmt: skip
    target = ([5.0] * 4 + [1.0] * 4) * 4
    trainer = make_trainer(
        T5ForSequenceClassification(config), tmp_path, processing_class=tokenizer, max_steps=60, learning_rate=1e-2,
        train=datasets.Dataset.from_dict({"text": (GOOD + BAD) * 4, "score": target}), mc_samples=4, alpha=0.5,
        per_device_train_batch_size=16, logging_steps=30,
    )  # fmt: skip
    trainer.train()
    assert np.corrcoef(predicted_numbers(trainer, trainer.train_dataset).mean, target)[0, 1] > 0.9
