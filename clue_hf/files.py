"""Files that survive an interruption: written as a whole or not at all, and logs that a later run continues."""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Self

from .errors import UserError


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a temporary file beside `path`, which replaces `path` once its content is on the disk."""
    path = Path(path)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        opened = open(temporary, "wb")  # noqa: SIM115 - closed below
    except OSError as error:
        error.filename = str(path)  # the name that the user knows
        raise
    try:
        with opened as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name is on the disk, too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file atomically; what UTF-8 does not have (lone surrogates) becomes `?`."""
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", errors="replace"))


def write_json(path: str | Path, content: Any, **settings: Any) -> None:
    """Writes a JSON file atomically; `settings` are those of `json.dumps`, other types are written as text."""
    write_text(path, json.dumps(content, **{"indent": 2, "default": str, **settings}) + "\n")


def write_lines(path: str | Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes a JSONL file atomically, a line for each row."""
    with atomic_write(path) as file:
        file.writelines(map(_line, rows))


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", errors="replace") + b"\n"


class ResumableLog:
    """
    The results of rows, written in any order as they are finished; the file in order appears when all are there. Each
    line holds a checksum of the row's input and the result: a killed run loses the batch it was at, and a resumed one
    notices a changed input. Only where each line begins is held in memory.
    """

    def __init__(
        self, output: Path | None, unfinished: Path | None, signature: dict[str, Any], resume: bool = False
    ) -> None:
        self.output, self.path = output, unfinished
        self.signature = json.loads(json.dumps(signature, default=str))
        self._starts, self.count, self._end = array("q"), 0, 0  # -1 where a row is not finished
        self._file: BinaryIO | None = None
        if unfinished is not None and unfinished.exists():
            self._read(unfinished, resume)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def done(self) -> set[int]:
        """The rows that are finished."""
        return {row for row, start in enumerate(self._starts) if start >= 0}

    def add(self, inputs: Iterable[Any], results: Iterable[dict[str, Any]]) -> None:
        """Keeps results, each with its `row`; they are in the file when this returns."""
        file, position, lines = self._open(), self._end, []
        for row_input, result in zip(inputs, results, strict=True):
            lines.append(_log_line(row_input, result))
            self._note(result["row"], position)
            position += len(lines[-1])
        file.seek(self._end)
        file.write(b"".join(lines))
        file.flush()
        self._end = position

    def reopen(self, inputs: Iterable[Any], results: Iterable[dict[str, Any]]) -> None:
        """Begins with results that an earlier run has finished: all of them are in the log, or it does not exist."""
        assert self.path is not None
        with atomic_write(self.path) as file:
            file.write(_line({"signature": self.signature}))
            file.writelines(map(_log_line, inputs, results))
        self._read(self.path, resume=True)

    def check(self, row: int, row_input: Any) -> None:
        """Raises a `UserError` where the input of a finished row has changed."""
        file = self._open()
        file.seek(self._starts[row])
        if file.read(8) != _checksum(row_input):
            raise UserError(
                f"{self.path}: row {row} (counted from 0) of the input has changed since it was finished. Delete the "
                "file to start over."
            )

    def lines(self, count: int) -> Iterator[bytes]:
        """The results of rows 0 to `count` - 1, in order, as lines of JSON."""
        file = self._open()
        for row in range(count):
            file.seek(self._starts[row] + 9)
            yield file.readline()

    def finish(self, count: int) -> None:
        """Writes the file in order, and deletes the log."""
        self.write(count)
        self.delete()

    def write(self, count: int) -> None:
        """Writes the file in order."""
        if self.output is not None:
            with atomic_write(self.output) as file:
                file.writelines(self.lines(count))

    def delete(self) -> None:
        """Deletes the log, which nothing needs any more."""
        self.__exit__()
        if self.path is not None:
            self.path.unlink()

    def check_signature(self, earlier: Any) -> None:
        """Raises a `UserError` where results were produced with another signature."""
        for name in sorted({*earlier, *self.signature}):
            if earlier.get(name) != self.signature.get(name):
                raise UserError(
                    f"{self.path} was begun with another {name}: {earlier.get(name)!r}, now "
                    f"{self.signature.get(name)!r}. Use the same settings, or delete it to start over."
                )

    def _note(self, row: int, position: int) -> None:
        self._starts.extend([-1] * (row + 1 - len(self._starts)))
        self.count += self._starts[row] < 0
        self._starts[row] = position

    def _open(self) -> BinaryIO:
        """The log, open for reading and writing; a new one begins with the signature."""
        if self._file is None:
            if self.path is None:
                self._file = BytesIO()
            else:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(self.path, "r+b" if self._end else "w+b")  # noqa: SIM115
            if not self._end:
                self._end = self._file.write(_line({"signature": self.signature}))
        return self._file

    def _read(self, path: Path, resume: bool) -> None:
        """Finds the rows that an earlier run finished, and cuts off a line that it did not finish."""
        with open(path, "r+b") as file:
            try:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    if self._end == 0:
                        earlier = dict(json.loads(line)["signature"])
                    else:
                        self._note(json.loads(line[9:])["row"], self._end)
                    self._end += len(line)
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise UserError(
                    f"{path} is damaged, or from another version of clue-hf ({error}). Delete it to start over."
                ) from error
            if not self.count:
                self._end = 0
                return
            if not resume:
                raise UserError(
                    f"{path} holds {self.count:,} finished rows of an interrupted run. Continue it with --resume "
                    "true, or delete it to start over."
                )
            self.check_signature(earlier)
            file.truncate(self._end)


def _log_line(row_input: Any, result: dict[str, Any]) -> bytes:
    return _checksum(row_input) + b" " + _line(result)


def _checksum(row_input: Any) -> bytes:
    return f"{zlib.crc32(json.dumps(row_input, sort_keys=True).encode()):08x}".encode()
