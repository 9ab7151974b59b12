"""Finding texts, images and labels in a dataset: by name, by dotted path, or by the names everybody uses."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from ..errors import UserError


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
KNOWN_TEXTS = ("messages", "text", "input_ids")
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
        given, missing = ("source_column", "target_column") if source else ("target_column", "source_column")
        raise UserError(f"{given} is set but {missing} is not: name both. The columns are {', '.join(columns)}.")
    for pair in KNOWN_PAIRS:
        if all(name in columns for name in pair):
            return pair
    raise UserError(
        f"Cannot infer the columns of the source and the target text. Set source_column and target_column (dots "
        f"select nested columns: translation.en); the columns are {', '.join(columns)}."
    )


def find_image_columns(columns: Iterable[str], image: str | None, label: str | None) -> tuple[str, str]:
    """The columns of the image and of its class: those named, or the first known names that are there."""
    columns = list(columns)
    found = []
    for name, known, option in ((image, KNOWN_IMAGES, "image_column"), (label, KNOWN_LABELS, "label_column")):
        if name:
            check_column(columns, name, option)
        else:
            name = next((known_name for known_name in known if known_name in columns), None)
        if name is None:
            what = "image" if option == "image_column" else "label (the class)"
            raise UserError(
                f"Cannot infer the column of the {what}. Set {option}; the columns are {', '.join(columns)}."
            )
        found.append(name)
    return found[0], found[1]


def has_images(columns: Iterable[str], source: str | None, target: str | None) -> bool:
    """Whether rows without a named image column are images all the same: a known image column and no known texts."""
    columns = set(columns)
    if source or target or columns & set(KNOWN_TEXTS) or any(set(pair) <= columns for pair in KNOWN_PAIRS):
        return False
    return bool(columns & set(KNOWN_IMAGES))


def find_text_columns(columns: list[str], text: str | None, label: str | None) -> tuple[str, str]:
    """The columns of a text and its label: those named, or known ones that are there."""
    found = []
    for given, known, option in ((text, CLASSIFIED_TEXTS, "source_column"), (label, CLASSES, "label_column")):
        if given:
            check_column(columns, given, option)
        name = given or next((name for name in known if name in columns), None)
        if name is None:
            raise UserError(
                f"Cannot infer the text or label column. Set {option}; the columns are {', '.join(columns)}."
            )
        found.append(name)
    return found[0], found[1]


def check_column(columns: list[str], path: str, option: str) -> None:
    """Raises unless the first part of a dotted path is a column."""
    if path in columns or path.split(".")[0] in columns:
        return
    close = get_close_matches(path, columns, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UserError(f"{option} {path!r} is not in the data, whose columns are {', '.join(columns)}.{hint}")


def column_values(rows: dict[str, list[Any]], path: str, option: str) -> list[Any]:
    """The values of a column in a batch of rows; dots reach into nested ones."""
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


def check_texts(values: list[Any], path: str, option: str, first_row: int) -> None:
    """Raises with the row's number unless every value is a text."""
    for row, value in enumerate(values, first_row):
        if not isinstance(value, str):
            found = "empty (null)" if value is None else f"a {type(value).__name__}: {str(value)[:40]!r}"
            raise UserError(f"{option} {path!r} must hold text, but row {row} (counted from 0) is {found}.")
