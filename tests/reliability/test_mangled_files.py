"""Mangled files thrown at every command: done (0) or a mistake told in one line (2); no traceback, no endless run."""

import contextlib
import io
import json
import shutil
import signal
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from class_models import make_bert
from helpers import make_model, make_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clue_hf.cli.main import main


ROWS = [{"en": f"a house {number % 13}", "fr": f"une maison {number}"} for number in range(12)]
SCORED = [{"uncertainty": number / 7, "quality": 1 - number / 20} for number in range(12)]
TABLE = [{"size": number % 5, "kind": "uv"[number % 2], "price": number / 2} for number in range(30)]
CLASSES = [{"text": f"the cat {number}", "label": number % 2} for number in range(30)]
CONFIG = """model_name_or_path: model
train_file: pairs.jsonl
source_column: en
target_column: fr
objective: clue
alpha: 0.9
learning_rate: 1e-3
logging_steps: 10
per_device_train_batch_size: 4
report_splits: [test]
seed: 3
"""
#: Settings of commands that have no use for these.
CONFIGS = {
    "score": "uncertainty_columns: [uncertainty]\nquality_column: quality\nnan_policy: error\n",
    "card": "license: apache-2.0\nlanguage: fr\n",
    "push": "revision: v2\nprivate: true\n",
    "demo": "host: 127.0.0.1\nopen: false\n",
}
#: What may stand in the way of a reader.
SPLINTERS = [
    b"", b"\n", b"\r", b"\0", b'"', b"'", b",", b":", b"{", b"}", b"[", b"]", b"\\", b"\xff", b"\xef\xbb\xbf", b"null",
    b"NaN", b"1e999", b"-1", b"true", b"&a [*a]", b"*a", b"!!python/object:os.system", b"- ", b"? ", b"---\n", b"\t",
    b"<<: ", b"\\ud800", b"\xe2\x80\xa8", b'{"en": 1}', b"99999999999999999999999", b"../", b"~", b"%", b"#",
    b"2001-99-99", b"!!int x", b"!!bool ", b"!!timestamp ", b"? [a]\n: ", b"[" * 2000,
]  # fmt: skip


def as_jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows):
    return "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]).encode() + b"\n"


def as_parquet(rows):
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file, compression="none")
    return file.getvalue()


WRITERS = {"jsonl": as_jsonl, "csv": as_csv, "parquet": as_parquet}
COLUMNS = ["--source_column", "en", "--target_column", "fr"]
SHORT = [
    "--max_steps", "1", "--output_dir", "out", "--use_cpu", "true", "--disable_tqdm", "true", "--save_strategy", "no",
    "--max_target_length", "3", "--eval_strategy", "no", "--quality", "none",
]  # fmt: skip
REPORT = ["--report_dir", "report", "--resamples", "5", "--max_target_length", "3", "--scorers", "msp"]
PLAIN = ["--model_name_or_path", "model", *COLUMNS, *SHORT]
TABULAR = ["--model_type", "clue_tabular_resnet", "--config_overrides", "hidden_size=4,num_blocks=1",
           "--target_column", "price", *SHORT[:-4]]  # fmt: skip
OF_CLASSES = ["--source_column", "text", "--label_column", "label"]
#: What is read -> the rows of a good file, and the command that reads it.
READERS = {
    "train": (ROWS, ["train", *PLAIN, "--train_file", "FILE"]),
    "train, skipping": (ROWS, ["train", *PLAIN, "--train_file", "FILE", "--on_bad_row", "skip"]),
    "train on a table": (TABLE, ["train", *TABULAR, "--train_file", "FILE"]),
    "train on a table, skipping": (TABLE, ["train", *TABULAR, "--train_file", "FILE", "--on_bad_row", "skip"]),
    "evaluate": (ROWS, ["evaluate", "model", *REPORT, *COLUMNS, "--train_file", "pairs.jsonl", "--test_file", "FILE"]),
    "compare": (ROWS, ["compare", *PLAIN[:-2], "--methods", "ce", "--scorers", "msp", "--resamples", "5",
                       "--train_file", "FILE"]),
    "calibrate": (ROWS, ["calibrate", "model", *COLUMNS, "--max_target_length", "3",
                         "--train_file", "pairs.jsonl", "--validation_file", "FILE"]),
    "score": (SCORED, ["score", "--file", "FILE", "--resamples", "5"]),
    "evaluate a table, skipping": (TABLE, ["evaluate", "table", *REPORT[:4], "--target_column", "price",
                                           "--test_file", "FILE", "--on_bad_row", "skip"]),
    "train a classifier, skipping": (CLASSES, ["train", "--model_name_or_path", "classifier", *OF_CLASSES, *SHORT[:-4],
                                               "--task", "classification", "--train_file", "FILE", "--on_bad_row",
                                               "skip"]),
    "evaluate a classifier": (CLASSES, ["evaluate", "classifier", *REPORT[:4], *OF_CLASSES, "--test_file", "FILE"]),
    "predict": (ROWS, ["predict", "model", "--input", "FILE", "--output", "answers.jsonl", "--text_column", "en",
                       "--max_new_tokens", "3"]),
}  # fmt: skip
#: Commands that take a file of settings.
CONFIGURED = {
    "train": ["train", "FILE", *SHORT],
    "evaluate": ["evaluate", "model", "--config", "FILE", *REPORT],
    "compare": ["compare", "FILE", *SHORT[:-2], "--methods", "ce", "--scorers", "msp", "--resamples", "5"],
    "calibrate": ["calibrate", "model", "--config", "FILE", "--max_target_length", "3"],
    "predict": ["predict", "model", "--config", "FILE", "--input", "pairs.jsonl", "--output", "answers.jsonl",
                "--text_column", "en", "--max_new_tokens", "3"],
    "score": ["score", "FILE", "--file", "scored.jsonl", "--resamples", "5"],
    "demo": ["demo", "model", "--config", "FILE", "--port", "PORT"],
    "card": ["card", "model", "--config", "FILE"],
    "push": ["push", "model", "someone/model", "--config", "FILE"],
}  # fmt: skip
#: Files of a model's folder that commands read.
STORED = ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "uncertainty.json",
          "README.md")  # fmt: skip


@st.composite
def mangled(draw, good):
    """A good file cut, doubled, or with splinters in it, up to four times."""
    content = good
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 30)))
        kind = draw(st.sampled_from(["put", "replace", "double", "cut"]))
        if kind == "cut":
            content = content[:start] if draw(st.booleans()) else content[:start] + content[end:]
        else:
            splinter = draw(st.sampled_from(SPLINTERS) | st.binary(max_size=4))
            new = content[start:end] * 2 if kind == "double" else splinter
            content = content[:start] + new + content[end if kind == "replace" else start :]
    return content


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mangled")
    make_model("t5").save_pretrained(folder / "good")
    make_tokenizer().save_pretrained(folder / "good")
    (folder / "pairs.jsonl").write_bytes(as_jsonl(ROWS * 3))
    (folder / "scored.jsonl").write_bytes(as_jsonl(SCORED))
    (folder / "table.jsonl").write_bytes(as_jsonl(TABLE))
    make_bert(folder / "classifier")
    with contextlib.chdir(folder), socket.create_server(("127.0.0.1", 0)) as taken:
        shutil.copytree("good", "model")
        assert main(["train", *TABULAR, "--output_dir", "table", "--train_file", "table.jsonl"]) == 0
        words = ["calibrate", "model", *COLUMNS, "--max_target_length", "3", "--train_file", "pairs.jsonl"]
        assert main(words) == 0
        shutil.copytree("model", "good", dirs_exist_ok=True)
        yield taken.getsockname()[1]


class TooLong(BaseException):
    """No exception that a command may take for one of its own."""


def too_long(*_):
    raise TooLong("This takes more than two minutes.")


def throw(words, file, port):
    """The exit code of a command on a file; whatever earlier ones wrote is gone."""
    for name in ("out", "report", "answers.jsonl", "answers.jsonl.unfinished"):
        shutil.rmtree(name, ignore_errors=True) if Path(name).is_dir() else Path(name).unlink(missing_ok=True)
    words = [{"FILE": file, "PORT": str(port)}.get(word, word) for word in words]
    said = io.StringIO()
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(120)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = main(words)
    finally:
        signal.alarm(0)
    assert code in (0, 2), said.getvalue()
    assert "Traceback" not in said.getvalue()
    if code == 2:
        assert "clue-hf: error: " in said.getvalue()
    return code


def fuzz(examples):
    return settings(
        max_examples=examples, suppress_health_check=list(HealthCheck), print_blob=True, derandomize=examples < 20
    )


def of_files(here, data, command, ending):
    rows, words = READERS[command]
    content = data.draw(mangled(WRITERS[ending](rows)))
    Path(f"mangled.{ending}").write_bytes(content)
    throw(words, f"mangled.{ending}", here)


def of_settings(here, data, command):
    Path("mangled.yaml").write_bytes(data.draw(mangled(CONFIGS.get(command, CONFIG).encode())))
    throw(CONFIGURED[command], "mangled.yaml", here)


def of_models(here, data, name):
    shutil.rmtree("model")
    shutil.copytree("good", "model")
    good = Path("good", name)
    try:
        Path("model", name).write_bytes(
            data.draw(mangled(good.read_bytes() if good.exists() else b"---\na: b\n---\n"))
        )
        throw(READERS["predict"][1], "pairs.jsonl", here)
        throw(["card", "model"], "", here)
    finally:
        shutil.rmtree("model")
        shutil.copytree("good", "model")


ENDINGS = pytest.mark.parametrize("ending", list(WRITERS))
undrawn = pytest.mark.usefixtures("without_pictures")


@undrawn
@ENDINGS
@pytest.mark.parametrize("command", list(READERS))
@fuzz(4)
@given(data=st.data())
def test_files_of_rows(here, data, command, ending):
    of_files(here, data, command, ending)


@undrawn
@pytest.mark.parametrize("command", list(CONFIGURED))
@fuzz(6)
@given(data=st.data())
def test_files_of_settings(here, data, command):
    of_settings(here, data, command)


@pytest.mark.parametrize("name", STORED)
@fuzz(3)
@given(data=st.data())
def test_files_of_models(here, data, name):
    of_models(here, data, name)


@pytest.mark.slow
@ENDINGS
@pytest.mark.parametrize("command", list(READERS))
@fuzz(25)
@given(data=st.data())
def test_many_files_of_rows(here, data, command, ending):
    of_files(here, data, command, ending)


@pytest.mark.slow
@pytest.mark.parametrize("command", list(CONFIGURED))
@fuzz(25)
@given(data=st.data())
def test_many_files_of_settings(here, data, command):
    of_settings(here, data, command)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORED)
@fuzz(25)
@given(data=st.data())
def test_many_files_of_models(here, data, name):
    of_models(here, data, name)


@undrawn
@ENDINGS
@pytest.mark.parametrize("command", list(READERS))
def test_good_files_are_read(here, command, ending):
    """What is mangled above is a file that the command takes."""
    rows, words = READERS[command]
    Path(f"good.{ending}").write_bytes(WRITERS[ending](rows))
    assert throw(words, f"good.{ending}", here) == (2 if command == "predict" and ending == "parquet" else 0)


@undrawn
@pytest.mark.parametrize("command", [command for command in CONFIGURED if command not in ("demo", "push")])
def test_good_settings_are_read(here, command):
    Path("good.yaml").write_text(CONFIGS.get(command, CONFIG))
    assert throw(CONFIGURED[command], "good.yaml", here) == 0
