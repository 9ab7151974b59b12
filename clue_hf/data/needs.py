"""What a task needs of every row, and the rows that lack it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from transformers.utils.logging import tqdm

from .bad_rows import unusual_values
from .columns import KNOWN_TEXTS, find_image_columns, find_pair, find_text_columns, has_images
from .image_dataset import UNREADABLE, open_image
from .tables import Table, missing, unreadable
from .targets import find_target_column


#: About a value that most others in its column are unlike.
UNLIKE_MOST = "where most have a finite number or a time (name the column in categorical_columns if it has categories)"


def needed_columns(
    columns: list[str],
    source: str | None,
    target: str | None,
    image: str | None,
    label: str | None,
    task: str,
    open_images: bool = False,
) -> dict[str, str]:
    """
    The columns that every row needs, each with what it holds: `"value"`, `"number"`, `"class"` or, where they are to
    be opened, `"image"`. The task is that of a model, `"auto"` for one that columns tell.
    """
    picture = "image" if open_images else "value"
    if task == "regression":
        number = find_target_column(columns, target or label)
        if image or has_images(columns, source, None):
            return {find_image_columns(columns, image, number)[0]: picture, number: "number"}
        return {find_text_columns(columns, source, number)[0]: "value", number: "number"}
    if image or has_images(columns, source, target):
        image, label = find_image_columns(columns, image, label)
        return {image: picture, label: "class"}
    if label or task == "classification":
        source, label = find_text_columns(columns, source, label)
        return {source: "value", label: "class"}
    if not source and not target and (known := next((name for name in KNOWN_TEXTS if name in columns), None)):
        return {known: "value"}
    return dict.fromkeys(find_pair(columns, source, target), "value")


def bad_values(dataset: datasets.Dataset, needed: dict[str, str]) -> dict[int, str]:
    """
    Rows that lack a needed value, or have one of another type than most rows. A column without any value is no matter
    of rows: it is told of where it is used.

    Args:
        dataset (`datasets.Dataset`):
            The rows.
        needed (`dict[str, str]`):
            Paths of columns, each with what it holds: `"value"` (of any type), `"number"` (a finite one), `"class"`
            (a number or a name, as most rows have) or `"image"` (one that can be opened).
    """
    problems: dict[int, str] = {}
    for path, what in needed.items():
        for row, problem in _bad_column(dataset, path, what):
            problems.setdefault(row, f"has {problem} in column {path!r}")
    return problems


def _bad_column(dataset: datasets.Dataset, path: str, what: str) -> Iterable[tuple[int, str]]:
    name, *keys = [path] if path in dataset.column_names else path.split(".")
    feature = dataset.features[name]
    if isinstance(feature, datasets.Image):
        dataset = dataset.cast_column(name, datasets.Image(decode=False))
    looked_at = what in ("number", "image") or isinstance(feature, datasets.Json)
    if not looked_at and _has_no_gaps(dataset, name, keys) and not (what == "class" and _is_text(feature)):
        return []
    values = [_reach(value, keys) for value in dataset[name][:]]
    if all(value is None for value in values):
        return []
    if what == "image":
        return _unreadable_images(values)
    if what in ("number", "class") and _is_text(feature):
        numbers = [_number(value) for value in values]
        if 2 * sum(isinstance(value, float) for value in numbers) > len(values):
            values = numbers
        elif what == "number":
            return []
    return list(unusual_values(values, what))


def as_numbers_again(dataset: datasets.Dataset, needed: dict[str, str]) -> datasets.Dataset:
    """Turns needed texts that are all numbers into numbers: some that was none made the column one of texts."""
    for name, what in needed.items():
        if what in ("number", "class") and _is_text(dataset.features.get(name)):
            numbers: list[Any] = [_number(value) for value in dataset[name][:]]
            if all(isinstance(value, float) for value in numbers):
                whole = what == "class" and all(float(value).is_integer() for value in numbers)
                dataset = dataset.cast_column(name, datasets.Value("int64" if whole else "float64"))
    return dataset


def _has_no_gaps(dataset: datasets.Dataset, name: str, keys: list[str]) -> bool:
    """Whether a column of one type has a value in every row: then there is no need to look at each."""
    array = dataset.select_columns([name]).with_format("arrow")[:][name]
    for key in keys:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(key) < 0:
            return False
        array = pc.struct_field(array, key)
    return array.null_count == 0


def _is_text(feature: Any) -> bool:
    return isinstance(feature, datasets.Value) and feature.dtype in ("string", "large_string")


def _reach(value: Any, keys: list[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _number(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _unreadable_images(values: list[Any]) -> Iterator[tuple[int, str]]:
    for row, value in enumerate(tqdm(values, desc="Looking for damaged images")):
        try:
            open_image(value)
        except UNREADABLE as error:
            yield row, f"no readable image ({error})"


def bad_cells(
    dataset: datasets.Dataset, target: str, categories: Iterable[str], ignored: Iterable[str], drop_missing: bool
) -> dict[int, str]:
    """
    Rows of a table with a text where most have numbers or times, with an infinite number, or without a target, unless
    these are dropped anyway. Values that are missing elsewhere are filled, not bad.
    """
    table, problems = Table(dataset), dict[int, str]()
    for name in table.names:
        if name in ignored or (name in categories and name != target):
            continue
        array = table.column(name)
        for row in np.flatnonzero(unreadable(array)).tolist():
            value = str(array[row].as_py())[:40]
            problems.setdefault(row, f"has {value!r} in column {name!r}, {UNLIKE_MOST}")
        if name == target and not drop_missing:
            for row in np.flatnonzero(missing(array)).tolist():
                problems.setdefault(row, f"has no value in column {name!r}")
    return problems
