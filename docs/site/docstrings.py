"""Extension of Griffe: references in docstrings, written as in transformers ([`CLUEConfig`]), become links."""

from __future__ import annotations

import re
from typing import Any

from griffe import Docstring, Extension, Object


#: The first line of an argument: "alpha (`float`, *optional*, defaults to 0.9):". The signature has the default.
ARGUMENT = re.compile(r"^( +[\w, *]+) \(([^\n]*)\):$", re.MULTILINE)
REFERENCE = re.compile(r"\[`(~?)([\w.]+)(\(\))?`\](?![(\[])")
#: Where the names of the API reference stand.
MODULES = ("", "functional", "kernels", "metrics", "scorers", "objectives")


class References(Extension):
    """Rewrites every docstring of the package."""

    def on_package(self, *, pkg: Any, **kwargs: Any) -> None:
        names = {}
        for module in reversed(MODULES):  # the names of clue_hf itself win
            part = pkg[module] if module else pkg
            shown = [name for name, member in part.members.items() if member.is_public and member.has_docstring]
            names.update((name, f"{part.path}.{name}") for name in shown if not part.members[name].is_module)
        _rewrite(pkg, names)


def _rewrite(part: Object, names: dict[str, str]) -> None:
    def link(match: re.Match[str]) -> str:
        shown = match[2].rsplit(".", 1)[-1] if match[1] else match[2]
        target = names.get(match[2].removeprefix("clue_hf.").rsplit(".", 1)[-1] if match[1] else match[2])
        return f"[`{shown}`][{target}]" if target else f"`{shown}`"

    if isinstance(part.docstring, Docstring):
        plain = ARGUMENT.sub(_plain_argument, part.docstring.value)
        part.docstring.value = REFERENCE.sub(link, plain)
    for member in part.members.values():
        if not member.is_alias:
            _rewrite(member, names)


def _plain_argument(line: re.Match[str]) -> str:
    """The type without the marks of Markdown, which Griffe shows as they are."""
    kind = re.sub(r", \*optional\*.*", "", line[2])
    kind = re.sub(r"\[?`~?([^`]*)`\]?", r"\1", kind)
    return f"{line[1]} ({kind}):"
