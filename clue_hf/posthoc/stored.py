"""What is fitted once and used again: kept as plain JSON, under its name and a version."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ..files import write_json
from ..metrics.arrays import checked_arrays
from ..models.uncertainty_file import damaged


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

    def check(self) -> None:
        """Raises where the numbers are not such as are ever fitted: not finite, or lists that differ in length."""
        first, *others = (_lengths(getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]
        if any(other != first for other in others):
            raise ValueError("its lists differ in length")

    @classmethod
    def from_checked_dict(cls, content: dict[str, Any]) -> Self:
        """[`from_dict`] of a file that somebody may have edited: see [`check`]."""
        stored = cls.from_dict(content)
        stored.check()
        return stored

    def save(self, path: str | Path) -> None:
        """Writes a JSON file."""
        write_json(path, self.to_dict(), indent=None, allow_nan=False, default=None)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a file that `save` wrote."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))


def check_ascending(values: Any, at_least: int) -> None:
    """Raises where numbers do not ascend, or are fewer than that."""
    [numbers] = checked_arrays(numbers=values)
    if len(numbers) < at_least or (np.diff(numbers) < 0).any():
        raise ValueError(f"the numbers must ascend, and be at least {at_least}")


def _lengths(value: Any) -> list[Any] | None:
    """The lengths of nested lists; raises where they hold anything but finite numbers."""
    if isinstance(value, list):
        return [_lengths(entry) for entry in value]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return None


@contextmanager
def reading_part(name: str, part: str, **advice: str) -> Iterator[None]:
    """Names the part of a model's `uncertainty.json` that cannot be read; `advice` as in [`damaged`]."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(name, part, f"{type(error).__name__}: {error}", **advice) from error
