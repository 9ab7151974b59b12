"""Two real processes (gloo) against one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch
from classifiers import image_rows
from distributed.worker import CASES, run
from helpers import SENTENCES, TRANSLATIONS, make_model, make_tokenizer
from processes import on_two_nodes, on_two_processes
from reliability.processes import send_until_it_ends
from safetensors.torch import load_file

from clue_hf.training.checkpoints import checkpoints, damage


pytestmark = pytest.mark.distributed
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What every case found, on `one` process, which is this one, and on `two`."""
    folder, names = tmp_path_factory.mktemp("cases"), [case.__name__ for case in CASES]
    on_two_processes(run, names, folder / "two", 2)
    run(names, folder / "one", 1)
    return folder


def both(case, folder):
    return [json.loads((folder / processes / case / "found.json").read_text()) for processes in ("one", "two")]


def close(found, expected, tolerance=1e-5):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=tolerance)


def check_gradients(case, folder, reference):
    """The first gradients of every layout are those of another one on one process, which its name tells."""
    one, two = (load_file(folder / name / case / "gradients.safetensors") for name in ("one", "two"))
    for name, gradient in [*one.items(), *two.items()]:
        expected = one[reference(name)]
        assert (gradient - expected).norm() < 1e-5 * expected.norm(), name


def test_loss_and_gradients_for_every_layout_on_one_and_two_processes(folder):
    def plainest(name):
        kind, level = name.split()[:2]
        return f"{kind} {level} off 16x1"

    one, two = both("layouts", folder)
    assert len(one) == 2 * 2 * 2 * 4  # 16x1, 8x2, 4x4, 1x16
    assert len(two) == 2 * 2 * 2 * 3  # 8x1, 4x2, 1x8 on each
    for name, lines in {**one, **{f"{name} on two": lines for name, lines in two.items()}}.items():
        close(lines, one[plainest(name)])
    check_gradients("layouts", folder, plainest)


def test_other_objectives_on_one_and_two_processes(folder):
    one, two = both("objectives", folder)
    assert one.keys() == two.keys() == {"brier", "maxsup", "label_smoothing", "eaft", "dft"}
    for objective, lines in two.items():
        close(lines, one[objective])


def test_evaluation_counts_every_row_once(folder):
    one, two = both("evaluation", folder)
    assert one["test_rows"] == two["test_rows"] == 7
    assert two == pytest.approx(one, rel=1e-5)


def test_the_report_on_uncertainty_is_the_same(folder):
    one, two = both("uncertainty", folder)
    assert len(one["rows"]) == len(two["rows"]) == 29
    for (row, output, scores), (other_row, other_output, other_scores) in zip(one["rows"], two["rows"], strict=True):
        assert (row, output) == (other_row, other_output)
        assert scores == pytest.approx(other_scores, rel=1e-5, abs=1e-6)
    for name, metrics in one["metrics"]["scorers"].items():
        for metric, entry in metrics.items():
            found = two["metrics"]["scorers"][name][metric]
            assert found["value"] == pytest.approx(entry["value"], abs=1e-6)
            assert found.get("low") == pytest.approx(entry.get("low"), abs=1e-6)
    assert two["dropped"] == pytest.approx(one["dropped"], abs=1e-4)
    assert one["logged"] == pytest.approx(one["metrics"]["scorers"]["perplexity"]["prr"]["value"], abs=1e-5)
    assert two["logged"] == pytest.approx(one["logged"], abs=1e-5)


def test_two_machines_give_the_loss_the_checkpoints_and_the_report_of_one(folder):
    on_two_nodes(run, ["machines"], folder / "nodes", 2)
    one, two = both("machines", folder)
    nodes = json.loads((folder / "nodes/machines/found.json").read_text())
    assert nodes == two
    check_gradients("machines", folder, lambda name: name)
    close(nodes["lines"], one["lines"])
    assert [found for found, _ in nodes["checkpoints"].values()] == [None, None]
    own = {name: {*files} for name, (_, files) in one["checkpoints"].items()}
    of_each = {"rng_state.pth", "rng_state_0.pth", "rng_state_1.pth"}  # the state of random numbers of each process
    assert {name: {*files} - of_each for name, (_, files) in nodes["checkpoints"].items()} == {
        name: files - of_each for name, files in own.items()
    }
    for name in own:
        weights, others = (
            load_file(folder / place / "machines/run" / name / "model.safetensors") for place in ("two", "nodes")
        )
        assert all(torch.equal(weight, others[key]) for key, weight in weights.items())
    assert [row[:2] for row in nodes["rows"]] == [row[:2] for row in one["rows"]]


def test_work_is_shared_and_an_error_of_any_process_is_raised(folder):
    one, two = both("shared_work", folder)
    assert one["items"] == two["items"] == list(range(20))
    assert (one["ranks"], two["ranks"]) == ([0], [0, 1])
    assert one["failed"] == "item 0 of 1 cannot be used"
    assert two["failed"] in ("item 0 of 2 cannot be used", "item 1 of 2 cannot be used")


def test_an_output_weight_of_its_own(folder):
    close(*both("untied", folder))


def test_lora_under_ddp(folder):
    close(*both("lora", folder))


def test_a_sharded_model_gives_the_same_loss_and_gradients_with_a_fused_head(folder):
    found_one, found_two = both("sharded", folder)
    assert len(found_one) == len(found_two) == 4
    for name, one in found_one.items():
        two = found_two[name]
        assert (one["fused"], two["fused"]) == (True, True), name
        assert two["losses"] == pytest.approx(one["losses"], rel=1e-5), name
        assert two["described"] == pytest.approx(one["described"], rel=1e-5), name
        assert two["gradients"].keys() == one["gradients"].keys()
        largest = max(norm for norm, _ in one["gradients"].values())
        for parameter, values in one["gradients"].items():
            assert two["gradients"][parameter] == pytest.approx(values, rel=1e-4, abs=1e-6 * largest), parameter


def test_classifiers_for_every_layout_on_one_and_two_processes(folder):
    one, two = both("class_layouts", folder)
    assert len(one) == 2 * 3 * 4  # 16x1, 8x2, 4x4, 1x16
    assert len(two) == 2 * 3 * 3  # 8x1, 4x2, 1x8 on each
    for name, lines in {**one, **{f"{name} on two": lines for name, lines in two.items()}}.items():
        close(lines, one[f"{name.split()[0]} 0 16x1"])
    check_gradients("class_layouts", folder, lambda name: f"{name.split()[0]} 0 16x1")


def test_classes_are_predicted_once_and_in_order(folder):
    one, two = both("class_evaluation", folder)
    labels = image_rows(7)[1].tolist()
    for found in (one, two):
        assert found["labels"] == found["class labels"] == labels
    assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-5)
    for name in ("logits", "log probabilities"):
        for row, other in zip(two[name], one[name], strict=True):
            assert row == pytest.approx(other, rel=1e-4, abs=1e-5)


def test_objectives_that_look_at_all_the_data_after_each_epoch(folder):
    one, two = both("class_objectives", folder)
    for objective, expected in one.items():
        close(two[objective]["lines"], expected["lines"], 1e-4)
        for name, values in expected["state"].items():
            assert two[objective]["state"][name] == pytest.approx(values, rel=1e-4), name
    assert 0 < sum(one["euat"]["state"]["wrong"]) < 32
    assert max(one["cals"]["state"]["lam"]) > 1e-3


def test_numbers_for_every_layout_on_one_and_two_processes(folder):
    one, two = both("number_layouts", folder)
    assert (len(one), len(two)) == (4, 3)  # 16x1, 8x2, 4x4, 1x16; 8x1, 4x2, 1x8 on each
    for lines in (*one.values(), *two.values()):
        close(lines, one["16x1"])
    check_gradients("number_layouts", folder, lambda name: "16x1")


def test_numbers_are_predicted_once_and_in_order(folder):
    one, two = both("number_evaluation", folder)
    assert len(one["labels"]) == len(set(one["labels"])) == 7
    assert two["labels"] == pytest.approx(one["labels"], rel=1e-6)
    assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-5)
    for row, other in zip(two["predictions"], one["predictions"], strict=True):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_two_processes_keep_the_best_and_the_newest_checkpoint_and_resume(tmp_path):
    on_two_processes(run, ["saving"], tmp_path, 2)
    found = json.loads((tmp_path / "saving/found.json").read_text())
    for kind, entry in found.items():
        assert entry["kept"][0] == "checkpoint-4", kind
        assert set(entry["kept"]) == {"checkpoint-4", entry["best"]}, kind
        assert entry["damage"] == [None] * len(entry["kept"]), kind
        assert entry["temporary"] == []
        assert entry["same"], kind
    # the error falls, so that the highest comes early, and rotation has had some to spare
    assert any(entry["best"] != "checkpoint-4" for entry in found.values())


def started(folder, *words):
    """`clue-hf train` on two processes, in the middle of its steps, and all processes that it has started."""
    make_model("t5").save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    rows = [{"source": source, "target": target} for source, target in zip(SENTENCES, TRANSLATIONS, strict=True)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
    settings = {
        "model_name_or_path": "model", "train_file": "pairs.jsonl", "output_dir": "run", "num_processes": 2,
        "max_steps": 100_000, "logging_steps": 20, "save_strategy": "no", "use_cpu": "true", "disable_tqdm": "true",
        "quality": "none", "report_to": "none", "max_target_length": 8,
    }  # fmt: skip
    options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-u", "-m", "clue_hf.cli.main", "train", *options, *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    said = []
    while "'loss'" not in (line := process.stdout.readline()):
        said.append(line)
        assert line, "".join(said)
    return process, psutil.Process(process.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "saved"), [(signal.SIGTERM, 143, 1), (signal.SIGINT, 130, 0)])
def test_a_signal_to_the_command_ends_all_its_processes(number, code, saved, tmp_path):
    process, others = started(tmp_path)
    try:
        assert len(others) >= 3  # the launcher and two workers
        send_until_it_ends(process, number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == code, output[-3000:]
        assert psutil.wait_procs(others, timeout=0)[1] == []
        assert [damage(folder) for folder in checkpoints(tmp_path / "run")] == [None] * saved
    finally:
        for left in psutil.wait_procs(others, timeout=0)[1]:
            left.kill()
        process.kill()
