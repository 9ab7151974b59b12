"""What a language model is given: sources it reads, and texts that follow them, teacher-forced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.modeling_outputs import BaseModelOutput

from ..inputs.text import IGNORED, encode_sources, encode_targets
from ..models.kind import unwrap
from .collected import CollectionSettings
from .decoding import decoder_start


#: What a context holds beside the inputs of a model.
BESIDE_INPUTS = ("prompts", "source_ids")


class Reader:
    """
    Makes the inputs of a model from texts. A context is what it has read of some sources: encoded once for all that
    follows by a sequence-to-sequence model, padded on the left for a causal one.

    Args:
        model ([`~transformers.PreTrainedModel`] or PEFT model):
            A sequence-to-sequence or causal language model.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            Its tokenizer, with a padding token.
        kind (`str`):
            `"seq2seq"` or `"causal"`.
        settings ([`CollectionSettings`]):
            Prefix and lengths.
    """

    def __init__(self, model: Any, tokenizer: Any, kind: str, settings: CollectionSettings) -> None:
        self.model, self.tokenizer, self.kind, self.settings = model, tokenizer, kind, settings
        self.is_seq2seq = kind == "seq2seq"

    def encode_sources(self, texts: list[str]) -> tuple[list[list[int]], list[bool]]:
        """The tokens of each source, and whether it was cut."""
        if not texts:
            return [], []
        prefix, limit = self.settings.source_prefix, self.settings.max_source_length
        encoded, cut = encode_sources(self.tokenizer, texts, prefix, limit)
        return [prompt or self.empty_source() for prompt in encoded], cut

    def encode_targets(self, targets: Sequence[str]) -> list[list[int]]:
        return encode_targets(self.tokenizer, list(targets), self.settings.max_new_tokens, self.kind)[0]

    def empty_source(self) -> list[int]:
        """What `pmi` conditions on in the place of a source."""
        text = self.settings.source_prefix if self.settings.pmi_source == "prefix" else ""
        start = self.tokenizer.bos_token_id
        return self.tokenizer(text)["input_ids"] or [self.tokenizer.eos_token_id if start is None else start]

    def read(self, prompts: list[list[int]]) -> dict[str, Any]:
        """The context of some prompts."""
        inputs = self.read_ids(prompts)
        if not self.is_seq2seq:
            return inputs
        ids, encoder = inputs.pop("input_ids"), unwrap(self.model).get_encoder()
        encoded = encoder(input_ids=ids, attention_mask=inputs["attention_mask"])
        return {**inputs, "source_ids": ids, "encoder_outputs": encoded}

    def read_ids(self, prompts: list[list[int]]) -> dict[str, Any]:
        """The same, with nothing encoded yet."""
        return {**self._padded_inputs(prompts, left=not self.is_seq2seq), "prompts": prompts}

    def teacher_forced(self, context: dict[str, Any], outputs: list[list[int]]) -> dict[str, Any]:
        """Model inputs that have the outputs as labels; a causal model reads prompt and output as one text."""
        if self.is_seq2seq:
            # as generate begins; what a model makes of labels may depend on how they end (mBART)
            start = decoder_start(unwrap(self.model))
            read = self._padded([[start, *tokens[:-1]] for tokens in outputs], self.tokenizer.pad_token_id)
            return {**model_inputs(context), "decoder_input_ids": read, "labels": self._padded(outputs, IGNORED)}
        pairs = list(zip(context["prompts"], outputs, strict=True))
        inputs = self._padded_inputs([prompt + tokens for prompt, tokens in pairs])
        labels = [[IGNORED] * len(prompt) + tokens for prompt, tokens in pairs]
        return {**inputs, "labels": self._padded(labels, IGNORED)}

    def label_starts(self, context: dict[str, Any]) -> list[int]:
        """Where the labels of each row begin: a causal model reads the prompt before them, and predicts one ahead."""
        return [0 if self.is_seq2seq else len(prompt) - 1 for prompt in context["prompts"]]

    def _padded_inputs(self, rows: list[list[int]], left: bool = False) -> dict[str, torch.Tensor]:
        """Token ids and their attention mask."""
        mask = self._padded([[1] * len(row) for row in rows], 0, left)
        return {"input_ids": self._padded(rows, self.tokenizer.pad_token_id, left), "attention_mask": mask}

    def _padded(self, rows: list[list[int]], filler: int, left: bool = False) -> torch.Tensor:
        """The rows filled up to the longest of them, and to at least 1."""
        tensors = [torch.tensor(row or [filler], dtype=torch.long) for row in rows]
        side = "left" if left else "right"
        return pad_sequence(tensors, batch_first=True, padding_value=filler, padding_side=side).to(self.model.device)


def model_inputs(context: dict[str, Any]) -> dict[str, Any]:
    """What of a context is given to the model."""
    return {name: value for name, value in context.items() if name not in BESIDE_INPUTS}


def repeated(context: dict[str, Any], count: int) -> dict[str, Any]:
    """The context with every prompt `count` times in a row."""
    tensors = {name: value for name, value in context.items() if isinstance(value, torch.Tensor)}
    more: dict[str, Any] = {name: value.repeat_interleave(count, 0) for name, value in tensors.items()}
    more["prompts"] = [prompt for prompt in context["prompts"] for _ in range(count)]
    if "encoder_outputs" in context:
        hidden = context["encoder_outputs"].last_hidden_state.repeat_interleave(count, 0)
        more["encoder_outputs"] = BaseModelOutput(hidden)
    return more
