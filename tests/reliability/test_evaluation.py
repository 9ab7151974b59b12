"""Evaluations that are killed, two that want the same folder, and one that is large."""

import importlib
import json
import shutil
import signal
import tracemalloc
from argparse import Namespace
from pathlib import Path

import pytest
from class_models import make_bert, text_data
from number_models import make_number_bert, number_texts
from processes import Forked
from reliability.worker import evaluate_slowly

from clue_hf.cli.main import main
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.evaluation.text.examples import FINISHED, UNFINISHED, ExampleFile
from clue_hf.evaluation.text.measures import measure
from clue_hf.files import write_lines


pytestmark = pytest.mark.usefixtures("without_pictures")
MODEL = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"
ROWS = 40
COMMON = ["--resamples", "5", "--report_dir", "report", "--per_device_eval_batch_size", "4"]


def text_words():
    shutil.copytree(MODEL, "model")
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in phrase_rows("test", ROWS)))
    return ["--scorers", "msp,perplexity", "--max_target_length", "8", "--train_file", "rows.jsonl",
            "--test_file", "rows.jsonl"]  # fmt: skip


def class_words():
    make_bert(Path("model"))
    text_data().to_json("rows.jsonl")
    return ["--train_file", "rows.jsonl", "--test_file", "rows.jsonl"]


def number_words():
    make_number_bert(Path("model"))
    number_texts().to_parquet("rows.parquet")
    return ["--train_file", "rows.parquet", "--test_file", "rows.parquet"]


KINDS = {"texts": (text_words, FINISHED), "classes": (class_words, "predictions.jsonl"),
         "numbers": (number_words, "predictions.jsonl")}  # fmt: skip


def start(words, seconds, batches):
    """An evaluation in a process of its own, in the middle of some batch."""
    process = Forked(evaluate_slowly, seconds, words)
    said = ""
    while said.count("batch\n") < batches:
        line = process.stdout.readline()
        assert line, process.communicate()[1][-2000:]
        said += line
    return process


def kill(process):
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def content(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.name != ".lock"}


@pytest.mark.parametrize("kind", KINDS)
def test_two_evaluations_do_not_share_a_folder(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    own, file = KINDS[kind]
    words = ["evaluate", "model", *own(), *COMMON]
    Path("report").mkdir()
    Path("report", file).write_text("of an earlier evaluation\n")
    process = start(words, seconds=600, batches=1)
    try:
        before = content("report")
        capsys.readouterr()
        assert main(words) == 2
        said = "Another evaluation writes to report. Wait for it, or choose another report_dir."
        assert capsys.readouterr().err.strip().splitlines()[-1] == f"clue-hf: error: {said}"
        assert content("report") == before
    finally:
        kill(process)
    again = ["--resume", "true"] if kind == "texts" else []
    assert main([*words, *again]) == 0  # the dead hold no lock
    assert "report.json" in content("report")
    assert content("report")[file] != before[file]


def test_killed_and_resumed_it_leaves_the_report_of_an_evaluation_that_was_not(tmp_path, monkeypatch, capsys):
    """SIGKILL in the middle; what was finished is not done again, and half a line at the end does no harm."""
    monkeypatch.chdir(tmp_path)
    words = ["evaluate", "model", *text_words(), *COMMON]
    kill(start(words, seconds=0.1, batches=5))
    log = Path("report", UNFINISHED)
    kept = log.read_bytes()
    finished = kept.count(b"\n") - 1
    assert 16 <= finished < ROWS
    log.write_bytes(kept + b'0123abcd {"row": 39, "sou')
    assert main(words) == 2
    assert "Continue it with --resume" in capsys.readouterr().err
    assert main([*words, "--resume", "true"]) == 0
    assert main([*words, "--report_dir", "whole"]) == 0
    resumed, whole = content("report"), content("whole")
    assert {FINISHED, "report.json", "report.html", "summary.md"} <= set(whole)
    assert resumed == whole
    rows = {json.loads(line[9:])["row"]: line[9:] for line in kept.splitlines()[1:]}
    lines = whole[FINISHED].splitlines()
    assert all(lines[row] == line for row, line in rows.items())


def example(row):
    words = ["le", "chat", f"{row}", "dort", "dans", "la", f"maison{row}", "."]
    quality = (row * 37 % 101) / 101
    tokens = [1 / (1 + (row * 31 + place * 17) % 97) for place in range(6)]
    return {
        "row": row, "output": " ".join(words[1:]), "reference": " ".join(words), "quality": quality,
        "qualities": {"bleu": quality}, "scores": {"msp": (row * 53 % 103) / 103}, "ended": True, "tokens": words[:6],
        "token_log_probabilities": tokens, "token_entropies": tokens, "reference_errors": tokens,
        "reference_entropies": tokens, "reference_confidences": tokens, "reference_correct": [0, 1] * 3,
    }  # fmt: skip


def test_the_metrics_hold_a_few_numbers_of_each_example(tmp_path):
    """Not the examples themselves, their n-grams, or every resample: 2,000 more rows cost about 1 kB each."""
    peaks = []
    for rows in (50, 2000, 4000):
        write_lines(tmp_path / f"{rows}.jsonl", map(example, range(rows)))
        examples = ExampleFile(tmp_path / f"{rows}.jsonl")
        tracemalloc.start()
        measure(examples, ["msp"], ["bleu"], resamples=20)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    _, few, many = peaks
    assert (many - few) / 2000 < 1300


@pytest.mark.slow
def test_ten_times_the_rows_need_hardly_more_memory_and_survive_a_kill(tmp_path, monkeypatch):
    """What `benchmarks/evaluation_memory.py` measures with 10,000 and 100,000 rows, with a fifth of them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    benchmark = importlib.import_module("evaluation_memory")
    arguments = Namespace(max_target_length=6, batch_size=512, resamples=50)
    rows = phrase_rows("train", 20_000)
    benchmark.make_model(tmp_path / "model", [row[name] for row in rows[:2000] for name in ("source", "target")])
    for size in (benchmark.FEW, 2_000, 20_000):
        benchmark.write_rows(tmp_path / f"{size}.jsonl", rows[:size])
    few, many = (benchmark.measured(tmp_path, size, arguments) for size in (2_000, 20_000))
    assert many.peak <= benchmark.AT_MOST * few.peak
    assert 0 < benchmark.killed_and_resumed(tmp_path, 20_000, 0.5, arguments) < 20_000
    benchmark.check_same(tmp_path / "report-20000", tmp_path / "killed")
