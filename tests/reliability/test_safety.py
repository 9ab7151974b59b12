"""Folders of models from strangers."""

import json
import os
import shutil

import pytest
import torch
from classifiers import make_processor, make_vit
from helpers import make_model, make_tokenizer
from peft import LoraConfig, get_peft_model

from clue_hf import pipeline
from clue_hf.cli.main import main
from clue_hf.errors import UserError
from clue_hf.models.loading import load_config, load_text_model
from clue_hf.models.safety import is_inside
from clue_hf.models.uncertainty_file import write_uncertainty


@pytest.fixture
def folder(tmp_path):
    make_model("t5").save_pretrained(tmp_path / "model")
    make_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../b", "C:\\x", "..\\x", "\\\\host\\share", "\\x"])
def test_paths_that_lead_out(path):
    assert not is_inside(path)


@pytest.mark.parametrize("path", ["", "members/1", "model-00001-of-00002.safetensors", "a..b"])
def test_paths_that_stay(path):
    assert is_inside(path)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/outside.safetensors", 3])
def test_an_index_that_names_files_elsewhere_is_refused(folder, name):
    shutil.copy(folder / "model.safetensors", folder.parent / "outside.safetensors")
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"shared.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="is not inside its folder: refused"):
        load_text_model(str(folder))


def test_a_link_out_of_the_folder_is_refused_and_one_of_the_hubs_cache_is_not(folder):
    outside = folder.parent / "outside.safetensors"
    shutil.move(folder / "model.safetensors", outside)
    os.symlink(outside, folder / "model.safetensors")
    with pytest.raises(UserError, match="is a link out of the model's folder"):
        load_text_model(str(folder))

    cache = folder.parent / "models--org--name"
    (cache / "blobs").mkdir(parents=True)
    shutil.move(outside, cache / "blobs" / "abc")
    snapshot = cache / "snapshots" / "1234"
    shutil.copytree(folder, snapshot, symlinks=True)
    (snapshot / "model.safetensors").unlink()
    os.symlink("../../blobs/abc", snapshot / "model.safetensors")
    assert load_text_model(str(snapshot)).num_parameters() > 0


def test_weights_that_are_pickles_are_refused(folder, tmp_path, capsys):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'ran'}",))

    (folder / "model.safetensors").unlink()
    torch.save({"shared.weight": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="are pickles"):
        load_text_model(str(folder))
    words = ["evaluate", str(folder), "--dataset_name", "embedded:phrases", "--max_eval_samples", "2"]
    assert main(words) == 2
    assert "are pickles" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_code_of_a_model_is_not_run(folder, tmp_path):
    content = json.loads((folder / "config.json").read_text())
    content.update(model_type="mine", auto_map={"AutoConfig": "mine.Mine", "AutoModelForSeq2SeqLM": "mine.Mine"})
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Mine: pass\n")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_config(str(folder))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("member", ["../other", "/other"])
def test_members_and_error_predictors_elsewhere_are_refused(tmp_path, member):
    make_vit().save_pretrained(tmp_path / "model")
    make_processor().save_pretrained(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "other")
    write_uncertainty(tmp_path / "model", members=[member])
    with pytest.raises(UserError, match="is not inside it: refused"):
        pipeline(str(tmp_path / "model"))


def outside_member(folder):
    (folder / "members").rename(folder.parent / "elsewhere")
    os.symlink(folder.parent / "elsewhere", folder / "members")


def test_a_member_behind_a_link_is_refused(tmp_path):
    make_vit().save_pretrained(tmp_path / "model")
    make_processor().save_pretrained(tmp_path / "model")
    make_vit().save_pretrained(tmp_path / "model/members/1")
    write_uncertainty(tmp_path / "model", members=["members/1"])
    assert pipeline(str(tmp_path / "model"))
    outside_member(tmp_path / "model")
    with pytest.raises(UserError, match="is a link out of the model's folder"):
        pipeline(str(tmp_path / "model"))


# ---- adapters ----


@pytest.fixture
def adapter(folder, tmp_path):
    base = make_model("t5")
    base.config._name_or_path = base.name_or_path = str(folder)
    model = get_peft_model(base, LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, target_modules=["q", "v"]))
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def linked(adapter):
    shutil.move(adapter / "adapter_model.safetensors", adapter.parent / "outside.safetensors")
    os.symlink(adapter.parent / "outside.safetensors", adapter / "adapter_model.safetensors")


def pickled(adapter):
    (adapter / "adapter_model.safetensors").unlink()
    torch.save({}, adapter / "adapter_model.bin")


def cut(adapter):
    content = (adapter / "adapter_model.safetensors").read_bytes()
    (adapter / "adapter_model.safetensors").write_bytes(content[: len(content) // 2])


def without_weights(adapter):
    (adapter / "adapter_model.safetensors").unlink()


def without_type(adapter):
    content = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**content, "peft_type": "none"}))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (linked, "is a link out of the model's folder"),
        (pickled, "are pickles"),
        (cut, "cannot be loaded"),
        (without_weights, "cannot be loaded"),
        (without_type, "cannot be loaded"),
    ],
)
def test_adapters_are_checked_like_models(adapter, spoil, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"text": "the cat"}\n')
    predict = ["predict", "adapter", "--input", "rows.jsonl", "--max_new_tokens", "3", "--output"]
    assert main([*predict, "good.jsonl"]) == 0
    spoil(adapter)
    evaluate = ["evaluate", "adapter", "--dataset_name", "embedded:phrases", "--max_eval_samples", "2"]
    for words in (evaluate, [*predict, "bad.jsonl"]):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert said in error
        assert "Traceback" not in error
