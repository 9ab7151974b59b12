"""Labels of classes: their names, their numbers, and splits that keep the shares of the classes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import datasets
import numpy as np
import pyarrow as pa
from datasets import Dataset, DatasetDict

from ..errors import UserError
from .splits import divide


def class_names(dataset: Dataset, column: str) -> list[str]:
    """The names of the classes: those of a `ClassLabel`, the sorted texts, or `"0"` to the largest number."""
    feature = dataset.features[column]
    if isinstance(feature, datasets.ClassLabel) and feature.names:
        return list(feature.names)
    values = _label_values(dataset, column, "train")
    if values.dtype.kind in "U":
        return sorted(set(values.tolist()))
    return [str(number) for number in range(int(values.max()) + 1)]


def label_numbers(dataset: Dataset, column: str, names: list[str], split: str = "train") -> np.ndarray:
    """
    The class number of each row; raises where a label is missing or is not among the names. Numbers that stand for
    names (`ClassLabel`) are those of the same names here, where these are known in another order. Other numbers are
    names themselves where names are numbers, as in 1, 2, 3 and 10+, otherwise positions among the names.
    """
    values = _label_values(dataset, column, split)
    own = getattr(dataset.features[column], "names", None)
    if own and own != names and set(own) <= set(names) and values.dtype.kind != "U":
        values = np.array(own)[values]
    elif not own and values.dtype.kind != "U" and _name_numbers(names):
        values = values.astype(str)
    if values.dtype.kind != "U":
        span = f"but there are only the {len(names)} classes 0 to {len(names) - 1}"
        _check_rows(values >= len(names), split, lambda row: f"has the label {values[row]}, {span}")
        return values
    known = f"which the training data does not have: {list_names(names)}"
    _check_rows(~np.isin(values, names), split, lambda row: f"has the label {str(values[row])!r}, {known}")
    number = {name: position for position, name in enumerate(names)}
    return np.array([number[name] for name in values.tolist()], dtype=np.int64)


def _check_rows(bad: np.ndarray, split: str, problem: Callable[[int], str]) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise UserError(f"Row {row} (counted from 0) of the {split} data {problem(row)}.")


def list_names(names: list[str], limit: int = 20) -> str:
    """The names of classes in a message; of many only the first."""
    return ", ".join(names[:limit]) + (f" ... {len(names)} in all" if len(names) > limit else "")


def _name_numbers(names: list[str]) -> bool:
    """Whether some names are numbers other than their positions."""
    return any(name.isdecimal() for name in names) and names != [str(position) for position in range(len(names))]


def _label_values(dataset: Dataset, column: str, split: str) -> np.ndarray:
    """The labels as int64 or text, none missing."""
    values = dataset.select_columns([column]).with_format("arrow")[:][column].combine_chunks()
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    kind = values.type
    missing = values.is_null().to_numpy(zero_copy_only=False)
    _check_rows(missing, split, lambda row: f"has no {column!r}: every example needs its class")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(values.to_pylist(), dtype=str)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise UserError(f"label_column {column!r} must hold class numbers or names, not {kind}.")
    numbers = values.to_numpy(zero_copy_only=False)

    def problem(row: int) -> str:
        hint = " (no label: choose a labelled split)" if numbers[row] == -1 else ""
        return f"has the {column!r} {numbers[row]}, which is not a class number{hint}"

    _check_rows(~np.isfinite(numbers) | (numbers < 0) | (numbers != np.floor(numbers)), split, problem)
    return numbers.astype(np.int64)


def check_classes(splits: dict[str, Dataset], label: str) -> None:
    """Raises where a split has a class of which the training data has no example."""
    names = class_names(splits["train"], label)
    known = np.unique(label_numbers(splits["train"], label, names))

    def problem(numbers: np.ndarray, row: int) -> str:
        return f"has the class {names[numbers[row]]!r}, of which the training data has no example"

    for split, rows in splits.items():
        numbers = label_numbers(rows, label, names, split)
        _check_rows(~np.isin(numbers, known), split, partial(problem, numbers))


def split_by_label(dataset: Dataset, fractions: dict[str, float], seed: int, label: str) -> DatasetDict:
    """
    Splits a dataset into `"train"` and the named parts with the given fractions of the rows, each with the same shares
    of the classes. The split depends on the seed, the labels and the numbers of the rows.
    """
    labels = label_numbers(dataset, label, class_names(dataset, label))
    shuffled = np.random.RandomState(seed).permutation(len(labels))  # whose numbers never change between versions
    position = np.empty(len(labels))  # of a row among the shuffled rows of its class, from 0 to 1
    for number in np.unique(labels):
        rows = shuffled[labels[shuffled] == number]
        position[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    ordered = shuffled[np.argsort(position[shuffled], kind="stable")]
    return divide(dataset, ordered[:, None].tolist(), fractions)
