"""`clue-hf configs`: the configs that come with clue-hf, which every command finds by their names."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from ..errors import UserError, did_you_mean
from ..terminal import Result, add_flags


#: A link to the folder in the repository; in an installed package its files.
FOLDER = Path(__file__).parents[1] / "configs"

DESCRIPTION = """Lists the configs that come with clue-hf, or prints the one that is named. Every command takes such a
name in place of CONFIG.yaml; a file of that path wins."""

EXAMPLES = """examples:
  clue-hf configs
  clue-hf configs t5_small_opus_books > mine.yaml
  clue-hf train t5_small_opus_books --alpha 0.5"""


def shipped_configs() -> dict[str, Path]:
    """The configs that come with clue-hf by name (`boston`, `quickstart/t5_phrases`): first those that run offline."""
    order = ("quickstart", FOLDER.name, "accelerate")
    files = sorted(FOLDER.rglob("*.yaml"), key=lambda path: (order.index(path.parent.name), path))
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in files}


def find_config(name: str, option: str = "config") -> str:
    """
    The path of a YAML file: one of the user's, or one that comes with clue-hf, by its name with or without its folder
    (`t5_phrases`) or its path in the repository (`configs/quickstart/t5_phrases.yaml`).
    """
    if os.path.isfile(name):
        return name
    shipped = shipped_configs()
    wanted = name.removeprefix("configs/").removesuffix(".yaml") if name.startswith("configs/") else name
    for known, path in shipped.items():
        if wanted in (known, path.stem):
            return str(path)
    what = "The config file" if option == "config" else option
    near = did_you_mean(Path(name).stem, [*shipped, *(path.stem for path in shipped.values())])
    raise UserError(f"{what} {name!r} does not exist.{near} clue-hf configs lists those that come with clue-hf.")


def describe(path: Path) -> str:
    """The first sentence of the comment that a config begins with, without what stands in brackets."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    comment = " ".join(line.lstrip("# ") for line in lines)
    return re.sub(r" \([^)]*\)", "", re.split(r"[.:](?=\s|$)", comment)[0])


def command(argv: Sequence[str]) -> Result:
    """Runs `clue-hf configs`."""
    parser = argparse.ArgumentParser(
        "clue-hf configs", None, DESCRIPTION, EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="config to print")
    add_flags(parser)
    name = parser.parse_args(argv).name
    if name is not None:
        path = find_config(name)
        text = Path(path).read_text(encoding="utf-8")
        return Result({"path": path, "text": text}, text.rstrip("\n"))
    configs = {known: describe(path) for known, path in shipped_configs().items()}
    width = max(map(len, configs))
    return Result(
        {"configs": configs},
        "\n".join(f"{known:{width}}  {description}" for known, description in configs.items()),
        next_step=("train with one of them", "clue-hf train quickstart/t5_phrases"),
    )
