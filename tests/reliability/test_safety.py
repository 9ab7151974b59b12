"""Folders of models from strangers."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from classifiers import make_processor, make_vit
from helpers import SENTENCES, TRANSLATIONS, make_model, make_tokenizer
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from clue_hf import pipeline
from clue_hf.cli.main import main
from clue_hf.errors import UserError
from clue_hf.models.loading import load_config, load_text_model
from clue_hf.models.safety import is_inside
from clue_hf.models.uncertainty_file import write_uncertainty
from clue_hf.predictors.loading import language_model


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


def save_as_bin(folder, sharded=False):
    """Weights as most older models on the Hub have them: `torch.save` of the state, in one file or in two."""
    state = AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    if not sharded:
        torch.save(state, folder / "pytorch_model.bin")
        return
    files = [f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)]
    names = {name: files[place % 2] for place, name in enumerate(state)}
    for file in files:
        torch.save({name: state[name] for name, own in names.items() if own == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


@pytest.mark.parametrize(("kind", "sharded"), [("t5", False), ("t5", True), ("marian", False)])
def test_weights_in_a_bin_file_load_everywhere_and_are_saved_as_safetensors(kind, sharded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_model(kind).save_pretrained("model")
    make_tokenizer().save_pretrained("model")
    expected = pipeline("model", max_new_tokens=5, device="cpu")(SENTENCES)
    save_as_bin(tmp_path / "model", sharded)
    assert pipeline("model", max_new_tokens=5, device="cpu")(SENTENCES) == expected
    rows = [{"source": source, "target": target} for source, target in zip(SENTENCES, TRANSLATIONS, strict=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 4))
    data = ["--validation_file", "rows.jsonl", "--test_file", "rows.jsonl", "--max_target_length", "5"]
    assert main(["evaluate", "model", *data, "--scorers", "msp", "--resamples", "0", "--report_dir", "report"]) == 0
    assert main(["calibrate", "model", *data, "--output_dir", "copy"]) == 0
    train = ["train", "--model_name_or_path", "model", "--train_file", "rows.jsonl", *data, "--output_dir", "out"]
    assert main([*train, "--max_steps", "1", "--objective", "ce", "--use_cpu", "true"]) == 0
    for folder in ("copy", "out"):
        files = {path.name for path in (tmp_path / folder).rglob("*") if path.suffix in (".bin", ".safetensors")}
        assert "model.safetensors" in files
        assert not [name for name in files if name.endswith(".bin")]
    answers = pipeline("copy", max_new_tokens=5, device="cpu")(SENTENCES)
    assert [answer["uncertainty"] for answer in answers] == pytest.approx(
        [answer["uncertainty"] for answer in expected], rel=1e-6
    )


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_runs_something_is_refused_and_not_run(folder, tmp_path, legacy, sharded, capsys):
    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'ran'}",))

    (folder / "model.safetensors").unlink()
    file = "pytorch_model-00001-of-00001.bin" if sharded else "pytorch_model.bin"
    torch.save({"shared.weight": Evil()}, folder / file, _use_new_zipfile_serialization=not legacy)
    if sharded:
        index = {"metadata": {}, "weight_map": {"shared.weight": file}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="a pickle that holds more than tensors") as raised:
        load_text_model(str(folder))
    assert "weights_only" not in str(raised.value)  # torch's advice is to read it all the same
    words = ["evaluate", str(folder), "--dataset_name", "embedded:phrases", "--max_eval_samples", "2"]
    assert main(words) == 2
    assert "refused, and nothing of it was run" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_bin_files_from_the_hub_are_read_by_the_same_rule(folder, tmp_path):
    """From a cache of the Hub's, in a process of its own, as the cache's place is read at import."""
    expected = load_text_model(str(folder)).state_dict()
    save_as_bin(folder)
    repository = tmp_path / "cache/models--org--name"
    shutil.copytree(folder, repository / "snapshots/1234")
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("1234")
    torch.save(expected, tmp_path / "expected.bin")
    code = (
        "import sys, torch\n"
        "from clue_hf.errors import UserError\n"
        "from clue_hf.models.loading import load_text_model\n"
        "try:\n"
        "    state = load_text_model('org/name').state_dict()\n"
        "except UserError as error:\n"
        "    sys.exit(str(error))\n"
        f"expected = torch.load({str(tmp_path / 'expected.bin')!r})\n"
        "print(all(torch.equal(state[name], expected[name]) for name in expected))\n"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}

    def run():
        return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)

    assert run().stdout.strip() == "True"

    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path / 'ran'}",))

    torch.save({"shared.weight": Evil()}, repository / "snapshots/1234/pytorch_model.bin")
    assert "The weights of 'org/name' are a damaged file, or a pickle that holds more than tensors" in run().stderr
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


class Evil:
    def __reduce__(self):
        return (os.system, ("touch ran",))


def pickled(adapter):
    (adapter / "adapter_model.safetensors").unlink()
    torch.save({"weight": Evil()}, adapter / "adapter_model.bin")


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
        (pickled, "a pickle that holds more than tensors"),
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
    assert not (tmp_path / "ran").exists()


def test_an_adapter_in_a_bin_file_is_read_like_one_in_safetensors(adapter):
    state = load_file(adapter / "adapter_model.safetensors")
    expected = language_model(str(adapter))[0].state_dict()
    (adapter / "adapter_model.safetensors").unlink()
    torch.save(state, adapter / "adapter_model.bin")
    loaded = language_model(str(adapter))[0].state_dict()
    assert all(torch.equal(loaded[name], weight) for name, weight in expected.items())
    assert any("lora_A" in name for name in loaded)
