"""Rows that cannot be used: an error that names the first, or skipped and counted (`--on_bad_row skip`)."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import Dataset
from transformers.utils import logging

from ..errors import UserError
from .chats import chat_problem
from .columns import reference_problem
from .lines import SEPARATORS, UNREADABLE_FILE, file_kind, read_lines
from .tables import KEEP_NA_WORDS, parse_csv


logger = logging.get_logger(__name__)
POLICIES = ("fail", "skip")
#: Number of skipped rows that are reported one by one.
MAX_REPORTED = 20


@dataclass
class BadRows:
    """What is done with rows that cannot be used, and which were skipped."""

    policy: str = "fail"
    skipped: dict[str, dict[str, Any]] = field(default_factory=dict)
    _kept: dict[str, np.ndarray] = field(default_factory=dict)

    def kept_rows(self, where: str, problems: dict[int, str], rows: int) -> np.ndarray:
        """
        The rows to keep; raises unless bad ones are to be skipped. Rows are numbered as in the file, also where some
        were skipped before.
        """
        numbers = self._kept.get(where, np.arange(rows))
        if not problems:
            return np.arange(rows)
        reasons = [f"row {numbers[row]} (counted from 0) {problem}" for row, problem in sorted(problems.items())]
        if self.policy == "fail":
            bad = f"{len(reasons):,} rows are bad: fix" if len(reasons) > 1 else "Fix"
            raise UserError(f"{where}: {reasons[0]}. {bad} the data, or skip such rows with --on_bad_row skip.")
        if len(problems) == rows:
            raise UserError(f"{where}: no row can be used; {reasons[0]}.")
        kept = np.setdiff1d(np.arange(rows), list(problems))
        self._kept[where] = numbers[kept]
        entry = self.skipped.setdefault(where, {"rows": rows, "skipped": 0, "problems": []})
        entry["skipped"] += len(reasons)
        entry["problems"] = [*entry["problems"], *reasons][:MAX_REPORTED]
        more = f" and {len(reasons) - 3:,} more" if len(reasons) > 3 else ""
        logger.warning(f"{where}: {len(reasons):,} of {rows:,} rows are skipped: {'; '.join(reasons[:3])}{more}.")
        return kept

    def keep_good(self, dataset: Dataset, where: str, problems: dict[int, str]) -> Dataset:
        """The rows of a dataset without problems, as `kept_rows` says."""
        return dataset.select(self.kept_rows(where, problems, len(dataset))) if problems else dataset

    def summary(self, where: str) -> str:
        """As in "3 of 100 rows skipped", of the file or split whose name begins so; empty where none were."""
        entry = next((entry for name, entry in self.skipped.items() if name.startswith(where)), None)
        return f"{entry['skipped']:,} of {entry['rows']:,} rows skipped" if entry else ""

    def summaries(self) -> list[str]:
        """A sentence for each file or split of which some were skipped."""
        return [f"{name}: {self.summary(name)}." for name in self.skipped]


# ---- rows that cannot be read ----
def read_by_line(path: str, where: str, bad_rows: BadRows, table: bool = False) -> Dataset:
    """
    The rows of a jsonl, csv or tsv file that cannot be read as a whole: lines that cannot be parsed are bad rows, and
    so are values of another type than most in their column, unless they are absent. In the csv file of a `table` words
    such as "NA" are missing values.
    """
    try:
        lines = list(read_lines(path))
    except UNREADABLE_FILE as error:
        raise UserError(f"{where} cannot be read: {error}") from error
    bad_rows.kept_rows(where, {row: line for row, line in enumerate(lines) if isinstance(line, str)}, len(lines))
    rows = [line for line in lines if isinstance(line, dict)]
    if not rows:
        raise UserError(f"{where} has no rows.")
    try:
        if file_kind(path) in SEPARATORS:
            # through a csv file again, from which pandas finds the type that suits all values of a column
            content = pd.DataFrame(rows).to_csv(index=False, quoting=csv.QUOTE_ALL)  # spaces alone are no blank line
            return parse_csv(StringIO(content), ",", **({} if table else KEEP_NA_WORDS))
        return _of_one_type(rows, where, bad_rows)
    except (pa.ArrowException, OverflowError) as error:
        raise UserError(f"{where} cannot be read: {error}") from error


def _of_one_type(rows: list[dict[str, Any]], where: str, bad_rows: BadRows) -> Dataset:
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
    problems: dict[int, str] = {}
    for name, values in columns.items():
        for row, problem in unusual_values(values, "value"):
            if values[row] is not None:
                problems.setdefault(row, f"has {problem} in column {name!r}")
    kept = bad_rows.kept_rows(where, problems, len(rows))
    return Dataset.from_dict({name: [values[row] for row in kept] for name, values in columns.items()})


def bad_texts(dataset: Dataset) -> dict[int, str]:
    """Rows with a text that is not valid UTF-8: readers of json and parquet files do not look."""
    table, problems = dataset.with_format("arrow")[:], dict[int, str]()
    for name in table.column_names:
        column = table.select([name])
        if not _is_valid(column):
            bad = (row for row in range(len(table)) if not _is_valid(column.slice(row, 1)))
            problems.update(dict.fromkeys(bad, f"is not valid UTF-8 in column {name!r}"))
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
        elif what == "class" and usual == "number" and not (0 <= value < math.inf and value % 1 == 0):
            yield row, f"{value}, which is not a class number,"


def unusual_references(values: list[Any]) -> Iterator[tuple[int, str]]:
    """Targets that are missing, or neither a text nor a list of texts, where most are; or, where any is, no chat."""
    kinds = Counter(kind_of(value) for value in values if value is not None)
    if any(isinstance(value, list) and value and isinstance(value[0], dict) for value in values):
        yield from unusual_chats(values)
        return
    if not kinds or kinds.most_common(1)[0][0] not in ("text", "list"):
        yield from unusual_values(values, "value")
        return
    for row, value in enumerate(values):
        if isinstance(value, list):
            if problem := reference_problem(value):
                yield row, problem
        elif value is None:
            yield row, "nothing (null)"
        elif not isinstance(value, str):
            yield row, f"a {kind_of(value)}, {str(value)[:40]!r}, where others have a text,"


def unusual_chats(values: list[Any]) -> Iterator[tuple[int, str]]:
    """Chats from which nothing can be learned: without messages, without roles, without a turn of the assistant."""
    for row, value in enumerate(values):
        if problem := "nothing (null)" if value is None else chat_problem(value):
            yield row, problem


def kind_of(value: Any) -> str:
    """What a value is, in a word."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    return "text" if isinstance(value, str) else type(value).__name__
