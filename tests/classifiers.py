"""Tiny classifiers of images and texts, and data they can learn."""

import datasets
import numpy as np
import torch
from helpers import make_trainer
from models.networks import make_resnet
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
)

from clue_hf.models.mc_dropout import add_classifier_dropout
from clue_hf.models.tokenizer import train_tokenizer


NAMES = ["ant", "bee", "cat"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
NEVER = 1e-9  # a rate of dropout that drops nothing: several passes, all the same
GOOD, BAD = ["a fine film", "great fun", "what a joy", "so good"], ["a dull film", "no fun", "what a bore", "so bad"]


def class_settings(names):
    return {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}


def make_vit(dropout=None, seed=0, names=NAMES, sharpness=4.0):
    """A Vision Transformer for images of 8 x 8 pixels, dropout only before its classifier."""
    torch.manual_seed(seed)
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = ViTConfig(image_size=8, patch_size=4, **SMALL, **quiet, **class_settings(names))
    model = ViTForImageClassification(config)
    with torch.no_grad():  # a fresh one says the same of everything
        model.classifier.weight.normal_(std=sharpness / 4)
    return model if dropout is None else add_classifier_dropout(model, dropout)


class FrozenNorm(nn.BatchNorm2d):
    """Stays in evaluation mode, as in fine-tuning on small batches."""

    def train(self, mode=True):
        return super().train(False)


def make_frozen_resnet(dropout=0.0, seed=0):
    """A residual network whose BatchNorms keep their statistics."""
    torch.manual_seed(seed)
    model = make_resnet(dropout=dropout, num_labels=len(NAMES), **class_settings(NAMES))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.__class__ = FrozenNorm
    return model


def make_processor():
    return ViTImageProcessorPil(size={"height": 8, "width": 8})


def image_rows(rows=16, seed=1, classes=3):
    """Noise, and a brighter channel that tells the class."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(rows) % classes)
    images = generator.integers(0, 120, (rows, 8, 8, 3))
    images[np.arange(rows), :, :, labels % 3] += 100
    return images.astype(np.uint8), labels


def image_data(rows=16, seed=1, image="image", label="label"):
    """The same as raw rows: images and class numbers."""
    images, labels = image_rows(rows, seed)
    return datasets.Dataset.from_dict({image: images.tolist(), label: labels.tolist()})


def image_batch(rows=6, seed=1, ignored=()):
    """A batch as the model takes it."""
    generator = torch.Generator().manual_seed(seed)
    batch = {
        "pixel_values": torch.randn(rows, 3, 8, 8, generator=generator),
        "labels": torch.randint(0, 3, (rows,), generator=generator),
    }
    batch["labels"][list(ignored)] = -100
    return batch


def text_rows(times=4):
    """Opinions that a few words tell apart."""
    return [
        {"sentence": f"{text} {number}", "label": label}
        for number in range(times)
        for label, texts in (("good", GOOD), ("bad", BAD))
        for text in texts
    ]


def make_text_classifier(seed=0, dropout=0.1, names=("bad", "good"), sharpness=0.08):
    """A BERT and its tokenizer."""
    tokenizer = train_tokenizer([*GOOD, *BAD, "0 1 2 3"], 80)
    torch.manual_seed(seed)
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    words = {"vocab_size": len(tokenizer), "max_position_embeddings": 32, "pad_token_id": 0}
    model = BertForSequenceClassification(BertConfig(**words, **SMALL, **rates, **class_settings(names)))
    with torch.no_grad():
        model.classifier.weight.normal_(std=sharpness / 4)
    return model, tokenizer


def class_trainer(model, folder, train=None, evaluation=None, **settings):
    """A quiet trainer of an image classifier."""
    return make_trainer(
        model, folder, train, evaluation, settings.pop("processing_class", None) or make_processor(), **settings
    )
