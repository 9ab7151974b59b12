"""What docs/drop_in.md says of every case is what is found when both trainers run it."""

import importlib.util
from pathlib import Path

import pytest

from drop_in.sides import find_verdict


ROOT = Path(__file__).parents[2]


def load_script():
    spec = importlib.util.spec_from_file_location("drop_in_table", ROOT / "docs/drop_in_table.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


SCRIPT = load_script()


@pytest.mark.parametrize("case", SCRIPT.CASES, ids=lambda case: f"{case.group}: {case.name}")
def test_the_verdict_is_what_is_found(case, tmp_path):
    if "optuna" in case.name:
        pytest.importorskip("optuna")
    assert find_verdict(case, tmp_path) == case.verdict


def test_the_page_is_up_to_date():
    page = ROOT / "docs/drop_in.md"
    assert page.read_text(encoding="utf-8") == SCRIPT.page(), "run .venv/bin/python docs/drop_in_table.py"
