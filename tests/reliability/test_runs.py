"""Two runs that want the same place: the second is refused before it has overwritten anything."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock
from helpers import make_model, make_tokenizer
from processes import Forked
from reliability.worker import run_on_a_full_disk

from clue_hf.cli.main import main


pytestmark = pytest.mark.usefixtures("without_pictures")
ROWS = [{"source": f"the cat {number}", "target": f"le chat {number}"} for number in range(12)]
TRAIN = ["train", "--model_name_or_path", "model", "--train_file", "rows.jsonl", "--max_steps", "2", "--use_cpu",
         "true", "--save_strategy", "no", "--disable_tqdm", "true", "--max_target_length", "4", "--output_dir", "out",
         "--quality", "none"]  # fmt: skip
PREDICT = ["predict", "model", "--input", "rows.jsonl", "--max_new_tokens", "4", "--output", "answers.jsonl"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_model("t5").save_pretrained("model")
    make_tokenizer().save_pretrained("model")
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def content():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and not path.name.endswith("lock")}


@contextmanager
def another_run(lock):
    """What another process would hold."""
    with FileLock(lock):
        yield content()


@pytest.mark.parametrize("baseline", [[], ["--baseline", "ce"]])
def test_a_training_has_its_folder_for_itself_to_the_end(baseline, capsys, monkeypatch):
    """Also while it reports, and while it trains another objective in a folder inside."""
    words = [*TRAIN, *baseline]
    assert main(words) == 0
    with another_run("out/.lock") as before:
        assert main([*words, "--seed", "3"]) == 2
        said = "Another training writes to out. Wait for it, or choose another output_dir."
        assert capsys.readouterr().err.strip().splitlines()[-1] == f"clue-hf: error: {said}"
        assert content() == before
    refused = []
    experiment = "clue_hf.experiments.experiment.Experiment"
    monkeypatch.setattr(f"{experiment}._write", lambda *_: refused.append(FileLock("out/.lock")))
    monkeypatch.setattr(f"{experiment}._push", lambda *_: refused[0].acquire(timeout=0))
    assert main(words) == 1  # at the end of the training the lock is still held
    assert "could not be acquired" in capsys.readouterr().err


def test_predictions_have_their_file_for_themselves(capsys):
    assert main(PREDICT) == 0
    with another_run(".answers.jsonl.lock") as before:
        assert main([*PREDICT, "--resume", "true"]) == 2
        assert "Another prediction writes to answers.jsonl." in capsys.readouterr().err
        assert content() == before
    assert main([*PREDICT, "--resume", "true"]) == 0


def test_a_place_that_cannot_be_written_to_is_told(capsys):
    Path("report").write_text("a file")
    words = ["evaluate", "model", "--test_file", "rows.jsonl", "--max_target_length", "4", "--scorers", "msp"]
    assert main([*words, "--report_dir", "report"]) == 2
    error = capsys.readouterr().err
    assert "clue-hf: error: report cannot be written to" in error
    assert "Traceback" not in error


def test_a_disk_that_is_full_for_a_report_is_told():
    words = ["evaluate", "model", "--test_file", "rows.jsonl", "--max_target_length", "4", "--scorers", "msp"]
    process = Forked(run_on_a_full_disk, 20_001, [*words, "--report_dir", "report"])
    _, errors = process.communicate()
    assert process.returncode == 2, errors[-2000:]
    assert "clue-hf: error: File too large" in errors
    assert "Traceback" not in errors


def test_an_output_that_is_nowhere_is_told(capsys):
    Path("scored.jsonl").write_text("".join(f'{{"uncertainty": {row}, "quality": {-row}}}\n' for row in range(5)))
    assert main(["score", "--file", "scored.jsonl", "--resamples", "5", "--output", "nowhere/out.json"]) == 2
    assert "clue-hf: error: No such file or directory: 'nowhere/out.json'" in capsys.readouterr().err
