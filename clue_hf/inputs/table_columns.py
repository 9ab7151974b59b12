"""One column of a table on its way to the model: what the training rows tell, and what is done to any row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from transformers.utils import logging

from ..data.tables import INDEX, Table, as_numbers, as_texts, as_times, find_kind
from ..data.targets import mean_and_std
from ..errors import UserError


logger = logging.get_logger(__name__)
KINDS = ("numeric", "categorical", "datetime")
#: A column of texts with more different values than this is left out, unless it is named.
MAX_CATEGORIES = 1000
#: So is one with more different values than half its rows, such as ids, in tables of at least this many rows.
MIN_ROWS_FOR_IDS = 20


@dataclass(frozen=True)
class Feature:
    """A number that the model sees, made from a column: `(value - mean) / std`."""

    part: str
    fill: float
    mean: float
    std: float


@dataclass(frozen=True)
class TableColumn:
    """What was learned about a column from the training rows."""

    name: str
    kind: str
    features: tuple[Feature, ...] = ()
    categories: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()

    @property
    def feature_names(self) -> list[str]:
        return [self.name if feature.part == "value" else f"{self.name} ({feature.part})" for feature in self.features]

    def numbers(self, array: pa.Array, kept: np.ndarray) -> tuple[np.ndarray, int]:
        """
        The features (rows, features) of a numeric column or one of times, and how many rows miss a value. `kept` says
        which rows are wanted; all are read, so that error messages name rows of the whole table.
        """
        parts = {part: values[kept] for part, values in _parts(self.kind, array, self.name).items()}
        filled = np.stack([_filled(parts[feature.part], feature.fill) for feature in self.features], 1)
        mean, std = np.array([(feature.mean, feature.std) for feature in self.features]).T
        with np.errstate(over="ignore"):
            scaled = ((filled - mean) / std).astype(np.float32)
        large = np.flatnonzero(~np.isfinite(scaled).all(1))
        if len(large):
            row = np.flatnonzero(kept)[large[0]]
            raise UserError(
                f"The column {self.name!r} is {filled[large[0], 0]:g} in row {row} (counted from 0), too far from the "
                f"training rows, whose mean is {mean[0]:g}, to be standardised."
            )
        return scaled, int(parts["missing"].sum())

    def indices(self, array: pa.Array, kept: np.ndarray) -> tuple[np.ndarray, int, int]:
        """The indices of the categories, and how many rows miss one or have one that no training row had."""
        texts = as_texts(array, self.class_names).filter(pa.array(kept))
        positions = pc.index_in(texts, value_set=pa.array(self.categories, texts.type))
        indices = pc.fill_null(positions, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        return indices, texts.null_count, int((indices == 0).sum()) - texts.null_count

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> TableColumn:
        """The column of such a dict as `asdict` makes."""
        features = tuple(Feature(**feature) for feature in content["features"])
        numbers = [number for feature in features for number in (feature.fill, feature.mean, feature.std)]
        if content["kind"] not in KINDS or not np.isfinite(numbers).all():
            raise ValueError(f"column {content['name']!r}")
        lists = {key: tuple(content[key]) for key in ("categories", "class_names")}
        return cls(content["name"], content["kind"], features, **lists)


def _filled(values: np.ndarray, fill: float) -> np.ndarray:
    return np.where(np.isnan(values), fill, values)


def _parts(kind: str, array: pa.Array, name: str, hint: str = "") -> dict[str, np.ndarray]:
    """The numbers that can be made of a column, nan where its value is missing; the last part says where."""
    if kind == "numeric":
        values = as_numbers(array, name, hint)
        return {"value": values, "missing": np.isnan(values).astype(np.float64)}
    times = pd.DatetimeIndex(as_times(array, name, hint))
    parts: dict[str, Any] = {part: getattr(times, part) for part in ("year", "month", "day", "weekday", "hour")}
    time_of_day = (times.hour + times.minute / 60 + times.second / 3600) / 24
    turns = {"time of day": time_of_day, "week": times.weekday / 7, "time of year": (times.dayofyear - 1) / 365.25}
    for turn, angle in turns.items():  # so that midnight is near 23:59, and December near January
        parts[f"sin {turn}"], parts[f"cos {turn}"] = np.sin(2 * np.pi * angle), np.cos(2 * np.pi * angle)
    parts["missing"] = times.isna()
    return {part: np.asarray(values, np.float64) for part, values in parts.items()}


def fit_column(table: Table, name: str, kind: str | None, kept: np.ndarray) -> tuple[TableColumn | None, list[str]]:
    """The column as the kept rows show it, or none where it is of no use, and notes."""
    array, class_names = table.column(name), table.class_names(name)
    if kind is None and INDEX.fullmatch(name):
        return None, [f"{name!r}: dropped, an index that was saved with the table."]
    named = kind is not None
    kind = kind or find_kind(array, name, class_names)
    if kind == "missing":
        return None, [f"{name!r}: dropped, no row has a value."]
    if kind == "other":
        return None, [_warned(f"{name!r}: dropped, {array.type} is neither a number nor a text nor a time.")]
    if kind == "categorical":
        column, note = _fit_categories(name, as_texts(array, class_names).filter(pa.array(kept)), class_names, named)
        return column, [note]
    parts = {part: values[kept] for part, values in _parts(kind, array, name, " Fix the data.").items()}
    column, number_note = _fit_numbers(name, kind, parts)
    notes = [number_note] if number_note else []
    if column is not None and kind == "numeric":
        if pa.types.is_large_string(array.type):
            notes.append(f"{name!r}: texts that are all numbers, read as numbers.")
        if pa.types.is_integer(array.type) and len(parts["value"]) > 2 and (np.diff(parts["value"]) > 0).all():
            notes.append(_warned(f"{name!r}: rises from row to row; if it only counts them, ignore it."))
    return column, notes


def _warned(note: str) -> str:
    logger.warning(note)
    return note


def _fit_numbers(name: str, kind: str, parts: dict[str, np.ndarray]) -> tuple[TableColumn | None, str | None]:
    """The column with its features, less those that are the same in every row, and a note where there is one."""
    missing, rows = int(parts["missing"].sum()), len(parts["missing"])
    if missing == rows:
        return None, f"{name!r}: dropped, no row has a value."
    features = []
    for part, values in parts.items():
        fill = 0.0 if part == "missing" else float(np.nanmedian(values))
        mean, std = mean_and_std(_filled(values, fill))
        if std > 0:
            features.append(Feature(part, fill, *((0.0, 1.0) if part == "missing" else (mean, std))))
    if not features:
        return None, f"{name!r}: dropped, every row has the same value."
    return TableColumn(name, kind, tuple(features)), _note(name, kind, features, missing, rows)


def _note(name: str, kind: str, features: list[Feature], missing: int, rows: int) -> str | None:
    parts = [feature.part for feature in features if feature.part != "missing"]
    if not parts:
        return f"{name!r}: all values are equal, {share(missing, rows)} have none: marked by a feature of 0 and 1."
    notes = [f"times, as {', '.join(parts)}"] if kind == "datetime" else []
    if missing:
        median = "the median" if kind == "datetime" else f"the median {features[0].fill:g}"
        notes.append(f"{share(missing, rows)} have no value: filled with {median}, marked by a feature of 0 and 1")
    return f"{name!r}: {'; '.join(notes)}." if notes else None


def _fit_categories(name: str, texts: pa.Array, class_names: list[str], named: bool) -> tuple[TableColumn | None, str]:
    """The column with its categories, unless it has too many, and a note."""
    rows, missing = len(texts), texts.null_count
    categories = sorted(value for value in pc.unique(texts).to_pylist() if value is not None)
    count = len(categories)
    if not count:
        return None, f"{name!r}: dropped, no row has a value."
    if count == 1 and not missing:
        return None, f"{name!r}: dropped, every row has the same value."
    like_ids = rows >= MIN_ROWS_FOR_IDS and count > (rows - missing) / 2
    if not named and (count > MAX_CATEGORIES or like_ids):
        why = f"{count:,} different texts in {rows - missing:,} rows are too many for categories"
        return None, _warned(f"{name!r}: dropped, {why}; name it in categorical_columns to keep it.")
    note = f"{name!r}: {count:,} categories"
    note += f"; {share(missing, rows)} have no value: category 0." if missing else "."
    return TableColumn(name, "categorical", categories=tuple(categories), class_names=tuple(class_names)), note


def share(count: int, rows: int) -> str:
    """As in "3 of 1,000 rows"."""
    return f"{count:,} of {rows:,} rows"
