"""Rows that cannot be used: an error that names the first, or left out and counted (`--on_bad_row skip`)."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from transformers.utils import logging

from ..errors import UserError
from .lines import SEPARATORS, UNREADABLE_FILE, file_kind, read_lines
from .tables import WORDS, parse_csv


logger = logging.get_logger(__name__)
POLICIES = ("fail", "skip")
#: So many of the rows that were left out are told one by one.
TOLD = 20


@dataclass
class BadRows:
    """
    What is done with rows that cannot be used, and which were left out.

    Args:
        policy (`str`, *optional*, defaults to `"fail"`):
            `"fail"` raises with the first bad row, `"skip"` leaves bad rows out.
        skipped (`dict`):
            By file or split: how many rows there are, how many of them were left out, and why the first were.
    """

    policy: str = "fail"
    skipped: dict[str, dict[str, Any]] = field(default_factory=dict)
    _kept: dict[str, np.ndarray] = field(default_factory=dict)

    def left_out(self, where: str, problems: dict[int, str], rows: int) -> np.ndarray:
        """
        The rows to keep, of so many; raises unless bad ones are to be left out. Numbers of rows are told as they are
        in the file, also where some were left out before.
        """
        numbers = self._kept.get(where, np.arange(rows))
        if not problems:
            return np.arange(rows)
        told = [f"row {numbers[row]} (counted from 0) {problem}" for row, problem in sorted(problems.items())]
        if self.policy == "fail":
            bad = f"{len(told):,} rows are bad: mend" if len(told) > 1 else "Mend"
            raise UserError(f"{where}: {told[0]}. {bad} the data, or leave such rows out with --on_bad_row skip.")
        if len(problems) == rows:
            raise UserError(f"{where}: no row can be used; {told[0]}.")
        kept = np.setdiff1d(np.arange(rows), list(problems))
        self._kept[where] = numbers[kept]
        found = self.skipped.setdefault(where, {"rows": rows, "skipped": 0, "problems": []})
        found["skipped"] += len(told)
        found["problems"] = [*found["problems"], *told][:TOLD]
        more = f" and {len(told) - 3:,} more" if len(told) > 3 else ""
        logger.warning(f"{where}: {len(told):,} of {rows:,} rows are left out: {'; '.join(told[:3])}{more}.")
        return kept

    def keep_good(self, dataset: datasets.Dataset, where: str, problems: dict[int, str]) -> datasets.Dataset:
        """The rows of a dataset without problems, as `left_out` says."""
        return dataset.select(self.left_out(where, problems, len(dataset))) if problems else dataset

    def summary(self, where: str) -> str:
        """As in "3 of 100 rows left out", of the file or split whose name begins so; empty where none were."""
        found = next((found for name, found in self.skipped.items() if name.startswith(where)), None)
        return f"{found['skipped']:,} of {found['rows']:,} rows left out" if found else ""

    def summaries(self) -> list[str]:
        """A sentence for each file or split of which some were left out."""
        return [f"{name}: {self.summary(name)}." for name in self.skipped]


# ---- rows that cannot be read ----


def read_by_line(path: str, where: str, bad_rows: BadRows, table: bool = False) -> datasets.Dataset:
    """
    The rows of a jsonl, csv or tsv file that a reader of whole files gave up: lines that are none are bad rows, and so
    are values of another type than the other rows have. A column that only some rows have is none of that. Words for
    missing values in a csv file are missing ones in a `table`, and words elsewhere.
    """
    try:
        lines = list(read_lines(path))
    except UNREADABLE_FILE as error:
        raise UserError(f"{where} cannot be read: {error}") from error
    bad = {row: f"{line.place}{line.problem}" for row, line in enumerate(lines) if line.row is None}
    kept = bad_rows.left_out(where, bad, len(lines))
    rows = [row for number in kept if (row := lines[number].row) is not None]
    if not rows:
        raise UserError(f"{where} has no rows.")
    try:
        if file_kind(path) in SEPARATORS:
            return parse_csv(_as_csv(rows), ",", **({} if table else WORDS))
        return _of_one_type(rows, where, bad_rows)
    except (pa.ArrowException, OverflowError) as error:
        raise UserError(f"{where} cannot be read: {error}") from error


def _of_one_type(rows: list[dict[str, Any]], where: str, bad_rows: BadRows) -> datasets.Dataset:
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
    problems: dict[int, str] = {}
    for name, values in columns.items():
        for row, problem in unusual_values(values, "value"):
            if values[row] is not None:
                problems.setdefault(row, f"has {problem} in column {name!r}")
    kept = bad_rows.left_out(where, problems, len(rows))
    return datasets.Dataset.from_dict({name: [values[row] for row in kept] for name, values in columns.items()})


def _as_csv(rows: list[dict[str, str]]) -> StringIO:
    """A csv file of the rows, from which pandas finds the type that suits all values of a column."""
    file = StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]), quoting=csv.QUOTE_ALL)  # a value of spaces is no blank line
    writer.writeheader()
    writer.writerows(rows)
    file.seek(0)
    return file


def bad_texts(dataset: datasets.Dataset) -> dict[int, str]:
    """Rows with a text that is no UTF-8: readers of json and parquet files do not look."""
    table = dataset.with_format("arrow")[:]
    if _is_valid(table):
        return {}
    problems = {}
    for name in table.column_names:
        column = table.select([name])
        if not _is_valid(column):
            bad = (row for row in range(len(table)) if not _is_valid(column.slice(row, 1)))
            problems.update(dict.fromkeys(bad, f"is no UTF-8 text in column {name!r}"))
    return problems


def _is_valid(table: pa.Table) -> bool:
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def unusual_values(values: list[Any], what: str) -> Iterator[tuple[int, str]]:
    """
    Values that are missing or of another type than most; where `what` is `"number"`, no finite number, and where it is
    `"class"` and most are numbers, no number of a class.
    """
    kinds = Counter(kind_of(value) for value in values if value is not None)
    usual = "number" if what == "number" or not kinds else kinds.most_common(1)[0][0]
    for row, value in enumerate(values):
        if value is None:
            yield row, "nothing (null)"
        elif kind_of(value) != usual:
            yield row, f"a {kind_of(value)}, {str(value)[:40]!r}, where others have a {usual},"
        elif what == "number" and not math.isfinite(value):
            yield row, f"{value}"
        elif what == "class" and usual == "number" and not _is_class(value):
            yield row, f"{value}, which is no class number,"


def _is_class(number: float) -> bool:
    return math.isfinite(number) and number >= 0 and number % 1 == 0


def kind_of(value: Any) -> str:
    """What a value is, in a word."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    return "text" if isinstance(value, str) else type(value).__name__
