"""Tiny models and data of the cases; those of texts are the helpers of all tests."""

import datasets
import torch
from helpers import VOCABULARY, make_data, make_tokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    MixtralConfig,
    MixtralForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)


TOKENIZER = make_tokenizer()
TOKENIZER.mask_token = TOKENIZER.pad_token  # masked language models need one
PAD = DataCollatorForSeq2Seq(TOKENIZER)
SIZE = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "pad_token_id": 0}  # fmt: skip
TEXTS = {"source": ["the cat eats", "you see the old car", "now", "a hat ?"],
         "target": ["le chat mange", "tu vois", "la voiture", "ma cousine dort"]}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def make_bert(head="classes", **settings):
    torch.manual_seed(0)
    config = BertConfig(**{**SIZE, **NO_DROPOUT, "num_labels": 1 if head == "numbers" else 3, **settings})
    kinds = {"tokens": BertForTokenClassification, "masked": BertForMaskedLM, "answers": BertForQuestionAnswering}
    return kinds.get(head, BertForSequenceClassification)(config)


def make_vit():
    torch.manual_seed(0)
    size = {name: value for name, value in SIZE.items() if name not in ("vocab_size", "pad_token_id")}
    return ViTForImageClassification(ViTConfig(**size, **NO_DROPOUT, image_size=8, patch_size=4, num_labels=3))


def make_mixtral():
    torch.manual_seed(0)
    experts = {"num_key_value_heads": 1, "num_local_experts": 4, "num_experts_per_tok": 2}
    return MixtralForCausalLM(MixtralConfig(**SIZE, **experts, output_router_logits=True, router_aux_loss_coef=1.0))


def texts(kind, rows=8, seed=1):
    """Settings of a trainer with data for a text model: training and evaluation."""
    data = make_data(kind, rows, seed)
    return {"train_dataset": data, "eval_dataset": data.select(range(4)), "data_collator": PAD}


def classes(label="classes", rows=8):
    """Settings of a trainer with data for a BERT."""
    data = make_data("t5", rows)
    labels = {
        "classes": lambda row, number: number % 3,
        "numbers": lambda row, number: number / 4,
        "several": lambda row, number: [float(number % 2), 1.0, 0.0],
        "tokens": lambda row, number: [-100, *(token % 3 for token in row["input_ids"][1:])],
    }[label]
    data = data.remove_columns("labels").map(lambda row, number: {"labels": labels(row, number)}, with_indices=True)
    collator = PAD if label == "tokens" else DataCollatorWithPadding(TOKENIZER)
    return {"train_dataset": data, "eval_dataset": data.select(range(4)), "data_collator": collator}


def raw_texts():
    return datasets.Dataset.from_dict(TEXTS)
