"""Settings that people write as text."""

from __future__ import annotations

from collections.abc import Iterable


def known_names(option: str, words: Iterable[str], known: Iterable[str]) -> list[str]:
    """Names separated by spaces or commas; raises where one is not known."""
    names = [name for word in words for name in word.split(",") if name]
    for name in names:
        if name not in known:
            raise ValueError(f"`{option}` must be among {', '.join(known)}, not {name!r}.")
    if not names:
        raise ValueError(f"`{option}` names none of {', '.join(known)}.")
    return names
