"""Settings that users write as text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from .errors import UserError


def setting(default: Any, help: str) -> Any:
    """The field of a dataclass of settings, with its help for `--help` and the docs."""
    metadata = {"help": help}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def check_minimum(minimum: int, **values: Any) -> None:
    """Raises a `UserError` that names the first setting below the minimum, 0 or 1."""
    for name, value in values.items():
        if not value >= minimum:
            wanted = "must not be negative" if minimum == 0 else f"must be at least {minimum}"
            raise UserError(f"`{name}` {wanted}, but is {value!r}.")


def known_names(option: str, texts: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names separated by spaces or commas; raises a `UserError` where one is not known."""
    names = [name for text in texts for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise UserError(f"`{option}` must be among {', '.join(known)}, not {name!r}.")
    if not names:
        raise UserError(f"`{option}` names none of {', '.join(known)}.")
    return names


def parse_fractions(option: str, texts: Iterable[str]) -> list[float]:
    """Numbers separated by spaces or commas; raises a `UserError` where one is not a number."""
    numbers = []
    for part in (part for text in texts for part in str(text).split(",") if part):
        try:
            numbers.append(float(part))
        except ValueError:
            raise UserError(f"`{option}` must be numbers from 0 to 1, like 0.5,0.9, but there is {part!r}.") from None
    return numbers


def parse_settings(option: str, text: str, separator: str = ",") -> dict[str, Any]:
    """`"d_model=192,scale_parameter=True"` as a dict of numbers, booleans, `None` and texts."""
    settings = {}
    for assignment in text.split(separator):
        name, equals, value = (part.strip() for part in assignment.partition("="))
        if not equals or not name:
            raise UserError(f"{option}: {assignment!r} is not of the form name=value.")
        settings[name] = _parse_value(value)
    return settings


def _parse_value(text: str) -> Any:
    literals = {"true": True, "false": False, "none": None}
    if text.lower() in literals:
        return literals[text.lower()]
    for parse in (json.loads, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text
