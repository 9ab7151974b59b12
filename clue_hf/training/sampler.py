"""Batches of similar length: less padding, the same order on every process and after every resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import datasets
import pyarrow.compute as pc
import torch
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import get_length_grouped_indices


class LengthGroupedSampler(Sampler[int]):
    """
    Random order in which neighbours have a similar length.

    Unlike transformers' sampler of this name its order is a pure function of seed and epoch: it does not draw from the
    global generator, which differs between processes and is not restored before the data of a resumed epoch is drawn.

    Args:
        lengths (`list[int]`):
            Length of each example.
        batch_size (`int`):
            Examples per optimizer step.
        seed (`int`):
            Seed of the order.
        epoch (`Callable[[], int]`):
            Tells the current epoch.
    """

    def __init__(self, lengths: list[int], batch_size: int, seed: int, epoch: Callable[[], int]) -> None:
        self.lengths, self.batch_size, self.seed, self.epoch = lengths, batch_size, seed, epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch())
        return iter(get_length_grouped_indices(self.lengths, self.batch_size, generator=generator))


def token_lengths(dataset: Any) -> list[int]:
    """Tokens of each example, source and target together."""
    columns = [name for name in ("input_ids", "labels") if name in dataset.column_names]
    if isinstance(dataset, datasets.Dataset):
        arrow = dataset.select_columns(columns).with_format("arrow")[:]
        counts = [pc.list_value_length(arrow[name]).to_numpy() for name in columns]
        return sum(counts).tolist()
    return [sum(len(row[name]) for name in columns) for row in dataset]
