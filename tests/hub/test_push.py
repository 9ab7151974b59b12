"""Pushing for real, with the Hub's own client, to the endpoint of the tests."""

import inspect
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from helpers import make_model
from hub.endpoint import run_client
from hub.reported import save_learned, save_reported_classes, save_reported_texts
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, Trainer, TrainingArguments

from clue_hf import CLUETrainer, UserError
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.hub.card import REPORT, CardOptions, is_ours, write_card
from clue_hf.hub.push import check_secrets, collect_files, renew_card
from clue_hf.models.uncertainty_file import write_uncertainty


ROOT = Path(__file__).parents[2]
CANARY = "a-canary-that-must-not-sing"
TOKEN = "hf_" + "a1B2" * 8
MODEL = {"config.json", "model.safetensors"}
T5 = {*MODEL, "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
REPORTED = {f"{REPORT}/report.json", f"{REPORT}/summary.md"}

RUN = """
import contextlib, io, json, os
from clue_hf.cli.main import main

token = os.environ["HF_TOKEN"]

def run(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return [code, out.getvalue(), err.getvalue()]
"""
PUSH_AND_LOAD = """
from huggingface_hub import HfApi, ModelCard
from peft import PeftModel
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer

printed = [
    run("push", "clue", "me/clue", "--private"),
    run("push", "adapter", "me/adapter"),
    run("push", "bert", "me/bert", "--revision", "v2", "--commit_message", "two words"),
    run("push", "clue", "me/open", "--include_examples"),
    run("push", "clue", "me/open", "--private"),
    run("push", "clue", "me/clue"),
]
AutoModelForSeq2SeqLM.from_pretrained("me/clue").save_pretrained("loaded/clue")
base = AutoModelForSeq2SeqLM.from_pretrained("base")
PeftModel.from_pretrained(base, "me/adapter").save_pretrained("loaded/adapter")
AutoModelForSequenceClassification.from_pretrained("me/bert", revision="v2").save_pretrained("loaded/bert")
member = AutoModelForSequenceClassification.from_pretrained("me/bert", revision="v2", subfolder="members/1")
member.save_pretrained("loaded/member")
card = ModelCard.load("me/clue")
pushed = {
    "printed": printed,
    "ids": AutoTokenizer.from_pretrained("me/clue")(["the red cars"])["input_ids"],
    "results": [vars(result) for result in card.data.eval_results],
    "same": HfApi().model_info("me/clue").card_data.eval_results == card.data.eval_results,
}
"""


def add_what_must_stay(folder):
    """What a training leaves in a folder, and what somebody may have put there."""
    arguments = TrainingArguments("out", hub_token=CANARY, report_to="none", use_cpu=True)
    torch.save(arguments, folder / "training_args.bin")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin", "trainer_state.json",
                 "notes.txt", ".env", "data.csv", "calibrator.pkl", "results.json.bak", "train.log",
                 "model.safetensors.tmp", "objective.safetensors", "checkpoint-2/model.safetensors",
                 "checkpoint-2/config.json", "runs/events.out", ".cache/config.json", "members/9/config.json",
                 "error_predictor/config.json",
                 f"{REPORT}/notes.txt", f"{REPORT}/.hidden.png"):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(CANARY)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A T5 with a whole report, an adapter, and a classifier that is an ensemble with an error predictor."""
    folder = tmp_path_factory.mktemp("local")
    save_reported_texts(folder)
    add_what_must_stay(folder / "clue")
    make_model("t5").save_pretrained(folder / "base")
    settings = LoraConfig(r=2, target_modules=["q"], init_lora_weights=False, task_type="SEQ_2_SEQ_LM")
    base = AutoModelForSeq2SeqLM.from_pretrained(folder / "base")
    get_peft_model(base, settings).save_pretrained(folder / "adapter")
    save_reported_classes(folder / "bert")
    for part in ("members/1", "members/2", "error_predictor"):
        (folder / "bert" / part).mkdir(parents=True)
        for name in MODEL:
            shutil.copy(folder / "bert" / name, folder / "bert" / part / name)
    write_uncertainty(folder / "bert", members=["members/1"], error_predictor={"folder": "error_predictor"})
    return folder


@pytest.fixture(scope="module")
def programs(hub, local, failing, trained):
    """What the programs found: one process for all, because it takes long to import the libraries."""
    save_learned(local / "learned")
    code = "\n".join([
        RUN, PUSH_AND_LOAD, PUSH_A_TRAINER, f"os.chdir({str(failing)!r})", FAIL,
        f"os.chdir({str(trained)!r})", TRAIN,
        'print(json.dumps({"pushed": pushed, "refused": refused, "failed": found, "train.py": ended}))',
    ])  # fmt: skip
    done = run_client(code, hub, local)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "errors": done.stderr}


@pytest.fixture(scope="module")
def pushed(programs):
    return programs["pushed"]


def test_exactly_these_files_arrive_in_one_commit(hub, local, pushed):
    assert [code for code, _, _ in pushed["printed"]] == [0, 0, 0, 0, 2, 0]
    pictures = {f"{REPORT}/{path.name}" for path in (local / "clue" / REPORT).glob("[a-z]*.png")}
    assert len(pictures) >= 3
    drawings = {name.replace(".png", ".svg") for name in pictures}
    text = {".gitattributes", "README.md", *T5, *REPORTED, *pictures, *drawings, f"{REPORT}/comparison.json"}
    assert set(hub.repos["me/clue"].files()) == text
    assert set(hub.repos["me/open"].files()) == text | {f"{REPORT}/examples.jsonl", f"{REPORT}/report.html"}
    assert set(hub.repos["me/adapter"].files()) == {
        ".gitattributes", "README.md", "adapter_config.json", "adapter_model.safetensors"}  # fmt: skip
    parts = {f"{part}/{name}" for part in ("members/1", "error_predictor") for name in MODEL}
    assert set(hub.repos["me/bert"].files("v2")) == {
        ".gitattributes", "README.md", "tokenizer.json", "tokenizer_config.json", "uncertainty.json", *MODEL, *parts,
        *REPORTED}  # fmt: skip
    assert [commit.title for commit in hub.repos["me/clue"].commits] == [
        "initial commit", "Upload clue with its uncertainty"]  # fmt: skip
    assert hub.repos["me/bert"].commits[-1].title == "two words"
    assert set(hub.repos["me/bert"].files()) == {".gitattributes"}  # main is another branch
    assert hub.repos["me/clue"].private


def test_no_secret_and_no_pickle_leaves_the_machine(hub, local, pushed):
    received = hub.uploaded_bytes()
    found = [text in received for text in (CANARY.encode(), hub.token.encode(), b"training_args.bin", b"optimizer.pt")]
    assert found == [False] * 4
    assert len(received) > 100_000  # the files themselves are in there
    private = json.loads((local / "clue" / REPORT / "examples.jsonl").read_text().splitlines()[0])["source"]
    holders = [name for name, repo in hub.repos.items() if any(private.encode() in content for commit in repo.commits
                                                               for content in commit.files.values())]  # fmt: skip
    assert holders == ["me/open"]


def test_what_arrives_loads_with_the_same_weights(local, pushed):
    loaded = local / "loaded"
    for auto_class, mine, theirs in (
        (AutoModelForSeq2SeqLM, "clue", "clue"),
        (AutoModelForSequenceClassification, "bert", "bert"),
        (AutoModelForSequenceClassification, "bert/members/1", "member"),
    ):
        before, after = (auto_class.from_pretrained(folder).state_dict() for folder in (local / mine, loaded / theirs))
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)
    before, after = (
        PeftModel.from_pretrained(make_model("t5"), place / "adapter").state_dict() for place in (local, loaded)
    )
    adapted = [name for name in before if "lora" in name]
    assert adapted
    assert all(torch.equal(before[name], after[name]) for name in adapted)
    assert pushed["ids"][0][:1] != []


def test_the_card_of_the_repo_has_the_results_of_the_report(hub, local, pushed):
    metrics = json.loads((local / "clue" / REPORT / "report.json").read_text())["metrics"]
    found = {(entry["metric_type"], entry["metric_config"]): entry["metric_value"] for entry in pushed["results"]}
    for scorer in ("msp", "perplexity"):
        assert found["prr", scorer] == metrics["scorers"][scorer]["prr"]["value"]
    assert found["alignment_error", None] == metrics["references"]["alignment_error"]["value"]
    assert pushed["same"]
    card = hub.repos["me/clue"].files()["README.md"].decode()
    assert 'pipeline("me/clue")' in card
    assert "library_name: peft" in hub.repos["me/adapter"].files()["README.md"].decode()
    assert is_ours(local / "adapter" / "README.md")  # and not the one that PEFT leaves


def test_it_says_what_it_uploads_and_where(hub, local, pushed):
    code, out, err = pushed["printed"][0]
    assert err == ""
    assert f"{(local / 'clue/model.safetensors').stat().st_size / 1000:.1f} kB  model.safetensors" in out
    assert "Not uploaded: .cache, .env, calibrator.pkl, checkpoint-2, data.csv" in out
    assert out.splitlines()[-1] == f"Uploaded: {hub.url}/me/clue"
    _, _, refused = pushed["printed"][4]
    assert "me/open already exists and is public" in refused


FAIL = """
from pathlib import Path

model = Path("clue")
content = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
found = {"first": run("push", model, "me/half")}
(model / "README.md").write_text("---\\nlicense: mit\\n---\\n# By hand")
for name in ("status", "cut", "again"):
    found[name] = run("push", model, "me/half")
found["dataset"] = run("push", model, "datasets/me/data")
found["name"] = run("push", model, "me/a--b")
found["foreign"] = run("push", model, "you/theirs")
found["empty"] = run("push", "empty", "me/empty")
found["no weights"] = run("push", "pickled", "me/pickled")
found["nowhere"] = run("push", "nowhere", "me/nowhere")
found["words"] = run("push", model)
(model / "tokenizer_config.json").write_text('{"note": "TOKEN"}')
found["token"] = run("push", model, "me/secret")
(model / "tokenizer_config.json").write_text(json.dumps({"note": os.environ["HF_TOKEN"]}))
found["own token"] = run("push", model, "me/secret")
(model / "tokenizer_config.json").write_bytes(content[model / "tokenizer_config.json"])
(model / "README.md").write_text("---\\nlicense: [\\n---\\n")
found["card"] = run("push", model, "me/card")
(model / "README.md").unlink()
after = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
(model / "README.md").write_text("# By hand")
found["unchanged"] = all(after[path] == value for path, value in content.items())
os.environ["HF_TOKEN"] = "hf_another"
found["wrong token"] = run("push", model, "me/other")
del os.environ["HF_TOKEN"]
found["no token"] = run("push", model, "me/other")
""".replace('"TOKEN"', f'"{TOKEN}"')


@pytest.fixture(scope="module")
def failing(hub, tmp_path_factory):
    """A folder; the second and third commits of its model fail."""
    home = tmp_path_factory.mktemp("failing")
    save_learned(home / "clue")
    (home / "empty").mkdir()
    (home / "pickled").mkdir()
    (home / "pickled" / "config.json").write_text("{}")
    (home / "pickled" / "pytorch_model.bin").write_text("")
    hub.fail_after(2, lambda request: "/me/half/commit/" in request.path, status=500)
    hub.fail_after(2, lambda request: "/me/half/commit/" in request.path, cut="upload")  # of those that do not fail
    return home


@pytest.fixture(scope="module")
def failed(programs):
    return programs["failed"]


def test_a_push_that_fails_midway_leaves_everything_as_it_was(hub, failed):
    repo = hub.repos["me/half"]
    assert failed["first"][0] == 0
    for name, words in (("status", "500"), ("cut", "the connection to")):
        code, _, error = failed[name]
        assert (code, error.count("\n")) == (2, 1)
        assert words in error
        assert "run the same command again" in error
    assert failed["again"][0] == 0
    cards = [commit.files.get("README.md", b"").decode() for commit in repo.commits]
    assert [("By hand" in card, "clue-hf card" in card) for card in cards] == [(0, 0), (0, 1), (1, 0)]
    assert failed["unchanged"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("dataset", "'datasets/me/data' is not a valid model name"), ("name", "'me/a--b' is not a valid model name"),
     ("foreign", "no right to write to you/theirs"), ("empty", "There is no model in empty"),
     ("no weights", "only safetensors are uploaded"), ("nowhere", "The folder 'nowhere' does not exist"),
     ("words", "clue-hf push DIR REPO_ID"), ("token", "clue/tokenizer_config.json holds what looks like a token"),
     ("own token", "clue/tokenizer_config.json holds what looks like a token"), ("card", "Invalid metadata"),
     ("wrong token", "does not accept the token"), ("no token", "log in with `hf auth login`")],
)  # fmt: skip
def test_a_mistake_is_one_line(hub, failed, name, words):
    code, _, error = failed[name]
    assert code == 2
    assert error.startswith("clue-hf: error: ")
    assert error.count("\n") == 1
    assert words in error
    assert TOKEN not in error
    assert not {"me/secret", "me/empty", "me/pickled", "you/theirs"} & set(hub.repos)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder for a training that pushes: its data and its settings."""
    home = tmp_path_factory.mktemp("trained")
    rows = [{name: row[name] for name in ("source", "target", "entropy")} for row in phrase_rows("train", 80)]
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = (ROOT / "configs/quickstart/t5_phrases.yaml").read_text()
    (home / "config.yaml").write_text(settings.replace("dataset_name: embedded:phrases", "train_file: rows.jsonl"))
    return home


#: After what fails, which ends without a token in the environment.
TRAIN = f"""
import runpy, sys

sys.argv = ["train.py", "config.yaml", "--max_steps", "2", "--max_train_samples", "64", "--max_eval_samples", "4",
            "--tokenizer_vocab_size", "100", "--report_splits", "test", "--config_overrides",
            "d_model=16,d_kv=8,d_ff=32,num_layers=1,num_heads=2", "--save_strategy", "steps", "--save_steps", "1",
            "--eval_strategy", "no", "--quality", "none", "--output_dir", "out", "--use_cpu", "true", "--report_to",
            "none", "--hub_strategy", "checkpoint", "--push_to_hub", "--hub_model_id", "me/trained", "--hub_token",
            token]
try:
    runpy.run_path({str(ROOT / "train.py")!r}, run_name="__main__")
except SystemExit as end:
    ended = end.code
"""


def test_training_pushes_only_the_model(hub, trained, programs):
    """train.py with checkpoints: a commit for each save and one for the end, with our card."""
    assert programs["train.py"] == 0, programs["errors"]
    repo = hub.repos["me/trained"]
    assert {name for commit in repo.commits for name in commit.files} == {
        ".gitattributes",
        "README.md",
        "uncertainty.json",
        *T5,
    }
    assert "Training in progress, step 2" in [commit.title for commit in repo.commits]
    assert "the states of the optimizer are pickles" in programs["errors"]
    saved = (trained / "out/clue/model.safetensors").read_bytes()
    assert (repo.files()["model.safetensors"] == saved) is True
    card = repo.files()["README.md"].decode()
    assert "trained with CLUE with alpha = 0.9" in card
    assert 'pipeline("me/trained")' in card
    received = hub.uploaded_bytes()
    assert [text in received for text in (hub.token.encode(), b"training_args.bin", b"optimizer.pt")] == [False] * 3
    assert not (trained / "out/clue/training_args.bin").exists()
    assert hub.token not in (trained / "out/clue/training_settings.json").read_text()  # which stays here anyway


PUSH_A_TRAINER = """
from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.errors import UserError

def trainer(name):
    settings = {"use_cpu": True, "report_to": "none", "hub_model_id": name}
    return CLUETrainer("learned", CLUEConfig(name.split("/")[-1], **settings))

trainer("me/hidden").push_to_hub(private=True)
trainer("me/shown").push_to_hub("first", private=False)
try:
    trainer("me/shown").push_to_hub("second", private=True)
except UserError as error:
    refused = str(error)
"""


def test_a_trainer_pushes_to_a_private_repository(hub, programs):
    """As `Trainer.push_to_hub(private=True)` of transformers 5.23; what must stay private is never shown."""
    assert hub.repos["me/hidden"].private
    assert not hub.repos["me/shown"].private
    assert "model.safetensors" in hub.repos["me/hidden"].files()
    assert "second" not in [commit.title for commit in hub.repos["me/shown"].commits]
    assert "me/shown already exists and is public" in programs["refused"]


def test_a_trainer_takes_what_that_of_transformers_takes():
    for name in ("push_to_hub", "init_hf_repo", "create_model_card"):
        ours, theirs = (inspect.signature(getattr(owner, name)).parameters for owner in (CLUETrainer, Trainer))
        assert [parameter for parameter in ours if parameter in theirs] == list(theirs)


# ---- what is collected, without a Hub ----


@pytest.fixture
def model(tmp_path):
    save_learned(tmp_path / "model")
    return tmp_path / "model"


def test_links_out_of_the_folder_are_not_followed(model, tmp_path):
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "inside.txt").write_text("{}")
    for name in ("vocab.json", "README.md"):
        os.symlink(tmp_path / "secret.json", model / name)
    shutil.move(model / "tokenizer.json", model / "real.json")
    os.symlink("real.json", model / "tokenizer.json")
    assert set(collect_files(model).files) == T5
    (tmp_path / "elsewhere").mkdir()
    for name in MODEL:
        shutil.copy(model / name, tmp_path / "elsewhere" / name)
    os.symlink(tmp_path / "elsewhere", model / "members")
    write_uncertainty(model, members=["members"])
    with pytest.raises(UserError, match="not a folder inside"):
        collect_files(model)


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", ".", "", 3])
def test_parts_must_be_inside(model, name):
    write_uncertainty(model, members=[name])
    with pytest.raises(UserError, match="not a folder inside"):
        collect_files(model)


def test_a_missing_part_is_named(model):
    write_uncertainty(model, error_predictor={"folder": "error_predictor"})
    (model / "error_predictor").mkdir()
    with pytest.raises(UserError, match="There is no model in .*error_predictor"):
        collect_files(model)


def test_all_shards_go_or_none(model):
    weights = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    names = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    for part, name in enumerate(names):
        save_file(
            {key: value for place, (key, value) in enumerate(weights.items()) if place % 2 == part}, model / name
        )
    index = {"weight_map": {key: names[place % 2] for place, key in enumerate(weights)}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert set(collect_files(model).files) == (T5 - {"model.safetensors"}) | {*names, "model.safetensors.index.json"}
    (model / names[1]).unlink()
    with pytest.raises(UserError, match="names 'model-00002-of-00002.safetensors', which is not there"):
        collect_files(model)
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../secret.safetensors"}}))
    with pytest.raises(UserError, match="which is not there"):
        collect_files(model)


def test_tokens_are_found_in_the_head_of_the_weights_too(model, monkeypatch):
    check_secrets(collect_files(model))
    monkeypatch.setenv("HF_TOKEN", "some-other-secret")
    save_file({"a": torch.zeros(2)}, model / "model.safetensors", {"made_by": "some-other-secret"})
    with pytest.raises(UserError, match="model.safetensors holds"):
        check_secrets(collect_files(model))


def test_a_card_by_hand_is_kept_and_its_own_is_renewed(tmp_path):
    model = tmp_path / "model"
    save_reported_classes(model)
    path = write_card(model, options=CardOptions(license="mit"))
    assert 'pipeline("model")' in path.read_text()
    renew_card(model, "me/named")
    assert 'pipeline("me/named")' in path.read_text()
    assert "license: mit" in path.read_text()
    path.write_text("# Mine")
    renew_card(model, "me/named")
    assert path.read_text() == "# Mine"
