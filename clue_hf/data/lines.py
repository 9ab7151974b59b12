"""Files read row by row: jsonl, csv, tsv and txt, gzipped or not. A row that cannot be read says why, and where."""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ..errors import UserError


NO_OBJECT = "must be an object, as in {...}"
SEPARATORS = {"csv": ",", "tsv": "\t"}
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a text of more than 131,072 characters is a text


@dataclass(frozen=True)
class Line:
    """
    A row of a file.

    Args:
        number (`int`, *optional*):
            Of the line where it begins, counted from 1; none in a file that is one list.
        row (`dict`, *optional*):
            Its values by column; none where it cannot be read.
        problem (`str`, *optional*):
            Why it cannot.
    """

    number: int | None
    row: dict[str, Any] | None = None
    problem: str | None = None

    @property
    def place(self) -> str:
        """Where it is, as in "on line 3 "."""
        return "" if self.number is None else f"on line {self.number} "


def file_kind(path: str | Path) -> str:
    """The ending of a file's name in lower case, that of a compressed file left out."""
    return Path(str(path).lower().removesuffix(".gz")).suffix.lstrip(".")


def read_lines(path: str | Path) -> Iterator[Line]:
    """Every row of a file in turn, good or bad; raises only where the file itself cannot be read."""
    file, kind = Path(path), file_kind(path)
    opener: Any = gzip.open if file.name.lower().endswith(".gz") else open
    with opener(file, "rb") as content:
        if kind in SEPARATORS:
            yield from _csv_lines(content, SEPARATORS[kind])
        elif kind == "txt":
            yield from _text_lines(content, _parse_text)
        elif kind == "json" and content.peek(1)[:1] == b"[":
            yield from _list_lines(content)
        else:
            yield from _text_lines(content, _parse_json)


def _text_lines(content: Any, parse: Any) -> Iterator[Line]:
    for number, line in enumerate(content, 1):
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not line.strip() and parse is _parse_json:
            continue
        try:
            yield Line(number, parse(line.decode("utf-8")))
        except (ValueError, RecursionError) as error:
            yield Line(number, problem=_reason(error))


def _list_lines(content: Any) -> Iterator[Line]:
    """The objects of a file that is one list of them."""
    try:
        rows = json.load(content)
    except (ValueError, RecursionError) as error:
        yield Line(None, problem=_reason(error))
        return
    for row in rows:
        yield Line(None, row) if isinstance(row, dict) else Line(None, problem=NO_OBJECT)


def _parse_text(line: str) -> dict[str, Any]:
    return {"text": line.rstrip("\r\n")}


def _parse_json(line: str) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(NO_OBJECT)
    if "\\u" in line and not is_text(json.dumps(row, ensure_ascii=False)):
        raise ValueError("holds half of a surrogate pair, which is no text")
    return row


def _csv_lines(content: Any, separator: str) -> Iterator[Line]:
    texts: Any = (line.decode("utf-8", errors="surrogateescape") for line in content)
    taken: list[str] = []  # the lines of the row at hand
    names: list[str] | None = None
    number = 1  # of its first line
    while True:
        try:
            values = next(csv.reader(_kept(texts, taken), delimiter=separator))
        except StopIteration:
            return
        except csv.Error as error:
            yield Line(number, problem=f"is no row of a csv file: {error}")
            values = []
        if names is None:
            names = [name.removeprefix("\ufeff") for name in values]
        elif len(taken) > 1 and "".join(taken).count('"') % 2 and (texts := _unless_ended(texts)) is None:
            yield Line(number, problem="opens a quotation mark that is never closed")
            texts = iter(taken[1:])
            del taken[1:]
        elif values and values != [""]:  # not a blank line
            yield _csv_line(number, names, values)
        number += len(taken)
        taken.clear()


def _unless_ended(texts: Iterator[str]) -> Iterator[str] | None:
    """The same lines, or none where no more come."""
    following = list(islice(texts, 1))
    return chain(following, texts) if following else None


def _kept(texts: Iterator[str], taken: list[str]) -> Iterator[str]:
    for text in texts:
        taken.append(text)
        yield text


def _csv_line(number: int, names: list[str], values: list[str]) -> Line:
    if len(values) != len(names):
        return Line(number, problem=f"has {len(values)} values, but there are {len(names)} columns")
    bad = next((name for name, value in zip(names, values, strict=True) if not is_text(value)), None)
    if bad is not None:
        return Line(number, problem=f"is no UTF-8 text in column {bad!r}")
    return Line(number, dict(zip(names, values, strict=True)))


def is_text(value: str) -> bool:
    """Whether every character of a string is one: bytes that are no UTF-8 and halves of surrogate pairs are none."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeError):
        return "is no UTF-8 text"
    if isinstance(error, json.JSONDecodeError):
        return f"is no JSON: {error.msg}, at character {error.pos + 1}"
    return "is nested too deeply" if isinstance(error, RecursionError) else str(error)


def read_rows(path: str, option: str = "input") -> Iterator[dict[str, Any]]:
    """The rows of a file; raises with the number of the first that cannot be read."""
    try:
        for row, line in enumerate(read_lines(path)):
            if line.row is None:
                raise UserError(f"{option} {path!r}: row {row} (counted from 0) {line.place}{line.problem}.")
            yield line.row
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{option} {path!r} cannot be read: {error}") from error
