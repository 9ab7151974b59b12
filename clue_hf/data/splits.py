"""Deterministic train/validation/test splits that keep repeated sources on one side."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from datasets import Dataset, DatasetDict

from ..errors import UserError
from .columns import dataset_values, find_pair, text_pairs


def split_by_source(dataset: Dataset, fractions: dict[str, float], seed: int, source: str | None) -> DatasetDict:
    """
    Splits a dataset into `"train"` and the named parts with about the given fractions of the rows.

    The distinct values of the source column are ordered by a hash of the seed and the text, and handed out from the
    front: the split depends neither on the order of the rows nor on the machine, and no source is on two sides.
    Without a source column every row counts as distinct.
    """
    keys = range(len(dataset)) if source is None else dataset_values(dataset, source, "source_column")
    groups = rows_by_value(keys)
    return divide(dataset, [groups[key] for key in sorted(groups, key=lambda key: _digest(key, seed))], fractions)


def merge_references(dataset: Dataset, source: str | None = None, target: str | None = None) -> Dataset:
    """
    Rows with equal sources as one row with all their references, in the order in which the sources occur first. Equal
    references are one; the other columns have the values of the first row.
    """
    source, target = find_pair(dataset.column_names, source, target)
    needed = dict.fromkeys(path if path in dataset.column_names else path.split(".")[0] for path in (source, target))
    sources, references = text_pairs({name: dataset[name][:] for name in needed}, source, target)
    groups = rows_by_value(sources).values()
    merged = [list(dict.fromkeys(text for row in rows for text in references[row])) for rows in groups]
    first, names = dataset.select([rows[0] for rows in groups]), list(dataset.column_names)
    if target in names:
        return first.remove_columns(target).add_column(target, merged).select_columns(names)
    return first.add_column(target, merged)  # a column with a dotted name comes before what is nested


def rows_by_value(values: Iterable[Any]) -> dict[str, list[int]]:
    """The rows that have each value, as text."""
    rows: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        rows.setdefault(str(value), []).append(row)
    return rows


def divide(dataset: Dataset, groups: Sequence[Sequence[int]], fractions: dict[str, float]) -> DatasetDict:
    """Hands out groups of rows that stay together: to the named parts from the front, the rest to `"train"`."""
    parts = {name: fraction for name, fraction in fractions.items() if fraction > 0}
    if sum(parts.values()) >= 1:
        raise UserError(f"The fractions of {' and '.join(parts)} leave nothing to train on: {sum(parts.values()):g}.")
    rows: dict[str, list[int]] = {"train": []}
    start = 0
    for name, fraction in parts.items():
        wanted, rows[name] = max(1, round(fraction * len(dataset))), []
        while start < len(groups) and len(rows[name]) < wanted:
            rows[name] += groups[start]
            start += 1
    if start == len(groups):
        raise UserError(f"{len(dataset)} rows with {len(groups)} distinct sources are too few to split.")
    rows["train"] = [row for group in groups[start:] for row in group]
    return DatasetDict({name: dataset.select(sorted(chosen)) for name, chosen in rows.items()})


def _digest(key: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}\0{key}".encode(), digest_size=16).digest()
