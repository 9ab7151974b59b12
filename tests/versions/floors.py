"""Prints constraints for pip: `floors` (the lowest versions that pyproject.toml allows) or `newest`, and pins."""

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement


PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
EXTRAS = ("plots", "demo")


def floors(pyproject=PYPROJECT):
    """`name==version` for every dependency; raises where one has no lower bound."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = project["optional-dependencies"]
    names = [*project["dependencies"], *(name for extra in EXTRAS for name in extras[extra])]
    return [floor(Requirement(name)) for name in names]


def floor(requirement):
    bounds = [bound.version for bound in requirement.specifier if bound.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"pyproject.toml: {requirement} has no lower bound.")
    return f"{requirement.name}=={bounds[0]}"


if __name__ == "__main__":
    which, pins = sys.argv[1:]
    # torch is always the pinned one: only that release is built for the CPU everywhere
    torch = [line for line in Path(pins).read_text().splitlines() if line.startswith("torch==")]
    lowest = [line for line in floors() if not line.startswith("torch==")] if which == "floors" else []
    print("\n".join([*torch, *lowest]))
