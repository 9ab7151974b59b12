"""One parser for YAML files and command lines: the file gives defaults, the command line wins, typos are errors."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

import yaml
from transformers import HfArgumentParser
from transformers.hf_argparser import string_to_bool

from ..errors import UserError
from ..settings import check_trl_settings
from ..terminal import add_flags
from .configs import find_config


# where data and model come from: what the command line says replaces the other way in the file
ALTERNATIVES = (
    (
        {"dataset_name", "dataset_config", "dataset_revision"},
        {"train_file", "validation_file", "test_file", "split_column"},
    ),
    ({"model_name_or_path"}, {"model_type", "tokenizer_vocab_size"}),
    ({"tokenizer_name"}, {"tokenizer_vocab_size"}),
)


class ConfigParser(HfArgumentParser):
    """
    Parses `[NAME ...] [CONFIG.yaml] [--option value ...]` into dataclasses.

    Args:
        prog (`str`):
            The command with the names that it requires: `"clue-hf push DIR REPO_ID"`.
        dataclass_types (`Sequence[type]`):
            The dataclasses whose fields are the options.
        description, examples (`str`):
            Texts at the beginning and at the end of the help.
        groups (`dict[str, list[str]]`, *optional*):
            Options that `--help` shows, by heading, in this order; by default all. `--help_all` shows all of them.
        shared (`Sequence[type]`, *optional*):
            Dataclasses of other commands: a file may hold their options too, which are ignored.
        command_line_only (`Sequence[str]`, *optional*):
            Options that mean something else in the file, and are not read from it.
        instead_of_names (`Sequence[str]`, *optional*):
            Options that take the place of the names; these are then `None`.
        has_result (`bool`, *optional*, defaults to `True`):
            Whether the command has the options `--quiet` and `--json`.
    """

    def __init__(
        self,
        prog: str,
        dataclass_types: Sequence[Any],
        description: str,
        examples: str,
        groups: dict[str, list[str]] | None = None,
        shared: Sequence[Any] = (),
        command_line_only: Sequence[str] = (),
        instead_of_names: Sequence[str] = (),
        has_result: bool = True,
    ) -> None:
        super().__init__(
            dataclass_types,
            prog=prog,
            description=description,
            formatter_class=_Formatter,
            add_help=False,
            allow_abbrev=False,
        )
        self.usage_line, self.names = f"{prog} [CONFIG] [--option value ...]", prog.split()[2:]
        self.groups, self.examples = groups or {"Options": _field_names(dataclass_types)}, examples
        self.ignored_options, self.command_line_only = set(_field_names(shared)), set(command_line_only)
        self.instead_of_names = instead_of_names
        self.add_argument("config", nargs="?", help="YAML file, or a name that clue-hf configs lists.")
        if has_result:
            add_flags(self)
        self.add_argument("-h", "--help", action="store_true", help="Show common options.")
        self.add_argument("--help_all", action="store_true", help="Show every option, transformers' own included.")

    def parse(self, argv: Sequence[str]) -> tuple[Any, ...]:
        """The required names, then instances of the dataclasses. Prints the help and exits if that is requested."""
        if {"-h", "--help", "--help_all"} & set(argv):
            print(self._help(complete="--help_all" in argv))
            sys.exit(0)
        names = list(takewhile(lambda argument: not argument.startswith("-"), argv[: len(self.names)]))
        path, options = self._take_config(list(argv[len(names) :]))
        self._check_known(options)
        from_file = [] if path is None else self._file_arguments(path, self._overruled(options))
        try:
            *parsed, others = self.parse_args_into_dataclasses([*from_file, *options], look_for_args_file=False)
        except (ValueError, TypeError) as error:
            raise UserError(str(error)) from error
        if others.config is not None:
            raise UserError(f"{others.config!r} is neither an option nor the value of one.")
        instead = [name for name in self.instead_of_names if any(getattr(part, name, None) for part in parsed)]
        if instead and names:
            raise UserError(f"Give {self.names[0]} or --{instead[0]}, not both.")
        if instead:
            return (*[None] * len(self.names), *parsed)
        if len(names) < len(self.names):
            raise UserError(f"Which model? {self.names[len(names)]} is missing: {self.usage_line}")
        return (*names, *parsed)

    def error(self, message: str) -> NoReturn:
        raise UserError(message)

    def passed_on(self, argv: Sequence[str]) -> list[str]:
        """Of the config and options of another command those that this one takes too, as `--config` and options."""
        path, options = self._take_config(list(argv))
        kept, words = False, [] if path is None else ["--config", path]
        for word in options:
            if word.startswith("--"):
                name = word.split("=")[0]
                action = self._option_string_actions.get(name)
                kept = action is not None and action.nargs != 0 and action.dest not in self.command_line_only
            words += [word] if kept else []
        return words

    def _take_config(self, argv: list[str]) -> tuple[str | None, list[str]]:
        """The YAML file, which is the first argument unless that is an option, or what follows `--config`."""
        if "--config" in argv:
            at = argv.index("--config")
            if at + 1 == len(argv):
                raise UserError("--config needs a file.")
            return argv[at + 1], argv[:at] + argv[at + 2 :]
        if argv and not argv[0].startswith("-"):
            return argv[0], argv[1:]
        return None, argv

    def _overruled(self, argv: list[str]) -> set[str]:
        """Options of the file that an alternative on the command line replaces."""
        set_here = {word.split("=")[0].lstrip("-").replace("-", "_") for word in argv if word.startswith("--")}
        pairs = [pair for one, other in ALTERNATIVES for pair in ((one, other), (other, one))]
        replaced = {name for one, other in pairs if one & set_here for name in other} - set_here
        return replaced | self.command_line_only

    def _file_arguments(self, path: str, overruled: set[str]) -> list[str]:
        """The YAML file as a command line, so that both are parsed by the same types."""
        argv = []
        for name, value in read_yaml(path).items():
            action = self._option_string_actions.get(f"--{name}")
            if action is None or action.nargs == 0:
                if name in self.ignored_options:
                    continue
                check_trl_settings([name])
                raise UserError(f"{path}: there is no option {name!r}.{self._nearest(name)}")
            if isinstance(value, list) and action.nargs not in ("*", "+"):
                raise UserError(f"{path}: {name!r} takes one value, not a list.")
            if value is not None and name not in overruled:
                argv += [f"--{name}", *_argument_texts(value)]
        try:
            self.parse_known_args(argv)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        return argv

    def _check_known(self, argv: list[str]) -> None:
        for word in argv:
            name = word.split("=")[0]
            if word.startswith("--") and name not in self._option_string_actions:
                check_trl_settings([name.lstrip("-")])
                raise UserError(f"There is no option {name}.{self._nearest(name.lstrip('-'))}")

    def _nearest(self, name: str) -> str:
        known = [
            option.lstrip("-") for option in self._option_string_actions if "_" in option or "-" not in option[2:]
        ]
        close = get_close_matches(name, known, 1)
        return f" Did you mean {close[0]!r}?" if close else " See --help."

    def _help(self, complete: bool) -> str:
        formatter = self._get_formatter()
        actions = {
            action.dest: action
            for action in reversed(self._actions)
            if not any(option.startswith("--no_") for option in action.option_strings)
        }
        flags = [name for name in ("quiet", "json", "help", "help_all") if name in actions]
        hidden = set(actions) - {"config", *flags}.union(*self.groups.values())
        (first, names), *groups = self.groups.items()
        groups = [(first, ["config", *names, *(flags if hidden else flags[:-1])]), *groups]
        for heading, names in [*groups, *([("Everything else", sorted(hidden))] if complete else [])]:
            formatter.start_section(heading)
            formatter.add_arguments([actions[name] for name in names])
            formatter.end_section()
        examples = "\n".join(["Examples:", *(f"  {line}" for line in self.examples.strip().splitlines())])
        return f"usage: {self.usage_line}\n\n{self.description}\n\n{formatter.format_help()}\n{examples}"


class _Formatter(argparse.HelpFormatter):
    """One option a line where possible: its first spelling, the first sentence of its help, its default."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=118)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return "CONFIG"
        name = next((option for option in action.option_strings if option.startswith("--")), action.option_strings[0])
        return name if action.nargs == 0 else f"{name} {_VALUES.get(action.type, 'NAME')}"

    def _get_help_string(self, action: argparse.Action) -> str:
        text = " ".join((action.help or "").split()).replace("%%", "%")
        first = text.split(". ")[0].rstrip(".").replace("`", "")
        sentence = first if len(first) <= 140 else first[:139].rsplit(" ", 1)[0] + " ..."
        default = action.default
        if default is None or default is argparse.SUPPRESS or default == "" or action.nargs == 0:
            return sentence.replace("%", "%%")
        shown = " ".join(map(str, default)) if isinstance(default, list) else getattr(default, "value", default)
        return f"{sentence} [{shown}]".replace("%", "%%")


_VALUES: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", string_to_bool: "true|false"}


def _field_names(dataclass_types: Sequence[Any]) -> list[str]:
    return [field.name for dataclass in dataclass_types for field in dataclasses.fields(dataclass)]


def _argument_texts(value: Any) -> list[str]:
    """A YAML value as arguments of a command line."""
    if isinstance(value, dict):
        return [json.dumps(value)]
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


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
    """A mapping from a YAML file or a config that comes with clue-hf; a `UserError` says what is wrong with it."""
    path = find_config(path)
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
