"""What test_checkpoints.py shows for texts, for images and tables too: damage, kills, full disks, resuming, locks."""

import json
import os
import pickle
import re
import shutil
import signal
import zipfile

import numpy as np
import pytest
import torch
from processes import Forked
from reliability.kinds import KINDS, Watch, make_kind, weights_of
from reliability.processes import KILLS_OF_OTHER_KINDS, kill_at_random, send_until_it_ends
from reliability.worker import work
from safetensors.torch import load_file

from clue_hf.errors import UserError
from clue_hf.training.checkpoints import MANIFEST, checkpoints, damage, write_manifest


SETTINGS = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 4}


@pytest.fixture(params=["image", "number"])
def kind(request):
    return request.param


def trained(kind, folder, wish=None, **settings):
    trainer = make_kind(kind, folder, seed=9 if wish else 0, **{**SETTINGS, **settings})
    trainer.train(resume_from_checkpoint=wish)
    return trainer


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    """Trains once for each kind and settings, and copies what is in the folder."""
    runs = {}

    def train(kind, folder, **settings):
        key = (kind, *settings.items())
        if key not in runs:
            runs[key] = trained(kind, tmp_path_factory.mktemp(kind), **settings)
        shutil.copytree(runs[key].args.output_dir, folder)
        return runs[key]

    return train


def same(one, other):
    weights = weights_of(other)
    return all(torch.equal(weight, weights[name]) for name, weight in weights_of(one).items())


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-10])


def start(folder, *words):
    return Forked(work, folder, *words)


def test_damaged_checkpoints_are_skipped(kind, trained_once, tmp_path, caplog):
    whole = trained_once(kind, tmp_path / "run")
    cut_short(tmp_path / "run/checkpoint-6/model.safetensors")
    (tmp_path / "run/checkpoint-4/trainer_state.json").write_text("{")
    again = trained(kind, tmp_path / "run", True)
    assert same(whole, again)
    assert "checkpoint-6 is skipped: model.safetensors has" in caplog.text
    assert "checkpoint-4 is skipped: trainer_state.json has 1 bytes" in caplog.text
    for folder in checkpoints(tmp_path / "run"):
        (folder / "trainer_state.json").unlink()
    with pytest.raises(UserError, match=r"None of the checkpoints .*trainer_state.json is missing"):
        trained(kind, tmp_path / "run", True)


@pytest.mark.parametrize(
    "settings",
    [
        {"save_strategy": "epoch", "max_steps": -1, "num_train_epochs": 3},
        {"max_steps": 4, "gradient_accumulation_steps": 16, "per_device_train_batch_size": 2},  # over an epoch
    ],
    ids=["epochs", "long windows"],
)
def test_resuming_anywhere_equals_not_stopping(kind, settings, tmp_path):
    whole = trained(kind, tmp_path / "run", **settings)
    found = checkpoints(tmp_path / "run")
    assert len(found) >= 2
    for number, folder in enumerate(found):
        assert same(whole, trained(kind, tmp_path / str(number), str(folder), **settings)), folder.name


class Evil:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


def of_another_numpy(path):
    """Makes of a file of random states what numpy 1 would have written, whose modules had other names."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            changed = content.replace(b"numpy._core.multiarray\n", b"numpy.core.multiarray\n")
            assert changed != content or not name.endswith("data.pkl")
            archive.writestr(name, changed)


@pytest.mark.parametrize("kind", KINDS)
def test_random_numbers_of_another_numpy_are_told_not_loaded_unsafely(kind, trained_once, tmp_path, caplog):
    trained_once(kind, tmp_path / "run")
    folder, trace = tmp_path / "run/checkpoint-4", tmp_path / "run-by-a-pickle"
    of_another_numpy(folder / "rng_state.pth")
    write_manifest(folder)
    trained(kind, tmp_path / "again", str(folder))
    assert "was not restored" in caplog.text
    caplog.clear()
    state = {"python": Evil(trace), "numpy": np.random.get_state(), "cpu": torch.random.get_rng_state()}
    torch.save(state, folder / "rng_state.pth", pickle_module=pickle)
    write_manifest(folder)
    trained(kind, tmp_path / "again", str(folder))
    assert "was not restored" in caplog.text
    assert not trace.exists()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_would_run_something_is_refused(kind, name, trained_once, tmp_path):
    trained_once(kind, tmp_path / "run", max_steps=2)
    folder, trace = tmp_path / "run/checkpoint-2", tmp_path / "run-by-a-pickle"
    torch.save({"state": Evil(trace)}, folder / name, pickle_module=pickle)
    evil = (folder / name).read_bytes()
    for content in (evil, evil[:-200], b"no state", b""):
        (folder / name).write_bytes(content)
        write_manifest(folder)
        with pytest.raises(UserError, match=rf"checkpoint-2/{name} cannot be loaded: .* another checkpoint"):
            trained(kind, tmp_path / "again", str(folder))
    assert not trace.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha": 0.5, "mc_samples": 4},
        {"objective": None},
        {"per_device_train_batch_size": 2},
        {"gradient_accumulation_steps": 2},
    ],
    ids=["alpha and passes", "objective", "batch", "accumulation"],
)
def test_other_settings_are_refused_or_recorded(kind, changes, trained_once, tmp_path):
    if "objective" in changes:
        changes = {"objective": "mse" if kind == "number" else "ce"}
    trained_once(kind, tmp_path / "run", max_steps=2)
    checkpoint = str(tmp_path / "run/checkpoint-2")
    told = ", ".join(rf"{name} \(.*, now {value!r}\)" for name, value in changes.items())
    with pytest.raises(UserError, match=f"another {told}.*allow_config_change"):
        trained(kind, tmp_path / "new", checkpoint, **changes)
    again = trained(kind, tmp_path / "new", checkpoint, **changes, allow_config_change=True)
    again.save_model()
    recorded = json.loads((tmp_path / "new/training_settings.json").read_text())["changes"]
    assert {change["setting"]: change["now"] for change in recorded} == changes
    assert {change["checkpoint"] for change in recorded} == {"checkpoint-2"}


def test_the_only_whole_checkpoint_outlives_a_save_that_fails(kind, tmp_path, monkeypatch):
    trainer = make_kind(kind, tmp_path, **SETTINGS, save_total_limit=1)
    plain = trainer._save_optimizer_and_scheduler

    def fails(folder):
        if "checkpoint-4" in str(folder):
            raise OSError(28, "No space left on device")
        plain(folder)

    monkeypatch.setattr(trainer, "_save_optimizer_and_scheduler", fails)
    with pytest.raises(UserError, match="could not be saved.*No space left.*Earlier checkpoints are unchanged"):
        trainer.train()
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-2"]
    assert damage(tmp_path / "checkpoint-2") is None
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ("full for weights", ["checkpoint-2"]),
        pytest.param("full for the optimizer", ["checkpoint-2"], marks=pytest.mark.slow),
        ("full at the end", ["checkpoint-6", "checkpoint-4", "checkpoint-2"]),
    ],
)
@pytest.mark.parametrize("kind", ["text", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_a_full_disk_leaves_the_checkpoints_before_it(kind, how, left, tmp_path):
    """The system itself refuses to write on, as it does when the disk is full."""
    refused(start(tmp_path, how, kind))
    assert [path.name for path in checkpoints(tmp_path)] == left
    assert [damage(path) for path in checkpoints(tmp_path)] == [None] * len(left)
    assert not list(tmp_path.rglob("*.tmp"))
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_is_full_when_the_results_are_there(kind, tmp_path):
    (tmp_path / "results.json").write_text("those of an earlier run")
    refused(start(tmp_path, "full for results", kind))
    assert (tmp_path / "results.json").read_text() == "those of an earlier run"
    assert not list(tmp_path.rglob("*.tmp"))
    models = list(tmp_path.glob("*/model.safetensors"))
    assert len(models) == 2
    assert all(damage(path) is None for model in models for path in checkpoints(model.parent))


def refused(process):
    """One line says what could not be saved."""
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 2, errors[-2000:]
    [line] = [line for line in errors.splitlines() if line.startswith("clue-hf: error")]
    assert re.search(r"could not be saved: .* free disk space", line)
    assert "Traceback" not in errors


@pytest.mark.parametrize("kind", KINDS)
def test_rotation_keeps_what_was_just_written(kind, tmp_path):
    """Whatever else is in the folder: a damaged checkpoint, and the higher steps of an earlier run."""
    settings = {**SETTINGS, "save_total_limit": 1}
    trained(kind, tmp_path, **settings)
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-6"]
    shorter = trained(kind, tmp_path, **{**settings, "max_steps": 4})
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-4"]
    assert same(shorter, trained(kind, tmp_path, True, **{**settings, "max_steps": 4}))
    trained(kind, tmp_path, True, **settings)
    cut_short(tmp_path / "checkpoint-6/model.safetensors")
    trained(kind, tmp_path, **{**settings, "max_steps": 2})
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-2"]
    assert damage(tmp_path / "checkpoint-2") is None


@pytest.mark.slow
def test_sigterm_saves_once_and_ends_with_its_own_code(kind, tmp_path):
    process = start(tmp_path / "run", "slow", kind)
    assert process.stdout.readline().startswith("step")
    send_until_it_ends(process, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors[-2000:]
    [folder] = checkpoints(tmp_path / "run")
    assert damage(folder) is None


@pytest.mark.slow
def test_two_trainings_do_not_share_a_folder(kind, tmp_path):
    process = start(tmp_path / "run", "slow", kind)
    try:
        assert process.stdout.readline().startswith("step")
        with pytest.raises(UserError, match="Another training writes to"):
            trained(kind, tmp_path / "run")
    finally:
        process.kill()
        process.communicate()
    trained(kind, tmp_path / "run")  # the dead hold no lock


@pytest.mark.parametrize(
    "when", ["killed before the optimizer", "killed before the manifest", "killed before rotation"]
)
@pytest.mark.parametrize("kind", ["text", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])])
def test_killed_while_it_saves_it_goes_on_from_the_last_whole_checkpoint(kind, when, trained_once, tmp_path):
    process = start(tmp_path / "run", when, kind)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    newest = checkpoints(tmp_path / "run")[0]
    assert newest.name == "checkpoint-3"
    assert (damage(newest) is None) == (when == "killed before rotation")
    settings = {**SETTINGS, "save_steps": 1, "save_total_limit": 1, "per_device_train_batch_size": 2}
    again = make_kind(kind, tmp_path / "run", seed=9, **settings)
    watch = Watch(again)
    again.train(resume_from_checkpoint=True)
    assert min(watch.weights) == (3 if when == "killed before rotation" else 2)  # the first step that it took
    assert same(trained_once(kind, tmp_path / "whole", **settings), again)
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-6"]


@pytest.mark.slow
def test_killed_at_random_points_it_ends_as_if_it_had_not_been(kind, tmp_path):
    """SIGKILL at any time, in the middle of saving too: a checkpoint is saved after every step."""
    generator = np.random.default_rng(1)
    words = ["often", kind]
    first = [kill_at_random(start(tmp_path / "run", *words, "resume"), generator) for _ in range(KILLS_OF_OTHER_KINDS)]
    assert max(first) > 1  # from a checkpoint, not from the beginning
    for name, more in (("run", ["resume"]), ("whole", [])):
        process = start(tmp_path / name, *words, *more)
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors[-2000:]
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "whole"))
    assert one.keys() == other.keys()
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())
    assert (checkpoints(tmp_path / "run")[0] / MANIFEST).exists()
