"""What commands print: progress while they run, then the result; with `--quiet` only that, with `--json` as JSON."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import KW_ONLY, dataclass
from typing import Any


#: Options of every command that has a result.
FLAGS = {
    "--quiet": "Print only the result, without progress; errors are still printed.",
    "--json": "Print the result as one JSON object, and nothing else on stdout.",
}
HELP = {"-h", "--help", "--help_all"}

#: Beginnings of warnings of libraries that the user of a command can do nothing about.
WARNINGS = ("Recommended: pip install sacremoses",)  # Marian's tokenizer, which works without it


@dataclass
class Result:
    """
    The result of a command.

    Args:
        data (`dict[str, Any]`):
            The result for programs, which `--json` prints.
        table (`str`, *optional*):
            The result for people, which is all that `--quiet` prints.
        summary (`str`, *optional*):
            The table with what else there is to say, in place of the table.
        meaning (`str`, *optional*):
            How to read it, in a sentence or two.
        written (`str`, *optional*):
            The files that were written.
        next_step (`tuple[str, str]`, *optional*):
            What to do next, and the command for it.
    """

    data: dict[str, Any]
    table: str = ""
    _: KW_ONLY
    summary: str = ""
    meaning: str = ""
    written: str = ""
    next_step: tuple[str, str] | None = None

    def text(self) -> str:
        """All of it for people."""
        after = f"Next, {self.next_step[0]}:\n  {self.next_step[1]}" if self.next_step else ""
        parts = [self.summary or self.table, self.meaning, "\n".join(filter(None, [self.written, after]))]
        return "\n\n".join(filter(None, parts))

    def json(self) -> str:
        """The data on one line; numbers that JSON does not have are null."""
        return json.dumps(_plain(self.data), ensure_ascii=False, allow_nan=False, default=str)


def add_flags(parser: ArgumentParser) -> None:
    """Adds `--quiet` and `--json`, which [`run_command`] reads."""
    for flag, help_text in FLAGS.items():
        parser.add_argument(flag, action="store_true", help=help_text)


def run_command(command: Callable[[Sequence[str]], Result | int], argv: Sequence[str]) -> int:
    """
    Runs the function of a command and prints its result as `--quiet` and `--json` in its options ask for; returns the
    exit code. While it runs with one of them, nothing else gets to stdout.
    """
    quiet, as_json = (flag in argv and not HELP & set(argv) for flag in FLAGS)
    with ExitStack() as stack:
        stack.enter_context(_without_known_warnings())
        if quiet:
            stack.enter_context(_without_progress())
        if quiet or as_json:
            stream = stack.enter_context(open(os.devnull, "w")) if quiet else sys.stderr
            stack.enter_context(redirect_stdout(stream))
        result = command(argv)
    if isinstance(result, int):
        return result
    print(result.json() if as_json else result.table if quiet else result.text())
    return 0


@contextmanager
def _without_progress() -> Iterator[None]:
    """Without the progress bars of the libraries, and without their messages below errors."""
    import datasets
    from transformers.utils import logging as transformers_logging

    verbosity = transformers_logging.get_verbosity()
    bars = [
        (module, module.is_progress_bar_enabled())  # type: ignore[attr-defined]
        for module in (transformers_logging, datasets.utils)
    ]
    transformers_logging.set_verbosity_error()
    for module, _ in bars:
        module.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        for module, enabled in bars:
            if enabled:
                module.enable_progress_bar()


@contextmanager
def _without_known_warnings() -> Iterator[None]:
    """Without the warnings of libraries that the user of a command can do nothing about."""
    with warnings.catch_warnings():
        for message in WARNINGS:
            warnings.filterwarnings("ignore", message)
        yield


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):  # of numpy and torch
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
