"""The one exception for a user's mistake: what is wrong, where, what to do. Commands print it and exit with 2."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """An error that the user can fix; the message says how."""


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """The end of a message on an unknown name: the nearest known one, if any is near."""
    close = get_close_matches(name, list(choices), 1)
    return f" Did you mean {close[0]!r}?" if close else ""
