"""Evaluated examples: in memory, or as lines of a file that keeps what is finished when a run is interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from ...files import ResumableLog


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


class ExampleLog(ResumableLog):
    """Takes examples in any order as they are finished, each with its `row`, and returns them in order."""

    def __init__(self, folder: Path | None, signature: dict[str, Any], resume: bool = False) -> None:
        output, unfinished = (None, None) if folder is None else (folder / FINISHED, folder / UNFINISHED)
        super().__init__(output, unfinished, signature, resume)
        if folder is not None and resume and not self.count and (folder / "report.json").exists():
            description = json.loads((folder / "report.json").read_text(encoding="utf-8"))["description"]
            self.check_signature(description["signature"])
            examples = ExampleFile(folder / FINISHED)
            self.reopen(map(_texts, examples), examples)

    def add_examples(self, examples: list[Example]) -> None:
        """Keeps some examples, whose order does not matter."""
        self.add(map(_texts, examples), examples)

    def examples(self, count: int) -> Sequence[Example]:
        """The examples of rows 0 to `count` - 1, in order. The log stays until they are measured."""
        self.write(count)
        return [json.loads(line) for line in self.lines(count)] if self.output is None else ExampleFile(self.output)


def logged_texts(source: str, references: Sequence[str]) -> list[Any]:
    """What identifies a row: its source and its reference, or the list of them where there are several."""
    return [source, references[0] if len(references) == 1 else references]


def _texts(example: Example) -> list[Any]:
    return logged_texts(example["source"], example.get("references") or [example["reference"]])
