"""What a generation config does to the next token, where a decoding loop of our own can do it too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList

from ..models.kind import unwrap


#: Settings of a generation config that do not change which token a greedy or sampled step takes.
ALLOWED_SETTINGS = frozenset({
    "_from_model_config", "bos_token_id", "cache_implementation", "compile_config", "decoder_start_token_id",
    "disable_compile", "do_sample", "early_stopping", "eos_token_id", "epsilon_cutoff", "eta_cutoff", "length_penalty",
    "low_memory", "max_length", "max_new_tokens", "min_p", "num_beams", "output_attentions", "output_hidden_states",
    "output_logits", "output_scores", "pad_token_id", "renormalize_logits", "return_dict_in_generate", "temperature",
    "top_h", "top_k", "top_p", "transformers_version", "typical_p", "use_cache",
})  # fmt: skip
#: Settings that transformers' own logits processors carry out from the logits, the tokens so far and the source.
FROM_SOURCE = frozenset({"encoder_no_repeat_ngram_size", "encoder_repetition_penalty"})
PROCESSED = FROM_SOURCE | {
    "bad_words_ids", "begin_suppress_tokens", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "min_length", "min_new_tokens", "no_repeat_ngram_size", "remove_invalid_values",
    "repetition_penalty", "sequence_bias", "suppress_tokens",
}  # fmt: skip
#: Values that mean the same as none, which configs of older versions spell out.
NEUTRAL = {
    **GenerationConfig._get_default_generation_params(),
    "guidance_scale": 1.0, "is_assistant": False, "max_matching_ngram_size": 2, "token_healing": False,
}  # fmt: skip


def decodes_plainly(model: Any) -> bool:
    """Whether nothing but logits, tokens and source decides on the model's next token, and its cache is ordinary."""
    base = unwrap(model)
    ordinary = (
        not getattr(base, "_is_stateful", False) and "past_key_values" in inspect.signature(base.forward).parameters
    )
    return ordinary and set(_changed(base.generation_config.to_diff_dict())) <= ALLOWED_SETTINGS | PROCESSED


def processor_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Those of the settings of `generate` that force, forbid or favour tokens."""
    return {name: value for name, value in settings.items() if name in PROCESSED}


def _changed(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None and value != NEUTRAL.get(name)}


class Processors:
    """
    What `generate` would do to the logits after a prompt of `length` tokens, by the model's generation config.

    Args:
        base ([`~transformers.PreTrainedModel`]):
            The model, unwrapped.
        length (`int`):
            Number of tokens that the decoder has read before the first is chosen.
        max_new_tokens (`int`):
            Longest text.
        settings (`dict`):
            Settings that take the place of the config's, see [`processor_settings`].
    """

    def __init__(
        self, base: Any, length: int, max_new_tokens: int, device: torch.device, settings: dict[str, Any]
    ) -> None:
        fixed = {"do_sample": False, "num_beams": 1, "renormalize_logits": False}
        self.config, _ = base._prepare_generation_config(None, **settings, **fixed)
        base._prepare_special_tokens(self.config, device=device)
        self.config.max_length = length + max_new_tokens
        self.base, self.length, self.device = base, length, device
        self.read_source = bool(FROM_SOURCE & set(_changed(self.config.to_dict())))
        self.plain = LogitsProcessorList() if self.read_source else self._make()

    def _make(self, source_ids: torch.Tensor | None = None) -> LogitsProcessorList:
        return self.base._get_logits_processor(
            self.config, input_ids_seq_length=self.length, encoder_input_ids=source_ids, device=self.device
        )

    def __bool__(self) -> bool:
        return self.read_source or bool(self.plain)

    def of(
        self, tokens_so_far: torch.Tensor, source_ids: torch.Tensor
    ) -> Callable[[slice, torch.Tensor], torch.Tensor]:
        """A function of some rows and their logits, given the tokens so far and the sources of all."""

        def process(rows: slice, logits: torch.Tensor) -> torch.Tensor:
            processors = self._make(source_ids[rows]) if self.read_source else self.plain
            return processors(tokens_so_far[rows], logits)  # type: ignore[arg-type, return-value]

        return process
