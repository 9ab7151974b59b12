"""Error, entropy and more of the distributions of a linear head, without holding its logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from .flatness import flatness
from .fused_linear import (
    CHUNK_SIZE,
    Temperature,
    check_targets,
    compute_dtype,
    divided,
    linear_logits,
    reduce_rows,
    row_blocks,
)
from .largest import argmax_rows


class LinearStatistics(NamedTuple):
    """Per row, what [`linear_statistics`] finds out about the head's distribution."""

    error: torch.Tensor
    entropy: torch.Tensor
    confidence: torch.Tensor
    correct: torch.Tensor


class FlatnessStatistics(NamedTuple):
    """The same with the [`~clue_hf.kernels.flatness.flatness`] of the distribution."""

    error: torch.Tensor
    entropy: torch.Tensor
    confidence: torch.Tensor
    correct: torch.Tensor
    uniform_log_ratio: torch.Tensor
    log_affinity: torch.Tensor


def linear_statistics(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    chunk_size: int = CHUNK_SIZE,
    temperature: Temperature | None = None,
) -> LinearStatistics:
    """
    Error, entropy, top-1 probability and whether top-1 is the label, for each row of `hidden`: (rows, features), or
    (passes, rows, features) for the mean of the distributions of several passes. A `temperature` tells from rows of
    `hidden` and their logits what to divide the logits by.
    """
    each = statistics_by_temperature(hidden, weight, labels, [temperature], bias=bias, chunk_size=chunk_size)
    return LinearStatistics(*each[0])


@torch.no_grad()
def statistics_by_temperature(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    temperatures: Sequence[Temperature | None],
    *,
    bias: torch.Tensor | None = None,
    chunk_size: int = CHUNK_SIZE,
    with_flatness: bool = False,
) -> list[LinearStatistics | FlatnessStatistics]:
    """
    [`linear_statistics`] by each of several temperatures (`None`: the model's own), from the same logits; with the
    [`~clue_hf.kernels.flatness.flatness`] of each distribution where that is asked for.
    """
    hidden = hidden if hidden.dim() == 3 else hidden.unsqueeze(0)
    passes, num_rows, _ = hidden.shape
    dtype = compute_dtype(hidden, weight)
    check_targets(labels, weight.shape[0])
    weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    size, parts = max(chunk_size // passes, 1), [[] for _ in temperatures]  # type: ignore[var-annotated]
    buffer = hidden.new_empty(min(size, max(num_rows, 1)) * passes, len(weight), dtype=dtype)
    spare = torch.empty_like(
        buffer if len(temperatures) > 1 else buffer[:0], dtype=torch.promote_types(dtype, torch.float32)
    )
    for start in range(0, max(num_rows, 1), size):
        rows = hidden[:, start : start + size].flatten(0, 1).to(dtype)
        logits = linear_logits(rows, weight, bias, buffer)
        top = argmax_rows(logits) if passes == 1 else None  # which no temperature changes
        for number, temperature in enumerate(temperatures, 1):
            own = logits if number == len(temperatures) else spare[: len(logits)].copy_(logits)
            own = divided(own, rows, temperature)
            if passes > 1:
                own = own.unflatten(0, (passes, -1)).log_softmax(-1).logsumexp(0) - math.log(passes)
            parts[number - 1].append(logit_statistics(own, labels[start : start + size], top, with_flatness))
    kind = FlatnessStatistics if with_flatness else LinearStatistics
    return [kind(*map(torch.cat, zip(*part, strict=True))) for part in parts]


mixture_statistics = linear_statistics  # by its former name for several passes


@torch.no_grad()
def logit_statistics(
    logits: torch.Tensor, labels: torch.Tensor, top: torch.Tensor | None = None, with_flatness: bool = False
) -> LinearStatistics | FlatnessStatistics:
    """The same from logits (rows, vocabulary), which are overwritten; `top` where their largest is known."""
    top = argmax_rows(logits) if top is None else top
    log_sum, reduced = reduce_rows(logits, labels)
    statistics = LinearStatistics(
        **reduced, confidence=(-log_sum).exp(), correct=top == labels
    )  # the top logit is now 0
    if not with_flatness:
        return statistics
    measured = torch.cat([flatness(logits[block]) for block in row_blocks(logits)] or [logits.new_empty(0, 2)])
    return FlatnessStatistics(*statistics, *measured.unbind(-1))
