"""Files read row by row: jsonl, csv, tsv and txt, gzipped or not. A row that cannot be read says why, and where."""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import UserError


SEPARATORS = {"csv": ",", "tsv": "\t"}
#: What reading a file raises that cannot be read, or is not compressed as it should be.
UNREADABLE_FILE = (OSError, EOFError, zlib.error)
#: At the start of a file: it is UTF-8.
MARK = b"\xef\xbb\xbf"
#: An escaped half of a surrogate pair in a json file, without the other half.
HALF_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # a text of more than 131,072 characters is a text


def file_kind(path: str | Path) -> str:
    """The ending of a file's name in lower case, that of a compressed file left out."""
    return Path(str(path).lower().removesuffix(".gz")).suffix.lstrip(".")


def open_file(path: str | Path) -> Any:
    """The bytes of a file, unpacked where it is gzipped, without the mark that it is UTF-8."""
    opener: Any = gzip.open if str(path).lower().endswith(".gz") else open
    file = opener(path, "rb")
    if file.peek(len(MARK)).startswith(MARK):
        file.read(len(MARK))
    return file


def is_misread(path: str | Path) -> bool:
    """
    Whether readers of whole files take some row for another, without a word: pandas shifts or fills the values of rows
    of a csv file that have too many or too few, and datasets drops half of a surrogate pair in a list of a json file.
    """
    if file_kind(path) in SEPARATORS:
        return any(isinstance(row, str) for row in read_lines(path))
    if file_kind(path) != "json":
        return False
    with open_file(path) as content:
        return HALF_PAIR.search(content.read()) is not None


def read_lines(path: str | Path) -> Iterator[dict[str, Any] | str]:
    """
    Every row of a file in turn: its values or, as a text, why it cannot be read. Raises only where the file itself
    cannot be read.
    """
    kind = file_kind(path)
    with open_file(path) as content:
        if kind in SEPARATORS:
            yield from _csv_lines(content, SEPARATORS[kind])
        elif kind == "txt":
            yield from _text_lines(content, _parse_text)
        elif kind == "json" and content.peek(64).lstrip()[:1] == b"[":
            yield from _list_lines(content)
        else:
            yield from _text_lines(content, _parse_json)


def _text_lines(content: Any, parse: Callable[[str], dict[str, Any]]) -> Iterator[dict[str, Any] | str]:
    for number, line in enumerate(content, 1):
        if not line.strip() and parse is _parse_json:
            continue
        try:
            yield parse(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            yield f"on line {number} {_reason(error)}"


def _list_lines(content: Any) -> Iterator[dict[str, Any] | str]:
    """The objects of a file that is one list of them."""
    text = content.read()
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield _reason(error)
        return
    for row in rows:
        try:
            yield _checked(row, b"\\u" in text)
        except ValueError as error:
            yield _reason(error)


def _parse_text(line: str) -> dict[str, Any]:
    return {"text": line.rstrip("\r\n")}


def _parse_json(line: str) -> dict[str, Any]:
    return _checked(json.loads(line), "\\u" in line)


def _checked(row: Any, escaped: bool) -> dict[str, Any]:
    """A row that is an object, and whose texts are valid: those of escaped characters may not be."""
    if not isinstance(row, dict):
        raise ValueError("must be an object, as in {...}")
    if escaped and not is_text(json.dumps(row, ensure_ascii=False)):
        raise ValueError("holds half of a surrogate pair, which is not valid text")
    return row


def _csv_lines(content: Any, separator: str) -> Iterator[dict[str, Any] | str]:
    rows = csv_rows(content, separator)
    _, names, problem = next(rows, (1, [], None))
    if problem:  # without the names of the columns no row can be read
        yield f"on line 1 {problem}"
        return
    for number, values, problem in rows:
        problem = problem or _csv_problem(names, values)
        yield f"on line {number} {problem}" if problem else dict(zip(names, values, strict=True))


def _csv_problem(names: list[str], values: list[str]) -> str | None:
    if len(values) != len(names):
        return f"has {len(values)} value{'s' * (len(values) != 1)}, but there are {len(names)} columns"
    bad = [name for name, value in zip(names, values, strict=True) if not is_text(value)]
    return f"is not valid UTF-8 in column {bad[0]!r}" if bad else None


def csv_rows(content: Any, separator: str) -> Iterator[tuple[int, list[str], str | None]]:
    """
    The rows of a csv file that are not blank, and the first one: the number of the line where each begins, its values,
    and why it cannot be read where it cannot.
    """
    lines = (line.decode("utf-8", errors="surrogateescape") for line in content)
    taken: list[str] = []  # the lines of the row at hand; an empty text is the end of the file, and follows all lines
    rows = csv.reader(_kept(chain(lines, [""]), taken), delimiter=separator)
    number = 1  # of its first line
    while True:
        try:
            values, problem = next(rows), None
        except csv.Error as error:
            values, problem = [], f"is not a valid csv row: {error}"
        if not taken[0]:
            return
        if not taken[-1]:
            problem = "opens a quotation mark that is never closed"
            rows = csv.reader(_kept(iter(taken[1:]), taken), delimiter=separator)
            del taken[1:]
        if problem or number == 1 or not _is_blank(taken, separator):
            yield number, values, problem
        number += len(taken)
        taken.clear()


def _is_blank(lines: list[str], separator: str) -> bool:
    """Whether pandas skips a row: one of spaces is blank, an empty value in quotation marks is not."""
    return len(lines) == 1 and not lines[0].strip(" \t\r\n") and separator not in lines[0]


def _kept(texts: Iterator[str], taken: list[str]) -> Iterator[str]:
    for text in texts:
        taken.append(text)
        yield text


def is_text(value: str) -> bool:
    """Whether a string is valid: without bytes that are not UTF-8, and without halves of surrogate pairs."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeError):
        return "is not valid UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"is not valid JSON: {error.msg}, at character {error.pos + 1}"
    return "is nested too deeply" if isinstance(error, RecursionError) else str(error)


def read_rows(path: str, option: str = "input") -> Iterator[dict[str, Any]]:
    """The rows of a file; raises with the number of the first that cannot be read."""
    try:
        for number, row in enumerate(read_lines(path)):
            if isinstance(row, str):
                raise UserError(f"{option} {path!r}: row {number} (counted from 0) {row}.")
            yield row
    except UNREADABLE_FILE as error:
        raise UserError(f"{option} {path!r} cannot be read: {error}") from error
