"""Prints the lowest versions that pyproject.toml allows as constraints for pip, for `make test-versions`."""

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
    # torch is the one that constraints.txt names: only that version is built for the CPU everywhere
    print("\n".join(line for line in floors() if not line.startswith("torch==")))
    print(*(line for line in Path(sys.argv[1]).read_text().splitlines() if line.startswith("torch==")))
