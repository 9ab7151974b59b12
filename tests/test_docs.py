"""The pages say what the code does."""

import dataclasses
import importlib
import importlib.util
import json
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import yaml

import clue_hf
from clue_hf import CLUEConfig
from clue_hf.cli.main import main
from clue_hf.cli.parser import ConfigParser
from clue_hf.cli.train import make_parser as train_parser
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.metrics import QUALITIES
from clue_hf.posthoc import CALIBRATORS
from clue_hf.scorers import SCORERS


ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
#: How commands begin, and what follows `clue-hf` for them; what a word of a page stands for.
STARTS = {
    ("clue-hf",): [],
    ("python", "train.py"): ["train"],
    ("accelerate", "launch", "train.py"): ["train"],
    ("python", "eval_uncertainty.py"): ["evaluate"],
}
STAND_INS = {"CONFIG.yaml": "configs/quickstart/t5_phrases.yaml", "...": ""}


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


def commands(page):
    """The commands of a page's blocks, lines joined and comments left out, as lists of words for `clue-hf`."""
    found = []
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = [STAND_INS.get(word, word) for word in shlex.split(line, comments=True)]
            words = [word for word in words if word]
            for start, name in STARTS.items():
                if words[: len(start)] == [*start]:
                    found.append([*name, *words[len(start) :]])
    return found


class ParsedError(BaseException):
    """Raised where a command would begin to work."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_are_understood(page, monkeypatch, capsys):
    """Each goes through its own parser: options, their values, the YAML file, and names that must be there."""
    parse = ConfigParser.parse

    def parse_only(self, argv):
        parse(self, argv)
        raise ParsedError

    monkeypatch.setattr(ConfigParser, "parse", parse_only)
    monkeypatch.chdir(ROOT)
    for command in commands(page):
        try:
            code = main(command)
        except (ParsedError, SystemExit):
            continue
        raise AssertionError(f"clue-hf {shlex.join(command)}: exit code {code}: {capsys.readouterr().err}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_named_in_a_sentence_exist(page):
    known = train_parser()._option_string_actions
    for command in re.findall(r"(?:train\.py|clue-hf train) [^\n`]*(?:\\\n[^\n`]*)*", page.read_text()):
        for option in re.findall(r"--\w+", command):
            assert option in known, f"{option} in {command}"


def test_targets_of_make_exist():
    targets = set(re.findall(r"^([a-z0-9-]+)(?: [a-z-]+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= {
        name for line in re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text(), re.M) for name in line.split()
    }
    for page in PAGES:
        for name in re.findall(r"(?:^|`)make ([a-z][\w-]*)", page.read_text(), re.MULTILINE):
            assert name in targets, f"make {name} in {page.name}"


def test_python_examples_compile():
    for page in PAGES:
        for number, block in enumerate(python_blocks(page)):
            compile(block, f"{page.name} block {number}", "exec")


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_first_example_runs_on_a_tiny_model(tmp_path, monkeypatch, capsys):
    """From a pretrained model to a pipeline that abstains, with a model and data that are here."""
    example = python_blocks(ROOT / "README.md")[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    model = str(ROOT / "tests/fixtures/lm_polygraph/model")
    rows = [{"en": row["source"], "fr": row["target"]} for row in phrase_rows("validation", 60)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    for name, here in (("Helsinki-NLP/opus-mt-en-fr", model), ("Where is the station?", rows[0]["en"])):
        assert name in example
        example = example.replace(name, here)
    exec(example, {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all(line == "I am not sure." or re.search(r" [01]\.\d+$", line) for line in printed)
    assert (tmp_path / "out/translator/uncertainty.json").is_file()


def test_the_examples_of_ones_own_parts_run(capsys):
    registries, added = (SCORERS, QUALITIES, CALIBRATORS), [{"least_probable"}, {"same_length"}, {"priors"}]
    known = [set(registry) for registry in registries]
    try:
        for block in python_blocks(ROOT / "docs/own_scorer.md"):
            exec(block, {})
        added = [
            set(registry) - names for registry, names in zip((SCORERS, QUALITIES, CALIBRATORS), known, strict=True)
        ]
        assert added == [{"least_probable"}, {"same_length"}, {"priors"}]
        assert "'value': " in capsys.readouterr().out
    finally:
        for registry, names in zip((SCORERS, QUALITIES, CALIBRATORS), known, strict=True):
            for name in set(registry) - names:
                del registry[name]


def test_examples_are_listed_and_notebooks_have_outputs():
    files = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")} - {"run_all.py"}
    assert files == set(re.findall(r"\]\(\.\./examples/([\w.]+)\)", (ROOT / "docs/get_started.md").read_text()))
    for path in (ROOT / "examples").glob("*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert sum(bool(cell["outputs"]) for cell in cells) >= 4, path
        assert not any(output["output_type"] == "error" for cell in cells for output in cell["outputs"]), path


def test_the_reference_lists_every_public_name():
    listed = re.findall(r"^::: clue_hf\.(\w+)$", (ROOT / "docs/api/index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(clue_hf.__all__) - {"__version__"})


def test_every_page_is_in_the_navigation():
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    listed = re.findall(r"'([\w/]+\.md)'", str(navigation))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert set(listed) == {page for page in pages if not page.startswith("results/")} | {"index.md"}


#: Pages whose tables are copied from result files line by line.
WITH_TABLES = ("README", "results", "which_alpha", "peers", "calibrate")


@cache
def recorded_results():
    files = [*(ROOT / "benchmarks/results").glob("*.md"), *(ROOT / "docs/results").glob("*.md")]
    return "\n".join(file.read_text() for file in files)


def named_results(page, text):
    """The texts of the result files that a text links to."""
    names = re.findall(r"\]\(((?:[\w./]*/)?results/\w+\.md)[^)]*\)", text)
    return "\n".join((page.parent / name).read_text() for name in names)


def paragraphs(page):
    """
    Every paragraph, list item and row of a table, and the results that its figures must stand in: the files that it
    links to, else those of its section, else of a section above it, else (where nothing but the page itself names any)
    all files.
    """
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    above = []  # depth and named files of the headings that a section stands under, the nearest last
    for section in re.split(r"\n(?=#+ )", text):
        depth = len(re.match(r"#*", section.lstrip())[0])
        named = named_results(page, section) if depth > 1 else ""
        above = [part for part in above if part[0] < depth] + [(depth, named)]
        of_section = next((files for _, files in reversed(above) if files), recorded_results())
        for part in re.split(r"\n\s*\n|\n(?= *[-|])", section):
            yield part, named_results(page, part) or of_section


def test_the_tests_named_for_reliability_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/reliability.md").read_text())
    assert len(named) >= 40
    for path, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"


#: Settings, versions, and constants of definitions: numbers that nothing measured.
GIVEN = {"0.05", "3.4", "0.3", "0.5", "0.8", "0.9", "0.99", "1.25", "0.01", "0.0001", "2.0", "3.11", "3.12", "5.22",
         "3.599"}  # fmt: skip
NUMBER = r"(?<![\w.:])\d+\.\d+(?![\d.]*\d)"


@cache
def numbers_in(text):
    return set(re.findall(NUMBER, text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_figure_stands_in_the_result_file_that_is_named(page):
    """
    Figures of method.md are what its script prints, which tests/test_method.py compares.
    """
    if page.name == "method.md":
        return
    for paragraph, recorded in paragraphs(page):
        if page.stem in WITH_TABLES and re.match(r" *\|.*\d\.\d", paragraph):
            assert paragraph.strip().rstrip("| ") in recorded, paragraph
        text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", paragraph)
        for number in re.findall(NUMBER, text):
            assert number in GIVEN or number in numbers_in(recorded), f"{number} in {paragraph}"


def test_every_scorer_has_its_line():
    lines = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/scorers.md").read_text(), re.MULTILINE)
    assert sorted(lines) == sorted(SCORERS)
