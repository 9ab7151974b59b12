"""Evaluated examples: in memory, or as lines of a file that keeps what is finished when a run is interrupted."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, overload

from ...errors import UserError


Example = dict[str, Any]
FINISHED, UNFINISHED = "examples.jsonl", "examples.unfinished.jsonl"


class ExampleFile(Sequence[Example]):
    """The lines of a JSONL file as a sequence; only where each begins is held in memory."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.starts = Path(path), [0]
        with open(path, "rb") as file:
            for line in file:
                self.starts.append(self.starts[-1] + len(line))
        self.starts.pop()

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        with open(self.path, "rb") as file:
            file.seek(self.starts[index])
            return json.loads(file.readline())

    def __iter__(self) -> Iterator[Example]:
        with open(self.path, "rb") as file:
            yield from map(json.loads, file)


class ExampleLog:
    """
    Takes examples in any order as they are finished, each with its `row`, and hands them back in order.

    Args:
        folder (`Path`, *optional*):
            Where every finished example is written at once; without it they stay in memory.
        signature (`dict`):
            What the examples depend on: an unfinished log with another one is not continued.
        resume (`bool`):
            Continue what the folder holds, finished or not.
    """

    def __init__(self, folder: Path | None, signature: dict[str, Any], resume: bool = False) -> None:
        self.folder = folder
        self.memory: dict[int, Example] = {}
        self.signature = json.loads(json.dumps(signature, default=str))
        self._file: BinaryIO
        self.starts: dict[int, int] = {}
        self.texts: dict[int, int] = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            if resume:
                self._reopen(folder)
            else:
                self._begin(folder)

    @property
    def done(self) -> set[int]:
        """The rows that are finished."""
        return set(self.starts if self.folder else self.memory)

    def add(self, examples: list[Example]) -> None:
        """Keeps some examples, whose order does not matter."""
        if self.folder is None:
            self.memory.update({example["row"]: example for example in examples})
            return
        lines = [_line(example) for example in examples]
        end = self._file.tell()
        for example, line in zip(examples, lines, strict=True):
            self.starts[example["row"]] = end
            end += len(line)
        self._file.write(b"".join(lines))
        self._file.flush()

    def check(self, row: int, source: str, reference: str) -> None:
        """Raises where a row that an earlier run finished was another one."""
        if row in self.texts and self.texts[row] != _checksum(source, reference):
            raise UserError(
                f"{self.folder}: row {row} (counted from 0) of the data has changed since the evaluation began. "
                "Start over in another folder."
            )

    def finish(self, count: int) -> Sequence[Example]:
        """The examples of rows 0 to `count` - 1, in order."""
        if self.folder is None:
            return [self.memory[row] for row in range(count)]
        temporary = self.folder / f"{FINISHED}.tmp"
        self._file.close()
        with open(self.folder / UNFINISHED, "rb") as file, open(temporary, "wb") as ordered:
            for row in range(count):
                file.seek(self.starts[row])
                ordered.write(file.readline())
        os.replace(temporary, self.folder / FINISHED)
        (self.folder / UNFINISHED).unlink()
        return ExampleFile(self.folder / FINISHED)

    def _begin(self, folder: Path) -> None:
        if (folder / UNFINISHED).exists():
            raise UserError(
                f"{folder} holds an evaluation that was interrupted. Continue it with --resume (resume=True), or "
                f"delete {UNFINISHED} to start over."
            )
        self._file = open(folder / UNFINISHED, "wb")  # noqa: SIM115
        self._write_signature()

    def _write_signature(self) -> None:
        self._file.write(_line({"signature": self.signature}))
        self._file.flush()

    def _reopen(self, folder: Path) -> None:
        if not (folder / UNFINISHED).exists():
            if not (folder / "report.json").exists():
                return self._begin(folder)
            description = json.loads((folder / "report.json").read_text(encoding="utf-8"))["description"]
            self._check_signature(description["signature"])
            temporary = folder / f"{UNFINISHED}.tmp"
            with open(folder / FINISHED, "rb") as finished, open(temporary, "wb") as copy:
                copy.write(_line({"signature": self.signature}))
                shutil.copyfileobj(finished, copy)
            os.replace(temporary, folder / UNFINISHED)
        self._file = open(folder / UNFINISHED, "r+b")  # noqa: SIM115
        position = 0
        for number, line in enumerate(self._file):
            if not line.endswith(b"\n"):
                break  # the run ended in the middle of it
            content = json.loads(line)
            if number == 0:
                self._check_signature(content["signature"])
            else:
                self.starts[content["row"]] = position
                self.texts[content["row"]] = _checksum(content["source"], content["reference"])
            position += len(line)
        self._file.seek(position)
        self._file.truncate()
        if position == 0:
            self._write_signature()

    def _check_signature(self, earlier: dict[str, Any]) -> None:
        for name in sorted({*earlier, *self.signature}):
            if earlier.get(name) != self.signature.get(name):
                raise UserError(
                    f"{self.folder} was begun with another {name}: {earlier.get(name)!r}, now "
                    f"{self.signature.get(name)!r}. Use the same settings to continue, or another folder."
                )


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode("utf-8", errors="replace") + b"\n"


def _checksum(source: str, reference: str) -> int:
    return zlib.crc32(f"{source}\0{reference}".encode("utf-8", errors="replace"))
