"""What the package says of itself; `make wheel-test` builds and installs it."""

import tomllib
from pathlib import Path

import yaml

from clue_hf import __version__


ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_citation_is_that_of_the_paper_and_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["project"]["license"]
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Mendes", "Romano", "Garlan"]
    assert paper["url"] == PROJECT["project"]["urls"]["Paper"] == "https://arxiv.org/abs/2505.22803"


def test_the_configs_are_part_of_the_package_by_one_link():
    link = ROOT / "clue_hf/configs"
    assert link.is_symlink()
    assert link.resolve() == ROOT / "configs"
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["clue_hf"]
    packaged = {path for pattern in patterns for path in (ROOT / "clue_hf").glob(pattern)}
    missing = [path for path in (ROOT / "configs").rglob("*") if path.is_file()
               and link / path.relative_to(ROOT / "configs") not in packaged]  # fmt: skip
    assert missing == []


def test_the_templates_for_issues_can_be_read():
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        content = yaml.safe_load(path.read_text())
        assert path.name == "config.yml" or {"name", "description", "body"} <= content.keys()


def test_the_versions_of_python_are_those_of_the_metadata():
    lowest = PROJECT["project"]["requires-python"].removeprefix(">=")
    claimed = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if ":: 3." in line]
    assert claimed[0] == lowest
    assert PROJECT["tool"]["mypy"]["python_version"] == lowest
