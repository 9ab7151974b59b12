"""Sampling that gives every source its own random stream: its samples do not depend on the batch or the row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ..kernels.fused_linear import Temperature, divided


class GumbelNoise(LogitsProcessor):
    """
    Turns greedy decoding into sampling: `argmax(z + g)` with standard Gumbel noise `g` is a draw from `softmax(z)`.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        noisy = scores.float()
        noise = torch.empty_like(noisy)
        for row, generator in zip(noise, self.generators, strict=True):
            row.exponential_(generator=generator)
        return noisy - noise.log_()


def warpers(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> list[LogitsProcessor]:
    """What changes the distribution that is sampled from; nothing by default."""
    chosen: list[LogitsProcessor] = []
    if temperature != 1.0:
        chosen.append(TemperatureLogitsWarper(temperature))
    if top_k:
        chosen.append(TopKLogitsWarper(top_k))
    if top_p < 1.0:
        chosen.append(TopPLogitsWarper(top_p))
    return chosen


def warper(**settings: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """[`warpers`] as one function of the logits, or `None` where they change nothing."""
    chosen = LogitsProcessorList(warpers(**settings))
    return (lambda logits: chosen(None, logits)) if chosen else None  # type: ignore[arg-type]


class Divided(LogitsProcessor):
    """Divides the logits by the temperature of each row."""

    def __init__(self, temperature: Temperature) -> None:
        self.temperature = temperature

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return divided(scores.float().clone(), None, self.temperature)


def sampler(
    seeds: Sequence[int], device: torch.device, temperature_of_tokens: Temperature | None = None, **settings: Any
) -> LogitsProcessorList:
    """What `generate(do_sample=False, logits_processor=...)` needs to sample each row from its own stream."""
    calibrated = [] if temperature_of_tokens is None else [Divided(temperature_of_tokens)]
    return LogitsProcessorList([*calibrated, *warpers(**settings), GumbelNoise(seeds, device)])


def stream_seed(seed: int, prompt: Sequence[int], sample: int) -> int:
    """The seed of one sample of a source, from its token ids: two streams have nothing in common."""
    digest = hashlib.blake2b(f"{seed} {sample} {list(prompt)}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
