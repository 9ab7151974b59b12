"""Tiny real models that predict numbers from tables, images and texts."""

import datasets
import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
)

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.data.embedded.diabetes import load_diabetes_splits
from clue_hf.data.targets import TargetScale
from clue_hf.inputs.table_preprocessor import TablePreprocessor
from clue_hf.models.tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression
from clue_hf.models.tokenizer import train_tokenizer


TARGET = "progression"
TEXTS = ["a good film", "what a bad day", "good and great", "bad , bad , bad", "great food", "this is awful"] * 3
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SCALE = TargetScale(50.0, 10.0)


def make_preprocessor(train, **settings):
    return TablePreprocessor.fit(train, TARGET, categorical_columns=["sex"], **settings)


def make_tabular(preprocessor, seed=0, **settings):
    """A network of random weights for the patients."""
    torch.manual_seed(seed)
    sizes = {"num_numeric": preprocessor.num_numeric, "category_sizes": preprocessor.category_sizes}
    config = CLUETabularResNetConfig(**sizes, hidden_size=16, num_blocks=1, **settings)
    return CLUETabularResNetForRegression(config).eval()


def train_tabular(folder, seed=0, steps=40, objective="clue", **settings):
    """A small network on the patients, better than their mean."""
    train = load_diabetes_splits()["train"]
    preprocessor = make_preprocessor(train)
    model = make_tabular(preprocessor, seed, **settings)
    config = CLUEConfig(
        str(folder), objective=objective, alpha=0.9, max_steps=steps, per_device_train_batch_size=64,
        learning_rate=0.02, optim="sgd", seed=seed, report_to="none", save_strategy="no", disable_tqdm=True,
        mc_samples=4 if config_has_dropout(model) else 0, logging_strategy="no",
    )  # fmt: skip
    trainer = CLUETrainer(model, config, train_dataset=train, processing_class=preprocessor)
    trainer.train()
    trainer.save_model(str(folder))
    return model.eval(), preprocessor


def config_has_dropout(model):
    return model.config.dropout > 0


def make_number_vit(folder=None):
    """A vision transformer of random weights with one output, without dropout."""
    torch.manual_seed(0)
    model = ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, num_labels=1, **SMALL, **QUIET))
    SCALE.store(model.config)
    processor = ViTImageProcessorPil(size={"height": 16, "width": 16})
    if folder is not None:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return model.eval(), processor


def make_number_bert(folder=None, **settings):
    """A text model of random weights with one output (dropout 0.1), and its tokenizer."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXTS, 60)
    words = {"vocab_size": len(tokenizer), "max_position_embeddings": 64, "pad_token_id": tokenizer.pad_token_id}
    model = BertForSequenceClassification(BertConfig(**words, **SMALL, **{"num_labels": 1, **settings}))
    with torch.no_grad():
        model.classifier.weight.mul_(20)
    SCALE.store(model.config)
    if folder is not None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return model.eval(), tokenizer


def number_texts():
    return datasets.Dataset.from_dict({"text": TEXTS, "score": [40.0 + 2 * len(text) for text in TEXTS]})


def number_images(rows=12):
    images = np.random.default_rng(0).integers(0, 256, (rows, 16, 16, 3), np.uint8)
    brightness = images.reshape(rows, -1).mean(1)
    return datasets.Dataset.from_dict({"image": images.tolist(), "brightness": brightness.tolist()})
