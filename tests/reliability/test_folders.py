"""Folders of classifiers and of models of numbers from strangers, asked for by each command that loads a model."""

import json
import os
import shutil

import pytest
import torch
from classifiers import make_processor, make_vit
from number_models import make_preprocessor, make_tabular

from clue_hf import UserError, pipeline
from clue_hf.cli.main import main
from clue_hf.data.embedded.diabetes import load_diabetes_splits


DATA = {
    "image": ["--dataset_name", "embedded:digits"],
    "number": ["--dataset_name", "embedded:diabetes", "--target_column", "progression"],
}


@pytest.fixture(params=["image", "number"])
def kind(request):
    return request.param


@pytest.fixture
def folder(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if kind == "image":
        model, processing_class = make_vit(), make_processor()
    else:
        processing_class = make_preprocessor(load_diabetes_splits()["train"])
        model = make_tabular(processing_class, variance_head=True)
    model.save_pretrained("model")
    processing_class.save_pretrained("model")
    return tmp_path / "model"


def index(folder):
    shutil.move(folder / "model.safetensors", folder.parent / "outside.safetensors")
    content = {"metadata": {}, "weight_map": {"weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def absolute(folder):
    index(folder)
    content = {"metadata": {}, "weight_map": {"weight": str(folder.parent / "outside.safetensors")}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def link(folder):
    shutil.move(folder / "model.safetensors", folder.parent / "outside.safetensors")
    os.symlink(folder.parent / "outside.safetensors", folder / "model.safetensors")


class Evil:
    def __reduce__(self):
        return (os.system, ("touch ran",))


def pickled(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Evil()}, folder / "pytorch_model.bin")


def code(folder):
    content = json.loads((folder / "config.json").read_text())
    content.update(model_type="mine", auto_map={"AutoConfig": "mine.Mine", "AutoModel": "mine.Mine"})
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "mine.py").write_text("open('ran', 'w')\nclass Mine: pass\n")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (index, "is not inside its folder: refused"),
        (absolute, "is not inside its folder: refused"),
        (link, "is a link out of the model's folder"),
        (pickled, "a pickle that holds more than tensors"),
        (code, "cannot be loaded"),
    ],
)
def test_what_reaches_out_or_runs_is_refused(kind, folder, spoil, said, capsys, tmp_path):
    spoil(folder)
    with pytest.raises(UserError, match=said):
        pipeline("model")
    (tmp_path / "rows.jsonl").write_text('{"image": "a.png", "age": 1}\n')
    commands = [
        ["train", "--model_name_or_path", "model", *DATA[kind], "--output_dir", "out", "--use_cpu", "true"],
        ["evaluate", "model", *DATA[kind], "--report_dir", "report"],
        ["calibrate", "model", *DATA[kind]],
        ["predict", "model", "--input", "rows.jsonl", "--output", "answers.jsonl"],
    ]
    for words in commands:
        assert main(words) == 2, words[0]
        error = capsys.readouterr().err
        assert said in error, words[0]
        assert "Traceback" not in error
    assert not (tmp_path / "ran").exists()
