"""The pages say what the code does."""

import dataclasses
import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from clue_hf import CLUEConfig


ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_table_of_settings_is_up_to_date():
    spec = importlib.util.spec_from_file_location("settings_table", ROOT / "docs/settings_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs/settings.md").read_text() == module.page(), "run .venv/bin/python docs/settings_table.py"


def test_the_table_of_ratios_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    summary = importlib.import_module("summary")
    assert (ROOT / "benchmarks/results/README.md").read_text() == summary.summary(), "run benchmarks/summary.py"


def test_the_docstring_of_the_config_shows_the_help_of_every_field():
    words = " ".join((CLUEConfig.__doc__ or "").split())
    for field in dataclasses.fields(CLUEConfig):
        if field.name in CLUEConfig.__annotations__:
            default = "" if field.default is None else f", defaults to `{field.default!r}`"
            assert f" {field.name} (`" in words
            assert f"*optional*{default}): {' '.join(field.metadata['help'].split())}" in words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_named_files_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
    for path in re.findall(r"(?:configs|benchmarks|docs|clue_hf|tests)/[\w/]+\.(?:yaml|py|md)\b", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_named_in_commands_exist(page):
    from clue_hf.cli.train import make_parser

    known = make_parser()._option_string_actions
    for command in re.findall(r"(?:train\.py|clue-hf train) [^\n`]*(?:\\\n[^\n`]*)*", page.read_text()):
        for option in re.findall(r"--\w+", command):
            assert option in known, f"{option} in {command}"


def test_python_examples_compile():
    for page in PAGES:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            compile(block, f"{page.name} block {number}", "exec")


@cache
def recorded_results():
    files = [*(ROOT / "benchmarks/results").glob("*.md"), *(ROOT / "docs/results").glob("*.md")]
    return "\n".join(file.read_text() for file in files)


def test_every_table_of_figures_stands_in_a_result_file():
    recorded = recorded_results()
    for page in (ROOT / "README.md", *(ROOT / f"docs/{name}.md" for name in ("results", "which_alpha", "peers"))):
        rows = [line.strip() for line in page.read_text().splitlines() if re.match(r"\s*\|.*\d\.\d", line)]
        assert rows
        for row in rows:
            assert row.rstrip("| ") in recorded, row


def test_the_tests_named_for_reliability_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/reliability.md").read_text())
    assert len(named) >= 40
    for path, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"


#: Settings, versions, and constants of definitions: numbers that nothing measured.
GIVEN = {"0.05", "3.4", "0.3", "0.5", "0.8", "0.9", "0.99", "1.25", "0.01", "0.0001", "2.0", "3.11", "5.22", "3.599"}
NUMBER = r"(?<![\w.])\d+\.\d+(?![\d.]*\d)"


@cache
def numbers_in(text):
    return set(re.findall(NUMBER, text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_figure_in_a_sentence_stands_in_a_result_file(page):
    """Those of method.md are what its script prints, which tests/test_method.py compares."""
    if page.name == "method.md":
        return
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-|])", text):
        named = re.findall(r"\]\(([\w/.]*benchmarks/results/\w+\.md)\)", paragraph)  # then they stand in these
        recorded = numbers_in("\n".join((page.parent / name).read_text() for name in named) or recorded_results())
        for number in re.findall(NUMBER, re.sub(r"\]\([^)]*\)", "", paragraph)):
            assert number in GIVEN or number in recorded, f"{number} in {paragraph}"


def test_every_scorer_has_its_line():
    from clue_hf.scorers import SCORERS

    lines = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/scorers.md").read_text(), re.MULTILINE)
    assert sorted(lines) == sorted(SCORERS)
