"""Checkpoints that are damaged, half written, of other settings or of another numpy, and exact resuming."""

import json
import shutil
import signal

import numpy as np
import pytest
import torch
from helpers import log_lines, make_data, make_model, make_tokenizer, make_trainer
from processes import Forked
from reliability.processes import KILLS, kill_at_random, send_until_it_ends
from reliability.worker import work
from safetensors.torch import load_file
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from clue_hf.errors import UserError
from clue_hf.training.checkpoints import MANIFEST, checkpoints, damage, last_whole_checkpoint, rotate, write_manifest


SETTINGS = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    trainer = make_trainer(make_model("t5", dropout=True), folder, make_data("t5"), **SETTINGS)
    trainer.train()
    return trainer


@pytest.fixture
def run(trained, tmp_path):
    """A training of six steps with three checkpoints, which the test may damage in its folder."""
    shutil.copytree(trained.args.output_dir, tmp_path / "run")
    return trained


def resumed(folder, wish=True, **settings):
    again = make_trainer(make_model("t5", seed=7, dropout=True), folder, make_data("t5"), **{**SETTINGS, **settings})
    again.train(resume_from_checkpoint=wish)
    return again


def same_weights(one, other):
    weights = other.model.state_dict()
    return all(torch.equal(weight, weights[name]) for name, weight in one.model.state_dict().items())


def test_a_whole_checkpoint_has_the_digest_of_every_file(run, tmp_path):
    folder = tmp_path / "run/checkpoint-6"
    files = json.loads((folder / MANIFEST).read_text())["files"]
    assert set(files) == {path.name for path in folder.iterdir()} - {MANIFEST}
    assert {"model.safetensors", "optimizer.pt", "trainer_state.json", "training_settings.json"} <= set(files)
    assert "training_args.bin" not in files
    assert damage(folder) is None
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-6", "checkpoint-4", "checkpoint-2"]


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def flip(folder):
    path = folder / "optimizer.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damages", "said"),
    [
        (truncate, "model.safetensors has"),
        (flip, "the content of optimizer.pt has changed"),
        (lambda folder: (folder / "trainer_state.json").unlink(), "trainer_state.json is missing"),
        (lambda folder: (folder / "trainer_state.json").write_text("{"), "trainer_state.json has 1 bytes"),
        (lambda folder: (folder / MANIFEST).unlink(), "was not saved to the end"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), "cannot be read"),
        (lambda folder: (folder / MANIFEST).write_text('{"files": {"a": 1}}'), "cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(run, tmp_path, damages, said, caplog):
    damages(tmp_path / "run/checkpoint-6")
    found = last_whole_checkpoint(tmp_path / "run")
    assert found.name == "checkpoint-4"
    assert "checkpoint-6" in caplog.text
    assert said in caplog.text
    again = resumed(tmp_path / "run")
    assert same_weights(run, again)
    damages(tmp_path / "run/checkpoint-4")
    with pytest.raises(UserError, match="cannot be used"):
        resumed(tmp_path / "other", str(tmp_path / "run/checkpoint-4"))


def test_a_checkpoint_of_the_stock_trainer_is_resumed_with_a_note(tmp_path, caplog):
    names = ("disable_tqdm", "train_sampling_strategy", "max_grad_norm", "learning_rate", "report_to", "use_cpu")
    defaults = make_trainer(make_model("t5"), tmp_path / "defaults").args
    settings = {**SETTINGS, **{name: getattr(defaults, name) for name in names}}
    stock = Seq2SeqTrainer(
        make_model("t5"), Seq2SeqTrainingArguments(str(tmp_path / "run"), **settings),
        DataCollatorForSeq2Seq(make_tokenizer()), make_data("t5"),
    )  # fmt: skip
    stock.train()
    for wish in (True, str(tmp_path / "run/checkpoint-2")):
        again = resumed(tmp_path / "run", wish, objective="ce", max_steps=8)
        assert "saved by another trainer" in caplog.text
        assert again.state.global_step == 8
        assert damage(tmp_path / "run/checkpoint-8") is None
        shutil.rmtree(tmp_path / "run/checkpoint-8")
    (tmp_path / "run/checkpoint-6/trainer_state.json").write_text("{")
    assert "trainer_state.json" in damage(tmp_path / "run/checkpoint-6")
    # one of ours without a manifest was not saved to the end, whatever it holds
    assert "not saved to the end" in damage(_ours_without_manifest(tmp_path))


def _ours_without_manifest(tmp_path):
    make_trainer(make_model("t5"), tmp_path / "ours", make_data("t5"), **SETTINGS).train()
    folder = tmp_path / "ours/checkpoint-2"
    (folder / MANIFEST).unlink()
    return folder


def test_weights_that_were_divided_anew_are_resumed(run, tmp_path):
    folder = tmp_path / "run/checkpoint-4"
    model = type(run.model).from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="10KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    assert damage(folder) is None
    assert same_weights(run, resumed(tmp_path / "again", str(folder)))
    shards[0].write_bytes(shards[0].read_bytes()[:-1])
    assert damage(folder) == f"{shards[0].name} is missing or damaged"
    shards[0].unlink()
    assert damage(folder) == f"{shards[0].name} is missing or damaged"
    (folder / "model.safetensors.index.json").unlink()
    assert "model.safetensors.index.json is missing" in damage(folder)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_resumed_training_logs_the_same(frozen, tmp_path):
    def make(folder):
        model = make_model("t5", dropout=True)
        for parameter in model.encoder.parameters() if frozen else ():
            parameter.requires_grad = False
        return make_trainer(model, tmp_path / folder, make_data("t5"), **{**SETTINGS, "logging_steps": 3})

    whole, again = make("run"), make("again")
    whole.train()
    for step in (2, 4):  # between two lines of the log
        again.train(resume_from_checkpoint=str(tmp_path / f"run/checkpoint-{step}"))
        lines = [{**line, "grad_norm": 0.0} for line in log_lines(whole)]
        assert [{**line, "grad_norm": 0.0} for line in log_lines(again)] == lines


def test_no_whole_checkpoint_at_all_is_an_error_that_names_them(run, tmp_path):
    for folder in checkpoints(tmp_path / "run"):
        truncate(folder)
    with pytest.raises(UserError, match=r"None of the checkpoints .*checkpoint-6: model.safetensors .*checkpoint-2"):
        resumed(tmp_path / "run")
    with pytest.raises(UserError, match="There is no checkpoint in"):
        resumed(tmp_path / "nothing")
    with pytest.raises(UserError, match="there is no such folder"):
        resumed(tmp_path / "run", str(tmp_path / "nowhere"))


def make_checkpoints(folder, *steps):
    for step in steps:
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        (folder / f"checkpoint-{step}/model.safetensors").write_text("the weights of a model")
        write_manifest(folder / f"checkpoint-{step}")


def left(folder):
    return [int(path.name.split("-")[1]) for path in checkpoints(folder)]


def test_rotation_keeps_the_best_and_the_newest_whole_one(tmp_path):
    make_checkpoints(tmp_path, 2, 4, 6, 8, 10)
    (tmp_path / "checkpoint-8" / MANIFEST).unlink()  # killed while it was saved
    rotate(tmp_path / "checkpoint-10", None, None)
    assert len(checkpoints(tmp_path)) == 5
    rotate(tmp_path / "checkpoint-10", 1, str(tmp_path / "checkpoint-4"))
    assert left(tmp_path) == [10, 4]
    (tmp_path / "checkpoint-10" / MANIFEST).unlink()
    rotate(tmp_path / "checkpoint-10", 1, None)
    assert (tmp_path / "checkpoint-4").exists()  # the only one that is whole
    make_checkpoints(tmp_path, 12, 14)
    truncate(tmp_path / "checkpoint-4")
    rotate(tmp_path / "checkpoint-14", 2, str(tmp_path / "checkpoint-4"))
    assert left(tmp_path) == [14, 4]  # the best one, whatever it is like
    make_checkpoints(tmp_path, 16)
    rotate(tmp_path / "checkpoint-16", 2, str(tmp_path / "elsewhere/checkpoint-4"))
    assert left(tmp_path) == [16, 14]


@pytest.mark.parametrize("damaged", [6, 5])
def test_rotation_does_not_count_what_is_damaged(tmp_path, damaged):
    """Whether the one just written has a lower step than the damaged one, or a higher one."""
    make_checkpoints(tmp_path, 2, 4, 5, 6)
    truncate(tmp_path / f"checkpoint-{damaged}")
    rotate(tmp_path / f"checkpoint-{damaged}", 1, None)
    assert left(tmp_path) == [6, 5, 4, 2]  # what was just written is not whole: nothing may go
    rotate(tmp_path / f"checkpoint-{11 - damaged}", 2, None)
    assert left(tmp_path) == [11 - damaged, 4]


def test_rotation_takes_higher_steps_for_those_of_an_earlier_run(tmp_path):
    make_checkpoints(tmp_path, 2, 4, 6, 8)
    rotate(tmp_path / "checkpoint-4", 3, None)
    assert left(tmp_path) == [8, 4, 2]
    rotate(tmp_path / "checkpoint-4", 2, None)
    assert left(tmp_path) == [4, 2]
    make_checkpoints(tmp_path, 10)
    rotate(tmp_path / "checkpoint-4", 1, str(tmp_path / "checkpoint-10"))
    assert left(tmp_path) == [10, 4]


def test_the_only_whole_checkpoint_outlives_a_save_that_fails(run, tmp_path, monkeypatch):
    """A limit of one: the old checkpoint goes when the new one is whole, not before."""
    trainer = make_trainer(
        make_model("t5"), tmp_path / "limited", make_data("t5"), **SETTINGS, save_total_limit=1
    )  # fmt: skip
    trainer.train()
    assert [path.name for path in checkpoints(tmp_path / "limited")] == ["checkpoint-6"]
    trainer.args.max_steps = 8

    def fails(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer, "_save_optimizer_and_scheduler", fails)
    with pytest.raises(UserError, match="could not be saved.*No space left.*Earlier checkpoints are unchanged"):
        trainer.train(resume_from_checkpoint=True)
    assert [path.name for path in checkpoints(tmp_path / "limited")] == ["checkpoint-6"]
    assert damage(tmp_path / "limited/checkpoint-6") is None
    assert not list((tmp_path / "limited").rglob("*.tmp"))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"alpha": 0.5, "level": "sequence", "plain_steps": 3, "alpha_warmup_steps": 2},
        {"save_strategy": "epoch", "max_steps": -1, "num_train_epochs": 3, "per_device_train_batch_size": 4},
        {"gradient_accumulation_steps": 16, "per_device_train_batch_size": 2},  # more than an epoch has
    ],
    ids=["steps", "schedule", "epochs", "long windows"],
)
def test_resuming_anywhere_equals_not_stopping(tmp_path, settings):
    settings = {**SETTINGS, **settings}
    whole = make_trainer(make_model("t5", dropout=True), tmp_path / "run", make_data("t5"), **settings)
    whole.train()
    found = checkpoints(tmp_path / "run")
    assert len(found) >= 2
    for number, folder in enumerate(found):
        again = make_trainer(
            make_model("t5", seed=9, dropout=True), tmp_path / f"{number}", make_data("t5"), **settings
        )
        again.train(resume_from_checkpoint=str(folder))
        assert same_weights(whole, again), folder.name
        if again.state.global_step == whole.state.global_step:  # else nothing was left to do but a step of size 0
            assert again.log_state.tokens == whole.log_state.tokens != 0


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"alpha": 0.5}, "alpha"),
        ({"level": "sequence"}, "level"),
        ({"objective": "ce"}, "objective"),
        ({"per_device_train_batch_size": 4}, "per_device_train_batch_size"),
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps"),
    ],
)
def test_other_settings_are_refused_or_recorded(run, tmp_path, change, name):
    with pytest.raises(UserError, match=rf"another {name} .*allow_config_change"):
        resumed(tmp_path / "run", str(tmp_path / "run/checkpoint-4"), **change)
    again = resumed(tmp_path / "new", str(tmp_path / "run/checkpoint-4"), **change, allow_config_change=True)
    again.save_model()
    for folder in ("new", "new/checkpoint-6"):
        [recorded] = json.loads((tmp_path / folder / "training_settings.json").read_text())["changes"]
        assert (recorded["setting"], recorded["checkpoint"]) == (name, "checkpoint-4")
        assert recorded["now"] == change[name]


def test_longer_training_needs_no_permission(run, tmp_path):
    assert resumed(tmp_path / "run", max_steps=8).state.global_step == 8


def test_sigterm_saves_once_and_ends_with_its_own_code(tmp_path):
    process = Forked(work, tmp_path / "run", "slow")
    assert process.stdout.readline().startswith("step")
    send_until_it_ends(process, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors[-2000:]
    assert "Stopped by SIGTERM at step" in errors
    [folder] = checkpoints(tmp_path / "run")
    assert damage(folder) is None


@pytest.mark.slow
def test_killed_at_twenty_random_points_it_ends_as_if_it_had_not_been(tmp_path):
    """SIGKILL at any time, in the middle of saving too: a checkpoint is saved after every step."""
    generator = np.random.default_rng(0)
    resumed = ("often", "resume")
    first = [kill_at_random(Forked(work, tmp_path / "run", *resumed), generator) for _ in range(KILLS)]
    assert max(first) > 1  # from a checkpoint, not from the beginning
    done = Forked(work, tmp_path / "run", *resumed)
    _, errors = done.communicate(timeout=120)
    assert done.returncode == 0, errors[-2000:]
    whole = Forked(work, tmp_path / "whole", "often")
    whole.communicate(timeout=120)
    assert whole.returncode == 0
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(weight, other[name]) for name, weight in one.items())


def test_two_trainings_do_not_share_a_folder(tmp_path):
    process = Forked(work, tmp_path / "run", "slow")
    try:
        assert process.stdout.readline().startswith("step")
        with pytest.raises(UserError, match="Another training writes to"):
            make_trainer(make_model("t5"), tmp_path / "run", make_data("t5"), **SETTINGS).train()
    finally:
        process.kill()
        process.communicate()
    make_trainer(make_model("t5"), tmp_path / "run", make_data("t5"), **SETTINGS).train()  # the dead hold no lock
