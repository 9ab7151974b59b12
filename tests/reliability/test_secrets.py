"""A token that is given in every way there is, and looked for in everything that is printed, written or sent."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub.endpoint import HubEndpoint, run_client

from clue_hf.data.embedded.phrases import phrase_rows


ROOT = Path(__file__).parents[2]
CANARY = "hf_CANARY" + "aB3" * 9
SMALL = ["--max_steps", "2", "--max_train_samples", "32", "--max_eval_samples", "12", "--save_strategy", "steps",
         "--save_steps", "1", "--eval_strategy", "no", "--logging_steps", "1", "--use_cpu", "true", "--report_to",
         "tensorboard", "--report_splits", "test"]  # fmt: skip
CONFIGS = {"text": "t5_phrases", "image": "resnet_digits", "number": "tabular_diabetes"}


@dataclass
class Ran:
    kind: str
    found: dict
    printed: str
    home: Path
    hub: HubEndpoint

    def pushed(self):
        return self.hub.repos[f"me/{self.kind}"].files()


PROGRAM = """
import contextlib, io, json, os, sys
from clue_hf.cli.main import main

kind, canary, *small = sys.argv[1:]
config, place, found = f"{kind}.yaml", f"out/{kind}", {}

def run(name, *words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found[name] = [main(list(words)), out.getvalue(), err.getvalue()]

if kind == "text":
    small += ["--quality", "none", "--max_target_length", "8"]
push = [*small, "--push_to_hub", "--hub_model_id", f"me/{kind}", "--output_dir", place]
if kind == "number":
    run("train", "train", config, *push)
del os.environ["HF_TOKEN"]
if kind == "text":
    run("train", "train", config, *push, "--hub-token", canary)
if kind == "image":  # it stands in the file, among the settings
    with open("token.yaml", "w") as file:
        file.write(open(config).read() + f"\\nhub_token: {canary}\\n")
    run("train", "train", "token.yaml", *push)
    os.remove("token.yaml")
run("train and fail", "train", config, *push, "--hub_model_id", "me/failing", "--output_dir", "out/failed",
    "--hub_token=" + canary)
run("stray", "train", config, canary)
run("no number", "train", config, "--output_dir", "out/none", "--alpha", canary)
with open("broken.yaml", "w") as file:
    file.write(f"hub_token: {canary}: [\\n")
run("broken file", "train", "broken.yaml")
os.remove("broken.yaml")
run("not an option", "push", place, "me/text", "--hub_token", canary)
os.environ["HF_TOKEN"] = canary
run("evaluate", "evaluate", place, "--config", config, "--max_eval_samples", "12", "--resamples", "5",
    *(["--scorers", "msp", "--max_target_length", "8"] if kind == "text" else []))
limit = ["--max_new_tokens", "4"] if kind == "text" else []
length = ["--max_target_length", "4"] if kind == "text" else []
run("calibrate", "calibrate", place, "--config", config, "--max_eval_samples", "30", *length)
if kind == "text":
    with open("rows.jsonl", "w") as file:
        file.write('{"text": "the cat"}\\n')
    run("predict", "predict", place, "--input", "rows.jsonl", "--output", "out/answers.jsonl", *limit)
    run("compare", "compare", config, *small[:-4], *length, "--methods", "ce", "--seeds", "1", "--resamples", "5",
        "--scorers", "msp", "--output_dir", "out/compared", "--hub_token", canary)
    with open("scored.jsonl", "w") as file:
        file.writelines('{"uncertainty": %d, "quality": %d}\\n' % (row, -row) for row in range(9))
    run("score", "score", "--file", "scored.jsonl", "--output", "out/scored.json", "--resamples", "5")
import clue_hf.cli.score
def broken(words):
    raise RuntimeError("401 for " + canary)
clue_hf.cli.score.command = broken
run("a mistake of ours", "score")
run("card", "card", place, "--overwrite", "true")
run("push", "push", place, f"me/{kind}", "--include_examples")
run("fail", "push", place, "me/failing")
json.dump(found, open("found.json", "w"))
"""


@pytest.fixture(
    scope="module",
    params=["text", pytest.param("image", marks=pytest.mark.slow), pytest.param("number", marks=pytest.mark.slow)],
)
def ran(request, tmp_path_factory):
    """What the commands printed, the process as a whole, its folder, and the Hub that it pushed to."""
    kind, home = request.param, tmp_path_factory.mktemp(request.param)
    lines = (ROOT / f"configs/quickstart/{CONFIGS[kind]}.yaml").read_text().splitlines()
    own = [line for line in lines if not line.startswith("baseline")]  # one model is enough
    if kind == "text":  # drawing all phrases takes seconds
        rows = "".join(json.dumps(row) + "\n" for row in phrase_rows("train", 120))
        (home / "pairs.jsonl").write_text(rows)
        own = [line.replace("dataset_name: embedded:phrases", "train_file: pairs.jsonl") for line in own]
    (home / f"{kind}.yaml").write_text("\n".join(own) + "\n")
    with HubEndpoint(CANARY) as hub:
        hub.fail_after(
            1, lambda request: "/me/failing/commit/" in request.path, status=400, times=float("inf"),
            message=f"The token {CANARY} is too nice for this commit",
        )  # fmt: skip
        done = run_client(["-c", PROGRAM, kind, CANARY, *SMALL], hub, home, timeout=300, OMP_NUM_THREADS="1")
        assert done.returncode == 0, done.stderr[-3000:].replace(CANARY, "***")
        found = json.loads((home / "found.json").read_text())
        (home / "found.json").unlink()
        yield Ran(kind, found, done.stdout + done.stderr, home, hub)
    assert hub.errors == []


def test_the_commands_did_what_they_should(ran):
    """Otherwise there would be nothing to find."""
    others = ("predict", "compare", "score") if ran.kind == "text" else ()
    for name in ("train", "evaluate", "calibrate", "card", "push", *others):
        code, _, error = ran.found[name]
        assert code == 0, (name, error[-2000:].replace(CANARY, "***"))
    assert {"model.safetensors", "README.md", "uncertainty_report/report.json"} <= set(ran.pushed())
    for name in ("trainer_state.json", "training_settings.json", "results.json", "events.out*", "manifest.json"):
        assert list((ran.home / "out").rglob(name)), name


def test_no_command_prints_it(ran):
    for name, (_, out, error) in ran.found.items():
        assert CANARY not in out + error, name
    assert CANARY not in ran.printed


def test_no_file_holds_it(ran):
    """The model's folder, checkpoints, states, settings, logs, reports, cards, caches."""
    files = [path for path in ran.home.rglob("*") if path.is_file()]
    assert len(files) > 40
    assert [str(path) for path in files if CANARY.encode() in path.read_bytes()] == []


def test_nothing_that_is_sent_holds_it(ran):
    assert CANARY.encode() not in ran.hub.uploaded_bytes()
    for name, repo in ran.hub.repos.items():
        for commit in repo.commits:
            assert CANARY not in commit.title
            assert [path for path, content in commit.files.items() if CANARY.encode() in content] == [], name


def test_a_push_that_fails_says_why_without_it(ran):
    code, _, error = ran.found["fail"]
    assert code == 2
    assert error.count("\n") == 1
    assert "The token *** is too nice for this commit" in error
    assert "run the same command again" in error
    assert set(ran.hub.repos["me/failing"].files()) == {".gitattributes"}
    here = (ran.home / f"out/{ran.kind}/model.safetensors").read_bytes()
    assert (here == ran.pushed()["model.safetensors"]) is True


def test_a_training_whose_push_fails_keeps_its_model_and_says_how_to_push_again(ran):
    code, out, error = ran.found["train and fail"]
    assert code == 2
    assert "The model is saved; to try again: clue-hf push out/failed me/failing" in error
    assert "Traceback" not in error
    assert "| clue" in out  # its results come first
    assert {"model.safetensors", "config.json", "results.json", "README.md"} <= {
        path.name for path in (ran.home / "out/failed").iterdir()
    }


def test_an_exception_that_nobody_expected_is_told_without_it(ran):
    code, _, error = ran.found["a mistake of ours"]
    assert code == 1
    assert "RuntimeError: 401 for ***" in error
    assert "please report it" in error


@pytest.mark.parametrize("name", ["stray", "no number", "broken file", "not an option"])
def test_a_mistake_is_told_without_it(ran, name):
    code, _, error = ran.found[name]
    assert code == 2
    assert error.startswith("clue-hf: error: ")
    assert CANARY not in error
