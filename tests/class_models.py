"""Tiny real classifiers of images and texts, trained for a few steps or not at all."""

import datasets
import torch
from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification
from transformers import ViTImageProcessorPil as ViTImageProcessor

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.data.embedded.digits import load_digits_splits
from clue_hf.data.image_dataset import image_dataset
from clue_hf.inputs.images import make_transform
from clue_hf.models.tokenizer import train_tokenizer
from clue_hf.models.vision import CLUEResNetConfig, CLUEResNetForImageClassification


TEXTS = ["a good film", "what a bad day", "good and great", "bad , bad , bad", "great food", "this is awful"] * 4
LABELS = ["positive", "negative", "positive", "negative", "positive", "negative"] * 4


def digit_splits(task=None):
    """The embedded digits as pixels; with a task, two of the classes."""
    splits = {name: image_dataset(split, split=name) for name, split in load_digits_splits().items()}
    return {name: split.binary(task) for name, split in splits.items()} if task else splits


def train_resnet(folder, task=None, seed=0, steps=25):
    """A small residual network on the digits, good enough to be right more often than not."""
    torch.manual_seed(seed)
    train = digit_splits(task)["train"]
    names = dict(enumerate(train.names))
    config = CLUEResNetConfig(
        depths=[1, 1], widths=[8, 16], stem_width=8, num_channels=1, dropout=0.2, id2label=names,
        label2id={name: number for number, name in names.items()},
    )  # fmt: skip
    settings = CLUEConfig(
        str(folder), alpha=0.9, max_steps=steps, per_device_train_batch_size=32, learning_rate=0.1, optim="sgd",
        seed=seed, report_to="none", save_strategy="no", disable_tqdm=True, mc_samples=2,
    )  # fmt: skip
    processor = make_transform(train).processor()
    model = CLUEResNetForImageClassification(config)
    trainer = CLUETrainer(model, settings, train_dataset=train, processing_class=processor)
    trainer.train()
    trainer.save_model(str(folder))
    return model.eval(), processor


def make_vit(folder=None, num_labels=10):
    """A vision transformer of random weights for images of 16 x 16 pixels, without dropout."""
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8,
        num_labels=num_labels, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model, processor = ViTForImageClassification(config), ViTImageProcessor(size={"height": 16, "width": 16})
    if folder is not None:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
    return model.eval(), processor


def make_bert(folder=None):
    """A text classifier of random weights, and its tokenizer; its classes stand in another order than sorted."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXTS, 60)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, num_labels=2, pad_token_id=tokenizer.pad_token_id,
        id2label={0: "positive", 1: "negative"}, label2id={"positive": 0, "negative": 1},
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.weight.mul_(20)
    if folder is not None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return model.eval(), tokenizer


def text_data():
    return datasets.Dataset.from_dict({"text": TEXTS, "label": LABELS})
