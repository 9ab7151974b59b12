"""What a task needs of every row, and the rows that lack it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from transformers.utils.logging import tqdm

from .bad_rows import kind_of, unusual_chats, unusual_references, unusual_values
from .chats import KNOWN_CHATS
from .columns import find_image_columns, find_pair, find_text_columns, has_images
from .image_dataset import UNREADABLE, open_image
from .tables import NUMBER, Table, missing, unreadable
from .targets import find_target_column


#: About a value that most others in its column are unlike.
UNLIKE_MOST = "where most have a finite number or a time (name the column in categorical_columns if it has categories)"
#: Largest share of texts in a csv column of numbers that are taken for mistakes.
FEW = {"number": 0.5, "class": 0.05}
#: What to do where they are not mistakes.
AS_NAMES = " (if it names a class: write the file as jsonl, where labels that are texts are names)"


@dataclass(frozen=True)
class RowNeeds:
    """
    The columns that a task needs: those named, or those with the usual names.

    The task is that of a model, `"auto"` for one that the columns tell. Rows are images where `image` names a column,
    or where they have one with a usual name and no usual columns of texts. `text` is the column of plain texts;
    without `answers` a chat needs no turn of the assistant, as every token is learned.
    """

    source: str | None
    target: str | None
    image: str | None = None
    label: str | None = None
    task: str = "auto"
    table: bool = False
    text: str = "text"
    answers: bool = True

    def image_and_class(self, columns: list[str]) -> tuple[str, str] | None:
        """The columns of an image and its class, where images are classified."""
        if self.task == "regression" or not (self.image or has_images(columns, self.source, self.target)):
            return None
        return find_image_columns(columns, self.image, self.label)

    def columns(self, columns: list[str], open_images: bool = False) -> dict[str, str]:
        """
        The columns that every row needs, each with what it holds: `"value"`, `"references"` (a text or several),
        `"number"`, `"class"`, `"chat"` or, where they are to be opened, `"image"`. The first one is that of
        the model's inputs.
        """
        picture = "image" if open_images else "value"
        if self.task == "regression":
            number = find_target_column(columns, self.target or self.label)
            if self.image or has_images(columns, self.source, None):
                return {find_image_columns(columns, self.image, number)[0]: picture, number: "number"}
            return {find_text_columns(columns, self.source, number)[0]: "value", number: "number"}
        if images := self.image_and_class(columns):
            return {images[0]: picture, images[1]: "class"}
        if self.label or self.task == "classification":
            text, label = find_text_columns(columns, self.source, self.label)
            return {text: "value", label: "class"}
        if not (self.source or self.target):
            known = next((name for name in (*KNOWN_CHATS, self.text, "input_ids") if name in columns), None)
            if known:
                return {known: "chat" if known in KNOWN_CHATS and self.answers else "value"}
        source, target = find_pair(columns, self.source, self.target)
        return {source: "value", target: "references"}


def bad_values(dataset: Dataset, needed: dict[str, str], from_csv: bool = False) -> dict[int, str]:
    """
    Rows that lack a needed value, or have one of another type than most rows. A column without any value is reported
    where it is used.
    """
    problems: dict[int, str] = {}
    for path, what in needed.items():
        for row, problem in _bad_column(dataset, path, what, from_csv):
            problems.setdefault(row, problem)
    return problems


def _bad_column(dataset: Dataset, path: str, what: str, from_csv: bool) -> Iterator[tuple[int, str]]:
    name, *keys = [path] if path in dataset.column_names else path.split(".")
    feature = dataset.features[name]
    if isinstance(feature, datasets.Image):
        dataset = dataset.cast_column(name, datasets.Image(decode=False))
    is_text = _is_text(feature)
    looked_at = what in ("number", "image", "chat") or isinstance(feature, datasets.Json)
    looked_at = looked_at or (what == "class" and from_csv and is_text)
    if not looked_at and _is_good(dataset, name, keys, what):
        return
    values = [_reach(value, keys) for value in dataset[name][:]]
    if all(value is None for value in values):
        return
    if is_text and what in FEW:
        numbers = _numbers(values, FEW[what]) if from_csv else None
        if numbers is None and what == "number":
            return
        values = numbers or values
    problems = list(CHECKS[what](values) if what in CHECKS else unusual_values(values, what))
    if what == "class" and len(problems) == len(values):
        return
    for row, problem in problems:
        hint = AS_NAMES if from_csv and what == "class" and isinstance(values[row], str) else ""
        yield row, f"has {problem} in column {path!r}{hint}"


def as_plain(dataset: Dataset, whole: Dataset, needed: dict[str, str], from_csv: bool) -> Dataset:
    """
    The rows that are left of a `whole` file, their needed columns as they would be without the rest: of one type where
    values of others were among them, and of numbers where a few texts made a column of a csv file one of texts.
    """
    for name, what in needed.items():
        feature, values = dataset.features.get(name), None
        if isinstance(feature, datasets.Json):
            values = dataset[name][:]
        elif from_csv and what in FEW and _is_text(feature) and _numbers(whole[name][:], FEW[what]):
            values = _numbers(dataset[name][:], few=0)
            if values and what == "class":
                values = [value if value is None or not value.is_integer() else int(value) for value in values]
        if values and len(kinds := {kind_of(value) for value in values}) == 1 and kinds <= {"number", "text", "bool"}:
            order = dataset.column_names
            dataset = dataset.remove_columns(name).add_column(name, values).select_columns(order)
    return dataset


def _is_good(dataset: Dataset, name: str, keys: list[str], what: str) -> bool:
    """Whether the type of a column shows that all values are good: they need not be looked at one by one."""
    array = dataset.select_columns([name]).with_format("arrow")[:][name]
    for key in keys:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(key) < 0:
            return False
        array = pc.struct_field(array, key)
    is_list = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    if what == "references" and is_list:
        # the messages of chats are no texts, and are looked at
        is_text = pa.types.is_string(array.type.value_type) or pa.types.is_large_string(array.type.value_type)
        return is_text and array.null_count == 0 and _has_no_gaps(array)
    if what == "class" and pa.types.is_integer(array.type):
        return array.null_count == 0 and (pc.min(array).as_py() or 0) >= 0
    return array.null_count == 0 and not (what == "class" and pa.types.is_floating(array.type))


def _has_no_gaps(lists: pa.ChunkedArray) -> bool:
    """Whether every list has a value, and none is missing."""
    return (pc.min(pc.list_value_length(lists)).as_py() or 0) > 0 and pc.list_flatten(lists).null_count == 0


def _is_text(feature: Any) -> bool:
    return isinstance(feature, datasets.Value) and feature.dtype in ("string", "large_string")


def _reach(value: Any, keys: list[str]) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _numbers(texts: list[str | None], few: float) -> list[Any] | None:
    """The texts with numbers parsed; `None` where more than the share `few` of them are not numbers."""
    values = [float(text) if text and re.match(NUMBER, text.strip(), re.ASCII) else text for text in texts]
    odd, present = (sum(isinstance(value, kinds) for value in values) for kinds in (str, (str, float)))
    return values if odd <= few * present else None


def _unreadable_images(values: list[Any]) -> Iterator[tuple[int, str]]:
    for row, value in enumerate(tqdm(values, desc="Looking for damaged images")):
        try:
            open_image(value)
        except UNREADABLE as error:
            yield row, f"no readable image ({error})"


#: How the values of a column are looked at that holds neither plain values, numbers nor classes.
CHECKS: dict[str, Callable[[list[Any]], Iterator[tuple[int, str]]]] = {
    "image": _unreadable_images,
    "references": unusual_references,
    "chat": unusual_chats,
}


def bad_cells(
    dataset: Dataset, target: str, categories: Iterable[str], ignored: Iterable[str], drop_missing: bool
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
