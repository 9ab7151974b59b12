"""Finding texts, images and labels in a dataset: by name, by dotted path, or by the names everybody uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import datasets

from ..errors import UserError, did_you_mean
from .chats import KNOWN_CHATS


#: Looked for in this order when no column is named.
KNOWN_PAIRS = (
    ("source", "target"),
    ("prompt", "completion"),
    ("input", "output"),
    ("document", "summary"),
    ("article", "highlights"),
    ("question", "answer"),
)
KNOWN_IMAGES = ("image", "img", "pixel_values", "images", "picture")
KNOWN_LABELS = ("label", "labels", "fine_label", "coarse_label", "class")
#: Columns that make rows texts, whatever else they hold.
KNOWN_TEXTS = (*KNOWN_CHATS, "text", "input_ids")
#: Columns of a text classifier, looked for in this order when none is named.
CLASSIFIED_TEXTS, CLASSES = ("text", "sentence", "source", "question", "review"), ("label", "labels")


def find_pair(columns: Iterable[str], source: str | None, target: str | None) -> tuple[str, str]:
    """The source and target columns: those named, or the first known pair that is there."""
    columns = list(columns)
    if source and target:
        for name, option in ((source, "source_column"), (target, "target_column")):
            check_column(columns, name, option)
        return source, target
    if source or target:
        named, missing = ("source_column", "target_column") if source else ("target_column", "source_column")
        raise UserError(f"{named} is set but {missing} is not: name both. The columns are {', '.join(columns)}.")
    for pair in KNOWN_PAIRS:
        if all(name in columns for name in pair):
            return pair
    raise UserError(
        f"Cannot infer the columns of the source and the target text. Set source_column and target_column (dots "
        f"select nested columns: translation.en); the columns are {', '.join(columns)}."
    )


def find_column(columns: list[str], name: str | None, known: Iterable[str], option: str, content: str) -> str:
    """The column of this name or, without a name, the first known one that is there."""
    if name:
        check_column(columns, name, option)
        return name
    for known_name in known:
        if known_name in columns:
            return known_name
    raise UserError(f"Cannot infer the column of the {content}. Set {option}; the columns are {', '.join(columns)}.")


def find_image_columns(columns: list[str], image: str | None, label: str | None) -> tuple[str, str]:
    """The columns of an image and of its class."""
    image = find_column(columns, image, KNOWN_IMAGES, "image_column", "image")
    return image, find_column(columns, label, KNOWN_LABELS, "label_column", "label (the class)")


def find_text_columns(columns: list[str], text: str | None, label: str | None) -> tuple[str, str]:
    """The columns of a text and of its class."""
    text = find_column(columns, text, CLASSIFIED_TEXTS, "source_column", "text")
    return text, find_column(columns, label, CLASSES, "label_column", "label (the class)")


def has_images(columns: Iterable[str], source: str | None, target: str | None) -> bool:
    """Whether rows without a named image column are images all the same: a known image column and no known texts."""
    columns = set(columns)
    if source or target or columns & set(KNOWN_TEXTS) or any(set(pair) <= columns for pair in KNOWN_PAIRS):
        return False
    return bool(columns & set(KNOWN_IMAGES))


def check_column(columns: list[str], path: str, option: str) -> None:
    """Raises unless the first part of a dotted path is a column."""
    if path not in columns and path.split(".")[0] not in columns:
        raise unknown_column(columns, path, option)


def unknown_column(columns: list[str], name: str, option: str) -> UserError:
    """The error for a column that is not in the data."""
    hint = did_you_mean(name, columns)
    return UserError(f"{option} {name!r} is not in the data, whose columns are {', '.join(columns)}.{hint}")


def column_values(rows: dict[str, list[Any]], path: str, option: str) -> list[Any]:
    """The values of a column in a batch of rows; dots select nested ones."""
    if path in rows:
        return rows[path]
    name, *keys = path.split(".")
    values = rows[name]
    for key in keys:
        for value in values:
            if not isinstance(value, dict) or key not in value:
                there = f"the keys {', '.join(value)}" if isinstance(value, dict) else f"a {type(value).__name__}"
                raise UserError(f"{option} {path!r}: there is no {key!r} in {name!r}, which holds {there}.")
        values = [value[key] for value in values]
    return values


def dataset_values(dataset: datasets.Dataset, path: str, option: str) -> list[Any]:
    """The values of a column of a whole dataset; dots select nested ones."""
    name = path if path in dataset.column_names else path.split(".")[0]
    return column_values({name: dataset[name][:]}, path, option)


def check_texts(values: list[Any], path: str, option: str, first_row: int = 0) -> None:
    """Raises with the row's number unless every value is a text."""
    for row, value in enumerate(values, first_row):
        if not isinstance(value, str):
            problem = f"row {row} (counted from 0) is {describe_value(value)}"
            raise UserError(f"{option} {path!r} must hold text, but {problem}.")


def text_pairs(
    columns: dict[str, list[Any]], source: str | None, target: str | None, first_row: int = 0
) -> tuple[list[str], list[list[str]]]:
    """The source text and the references of each row of a batch, in columns that are named or known."""
    source, target = find_pair(columns, source, target)
    texts = column_values(columns, source, "source_column")
    check_texts(texts, source, "source_column", first_row)
    return texts, as_references(column_values(columns, target, "target_column"), target, first_row)


def as_references(values: list[Any], path: str, first_row: int = 0) -> list[list[str]]:
    """The references of each row, which has a text or a list of texts; raises with the number of one that does not."""
    for row, value in enumerate(values, first_row):
        if isinstance(value, list) and (problem := reference_problem(value)):
            where = f"row {row} (counted from 0) has {problem}"
            raise UserError(f"target_column {path!r} must hold texts or lists of texts, but {where}.")
    check_texts([value[0] if isinstance(value, list) else value for value in values], path, "target_column", first_row)
    return [[value] if isinstance(value, str) else list(value) for value in values]


def as_verdicts(columns: dict[str, list[Any]], path: str, first_row: int = 0) -> list[float]:
    """The qualities in a column of a batch of rows; raises with the number of a row that has none."""
    check_column(list(columns), path, "quality_column")
    values = column_values(columns, path, "quality_column")
    for row, value in enumerate(values, first_row):
        if problem := verdict_problem(value):
            raise UserError(f"quality_column {path!r}: row {row} (counted from 0) has {problem}.")
    return [float(value) for value in values]


def verdict_problem(value: Any) -> str | None:
    """What is wrong with a quality, which is a number from 0 to 1, or true or false."""
    if isinstance(value, (bool, int, float)) and 0 <= value <= 1:
        return None
    return f"{'nothing (null)' if value is None else repr(value)[:40]} where a quality from 0 to 1 is needed"


def reference_problem(references: list[Any]) -> str | None:
    """What is wrong with a list of references, where anything is."""
    if not references:
        return "an empty list"
    wrong = next((place for place, text in enumerate(references) if not isinstance(text, str)), None)
    if wrong is None:
        return None
    value = references[wrong]
    what = "nothing (null)" if value is None else f"a {type(value).__name__}, {str(value)[:40]!r},"
    return f"{what} at place {wrong} (counted from 0) of its list"


def describe_value(value: Any) -> str:
    """A value of the wrong type in an error message."""
    return "empty (null)" if value is None else f"a {type(value).__name__}: {str(value)[:40]!r}"
