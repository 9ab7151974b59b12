"""`clue-hf predict`: every row once, in order, also after a run was killed."""

import csv
import gzip
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from class_models import TEXTS
from classifiers import image_rows
from deploy.deployed_models import inputs_for, make_folder, make_table_model, save
from PIL import Image
from processes import Forked
from reliability.worker import predict_slowly

from clue_hf import UncertaintyPipeline, pipeline
from clue_hf.cli.main import main
from clue_hf.data.lines import read_rows
from clue_hf.inputs.table_preprocessor import TablePreprocessor
from clue_hf.posthoc.calibration_file import UncertaintyCalibration


LONG = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models and files of inputs."""
    folder = tmp_path_factory.mktemp("predict")
    for kind in ("t5", "image", "table", "text classes"):
        make_folder(folder / kind.split()[-1], kind)
    sources = [f"{inputs_for('t5')[row % 7]} {'now ' * (row % 5)}".strip() for row in range(LONG)]
    (folder / "long.txt").write_text("\n".join(sources) + "\n")
    (folder / "long.jsonl").write_text("\n".join(json.dumps({"id": text[:3], "source": text}) for text in sources))
    with gzip.open(folder / "long.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([["source", "other"], *([text, "x"] for text in sources)])
    (folder / "images").mkdir()
    for row, pixels in enumerate(image_rows(5)[0]):
        Image.fromarray(pixels).save(folder / "images" / f"{row}.png")
    (folder / "images.csv").write_text("image\n" + "\n".join(f"images/{row}.png" for row in range(5)) + "\n")
    with open(folder / "table.csv", "w", newline="") as file:
        rows = inputs_for("table")
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    (folder / "texts.jsonl").write_text("\n".join(json.dumps({"nested": {"text": text}}) for text in TEXTS[:5]))
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def words(out, *more, model="t5", file="long.txt"):
    short = ["--max_new_tokens", "6"] if model == "t5" else []
    return ["predict", model, "--input", file, "--output", str(out), "--batch_size", "8", *short, *more]


def lines_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def direct(model, inputs, **settings):
    """The answers of a pipeline, with their rows."""
    pipe = pipeline(model, device="cpu", batch_size=8, **settings)
    found = []
    for start in range(0, len(inputs), 8):
        found += pipe(inputs[start : start + 8], first_row=start)
    return [{"row": row, **answer} for row, answer in enumerate(found)]


@pytest.fixture(scope="module")
def expected(folder):
    return direct(str(folder / "t5"), (folder / "long.txt").read_text().splitlines(), max_new_tokens=6)


@pytest.mark.parametrize("file", ["long.txt", "long.jsonl", "long.csv.gz"])
def test_texts_from_any_file(here, tmp_path, file, expected, capsys):
    assert main(words(tmp_path / "new" / "out.jsonl", file=file)) == 0
    assert lines_of(tmp_path / "new" / "out.jsonl") == expected
    assert sorted(os.listdir(tmp_path / "new")) == [".out.jsonl.lock", "out.jsonl"]
    assert f"{LONG} answers in" in capsys.readouterr().out


def test_images_by_their_path_from_the_file_on(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words("out.jsonl", model=str(here / "image"), file=str(here / "images.csv"))) == 0
    assert lines_of("out.jsonl") == direct(str(here / "image"), list(image_rows(5)[0]))


def test_rows_of_a_table(here, tmp_path):
    assert main(words(tmp_path / "out.jsonl", model="table", file="table.csv")) == 0
    assert lines_of(tmp_path / "out.jsonl") == direct("table", inputs_for("table"))


def test_texts_for_a_classifier_in_a_nested_column(here, tmp_path):
    more = ("--text_column", "nested.text")
    assert main(words(tmp_path / "out.jsonl", *more, model="classes", file="texts.jsonl")) == 0
    assert lines_of(tmp_path / "out.jsonl") == direct("classes", TEXTS[:5])


def test_where_to_abstain(here, tmp_path, expected):
    values = [answer["uncertainty"] for answer in expected]
    threshold = sorted(values)[LONG // 2]
    folder = make_folder(tmp_path / "calibrated", "t5")
    settings = pipeline("t5", device="cpu", max_new_tokens=6).predictor.settings
    uncertainty = np.repeat(values, 20)
    UncertaintyCalibration.fit(
        "perplexity", settings, uncertainty, np.where(uncertainty < threshold, 1.0, 0.0), [0.1]
    ).write(folder)  # fmt: skip
    out = tmp_path / "out.jsonl"
    assert main(words(out, "--abstain_at_risk", "0.1", "--return_tokens", "true", model=str(folder))) == 0
    found = lines_of(out)
    limit = UncertaintyCalibration.read(str(folder)).abstention.at(0.1).threshold
    assert [line["abstain"] for line in found] == [value >= limit for value in values]
    assert {line["abstain"] for line in found} == {True, False}
    assert all(line["tokens"] for line in found)
    assert main(words(out, "--abstain_at_risk", "0.3", model=str(folder))) == 2


def test_a_run_that_was_killed_is_continued(here, tmp_path, expected):
    """The process dies without a word (SIGKILL) in the middle; nothing finished is done again or changed."""
    out, log = tmp_path / "out.jsonl", tmp_path / "out.jsonl.unfinished"
    process = Forked(predict_slowly, 0.3, words(out))
    deadline = time.monotonic() + 120
    while not (log.exists() and log.read_bytes().count(b"\n") > 16) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    finished = log.read_bytes().count(b"\n") - 1
    assert 0 < finished < LONG
    assert finished % 8 == 0
    kept = log.read_bytes()
    with open(log, "ab") as file:
        file.write(b'0123abcd {"row": 99')  # as if the disk had been full
    calls = []
    call = UncertaintyPipeline.__call__

    def noted(self, inputs, **options):
        calls.append((options["first_row"], len(inputs)))
        return call(self, inputs, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UncertaintyPipeline, "__call__", noted)
        assert main(words(out, "--resume", "true")) == 0
    assert calls == [(start, 8) for start in range(finished, LONG, 8)]
    assert lines_of(out) == expected
    assert out.read_bytes().startswith(b"".join(line[9:] for line in kept.splitlines(True)[1:]))
    assert not log.exists()


@pytest.fixture
def unfinished(here, tmp_path, monkeypatch, capsys):
    """What is left of a run that was interrupted after two batches."""
    out, call = tmp_path / "out.jsonl", UncertaintyPipeline.__call__

    def interrupted(self, inputs, **options):
        if options["first_row"] == 16:
            raise KeyboardInterrupt
        return call(self, inputs, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UncertaintyPipeline, "__call__", interrupted)
        assert main(words(out)) == 130
    assert "--resume true continues" in capsys.readouterr().err
    return out


def test_what_is_unfinished_is_neither_lost_nor_mixed(here, unfinished, expected, tmp_path, capsys):
    assert main(words(unfinished)) == 2
    assert "holds 16 finished rows of an interrupted run" in capsys.readouterr().err
    assert main(words(unfinished, "--resume", "true", "--scorer", "msp")) == 2
    assert "another scorer: None, now 'msp'" in capsys.readouterr().err
    lines = Path("long.txt").read_text().splitlines()
    changed = tmp_path / "long.txt"
    changed.write_text("\n".join([*lines[:3], "other", *lines[4:]]))
    assert main(words(unfinished, "--resume", "true", file=str(changed))) == 2
    assert "row 3 (counted from 0) of the input has changed" in capsys.readouterr().err
    changed.write_text("\n".join(lines[:9]))
    assert main(words(unfinished, "--resume", "true", file=str(changed))) == 2
    assert "row 9 (counted from 0) of the input is gone" in capsys.readouterr().err
    changed.write_text("\n".join([*lines, lines[0]]))  # a file that has grown is fine
    assert main(words(unfinished, "--resume", "true", file=str(changed))) == 0
    assert lines_of(unfinished)[:LONG] == expected
    assert len(lines_of(unfinished)) == LONG + 1
    assert main(words(unfinished, "--resume", "true")) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_bad_row_is_named_and_what_came_before_is_kept(here, tmp_path, expected, capsys):
    lines = Path("long.jsonl").read_text().splitlines()
    file, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    file.write_text("\n".join([*lines[:19], json.dumps({"source": 3}), *lines[20:]]))
    assert main(words(out, file=str(file))) == 2
    assert "Row 19 (counted from 0) must be a text" in capsys.readouterr().err
    file.write_text("\n".join(lines))
    assert main(words(out, "--resume", "true", file=str(file))) == 0
    assert lines_of(out) == expected


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.jsonl", '{"text": "a"}\n{"text"', r"row 1 (counted from 0) on line 2 is not valid JSON"),
    ("a.jsonl", '{"text": "a"}\n[1]\n', "row 1 (counted from 0) on line 2 must be an object"),
    ("a.csv", "text,b\nx,y\nz\n", "row 1 (counted from 0) on line 3 has 1 value, but there are 2 columns"),
    ("a.csv", "text,text\nx,y\n", "2 columns named 'text'"),
    ("a.jsonl", '{"word": "a"}\n', "the columns word: cannot infer which to use. Set --text_column"),
    ("a.jsonl", '{"text": "a"}\n{"b": "a"}\n', "Row 1 (counted from 0)"),
    ("a.txt", "", "has no rows"),
    ("a.parquet", "x", "must be one of jsonl, csv, tsv, txt"),
    (None, "", "does not exist"),
])  # fmt: skip
def test_files_that_are_none(here, tmp_path, name, content, message, capsys):
    file = tmp_path / (name or "nothing.txt")
    if name:
        file.write_text(content)
    assert main(words(tmp_path / "out.jsonl", file=str(file))) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


def test_numbers_and_categories_of_a_csv_file_mean_what_they_did(tmp_path):
    """A whole column of True and False is one of numbers; 1 and 1.0 are the same category."""
    columns = {"yes": [True, False] * 10, "group": [1.0, 2.0, 3.0, 2.0] * 5, "y": [float(n) for n in range(20)]}
    preprocessor = TablePreprocessor.fit(columns, "y", categorical_columns=["group"])
    save(tmp_path / "model", make_table_model(preprocessor, variance_head=True), preprocessor)
    (tmp_path / "rows.csv").write_text("yes,group\nTrue,1\nfalse,3.0\n,2\n")
    out = tmp_path / "out.jsonl"
    assert main(words(out, "--mc_samples", "0", model=str(tmp_path / "model"), file=str(tmp_path / "rows.csv"))) == 0
    rows = [{"yes": True, "group": 1.0}, {"yes": False, "group": 3}, {"yes": None, "group": 2}]
    assert lines_of(out) == direct(str(tmp_path / "model"), rows, mc_samples=0)


def test_rows_are_read_one_at_a_time(tmp_path):
    with open(tmp_path / "rows.txt", "w") as file:
        file.writelines(f"row {number}\n" for number in range(1000))
    rows = read_rows(str(tmp_path / "rows.txt"))
    assert next(rows) == {"text": "row 0"}
    (tmp_path / "rows.txt").unlink()  # the rest still comes from the open file, as it is asked for
    assert sum(1 for _ in rows) == 999


@pytest.mark.parametrize(("given", "message"), [
    (["predict"], "Give `input` and `output`"),
    (["predict", "--input", "long.txt", "--output", "o"], "Which model?"),
    (["predict", "./nowhere", "--input", "long.txt", "--output", "o"], "does not exist"),
    (["predict", "t5", "--input", "long.txt", "--output", "images"], "is a folder"),
    (["predict", "t5", "--input", "long.txt", "--output", "o", "--batch_size", "0"], "must be at least 1"),
    (["predict", "t5", "--input", "long.txt", "--output", "o", "--abstain_at_risk", "0.1"], "clue-hf calibrate"),
])  # fmt: skip
def test_mistakes(here, given, message, capsys):
    assert main(given) == 2
    assert message in capsys.readouterr().err
    assert not list(here.glob("o*"))
