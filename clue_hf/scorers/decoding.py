"""
One decoding loop for the greedy text and all samples of a batch, for models whose next token follows from
logits and tokens.

- The first step runs once per source; its cache is then repeated for the texts of each source.
- The statistics of each token come from the logits it was chosen from: no second pass, and no logits are kept.
- A sample's token is drawn in two races, first among groups of tokens, then inside the winning group: about 2 sqrt(V)
  random numbers per step instead of V. Each row has its own stream, so a sample does not depend on its batch.
- Texts that have ended leave the batch.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from ..errors import UserError
from ..kernels.flatness import flatness
from ..kernels.fused_linear import (
    BLOCK_ELEMENTS,
    CHUNK_SIZE,
    LOG2_E,
    MIN_EXPONENT,
    Temperature,
    compute_dtype,
    linear_logits,
    shift_,
)
from ..kernels.largest import argmax_rows
from ..models.kind import unwrap
from ..tasks.head import head_replaced, read_head
from .cache import roomy_cache
from .processors import Processors


#: Steps whose random numbers are drawn at once.
STEPS_AHEAD = 16
#: Share of ended texts at which they are taken out of the batch.
MAX_ENDED_SHARE = 0.125
Warper = Callable[[torch.Tensor], torch.Tensor]
#: From some rows and their logits to the logits that their tokens are chosen from.
Process = Callable[[slice, torch.Tensor], torch.Tensor]
#: The number of each text, counted over all sources, its token, and what [`choose`] tells about that.
Step = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def decoder_start(base: Any) -> int:
    """The token that the decoder of a sequence-to-sequence model reads first."""
    config, written = base.generation_config, base.config
    starts = (config.decoder_start_token_id, getattr(written, "decoder_start_token_id", None), config.bos_token_id)
    return next(start for start in starts if start is not None)


class Streams:
    """Exponential random numbers for several rows, each from its own generator."""

    def __init__(self, seeds: Sequence[int | None], size: int, device: torch.device) -> None:
        self.generators = [None if seed is None else torch.Generator(device).manual_seed(seed) for seed in seeds]
        self.size, self.device, self.step = size, device, 0
        self.noise = torch.empty(0)

    def next(self) -> torch.Tensor:
        """The numbers of the next step, (rows, size)."""
        place = self.step % STEPS_AHEAD
        if place == 0:
            self.noise = torch.ones(len(self.generators), STEPS_AHEAD, self.size, device=self.device)
            for row, generator in zip(self.noise, self.generators, strict=True):
                if generator is not None:
                    row.exponential_(generator=generator)
        self.step += 1
        return self.noise[:, place]

    def keep(self, rows: torch.Tensor) -> None:
        self.generators = [self.generators[row] for row in rows.tolist()]
        self.noise = self.noise[rows]


def groups_of(vocabulary: int) -> tuple[int, int]:
    """Number of groups and tokens in each: both about the square root."""
    width = math.isqrt(vocabulary - 1) + 1
    return -(-vocabulary // width), width


def best_tokens(logits: torch.Tensor, greedy: torch.Tensor) -> torch.Tensor:
    """The most likely token of the rows that are greedy, anything for the others."""
    if greedy.all():
        return argmax_rows(logits)
    best = torch.zeros_like(greedy, dtype=torch.long)
    if greedy.any():
        best[greedy] = argmax_rows(logits[greedy])
    return best


def choose(
    logits: torch.Tensor,
    noise: torch.Tensor,
    greedy: torch.Tensor,
    warp: Warper | None = None,
    process: Process | None = None,
    temperature: Temperature | None = None,
    hidden: torch.Tensor | None = None,
    with_flatness: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    A token per row, and its error, the entropy, the best token's probability and whether this is it: (rows, 4).
    `with_flatness` adds the [`~clue_hf.kernels.flatness.flatness`] of the greedy rows, NaN for the others: (rows, 6).

    An exponential race: the token with the smallest `noise / probability` is a draw from the probabilities.

    Args:
        logits (`torch.Tensor` of shape `(rows, vocabulary)`):
            The model's own; they are overwritten.
        noise (`torch.Tensor` of shape `(rows, groups + width)`):
            Standard exponential random numbers.
        greedy (`torch.Tensor` of shape `(rows,)`):
            Rows that take their most likely token instead, which no temperature changes.
        warp (`Callable`, *optional*):
            Changes the logits that are drawn from (temperature, top-k ...), not the statistics of the token.
        process (`Callable`, *optional*):
            Makes of some rows and a copy of their logits what their tokens are chosen from, greedy or not; the
            statistics stay those of `logits`. A few rows at a time, whose arrays stay in the cache.
        temperature (`Callable`, *optional*), hidden (`torch.Tensor` of shape `(rows, features)`, *optional*):
            What all logits are divided by, from what the output layer was applied to and the logits.
    """
    rows, vocabulary = logits.shape
    groups, width = groups_of(vocabulary)
    tokens = torch.empty(rows, dtype=torch.long, device=logits.device)
    statistics = torch.full((rows, 6 if with_flatness else 4), math.nan, device=logits.device)
    size = rows if logits.is_cuda else max(1, BLOCK_ELEMENTS // vocabulary)
    padded = logits.new_zeros(min(size, rows), groups * width)
    changed = padded if warp is None and process is None else torch.zeros_like(padded)
    for start in range(0, rows, size):
        block = slice(start, start + size)
        masses = padded[: len(logits[block])]
        likely = masses[:, :vocabulary]
        processed = None if process is None else process(block, logits[block].clone())
        best = best_tokens(logits[block] if processed is None else processed, greedy[block])
        shifted = shift_(logits[block])
        inverse = shifted.new_ones(len(shifted), 1)
        if temperature is not None:
            inverse = 1 / temperature(None if hidden is None else hidden[block], shifted).unsqueeze(1)
        if with_flatness:
            flat = flatness(shifted[greedy[block]] * inverse[greedy[block]])
            statistics[block, 4:][greedy[block]] = flat.to(statistics)
        exponent = shifted.mul_(inverse * LOG2_E).clamp_(min=MIN_EXPONENT)
        torch.exp2(exponent, out=likely)
        total = likely.sum(-1)
        if greedy[block].all():
            token = best
        else:
            if processed is not None or warp is not None:
                source = exponent / LOG2_E if processed is None else processed.mul_(inverse)
                masses = changed[: len(exponent)]
                masses[:, :vocabulary] = (source if warp is None else warp(source)).softmax(-1)
            by_group = masses.view(len(masses), groups, width)
            group = (by_group.sum(-1) / noise[block, :groups]).argmax(-1)
            inside = by_group[torch.arange(len(masses), device=logits.device), group]
            drawn = group * width + (inside / noise[block, groups:]).argmax(-1)
            token = torch.where(greedy[block], best, drawn)
        log_sum, chosen = total.log(), exponent.gather(1, token.unsqueeze(1)).squeeze(1) / LOG2_E
        tokens[block] = token
        weighted = exponent.mul_(likely).sum(-1) / LOG2_E  # in place: a third array would not fit into the cache
        entropy = (log_sum - weighted / total).clamp(min=0)
        columns = [log_sum - chosen, entropy, (-log_sum).exp(), (chosen == 0).to(entropy)]
        statistics[block, :4] = torch.stack(columns, -1)
    return tokens, statistics


class Decoder:
    """Decodes several texts per source at once."""

    def __init__(
        self,
        model: Any,
        ends: set[int],
        pad: int,
        max_new_tokens: int,
        warp: Warper | None = None,
        temperature: Temperature | None = None,
        with_flatness: bool = False,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.base, self.head = model, unwrap(model), read_head(unwrap(model))
        self.device, self.pad, self.max_new_tokens, self.warp = self.head.weight.device, pad, max_new_tokens, warp
        self.temperature, self.with_flatness, self.settings = temperature, with_flatness, settings or {}
        self.ends = torch.tensor(sorted(ends), device=self.device)
        self.dtype = compute_dtype(self.base.get_input_embeddings().weight, self.head.weight)
        self.accepted = inspect.signature(self.base.forward).parameters

    def decode(
        self, context: dict[str, Any], seeds: list[list[int | None]]
    ) -> list[list[tuple[list[int], np.ndarray]]]:
        """
        Token ids, the end token included, and the statistics of each (see [`choose`]), for each entry of `seeds[b]`:
        the seed of a sample for source b, or `None` for its greedy text.
        """
        return by_source(list(self.steps(context, seeds)), [len(row) for row in seeds])

    @torch.no_grad()
    def steps(self, context: dict[str, Any], seeds: list[list[int | None]]) -> Iterator[Step]:
        """The same step by step: of the texts that have not ended, their numbers, tokens and statistics."""
        flat = [seed for row in seeds for seed in row]
        source = torch.tensor([number for number, row in enumerate(seeds) for _ in row], device=self.device)
        streams = Streams(flat, sum(groups_of(len(self.head.weight))), self.device)
        greedy = torch.tensor([seed is None for seed in flat], device=self.device)
        state, hidden = self._first_step(context, source)
        number = torch.arange(len(flat), device=self.device)
        done = torch.zeros(len(flat), dtype=torch.bool, device=self.device)
        length = state["tokens"].shape[1]
        processors = Processors(self.base, length, self.max_new_tokens, self.device, self.settings)
        for step in range(1, self.max_new_tokens + 1):
            tokens, statistics = self._choose(hidden, streams.next(), greedy, state, processors)
            yield number[~done], tokens[~done], statistics[~done]
            done = done | torch.isin(tokens, self.ends)
            if step == self.max_new_tokens or bool(done.all()):
                break
            if done.float().mean() > MAX_ENDED_SHARE:
                kept = (~done).nonzero().squeeze(1)
                tokens, number, greedy, done = tokens[kept], number[kept], greedy[kept], done[kept]
                streams.keep(kept)
                self._keep(state, kept)
            hidden = self._step(state, tokens.masked_fill(done, self.pad).unsqueeze(1))

    def _first_step(self, context: dict[str, Any], source: torch.Tensor) -> tuple[dict[str, Any], torch.Tensor]:
        """One row per source until the cache is filled, then one row per text."""
        mask = context["attention_mask"]
        state: dict[str, Any] = {"attention_mask": mask}
        if "encoder_outputs" in context:
            state["encoder_outputs"] = BaseModelOutput(context["encoder_outputs"].last_hidden_state)
            caches = (roomy_cache(self.base.config), DynamicCache(config=self.base.config))
            state["past_key_values"] = EncoderDecoderCache(*caches)
            ids = torch.full((len(mask), 1), decoder_start(self.base), device=self.device)
        else:
            state["past_key_values"], ids = roomy_cache(self.base.config), context["input_ids"]
            state["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        hidden = self._forward(state, ids)[source]
        state["tokens"], state["source_ids"] = ids, context.get("source_ids", ids)
        self._keep(state, source)
        if "position_ids" in state:
            state["position_ids"] = state["position_ids"][:, -1:]
        return state, hidden

    def _step(self, state: dict[str, Any], ids: torch.Tensor) -> torch.Tensor:
        state["tokens"] = torch.cat([state["tokens"], ids], 1)
        if "position_ids" in state:
            mask = state["attention_mask"]
            state["attention_mask"] = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
            state["position_ids"] = state["position_ids"] + 1
        return self._forward(state, ids)

    def _forward(self, state: dict[str, Any], ids: torch.Tensor) -> torch.Tensor:
        """What the output layer would be applied to, for the last token of each row."""
        inputs = {name: value for name, value in state.items() if name in self.accepted}
        inputs["decoder_input_ids" if "encoder_outputs" in state else "input_ids"] = ids
        if "logits_to_keep" in self.accepted:
            inputs["logits_to_keep"] = 1
        try:
            with head_replaced(self.base):
                return self.model(**inputs, use_cache=True)["logits"][:, -1]
        except IndexError as error:  # an embedding of positions that has come to its end
            limit = getattr(self.base.config, "max_position_embeddings", None)
            raise UserError(
                f"A text is longer than the {limit or ''} positions of the model: lower max_new_tokens "
                "(max_target_length) or max_source_length."
            ) from error

    def _choose(
        self,
        hidden: torch.Tensor,
        noise: torch.Tensor,
        greedy: torch.Tensor,
        state: dict[str, Any],
        processors: Processors,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        weight, bias = self.head.weight.to(self.dtype), self.head.bias
        buffer = torch.empty(min(CHUNK_SIZE, len(hidden)), len(weight), dtype=self.dtype, device=self.device)
        parts = []
        for start in range(0, len(hidden), CHUNK_SIZE):
            rows = slice(start, start + CHUNK_SIZE)
            chunk = hidden[rows].to(self.dtype)
            logits = linear_logits(chunk, weight, bias, buffer)
            tokens_so_far, source_ids = state["tokens"][rows], state["source_ids"][rows]
            process = processors.of(tokens_so_far, source_ids) if processors else None
            calibration = (self.temperature, chunk, self.with_flatness)
            parts.append(choose(logits, noise[rows], greedy[rows], self.warp, process, *calibration))
        tokens, statistics = map(torch.cat, zip(*parts, strict=True))
        return tokens, statistics

    @staticmethod
    def _keep(state: dict[str, Any], rows: torch.Tensor) -> None:
        """These rows of everything, which may repeat."""
        for name in ("attention_mask", "position_ids", "tokens", "source_ids"):
            if name in state:
                state[name] = state[name][rows]
        if "encoder_outputs" in state:  # only its shape is read once the cross-attention is cached
            state["encoder_outputs"] = BaseModelOutput(state["encoder_outputs"].last_hidden_state[rows])
        state["past_key_values"].reorder_cache(rows)


def by_source(steps: list[Step], counts: list[int]) -> list[list[tuple[list[int], np.ndarray]]]:
    """The steps of all texts as one list of texts per source."""
    numbers, tokens, statistics = (torch.cat(column) for column in zip(*steps, strict=True))
    order = torch.sort(numbers, stable=True).indices
    lengths = torch.bincount(numbers, minlength=sum(counts)).tolist()
    pieces = zip(tokens[order].split(lengths), statistics[order].double().cpu().split(lengths), strict=True)
    texts = iter([(ids.tolist(), values.numpy()) for ids, values in pieces])
    return [[next(texts) for _ in range(count)] for count in counts]
