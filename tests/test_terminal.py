import json
import subprocess
import sys
import warnings

import datasets
import numpy as np
import pytest
from transformers.utils import logging

from clue_hf.cli.main import run
from clue_hf.errors import UserError
from clue_hf.terminal import Result, run_command


RESULT = Result(
    {"value": np.float32(0.5), "undefined": float("nan"), "rows": np.arange(2), "path": ("a", None)},
    "| a |",
    meaning="It is large.",
    written="Written to out.",
    next_step=("do more", "clue-hf more"),
)


def command(argv):
    print("progress")
    with logging.tqdm(total=1, desc="bar") as bar:
        bar.update()
    logging.get_logger("transformers.here").warning("of a library")
    return RESULT


def test_the_result_of_a_command_for_people(capsys):
    assert run_command(command, []) == 0
    out, err = capsys.readouterr()
    expected = "progress\n| a |\n\nIt is large.\n\nWritten to out.\nNext, do more:\n  clue-hf more\n"
    assert out == expected
    assert "bar" in err


def test_json_is_all_that_stdout_gets(capsys):
    assert run_command(command, ["--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"value": 0.5, "undefined": None, "rows": [0, 1], "path": ["a", None]}
    assert "progress" in err
    assert "bar" in err


def test_quiet_prints_the_table_alone_and_leaves_everything_as_it_was(capsys):
    before = logging.get_verbosity()
    assert run_command(command, ["--quiet"]) == 0
    assert capsys.readouterr() == ("| a |\n", "")
    assert run_command(command, ["--quiet", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["value"] == 0.5
    assert err == ""
    assert logging.get_verbosity() == before
    assert logging.is_progress_bar_enabled()
    assert datasets.utils.is_progress_bar_enabled()


@pytest.mark.parametrize("flag", ["--quiet", "--json"])
def test_errors_are_still_printed(flag, capsys):
    def fails(argv):
        print("progress")
        raise UserError("that is wrong.")

    assert run(fails, [flag]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("clue-hf: error: that is wrong.\n")


def test_warnings_that_a_user_can_do_nothing_about_are_left_out():
    def warns(argv):
        warnings.warn("Recommended: pip install sacremoses.", stacklevel=1)
        warnings.warn("Something else.", stacklevel=1)
        return 0

    with pytest.warns(UserWarning, match="Something else") as seen:
        assert run_command(warns, []) == 0
    assert [str(entry.message) for entry in seen] == ["Something else."]


@pytest.mark.parametrize("words", ["configs --json", "--help", "card --help"])
def test_a_reader_that_leaves_early_is_no_error(words):
    shell = f"{sys.executable} -m clue_hf.cli.main {words} | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert (done.stdout[1:], done.stderr) == ("0\n", "")


def test_listing_the_configs_needs_no_torch():
    code = "import sys; from clue_hf.cli.main import main; main(['configs']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
