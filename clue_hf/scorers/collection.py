"""One pass over the sources that feeds every scorer: generate, sample, and score without the source.

Each text is generated first and scored afterwards by a teacher-forced pass over its tokens: the log-probabilities are
the model's own, before any temperature, top-k or minimum length, and the same for greedy, beam and sampled decoding.
Only two numbers per token are kept, never a distribution over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.logging import tqdm

from ..data.text import IGNORED, encode_texts
from ..data.tokenizer import with_padding
from ..tasks import TextTask
from ..tasks.head import unwrap
from .sampling import sampler, stream_seed


@dataclass
class ScoredText:
    """
    A text with, for each of its tokens (the end token included if it came), its log-probability and the entropy (nats)
    of its distribution, the probability of that distribution's best token, and whether this was the token.
    """

    text: str
    tokens: list[int]
    log_probability: np.ndarray
    entropy: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray
    ended: bool

    @property
    def length_without_end(self) -> int:
        return len(self.tokens) - self.ended


@dataclass
class Collected:
    """What the scorers know about one source."""

    output: ScoredText
    #: ln p(y_t | y_<t) of the output's tokens with an empty source
    unconditional: np.ndarray | None = None
    samples: list[ScoredText] = field(default_factory=list)


@dataclass
class CollectionSettings:
    """
    How texts are generated and sampled.

    Args:
        max_new_tokens (`int`):
            Longest output.
        generation (`dict`):
            More settings of `generate` for the output itself, such as `num_beams`.
        num_samples (`int`):
            Samples per source for the scorers that need them.
        sampling (`dict`):
            `temperature`, `top_k` and `top_p` of the samples. By default they come from the model's own distribution.
        source_prefix (`str`):
            Text put before every source; the empty source of `pmi` goes without it unless `pmi_source="prefix"`.
        seed (`int`):
            Seed of the samples.
    """

    max_new_tokens: int = 128
    max_source_length: int = 512
    generation: dict[str, Any] = field(default_factory=dict)
    num_samples: int = 10
    sampling: dict[str, Any] = field(default_factory=dict)
    source_prefix: str = ""
    pmi_source: str = "empty"
    batch_size: int = 16
    seed: int = 0


class Collector:
    """
    Runs a model over sources and collects what scorers need.

    Args:
        model ([`~transformers.PreTrainedModel`] or PEFT model):
            A sequence-to-sequence or causal language model.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            Its tokenizer.
        needs (`set[str]`):
            `"samples"`, `"unconditional"`, both or none.
        settings ([`CollectionSettings`], *optional*):
            How to generate.
    """

    def __init__(
        self, model: Any, tokenizer: Any, needs: set[str] | frozenset[str], settings: CollectionSettings | None = None
    ) -> None:
        self.model, self.tokenizer = model, with_padding(tokenizer)
        self.needs, self.settings = needs, settings or CollectionSettings()
        self.task = TextTask(model, tokenizer=self.tokenizer)
        self.is_seq2seq = self.task.kind == "seq2seq"

    def collect(
        self, sources: Sequence[str], targets: Sequence[str] | None = None, first_row: int = 0
    ) -> list[Collected]:
        """
        One entry per source, in their order. With `targets` those are scored and nothing is generated. `first_row` is
        the number of the first source where these are part of more: samples depend on it.
        """
        found: list[Collected | None] = [None] * len(sources)
        was_training = self.model.training
        self.model.eval()
        try:
            for rows, part in self._batches(sources, targets, first_row):
                for row, collected in zip(rows, part, strict=True):
                    found[row] = collected
        finally:
            self.model.train(was_training)
        return [collected for collected in found if collected is not None]

    @torch.no_grad()
    def _batches(
        self, sources: Sequence[str], targets: Sequence[str] | None, first_row: int
    ) -> Iterator[tuple[list[int], list[Collected]]]:
        prompts = self._encode_sources([self.settings.source_prefix + source for source in sources])
        order = sorted(range(len(sources)), key=lambda row: len(prompts[row]))  # similar lengths pad little
        starts = range(0, len(order), self.settings.batch_size)
        for start in tqdm(starts, desc="Generating", disable=len(starts) < 3):
            rows = order[start : start + self.settings.batch_size]
            given = None if targets is None else [targets[row] for row in rows]
            numbers = [first_row + row for row in rows]
            yield rows, self._collect_batch([prompts[row] for row in rows], given, numbers)

    def _collect_batch(
        self, prompts: list[list[int]], targets: list[str] | None, numbers: list[int]
    ) -> list[Collected]:
        context = self._read(prompts)
        if targets is None:
            outputs = self._generate(context, {"do_sample": False, "num_beams": 1, **self.settings.generation})
        else:
            outputs = self._encode_targets(targets)
        collected = [Collected(text) for text in self._score(context, outputs, 1)]
        if "unconditional" in self.needs:
            nothing = self._read([self._empty_source()] * len(prompts))
            for entry, scored in zip(collected, self._score(nothing, outputs, 1), strict=True):
                entry.unconditional = scored.log_probability
        if "samples" in self.needs:
            count = self.settings.num_samples
            seeds = [stream_seed(self.settings.seed, row, sample) for row in numbers for sample in range(count)]
            draw = sampler(seeds, self.model.device, **self.settings.sampling)
            repeated = self._repeated(context, count)
            drawn = self._generate(repeated, {"do_sample": False, "num_beams": 1, "logits_processor": draw})
            samples = self._score(context, drawn, count)
            for number, entry in enumerate(collected):
                entry.samples = samples[number * count : (number + 1) * count]
        return collected

    @staticmethod
    def _repeated(context: dict[str, Any], count: int) -> dict[str, Any]:
        """Every prompt `count` times in a row."""
        repeated = dict(context)
        for name in ("input_ids", "attention_mask"):
            if name in context:
                repeated[name] = context[name].repeat_interleave(count, 0)
        if "encoder_outputs" in context:
            hidden = context["encoder_outputs"].last_hidden_state.repeat_interleave(count, 0)
            repeated["encoder_outputs"] = BaseModelOutput(hidden)
        return repeated

    def _read(self, prompts: list[list[int]]) -> dict[str, Any]:
        """The prompts as the model needs them: encoded once for all that follows, or padded on the left."""
        width = max(map(len, prompts))
        pad, device = self.tokenizer.pad_token_id, self.model.device
        side = -1 if self.is_seq2seq else 1
        ids = torch.tensor([_padded(prompt, width, pad, side) for prompt in prompts], device=device)
        mask = torch.tensor([_padded([1] * len(prompt), width, 0, side) for prompt in prompts], device=device)
        if not self.is_seq2seq:
            return {"input_ids": ids, "attention_mask": mask, "prompts": prompts}
        encoded = unwrap(self.model).get_encoder()(input_ids=ids, attention_mask=mask)
        return {"encoder_outputs": encoded, "attention_mask": mask}

    def _generate(self, context: dict[str, Any], settings: dict[str, Any]) -> list[list[int]]:
        """Token ids of a text per prompt, the end token included, whatever was given as prompt left out."""
        inputs = {name: value for name, value in context.items() if name != "prompts"}
        if "encoder_outputs" in inputs:  # generate expands its inputs in place
            inputs["encoder_outputs"] = BaseModelOutput(inputs["encoder_outputs"].last_hidden_state)
        tokens = self.model.generate(
            **inputs,
            max_new_tokens=self.settings.max_new_tokens,
            use_cache=True,
            return_dict_in_generate=False,
            **settings,
        )
        start = 1 if self.is_seq2seq else context["input_ids"].shape[1]
        return [self._until_end(row) for row in tokens[:, start:].tolist()]

    def _score(self, context: dict[str, Any], outputs: list[list[int]], count: int) -> list[ScoredText]:
        """Log-probability and entropy of each token, from one teacher-forced pass; `count` outputs per prompt."""
        width = max(1, *map(len, outputs))
        labels = torch.tensor([_padded(tokens, width, IGNORED, -1) for tokens in outputs], device=self.model.device)
        if self.is_seq2seq:
            inputs = {**self._repeated(context, count), "labels": labels}
        else:
            inputs = self._continued(context["prompts"], outputs, count)
        described = self.task.describe(self.model, inputs).double().cpu().numpy()
        return [self._scored_text(tokens, row) for tokens, row in zip(outputs, described, strict=True)]

    def _continued(self, prompts: list[list[int]], outputs: list[list[int]], count: int) -> dict[str, torch.Tensor]:
        """Prompts and their outputs as one text each, padded on the right, with the outputs as labels."""
        repeated = [prompt for prompt in prompts for _ in range(count)]
        rows = [prompt + tokens for prompt, tokens in zip(repeated, outputs, strict=True)]
        width, pad, device = max(map(len, rows)), self.tokenizer.pad_token_id, self.model.device
        labels = [[IGNORED] * len(prompt) + tokens for prompt, tokens in zip(repeated, outputs, strict=True)]
        return {
            "input_ids": torch.tensor([_padded(row, width, pad, -1) for row in rows], device=device),
            "attention_mask": torch.tensor([_padded([1] * len(row), width, 0, -1) for row in rows], device=device),
            "labels": torch.tensor([_padded(row, width, IGNORED, -1) for row in labels], device=device),
        }

    def _scored_text(self, tokens: list[int], described: np.ndarray) -> ScoredText:
        kept = described[~np.isnan(described[:, 0])]
        text = str(self.tokenizer.decode(tokens, skip_special_tokens=True)).strip()
        ended = bool(tokens) and tokens[-1] in self._end_tokens()
        error, entropy, confidence, correct = kept.T
        return ScoredText(text, tokens, -error, entropy, confidence, correct, ended)

    def _until_end(self, tokens: list[int]) -> list[int]:
        """The tokens up to and with the first end token: what follows is padding."""
        ends = self._end_tokens()
        return next((tokens[: index + 1] for index, token in enumerate(tokens) if token in ends), tokens)

    def _end_tokens(self) -> set[int]:
        ends = self.model.generation_config.eos_token_id
        if ends is None:
            ends = self.tokenizer.eos_token_id
        return set(ends) if isinstance(ends, (list, tuple)) else {ends}

    def _encode_sources(self, texts: list[str]) -> list[list[int]]:
        encoded = encode_texts(self.tokenizer, texts, self.settings.max_source_length)[0] if texts else []
        return [prompt or self._empty_source() for prompt in encoded]

    def _encode_targets(self, targets: list[str]) -> list[list[int]]:
        limit = self.settings.max_new_tokens
        if self.is_seq2seq:
            return encode_texts(self.tokenizer, targets, limit, target=True)[0]
        ids = self.tokenizer(targets, add_special_tokens=False, verbose=False)["input_ids"]
        return [[*tokens[: limit - 1], self.tokenizer.eos_token_id] for tokens in ids]

    def _empty_source(self) -> list[int]:
        text = self.settings.source_prefix if self.settings.pmi_source == "prefix" else ""
        start = self.tokenizer.bos_token_id
        return self.tokenizer(text)["input_ids"] or [self.tokenizer.eos_token_id if start is None else start]


def _padded(values: list[int], width: int, filler: int, side: int) -> list[int]:
    """The values filled up to a width, on the left (side 1) or the right (side -1)."""
    filling = [filler] * (width - len(values))
    return filling + values if side == 1 else values + filling
