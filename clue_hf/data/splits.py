"""Deterministic train/validation/test splits that keep repeated sources on one side."""

from __future__ import annotations

import hashlib

import datasets

from ..errors import UserError
from .columns import dataset_values


def split_by_source(
    dataset: datasets.Dataset, fractions: dict[str, float], seed: int, source: str | None
) -> datasets.DatasetDict:
    """
    Splits a dataset into `"train"` and the named parts with about the given fractions of the rows.

    The distinct values of the source column are ordered by a hash of the seed and the text, and handed out from the
    front: the split depends neither on the order of the rows nor on the machine, and no source is on two sides.
    Without a source column every row counts as distinct.
    """
    parts = checked_fractions(fractions)
    keys = (
        list(map(str, range(len(dataset))))
        if source is None
        else list(map(str, dataset_values(dataset, source, "source_column")))
    )
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    ordered = sorted(rows, key=lambda key: _digest(key, seed))
    chosen: dict[str, list[int]] = {}
    start = 0
    for name, fraction in parts.items():
        wanted, chosen[name] = max(1, round(fraction * len(dataset))), []
        while start < len(ordered) and len(chosen[name]) < wanted:
            chosen[name] += rows[ordered[start]]
            start += 1
    chosen["train"] = [row for key in ordered[start:] for row in rows[key]]
    if not chosen["train"]:
        raise UserError(f"{len(dataset)} rows with {len(ordered)} distinct sources are too few to split.")
    names = ["train", *parts]
    return datasets.DatasetDict({name: dataset.select(sorted(chosen[name])) for name in names})


def checked_fractions(fractions: dict[str, float]) -> dict[str, float]:
    """The parts to split off, those of no rows left out; raises where they leave nothing to train on."""
    parts = {name: fraction for name, fraction in fractions.items() if fraction > 0}
    if sum(parts.values()) >= 1:
        raise UserError(f"The fractions of {' and '.join(parts)} leave nothing to train on: {sum(parts.values()):g}.")
    return parts


def _digest(key: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}\0{key}".encode(), digest_size=16).digest()
