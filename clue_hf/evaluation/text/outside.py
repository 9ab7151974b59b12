"""Rows with texts that were generated elsewhere: which can be used, what they bring, and what cannot be computed."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from transformers.utils.logging import tqdm

from ...data.bad_rows import BadRows
from ...data.columns import describe_value, reference_problem, verdict_problem
from ...data.lines import UNREADABLE_FILE, file_kind, read_lines
from ...errors import UserError
from ...scorers import Scorer
from ...scorers.outside import PARTS, OutsideText, RowProblem, missing_parts, read_outside_text
from .judging import Row, verdict_columns


#: Why no row of a file can bring what a scorer needs.
NEVER = {
    "unconditional": "the probabilities of the output without its source, which only the model can give",
    "flatness": "the whole distribution of each token, which only the model can give",
    "p_true": "the model's answer to the question whether its output is true",
    "hidden": "the hidden states of the model",
    "source_tokens": "the number of tokens of each source, since it was fitted to the outputs of a model",
}
KINDS = ("jsonl", "json")


class OutsideTexts:
    """
    Texts from elsewhere, with what they are judged by. Their rows are read twice and never held: first to find those
    that cannot be used and what the others bring, then for the texts, one by one.

    Args:
        rows (`str`, `Path` or `Iterable[dict]`):
            A jsonl file, gzipped or not, or rows. See [`read_outside_text`] for their fields.
        qualities (`Sequence[str]`):
            How the outputs are judged.
        scorers (`dict[str, Scorer]`):
            The scores that they should get.
        source_column, target_column (`str`, *optional*):
            Fields of the source and of the reference or references; by default `source`, and `references` or
            `reference`.
        bad_rows ([`~clue_hf.data.bad_rows.BadRows`], *optional*):
            What is done with rows that cannot be used; by default the first raises. A row is one of them that lacks
            what a scorer reads and most rows have.
        max_rows (`int`, *optional*):
            Maximum number of rows.

    Attributes:
        unavailable (`dict[str, str]`):
            The scorers that cannot be computed, and why.
        checksum (`int`):
            Of all rows.
        top_tokens, samples (`list[int]`):
            The fewest and the most probabilities at a position that entropies are computed from, and samples of a
            text; empty where there are none.
    """

    def __init__(
        self,
        rows: str | Path | Iterable[Mapping[str, Any]],
        qualities: Sequence[str],
        scorers: Mapping[str, Scorer],
        source_column: str | None = None,
        target_column: str | None = None,
        bad_rows: BadRows | None = None,
        max_rows: int | None = None,
    ) -> None:
        self.where = f"outputs {str(rows)!r}" if isinstance(rows, str | Path) else "The outputs"
        self._source = _checked_file(rows, self.where) if isinstance(rows, str | Path) else _repeatable(rows)
        self._columns, self._verdicts = (source_column, target_column), verdict_columns(qualities)
        self._needs_reference = len(self._verdicts) < len(qualities)
        self._max_rows = max_rows
        self.checksum, self.top_tokens, self.samples = 0, list[int](), list[int]()
        self._skipped: set[int] = set()
        self.count = self._look(scorers, bad_rows or BadRows())

    def __iter__(self) -> Iterator[tuple[Row, OutsideText]]:
        for number, row in enumerate(self._rows()):
            if number not in self._skipped:
                yield self._read(row)

    def _look(self, scorers: Mapping[str, Scorer], bad_rows: BadRows) -> int:
        """Reads all rows once; returns the number of those that can be used."""
        wanted = {part for scorer in scorers.values() for part in missing_parts(scorer, frozenset())} & PARTS.keys()
        problems, lacking, count = dict[int, str](), {part: array("q") for part in PARTS if part in wanted}, 0
        for number, row in enumerate(tqdm(self._rows(), desc="Reading", unit=" rows")):
            count += 1
            try:
                _, text = self._read(row)
            except RowProblem as problem:
                problems[number] = str(problem)
                continue
            self.checksum = zlib.crc32(json.dumps(row, sort_keys=True, default=str).encode(), self.checksum)
            self.top_tokens = _widened(self.top_tokens, text.top_tokens or ())
            self.samples = _widened(self.samples, [len(text.collected.samples)])
            for part, numbers in lacking.items():
                if part not in text.parts:
                    numbers.append(number)
        if count == 0:
            raise UserError(f"{self.where} {'have' if self.where == 'The outputs' else 'has'} no rows.")
        good = count - len(problems)
        usual = frozenset(part for part, numbers in lacking.items() if len(numbers) < good / 2)
        for part in (part for part in lacking if part in usual):
            for number in lacking[part]:
                problems.setdefault(number, f"has no {PARTS[part]}, where most rows have them")
        self._skipped = set(range(count)) - set(bad_rows.kept_rows(self.where, problems, count).tolist())
        self.unavailable = _unavailable(
            scorers, usual, {part: good - len(rows) for part, rows in lacking.items()}, good
        )
        if len(self.unavailable) == len(scorers):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.unavailable.items())
            raise UserError(f"{self.where}: no score can be computed. {reasons}.")
        return count - len(self._skipped)

    def _rows(self) -> Iterator[Any]:
        """Every row, or, as a text, why it cannot be read."""
        if not isinstance(self._source, Path):
            for row in islice(self._source, self._max_rows):
                yield row if isinstance(row, Mapping) else f"must be an object, but is {describe_value(row)}"
            return
        try:
            yield from islice(read_lines(self._source), self._max_rows)
        except UNREADABLE_FILE as error:
            raise UserError(f"{self.where} cannot be read: {error}") from error

    def _read(self, row: Any) -> tuple[Row, OutsideText]:
        if isinstance(row, str):
            raise RowProblem(row)
        if "error" in row and row.get("output") is None:
            raise RowProblem(f"has no output: {row['error']}")
        source_column, target_column = self._columns
        source = _reach(row, source_column or "source")
        if not isinstance(source, str) and (source_column or source is not None):
            raise RowProblem(f"has no text in {source_column or 'source'!r}, but {describe_value(source)}")
        target = target_column or ("references" if row.get("references") is not None else "reference")
        references = self._references(_reach(row, target), target)
        verdicts = {}
        for name, column in self._verdicts.items():
            value = _reach(row, column)
            if problem := verdict_problem(value):
                raise RowProblem(f"has {problem}, in {column!r}")
            verdicts[name] = float(value)
        return Row(source or "", references, verdicts), read_outside_text(row)

    def _references(self, value: Any, name: str) -> list[str]:
        if value is None and not self._needs_reference:
            return []
        if isinstance(value, list):
            if problem := reference_problem(value):
                raise RowProblem(f"has {problem} in {name!r}")
            return value
        if not isinstance(value, str):
            raise RowProblem(f"has no text in {name!r}, but {describe_value(value)}")
        return [value]


def _unavailable(
    scorers: Mapping[str, Scorer], usual: frozenset[str], counts: Mapping[str, int], rows: int
) -> dict[str, str]:
    """Why some scorers cannot be computed where rows have the usual parts, and others only some rows."""
    reasons = {}
    for name, scorer in scorers.items():
        missing = missing_parts(scorer, usual)
        if never := [NEVER.get(part, part) for part in missing if part not in PARTS]:
            reasons[name] = f"it needs {never[0]}"
        elif missing:
            count = counts[missing[0]]
            have = "no row has them" if count == 0 else f"only {count:,} of {rows:,} rows have them"
            reasons[name] = f"it needs {PARTS[missing[0]]}, and {have}"
    return reasons


def _widened(limits: list[int], numbers: Iterable[int]) -> list[int]:
    """The smallest and the largest of all numbers so far."""
    both = [*limits, *numbers]
    return [min(both), max(both)] if both else []


def _checked_file(path: str | Path, where: str) -> Path:
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"{where} does not exist.")
    if file_kind(file) not in KINDS:
        raise UserError(f"{where} must be a jsonl file (or one with .gz).")
    return file


def _repeatable(rows: Iterable[Any]) -> Iterable[Any]:
    return list(rows) if iter(rows) is rows else rows


def _reach(row: Mapping[str, Any], path: str) -> Any:
    """The value of a field; dots select nested ones."""
    if path in row:
        return row[path]
    value: Any = row
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
