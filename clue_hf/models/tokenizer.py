"""Tokenizers: with a padding token, or trained on the data for models from scratch."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..errors import UserError


PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"


def with_padding(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer with a padding token: its end-of-text token if it has none (GPT-2)."""
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise UserError("The tokenizer has neither a pad nor an end-of-text token: set tokenizer.pad_token.")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def train_tokenizer(texts: Iterable[str], vocab_size: int, end_every_text: bool = True) -> PreTrainedTokenizerFast:
    """
    A byte-pair tokenizer of at most `vocab_size` entries. `end_every_text` appends `</s>` to every text, as
    sequence-to-sequence models need it; for causal models a prompt must not end.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[PAD, END, UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    if end_every_text:
        end = (END, tokenizer.token_to_id(END))
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[end])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, model_max_length=512
    )
