"""Texts of others inside a card: they cannot become markdown, HTML, a path of somebody's machine, or a secret."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from huggingface_hub import get_token


#: A token of the Hub, in text or in bytes.
TOKEN = r"hf_[A-Za-z0-9]{20,}"
#: Shorter values of variables are no secrets, and would be found everywhere.
SHORTEST_SECRET = 8
HIDDEN = "***"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$!])")
_SECRET_OPTION = re.compile(r"--[\w-]*(token|password|secret|api[_-]key)", re.IGNORECASE)
# folders from the root of a disk, not those of an address (https://...) or of a relative path
_FOLDERS = re.compile(r"(?<![\w:/\\.~-])(?:~|[A-Za-z]:)?[\\/](?:[^\s\\/'\":,;|<>]+[\\/])+")


def one_line(text: object) -> str:
    """A text without line breaks and characters that cannot be seen."""
    return " ".join(_CONTROL.sub(" ", str(text)).split())


def markdown_text(text: object) -> str:
    """A text that shows as it is, wherever it stands in markdown."""
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", escaped)


def code_span(text: object, in_table: bool = False) -> str:
    """A text as inline code, between more backticks than it holds itself."""
    line = one_line(text) or " "
    fence = "`" * (_longest_run(line) + 1)
    padding = " " if line.startswith("`") or line.endswith("`") else ""
    if in_table:
        line = line.replace("|", "\\|")
    return f"{fence}{padding}{line}{padding}{fence}"


def code_block(text: str, language: str = "") -> str:
    """Lines of code that nothing in them can end."""
    lines = "\n".join(_CONTROL.sub(" ", line).rstrip() for line in text.splitlines())
    fence = "`" * max(3, _longest_run(lines) + 1)
    return f"{fence}{language}\n{lines}\n{fence}"


def without_folders(text: object) -> str:
    """A text in which a path from the root of a disk is only its last name."""
    line = one_line(text)
    if line.startswith(("/", "~/")) and "//" not in line:
        return PurePosixPath(line).name or line
    if re.match(r"[A-Za-z]:[\\/]", line):
        return PureWindowsPath(line).name or line
    return _FOLDERS.sub("", line)


def secrets() -> list[str]:
    """The tokens of the Hub that this process could use."""
    tokens = [os.environ.get("HF_TOKEN"), os.environ.get("HUGGING_FACE_HUB_TOKEN"), get_token()]
    return list(dict.fromkeys(token for token in tokens if token and len(token) >= SHORTEST_SECRET))


def without_secrets(text: str) -> str:
    """A text in which the tokens of the Hub are hidden."""
    for secret in secrets():
        text = text.replace(secret, HIDDEN)
    return re.sub(TOKEN, HIDDEN, text)


def shareable_command(command: str) -> str:
    """A command line without options that hold secrets, and without folders of this machine."""
    try:
        argv = shlex.split(command)
    except ValueError:  # an unclosed quote: no command line of ours
        return without_secrets(without_folders(command))
    return without_secrets(shlex.join(without_folders(word) for word in without_secret_options(argv)))


def without_secret_options(argv: Sequence[str]) -> list[str]:
    """A command line without options that hold secrets, and their values."""
    public: list[str] = []
    is_secret = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        if is_secret and not argument.startswith("--"):
            is_secret = False
            continue
        is_secret_option = bool(_SECRET_OPTION.fullmatch(name))
        is_secret = is_secret_option and not equals
        if not is_secret_option:
            public.append(argument)
    return public


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
