"""Comparisons of language models, and what an interruption, a second command or other settings do to one."""

import csv
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from processes import Forked, run_command

from clue_hf.cli.main import main
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.metrics import corpus_quality, rejection_report, sentence_quality, split_of_area_gain
from clue_hf.scorers import DEFAULT_SCORERS


CONFIG = str(Path(__file__).parents[2] / "configs/quickstart/t5_phrases.yaml")
WORDS = ["compare", CONFIG, "--max_train_samples", "300", "--max_eval_samples", "16", "--max_steps", "6",
         "--plain_steps", "3", "--per_device_train_batch_size", "8", "--eval_strategy", "no", "--output_dir", "out",
         "--config_overrides", '{"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}',
         "--max_target_length", "12", "--num_samples", "2", "--resamples", "20", "--disable_tqdm", "true",
         "--report_splits", "test", "--quality", "chrf"]  # fmt: skip
METHODS = ["--methods", "ce,clue:alpha=0.5", "--seeds", "2"]


def start(folder, *words, missing="clue_hf.experiments.plots"):
    """The same command in a process of its own, where nobody looks at its pictures."""
    folder.mkdir(exist_ok=True)
    (folder / "log").touch()
    return Forked(
        run_command,
        [*WORDS, *words],
        "",
        missing,
        cwd=folder,
        log=folder / "log",
        env={**os.environ, "ACCELERATE_USE_CPU": "true"},
    )


def numbers(folder):
    """The table without what a clock or the system says."""
    return list(csv.reader((folder / "out/test.csv").open()))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A comparison that was not interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert start(folder, *METHODS, missing="").wait(300) == 0, (folder / "log").read_text()[-2000:]
    return folder


def test_the_table_of_a_language_model_agrees_with_the_metrics_of_its_outputs(whole):
    found = json.loads((whole / "out/test.json").read_text())
    assert list(found["methods"]) == ["ce", "clue:alpha=0.5"]
    outcomes = {
        name: [dict(np.load(whole / f"out/cells/{folder}/seed-{seed}/test.npz")) for seed in (42, 43)]
        for name, folder in (("ce", "ce"), ("clue:alpha=0.5", "clue,alpha=0.5"))
    }
    for name, metrics in found["methods"].items():
        corpus = [corpus_quality("chrf", o["outputs"].tolist(), o["references"].tolist()) for o in outcomes[name]]
        assert metrics["quality"]["value"] == pytest.approx(np.mean(corpus))
        error = [o["reference_errors"].mean() for o in outcomes[name]]
        assert metrics["error"]["value"] == pytest.approx(np.mean(error), rel=1e-6)
        for scorer in DEFAULT_SCORERS:
            reports = [rejection_report(o[f"score_{scorer}"], o["quality"]) for o in outcomes[name]]
            for metric in ("prr", "rejection_area"):
                expected = np.mean([report[metric]["value"] for report in reports])
                assert metrics[f"{metric}_{scorer}"]["value"] == pytest.approx(expected)
            splits = [
                split_of_area_gain(o[f"score_{scorer}"], o["quality"], p[f"score_{scorer}"], p["quality"])
                for o, p in zip(outcomes[name], outcomes["ce"], strict=True)
            ]
            for part in ("ranking", "quality"):
                expected = np.mean([split[part] for split in splits])
                assert metrics[f"area_{part}_{scorer}"]["value"] == pytest.approx(expected, abs=1e-12)
        assert set(found["rejection_curves"][name]) == set(DEFAULT_SCORERS)
    assert found["costs"]["ce"] == {"time": 1.0, "memory": 1.0}
    for ending in ("md", "tex"):
        assert "mc_sequence_entropy" in (whole / f"out/test.{ending}").read_text().replace(r"\_", "_")
    assert (whole / "out/comparison.html").exists()
    assert (whole / "out/test_tradeoff.png").exists()


def test_killed_comparisons_go_on_and_end_with_the_same_table(whole, tmp_path):
    """SIGKILL after the plain start, in the middle of a cell, after a cell: nothing is repeated, nothing is lost."""
    cells = tmp_path / "out/cells"
    points = [cells / "plain/seed-42/cell.json", cells / "ce/seed-42/model/model.safetensors",
              cells / "clue,alpha=0.5/seed-42/cell.json", cells / "ce/seed-43/test.npz"]  # fmt: skip
    kept = {}
    for point in points:
        process = start(tmp_path, *METHODS)
        until = time.monotonic() + 200
        while not point.exists():
            assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
            assert time.monotonic() < until, (tmp_path / "log").read_text()[-2000:]
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert not (tmp_path / "out/test.csv").exists()
        finished = {path: path.stat().st_mtime_ns for path in cells.glob("*/*/cell.json")}
        assert kept.items() <= finished.items()
        kept = finished
    assert len(kept) >= 4
    assert start(tmp_path, *METHODS).wait(300) == 0
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in cells.glob("*/*/cell.json")}.items()
    assert numbers(tmp_path) == numbers(whole)


def test_two_commands_share_the_cells(whole, tmp_path):
    processes = [start(tmp_path, *METHODS) for _ in range(2)]
    assert [process.wait(300) for process in processes] == [0, 0], (tmp_path / "log").read_text()[-2000:]
    log = (tmp_path / "log").read_text()
    for cell in ("ce, seed 42", "ce, seed 43", "clue:alpha=0.5, seed 42", "clue:alpha=0.5, seed 43", "plain, seed 42"):
        run = [line for line in log.splitlines() if line.endswith(cell)]
        assert len(run) == 1, (cell, run)
    assert numbers(tmp_path) == numbers(whole)


@pytest.mark.usefixtures("without_pictures")
def test_other_settings_are_not_mixed_and_methods_may_be_added(whole, monkeypatch, capsys):
    monkeypatch.chdir(whole)
    for words, said in (
        (["--learning_rate", "0.1"], "another learning_rate: 0.02, now 0.1"),
        (["--max_train_samples", "200"], "another max_train_samples: 300, now 200"),
        (["--quality", "bleu"], "another quality: 'chrf', now 'bleu'"),
    ):
        assert main([*WORDS, *METHODS, *words]) == 2
        assert said in capsys.readouterr().err
    before = json.loads(Path("out/test.json").read_text())["methods"]
    words = ["--methods", "ce,clue:alpha=0.5,clue:plain_steps=4", "--seeds", "2", "--logging_steps", "2"]
    assert main([*WORDS, *words]) == 0
    out = capsys.readouterr().out
    assert out.count("already finished") == 4
    assert Path("out/cells/plain,plain_steps=4/seed-42/checkpoint-4").exists()  # a start of its own
    after = json.loads(Path("out/test.json").read_text())["methods"]
    assert list(after) == ["ce", "clue:alpha=0.5", "clue:plain_steps=4"]
    for metric in ("quality", "error", "prr_msp"):
        assert after["ce"][metric]["value"] == before["ce"][metric]["value"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "ce,isotonic"], "'isotonic' is not supported for models that predict text"),
        (["--methods", "ce,ensemble"], "'ensemble' is not supported for models that predict text"),
        (["--methods", "ce,deup"], "'deup' is not supported for models that predict text"),
        (["--quality", "none"], "needs a `quality`"),
        (["--scorers", "msp", "magic"], "magic"),
        (["--num_samples", "0"], "`num_samples` must be at least 1"),
        (["--methods", "ce,euat"], "euat"),
        (["--corruption", "fog"], "corruption is for images"),
    ],
)
def test_mistakes_are_explained_before_anything_is_trained(tmp_path, monkeypatch, options, message, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, *options]) == 2
    assert message in capsys.readouterr().err
    assert not Path("out/cells").exists()


def test_token_calibrators_follow_methods_and_leave_their_outputs_as_they_are(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    methods = ["--methods", "ce,clue:alpha=0.5,temperature,clue:alpha=0.5+temperature_head_scalars", "--seeds", "1"]
    more = ["--max_eval_samples", "64"]
    assert main([*WORDS, *methods, *more, "--scorers", "msp", "mc_sequence_entropy", "pmi"]) == 0
    found = json.loads((tmp_path / "out/test.json").read_text())["methods"]
    assert list(found) == ["ce", "clue:alpha=0.5", "ce + temperature", "clue:alpha=0.5 + temperature_head_scalars"]
    for main_name, folder in (("ce", "ce+temperature"), ("clue,alpha=0.5", "clue,alpha=0.5+temperature_head_scalars")):
        one, other = (dict(np.load(tmp_path / f"out/cells/{name}/seed-42/test.npz")) for name in (main_name, folder))
        assert (one["outputs"] == other["outputs"]).all()
        assert (one["reference_correct"] == other["reference_correct"]).all()
        for name in ("score_msp", "score_mc_sequence_entropy", "score_pmi", "reference_entropies"):
            assert one[name].shape == other[name].shape
            assert np.isfinite(other[name]).all()
            assert np.abs(one[name] - other[name]).max() > 1e-4
    assert found["ce + temperature"]["error"]["value"] < found["ce"]["error"]["value"] + 0.05
    assert main([*WORDS, "--methods", "ce,ce+isotonic"]) == 2
    assert "must be one of the methods and one of temperature" in capfd.readouterr().err
    assert main([*WORDS, "--methods", "ce,isotonic"]) == 2
    assert "'isotonic' is not supported for models that predict text: use temperature" in capfd.readouterr().err


def test_methods_are_judged_against_all_references(tmp_path):
    for split in ("train", "validation", "test"):
        phrases = phrase_rows(split, 300 if split == "train" else 20)
        rows = [{**row, "target": target} for row in phrases for target in ("le chat dort .", row["target"])]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    files = [word for split in ("train", "validation", "test") for word in (f"--{split}_file", f"{split}.jsonl")]
    words = ["--dataset_name", "", *files, "--methods", "ce", "--seeds", "1", "--scorers", "msp"]
    words += ["--merge_references", "true"]
    assert start(tmp_path, *words).wait(300) == 0, (tmp_path / "log").read_text()[-2000:]
    outcome = dict(np.load(tmp_path / "out/cells/ce/seed-42/test.npz"))
    counts, texts = outcome["reference_counts"], outcome["references"].tolist()
    assert len(counts) == 16  # limited after merging
    assert counts.max() > 1
    assert counts.sum() == len(texts)
    references = [texts[end - count : end] for end, count in zip(np.cumsum(counts), counts, strict=True)]
    outputs = outcome["outputs"].tolist()
    np.testing.assert_array_equal(outcome["quality"], sentence_quality("chrf", outputs, references))
    found = json.loads((tmp_path / "out/test.json").read_text())["methods"]["ce"]
    assert found["quality"]["value"] == pytest.approx(corpus_quality("chrf", outputs, references))
