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
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache, LogitsProcessorList
from transformers.modeling_outputs import BaseModelOutput

from ..errors import UserError
from ..kernels.flatness import flatness
from ..kernels.fused_linear import BLOCK_ELEMENTS, CHUNK_SIZE, Temperature, compute_dtype, linear_logits, shift_
from ..kernels.largest import argmax_rows
from ..models.kind import unwrap
from ..tasks.head import head_replaced, read_head


#: Steps whose random numbers are drawn at once.
STEPS_AHEAD = 16
#: Share of ended texts at which they are taken out of the batch.
MAX_ENDED_SHARE = 0.125
#: Stands for what is less likely by e^87 or more, ln 0 too: exponentials there are subnormal numbers, and 60 times
#: as slow.
MIN_LOG_RATIO = -87.0
#: Settings of a generation config that do not change which token a greedy or sampled step takes.
ALLOWED_SETTINGS = frozenset({
    "_from_model_config", "bos_token_id", "cache_implementation", "decoder_start_token_id", "do_sample",
    "early_stopping", "eos_token_id", "length_penalty", "max_length", "max_new_tokens", "num_beams",
    "output_attentions", "output_hidden_states", "output_logits", "output_scores", "pad_token_id",
    "renormalize_logits", "return_dict_in_generate", "temperature", "top_k", "top_p", "transformers_version",
    "typical_p", "use_cache",
})  # fmt: skip
#: Settings that transformers' own logits processors carry out, from the logits and the tokens so far.
PROCESSED = frozenset({
    "bad_words_ids", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id", "min_length",
    "min_new_tokens", "no_repeat_ngram_size", "repetition_penalty", "sequence_bias", "suppress_tokens",
})  # fmt: skip

Warper = Callable[[torch.Tensor], torch.Tensor]
#: The number of each text, counted over all sources, its token, and what [`choose`] tells about that.
Step = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def decodes_plainly(model: Any) -> bool:
    """Whether nothing but the logits decides on the model's next token, and its cache is an ordinary one."""
    base = unwrap(model)
    changed = {name for name, value in base.generation_config.to_diff_dict().items() if value is not None}
    ordinary = (
        not getattr(base, "_is_stateful", False) and "past_key_values" in inspect.signature(base.forward).parameters
    )
    return ordinary and changed <= ALLOWED_SETTINGS | PROCESSED


def logits_processors(base: Any, length: int, max_new_tokens: int, device: torch.device) -> LogitsProcessorList:
    """What `generate` would do to the logits after a prompt of `length` tokens, by the model's generation config."""
    config, _ = base._prepare_generation_config(None, do_sample=False, num_beams=1, renormalize_logits=False)
    base._prepare_special_tokens(config, device=device)
    config.max_length = length + max_new_tokens
    return base._get_logits_processor(config, input_ids_seq_length=length, device=device)


def decoder_start(base: Any) -> int:
    """The token that the decoder of a sequence-to-sequence model reads first."""
    start = base.generation_config.decoder_start_token_id
    return base.config.decoder_start_token_id if start is None else start


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
    best[greedy] = argmax_rows(logits[greedy])
    return best


def choose(
    logits: torch.Tensor,
    noise: torch.Tensor,
    greedy: torch.Tensor,
    warp: Warper | None = None,
    processed: torch.Tensor | None = None,
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
        processed (`torch.Tensor` of shape `(rows, vocabulary)`, *optional*):
            Logits that all tokens are chosen from instead; the statistics stay those of `logits`.
        temperature (`Callable`, *optional*), hidden (`torch.Tensor` of shape `(rows, features)`, *optional*):
            What all logits are divided by, from what the output layer was applied to and the logits.
    """
    best = best_tokens(logits if processed is None else processed, greedy)
    rows, vocabulary = logits.shape
    groups, width = groups_of(vocabulary)
    tokens = torch.empty(rows, dtype=torch.long, device=logits.device)
    statistics = torch.full((rows, 6 if with_flatness else 4), math.nan, device=logits.device)
    size = rows if logits.is_cuda else max(1, BLOCK_ELEMENTS // vocabulary)
    padded = logits.new_zeros(min(size, rows), groups * width)
    for start in range(0, rows, size):
        block = slice(start, start + size)
        shifted = logits[block]
        masses = padded[: len(shifted)]
        likely = masses[:, :vocabulary]
        source = shifted if processed is None else processed[block]
        shift_(shifted)
        if temperature is not None:
            inverse = 1 / temperature(None if hidden is None else hidden[block], shifted).unsqueeze(1)
            for part in (shifted,) if source is shifted else (shifted, source):
                part.mul_(inverse)
        warped = source if warp is None else warp(source.clone())
        if with_flatness:
            statistics[block, 4:][greedy[block]] = flatness(shifted[greedy[block]]).to(statistics)
        torch.exp(shifted.clamp_(min=MIN_LOG_RATIO), out=likely)
        total = likely.sum(-1)
        if greedy[block].all():
            token = best[block]
        else:
            if warped is not shifted:
                masses = (warped - warped.amax(-1, keepdim=True)).exp_()
                masses = nn.functional.pad(masses, (0, groups * width - vocabulary))
            by_group = masses.view(len(shifted), groups, width)
            group = (by_group.sum(-1) / noise[block, :groups]).argmax(-1)
            inside = by_group[torch.arange(len(shifted), device=logits.device), group]
            token = torch.where(
                greedy[block], best[block], group * width + (inside / noise[block, groups:]).argmax(-1)
            )
        log_sum, chosen = total.log(), shifted.gather(1, token.unsqueeze(1)).squeeze(1)
        tokens[block] = token
        weighted = shifted.mul_(likely).sum(-1)  # in place: a third array would not fit into the cache
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
    ) -> None:
        self.model, self.base, self.head = model, unwrap(model), read_head(unwrap(model))
        self.device, self.pad, self.max_new_tokens, self.warp = self.head.weight.device, pad, max_new_tokens, warp
        self.temperature, self.with_flatness = temperature, with_flatness
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
        processors = logits_processors(self.base, state["tokens"].shape[1], self.max_new_tokens, self.device)
        for step in range(1, self.max_new_tokens + 1):
            tokens, statistics = self._choose(hidden, streams.next(), greedy, state["tokens"], processors)
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
            parts = (DynamicCache(config=self.base.config), DynamicCache(config=self.base.config))
            state["past_key_values"] = EncoderDecoderCache(*parts)
            ids = torch.full((len(mask), 1), decoder_start(self.base), device=self.device)
        else:
            state["past_key_values"], ids = DynamicCache(config=self.base.config), context["input_ids"]
            state["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        hidden = self._forward(state, ids)[source]
        state["tokens"] = ids
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
            with head_replaced(self.base, nn.Identity()):
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
        tokens_so_far: torch.Tensor,
        processors: LogitsProcessorList,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        weight, bias = self.head.weight.to(self.dtype), self.head.bias
        buffer = torch.empty(min(CHUNK_SIZE, len(hidden)), len(weight), dtype=self.dtype, device=self.device)
        parts = []
        for start in range(0, len(hidden), CHUNK_SIZE):
            rows = slice(start, start + CHUNK_SIZE)
            chunk = hidden[rows].to(self.dtype)
            logits = linear_logits(chunk, weight, bias, buffer)
            processed: Any = processors(tokens_so_far[rows], logits.clone()) if processors else None  # type: ignore
            calibration = (self.temperature, chunk, self.with_flatness)
            parts.append(choose(logits, noise[rows], greedy[rows], self.warp, processed, *calibration))
        tokens, statistics = map(torch.cat, zip(*parts, strict=True))
        return tokens, statistics

    @staticmethod
    def _keep(state: dict[str, Any], rows: torch.Tensor) -> None:
        """These rows of everything, which may repeat."""
        for name in ("attention_mask", "position_ids", "tokens"):
            if name in state:
                state[name] = state[name][rows]
        if "encoder_outputs" in state:  # only its shape is read once the cross-attention is cached
            state["encoder_outputs"] = BaseModelOutput(state["encoder_outputs"].last_hidden_state[rows])
        cache = state["past_key_values"]
        parts = [cache]
        if isinstance(cache, EncoderDecoderCache):
            parts = [cache.self_attention_cache, cache.cross_attention_cache]
        for layer in (layer for part in parts for layer in part.layers):
            layer.keys, layer.values = layer.keys.index_select(0, rows), layer.values.index_select(0, rows)


def by_source(steps: list[Step], counts: list[int]) -> list[list[tuple[list[int], np.ndarray]]]:
    """The steps of all texts as one list of texts per source."""
    numbers, tokens, statistics = (torch.cat(column) for column in zip(*steps, strict=True))
    order = torch.sort(numbers, stable=True).indices
    lengths = torch.bincount(numbers, minlength=sum(counts)).tolist()
    pieces = zip(tokens[order].split(lengths), statistics[order].double().cpu().split(lengths), strict=True)
    texts = iter([(ids.tolist(), values.numpy()) for ids, values in pieces])
    return [[next(texts) for _ in range(count)] for count in counts]
