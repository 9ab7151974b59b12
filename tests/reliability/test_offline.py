"""Every command that needs something from the Hub, without a network and with nothing downloaded before."""

import json
import os
import subprocess
import sys

import pytest


PROGRAM = """
import contextlib, io, json, os, sys, time
import datasets
from huggingface_hub import constants
from clue_hf import UserError
from clue_hf.cli.main import main
from clue_hf.models.loading import load_text_model
from clue_hf.offline import notice_missing_network

waited = []
time.sleep = waited.append
found = {}
try:
    load_text_model("nobody/nothing")
except UserError as error:
    found["load"] = str(error)
constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = False
os.environ.pop("HF_HUB_OFFLINE")
print("----", file=sys.stderr, flush=True)
for name, words in json.loads(sys.argv[1]).items():
    notice_missing_network.cache_clear()
    out, err = io.StringIO(), io.StringIO()
    waited.clear()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    found[name] = [code, sum(waited), out.getvalue() + err.getvalue()]
print(json.dumps(found))
"""
MODEL = "nobody/nothing"
DATA = ["--dataset_name", "nobody/data"]
TRAIN = ["--output_dir", "out", "--use_cpu", "true", "--report_to", "none"]
#: What is not there: the model, or the data; after `push`, which asks for nothing before.
COMMANDS = {
    "push": ["push", "model", "me/name"],
    "train text": ["train", "--model_name_or_path", MODEL, "--dataset_name", "embedded:phrases", *TRAIN],
    "train image": ["train", "--model_name_or_path", MODEL, "--dataset_name", "embedded:digits", *TRAIN],
    "train number": ["train", "--model_name_or_path", MODEL, "--dataset_name", "embedded:diabetes", *TRAIN],
    "compare": ["compare", "--model_name_or_path", MODEL, "--dataset_name", "embedded:phrases", *TRAIN, "--methods",
                "ce,clue"],
    "evaluate": ["evaluate", MODEL, "--dataset_name", "embedded:phrases"],
    "calibrate": ["calibrate", MODEL, "--dataset_name", "embedded:phrases", "--output_dir", "out"],
    "predict": ["predict", MODEL, "--input", "rows.jsonl", "--output", "answers.jsonl"],
    "demo": ["demo", MODEL],
    "data of texts": ["train", "--model_type", "t5", "--tokenizer_vocab_size", "50", *DATA, *TRAIN],
    "data of images": ["train", "--model_type", "clue_resnet", "--model_preset", "resnet8", *DATA, *TRAIN],
    "data of numbers": ["train", "--model_type", "clue_tabular_resnet", "--target_column", "y", *DATA, *TRAIN],
    "data to compare": ["compare", "--model_type", "t5", "--tokenizer_vocab_size", "50", *DATA, *TRAIN, "--methods",
                        "ce,clue"],
}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Exit code, seconds of waiting and words of each; a Hub that refuses connections stands for no network."""
    from helpers import make_model

    home = tmp_path_factory.mktemp("offline")
    (home / "rows.jsonl").write_text('{"text": "a"}\n')
    make_model("t5").save_pretrained(home / "model")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    settings = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(home / "cache"), "HF_TOKEN": "hf_" + "a" * 30}
    proxies = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"), "")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(COMMANDS)], env={**kept, **proxies, **settings}, cwd=home,
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "notice": done.stderr.split("----")[0]}


def test_a_model_that_is_not_there_fails_at_once_without_a_network(found):
    assert "hf download nobody/nothing" in found["load"]
    assert "only local folders and earlier downloads" in found["notice"]
    assert "Retrying" not in found["notice"]


@pytest.mark.parametrize("name", COMMANDS)
def test_one_line_says_what_to_download_and_how(found, name):
    code, seconds, words = found[name]
    assert code == 2
    assert seconds < 10
    assert "Traceback" not in words
    [line] = [line for line in words.splitlines() if line.startswith("clue-hf: error: ")]
    if name == "push":
        assert "the connection to http://127.0.0.1:9 failed" in line
    elif "data" in name:
        assert "hf download --repo-type dataset nobody/data" in line
    else:
        assert "hf download nobody/nothing" in line
