"""What is fitted once and used again: kept as plain JSON, under its name and a version."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

from ..files import write_json


VERSION = 1


class Stored:
    """
    Base of a dataclass of numbers and lists of numbers: `to_dict` and `from_dict`, `save` and `load`. What is loaded
    equals what was saved, bit for bit; nothing is pickled.
    """

    name: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Name, version and numbers, as plain data."""
        numbers = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"name": self.name, "version": VERSION, **numbers}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """The object that `to_dict` described; raises where the name, the version or a key is another."""
        if content.get("name") != cls.name or content.get("version") != VERSION:
            raise ValueError(
                f"Expected {cls.name!r}, version {VERSION}, got {content.get('name')!r}, version "
                f"{content.get('version')!r}."
            )
        numbers = {key: value for key, value in content.items() if key not in ("name", "version")}
        expected = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        if sorted(numbers) != sorted(expected):
            raise ValueError(f"Expected the keys {expected} of {cls.name!r}, got {list(numbers)}.")
        return cls(**numbers)

    def save(self, path: str | Path) -> None:
        """Writes a JSON file."""
        write_json(path, self.to_dict(), indent=None, allow_nan=False, default=None)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a file that `save` wrote."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
