"""One parser for YAML files and command lines: the file gives defaults, the command line wins, typos are errors."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool

from ..errors import UserError


class ConfigParser(HfArgumentParser):
    """
    Parses dataclasses from `[CONFIG.yaml] [--option value ...]`.

    Args:
        dataclass_types (`Sequence[type]`):
            The dataclasses whose fields are the options.
        groups (`dict[str, list[str]]`):
            Options that `--help` shows, by heading, in this order. `--help_all` shows all of them.
        alternatives (`Sequence[tuple[set[str], set[str]]]`):
            Pairs of sets of which only one is used: an option of one on the command line removes the other's from the
            file.
        shared (`Sequence[type]`):
            Dataclasses of other commands: a file may hold their options too, which are ignored.
    """

    def __init__(
        self,
        dataclass_types: Sequence[Any],
        groups: dict[str, list[str]],
        alternatives: Sequence[tuple[set[str], set[str]]],
        closing_words: str,
        shared: Sequence[Any] = (),
        **settings: Any,
    ) -> None:
        super().__init__(dataclass_types, formatter_class=_Formatter, add_help=False, allow_abbrev=False, **settings)
        self.groups, self.alternatives, self.closing_words = groups, alternatives, closing_words
        self.ignored_options = {field.name for dataclass in shared for field in dataclasses.fields(dataclass)}
        self.add_argument("config", nargs="?", help="YAML file with any of the options below.")
        self.add_argument("-h", "--help", action="store_true", help="Show common options.")
        self.add_argument("--help_all", action="store_true", help="Show every option, transformers' own included.")

    def parse(self, arguments: Sequence[str]) -> tuple[Any, ...]:
        """Instances of the dataclasses. Prints help and leaves where that is asked for."""
        if {"-h", "--help", "--help_all"} & set(arguments):
            print(self._help(complete="--help_all" in arguments))
            sys.exit(0)
        path, rest = self._take_config(list(arguments))
        self._check_known(rest)
        from_file = [] if path is None else self._words_of_file(path, self._overruled(rest))
        try:
            *parsed, others = self.parse_args_into_dataclasses([*from_file, *rest], look_for_args_file=False)
        except (ValueError, TypeError) as error:
            raise UserError(str(error)) from error
        if others.config is not None:
            raise UserError(f"{others.config!r} is neither an option nor the value of one.")
        return tuple(parsed)

    def error(self, message: str) -> NoReturn:
        raise UserError(message)

    def _take_config(self, words: list[str]) -> tuple[str | None, list[str]]:
        """The YAML file: the first word if it is no option, or what follows `--config`."""
        if "--config" in words:
            at = words.index("--config")
            if at + 1 == len(words):
                raise UserError("--config needs a file.")
            return words[at + 1], words[:at] + words[at + 2 :]
        if words and not words[0].startswith("-"):
            return words[0], words[1:]
        return None, words

    def _overruled(self, words: list[str]) -> set[str]:
        """Options of the file that make way for an alternative on the command line."""
        given = {word.split("=")[0].lstrip("-").replace("-", "_") for word in words if word.startswith("--")}
        pairs = [pair for one, other in self.alternatives for pair in ((one, other), (other, one))]
        return {name for one, other in pairs if one & given for name in other} - given

    def _words_of_file(self, path: str, overruled: set[str]) -> list[str]:
        """The YAML file as command-line words, so that both take the same way through the types."""
        words = []
        for name, value in read_yaml(path).items():
            if f"--{name}" not in self._option_string_actions:
                if name in self.ignored_options:
                    continue
                raise UserError(f"{path}: there is no option {name!r}.{self._nearest(name)}")
            given = _words_of_value(value)
            takes_several = self._option_string_actions[f"--{name}"].nargs in ("*", "+")
            if isinstance(value, list) and not takes_several:
                raise UserError(f"{path}: {name!r} takes one value, not a list.")
            if given is not None and name not in overruled:
                words += [f"--{name}", *given]
        try:
            self.parse_known_args(words)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        return words

    def _check_known(self, words: list[str]) -> None:
        for word in words:
            name = word.split("=")[0]
            if word.startswith("--") and name not in self._option_string_actions:
                raise UserError(f"There is no option {name}.{self._nearest(name.lstrip('-'))}")

    def _nearest(self, name: str) -> str:
        known = [
            option.lstrip("-") for option in self._option_string_actions if "_" in option or "-" not in option[2:]
        ]
        close = get_close_matches(name, known, 1)
        return f" Did you mean {close[0]!r}?" if close else " See --help."

    def _help(self, complete: bool) -> str:
        formatter = self._get_formatter()
        actions = {action.dest: action for action in reversed(self._actions) if not _is_negation(action)}
        groups = dict(self.groups)
        if complete:
            shown = {name for names in groups.values() for name in names}
            groups["Everything else"] = sorted(set(actions) - shown)
        for heading, names in groups.items():
            formatter.start_section(heading)
            formatter.add_arguments([actions[name] for name in names])
            formatter.end_section()
        usage = f"usage: {self.prog} [CONFIG.yaml] [--option value ...]"
        return f"{usage}\n\n{self.description}\n\n{formatter.format_help()}\n{self.closing_words}"


class _Formatter(argparse.HelpFormatter):
    """One option a line where possible: its first spelling, the first sentence of its help, its default."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=118)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return "CONFIG.yaml"
        name = next((option for option in action.option_strings if option.startswith("--")), action.option_strings[0])
        return name if action.nargs == 0 else f"{name} {_VALUES.get(action.type, 'WORD')}"

    def _get_help_string(self, action: argparse.Action) -> str:
        text = " ".join((action.help or "").split()).replace("%%", "%")
        first = text.split(". ")[0].rstrip(".").replace("`", "")
        words = first if len(first) <= 140 else first[:139].rsplit(" ", 1)[0] + " ..."
        default = action.default
        if default is None or default is argparse.SUPPRESS or default == "" or action.nargs == 0:
            return words.replace("%", "%%")
        shown = " ".join(map(str, default)) if isinstance(default, list) else getattr(default, "value", default)
        return f"{words} [{shown}]".replace("%", "%%")


_VALUES: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", string_to_bool: "true|false"}


def _is_negation(action: argparse.Action) -> bool:
    return bool(action.option_strings) and action.option_strings[0].startswith("--no_")


def _words_of_value(value: Any) -> list[str] | None:
    """A YAML value as command-line words; `None` leaves the default."""
    if value is None:
        return None
    if isinstance(value, dict):
        return [json.dumps(value)]
    if isinstance(value, list):
        return [str(item) for item in value]
    return [str(value)]


class _StrictLoader(yaml.SafeLoader):
    """YAML without duplicate keys and without aliases, which can blow a small file up to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise UserError("aliases (*name) are not supported; write the value out.")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UserError(f"a key must be a word (line {key.start_mark.line + 1}).")
            if key.value in seen:
                raise UserError(f"the key {key.value!r} is there twice (line {key.start_mark.line + 1}).")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str) -> dict[str, Any]:
    """A mapping from a YAML file, or a `UserError` that says what is wrong with it."""
    if not Path(path).is_file():
        raise UserError(f"The config file {path!r} does not exist.")
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), _StrictLoader)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except RecursionError as error:
        raise UserError(f"{path} is nested too deeply to hold options.") from error
    # values whose tag or form promises what they are not, as in 2001-99-99 or !!int x, fail in the converters of YAML
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold `option: value` lines, not a {type(content).__name__}.")
    return {str(name): value for name, value in content.items()}
