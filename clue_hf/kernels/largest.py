"""The largest entries of long rows: on a processor, argmax and topk take several times as long as a maximum."""

from __future__ import annotations

import torch


#: Entries of a group, about: wide enough for vector instructions, narrow enough for a search inside one group.
WIDTH = 256


def argmax_rows(rows: torch.Tensor) -> torch.Tensor:
    """The place of the largest entry of each row, the first of equal ones."""
    if rows.is_cuda or rows.shape[1] < 2:
        return rows.argmax(-1)
    groups, rest = _grouped(rows)
    largest = groups.amax(-1)
    group = largest.argmax(-1)
    inside = groups[torch.arange(len(rows), device=rows.device), group].argmax(-1)
    place = group * groups.shape[2] + inside
    if not rest.shape[1]:
        return place
    above = rest.amax(-1) > largest.amax(-1)
    return torch.where(above, rows.shape[1] - rest.shape[1] + rest.argmax(-1), place)


def two_largest(rows: torch.Tensor) -> torch.Tensor:
    """The largest and the second largest entry of each row, which may be equal: (rows, 2)."""
    if rows.is_cuda or rows.shape[1] < 4:
        return rows.topk(min(2, rows.shape[1]), -1).values
    groups, rest = _grouped(rows)
    largest = groups.amax(-1)
    winner = groups[torch.arange(len(rows), device=rows.device), largest.argmax(-1)]
    return torch.cat([largest, winner.topk(2, -1).values[:, 1:], rest], 1).topk(2, -1).values


def _grouped(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows as groups of equal width, and the entries that are left."""
    width = min(WIDTH, rows.shape[1])
    whole = rows.shape[1] // width * width
    return rows[:, :whole].unflatten(1, (-1, width)), rows[:, whole:]
