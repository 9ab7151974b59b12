"""The commands of the pages run: those of a page in their order, on tiny models and data in place of large ones."""

import gzip
import json
import re
import shlex
import shutil
import signal
import threading
import time
import urllib.request
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
from hub.endpoint import HubEndpoint, run_client
from hub.reported import save_learned
from predictors.test_endpoint import Server
from processes import Forked, free_port
from scorers.test_similarity import save_bert
from test_docs import PAGES, ROOT, commands
from transformers import BertModel

from clue_hf.cli.main import main
from clue_hf.data.embedded.digits import load_digits_splits
from clue_hf.data.embedded.phrases import phrase_rows


pytestmark = pytest.mark.slow
#: The sizes of data, training and model for models of texts, of images and of tables.
TEXTS = "--max_train_samples 32 --max_eval_samples 32 --max_target_length 12"
FROM_SCRATCH = f"{TEXTS} --max_steps 2 --config_overrides d_model=16,d_kv=8,d_ff=16,num_layers=1,num_heads=2"
NETWORK = '{"depths":[1,1],"widths":[4,8],"stem_width":4}'
IMAGES = f"--max_train_samples 60 --max_eval_samples 40 --num_train_epochs 2 --config_overrides {NETWORK}"
TABLES = "--num_train_epochs 2 --config_overrides hidden_size=8,num_blocks=1"
#: Options that make a command small, added where it lacks them: by the config that it trains, and by its name.
BY_CONFIG = {
    "t5_phrases": FROM_SCRATCH,
    "t5_from_scratch": f"{FROM_SCRATCH} --plain_steps 1 --tokenizer_vocab_size 200",
    "t5_small": TEXTS,
    "digits": IMAGES,
    "resnet|cat_cifar10": f"{IMAGES} --plain_epochs 1 --dataloader_num_workers 0",
    "diabetes": TABLES,
    "boston|nyc_taxi|msd": f"{TABLES} --plain_epochs 1",
}
BY_NAME = {
    "compare": "--num_samples 3 --resamples 20",
    "evaluate": "--max_eval_samples 40 --max_target_length 12 --num_samples 3 --resamples 20",
    "calibrate": "--max_eval_samples 100 --max_target_length 12 --num_samples 3",
}
#: Options whose values are replaced by small ones.
REPLACED = {"--seeds": "1", "--plain_steps": "1", "--plain_epochs": "1"}
#: Options that name what is written.
WRITTEN = ("--output_dir", "--report_dir", "--bake", "--output")
#: Commands that are not run, and why.
NOT_RUN = {
    "train configs/quickstart/t5_phrases.yaml --num_processes 4 --accelerate_config "
    "configs/accelerate/deepspeed_zero2.yaml": "needs deepspeed and GPUs",
}
#: Models of the Hub and of the reader.
MODELS = ("MODEL", "my-t5", "google-t5/t5-small", "Helsinki-NLP/opus-mt-en-fr")
#: Tables: the number to predict, and the other columns.
COLUMNS = {
    "boston.csv": ("MEDV", ["CRIM", "RM", "AGE", "LSTAT"]),
    "taxi.csv": ("fare_amount", ["pickup_datetime", "pickup_longitude", "dropoff_longitude", "passenger_count"]),
    "msd.csv": ("year", [f"timbre_{number}" for number in range(90)]),
    "my.csv": ("price", ["size", "age", "colour"]),
}
WORDS = {"pickup_datetime": ["2015-01-10 09:30:00 UTC", "2015-02-11 23:05:00 UTC"], "colour": ["red", "blue"]}


# ---- what the commands find ----


def write_rows(name, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    Path(name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


def write_tables():
    draw = np.random.default_rng(0)
    for name, (target, columns) in COLUMNS.items():
        lines = [[*columns, target]]
        for numbers in draw.normal(40, 9, (160, len(columns))):
            cells = zip(columns, numbers, strict=True)
            lines.append([*(draw.choice(WORDS.get(column, [number])) for column, number in cells), numbers.sum()])
        Path(name).write_text("".join(",".join(map(str, line)) + "\n" for line in lines))


def write_texts():
    pairs = [{"source": row["source"], "target": row["target"]} for row in phrase_rows("test", 300)]
    texts = [{"en": pair["source"], "fr": pair["target"]} for pair in pairs]
    parts = ["val", "test_2016_flickr", *["train"] * 6]
    for name in ("pairs.jsonl", "pairs.jsonl.gz"):
        write_rows(name, texts)
    write_rows("tatoeba_en_fr.jsonl.gz", [*texts, *({**row, "fr": f"oui , {row['fr']}"} for row in texts)])
    write_rows("multi30k_en_fr.jsonl.gz", [{**row, "split": parts[n % 8]} for n, row in enumerate(texts)])
    write_rows("questions.jsonl", pairs)
    Path("sources.txt").write_text("".join(pair["source"] + "\n" for pair in pairs[:20]))
    articles = [{"document": pair["source"], "summary": pair["target"]} for pair in pairs]
    for name in ("EdinburghNLP/xsum", "my-dataset"):
        save_dataset(name, {split: Dataset.from_list(articles) for split in ("train", "validation", "test")})
    save_dataset("Helsinki-NLP/opus_books", {"train": Dataset.from_list([{"translation": row} for row in texts])})


def write_outputs():
    """Texts of another system, the more often right the more probable they are."""
    draw = np.random.default_rng(0)
    rows, scored = [], []
    for number in range(300):
        probability = draw.uniform(0.1, 1)
        output = "yes" if draw.uniform() < probability else "no"
        tokens = np.log(np.clip(probability + draw.uniform(-0.1, 0, 3), 0.01, 1))
        told = {"token_log_probabilities": tokens.tolist(), "token_entropies": (-tokens).tolist()}
        rows.append({"source": f"{number}?", "output": output, "reference": "yes", "samples": ["yes", output], **told})
        scored.append({"perplexity": -tokens.mean(), "msp": -tokens.sum(), "bleu": 100.0 * (output == "yes")})
    for name in ("outputs.jsonl", "judged.jsonl", "new.jsonl"):
        write_rows(name, rows)
    write_rows("predictions.jsonl", scored)


def write_images():
    splits = {name: split[:100] for name, split in load_digits_splits().items()}
    pixels = {name: np.array(split["image"], np.uint8) for name, split in splits.items()}
    classes = ["cat", "dog", *(f"class {number}" for number in range(2, 10))]
    arrays = {f"{key}_{name}": value for name in ("train", "test") for key, value in
              {"x": pixels[name].repeat(3, -1), "y": np.array(splits[name]["label"])}.items()}  # fmt: skip
    np.savez("cifar10.npz", **arrays, classes=np.array(classes))
    for name, image, label, parts in (
        ("uoft-cs/cifar10", "img", "label", ("train", "test")),
        ("uoft-cs/cifar100", "img", "fine_label", ("train", "test")),
        ("ufldl-stanford/svhn", "image", "label", ("train", "test")),
        ("ILSVRC/imagenet-1k", "image", "label", ("train", "validation")),
    ):
        features = Features({image: Image(), label: ClassLabel(names=classes)})
        columns = {part: {image: list(pixels[part].repeat(3, -1)), label: splits[part]["label"]} for part in parts}
        save_dataset(name, {part: Dataset.from_dict(column, features) for part, column in columns.items()})


def save_dataset(name, splits):
    DatasetDict(splits).save_to_disk(name)


@pytest.fixture(scope="session")
def found(tmp_path_factory):
    """A folder with all that the pages name; models and data of the Hub are folders of these names."""
    folder = tmp_path_factory.mktemp("found")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in MODELS:
            save_learned(folder / name)
        save_bert(folder / "sentence-transformers/all-MiniLM-L6-v2", BertModel)
        for write in (write_texts, write_outputs, write_images, write_tables):
            write()
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """What the pages take from earlier ones, made by the first commands of those."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("t5_phrases", "resnet_digits", "tabular_diabetes"):
            assert main(small(["train", f"configs/quickstart/{name}.yaml"])) == 0
    return folder


# ---- running them ----


def small(command):
    """A command with the options that make it small."""
    name, *words = command
    words = [REPLACED.get(option, word) for option, word in pairwise(["", *words])]
    config = "t5_phrases" if name == "quickstart" else words[0] if name in ("train", "compare") else "none"
    by_config = next((options for pattern, options in BY_CONFIG.items() if re.search(pattern, config)), "")
    options = f"{by_config} {BY_NAME.get(name, '')}".split()
    pairs = [pair for pair in zip(options[::2], options[1::2], strict=True) if pair[0] not in words]
    return [name, *words, *(word for pair in pairs for word in pair)]


@pytest.fixture
def server():
    """Where the page has a server of a model."""
    with Server() as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving
        serving.shutdown()


@pytest.fixture
def hub():
    """Where `push` goes."""
    with HubEndpoint() as endpoint:
        yield endpoint
    assert endpoint.errors == []


def serve_demo(command):
    """Starts the page of a model, looks at it, and ends it as its user does."""
    port = free_port()
    Path("log").touch()
    process = Forked(main, [*command, "--port", str(port)], log="log")
    try:
        until = time.monotonic() + 120
        while f":{port} (Ctrl-C" not in Path("log").read_text():
            assert process.poll() is None, Path("log").read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=30) as page:
            assert b"gradio" in page.read()
        process.send_signal(signal.SIGINT)
        return process.wait(30)
    finally:
        process.kill()


def push(command, hub):
    """In a process of its own: the client of the Hub reads the address when it is imported."""
    done = run_client(["-m", "clue_hf.cli.main", *command], hub, Path.cwd())
    assert done.returncode == 0, done.stderr
    assert {"README.md", "config.json", "model.safetensors"} <= set(hub.repos[command[2]].files())
    return done.returncode


def check_files(command, printed):
    """What the command names, and what it says it has written, is there."""
    for option, path in pairwise(command):
        assert option not in WRITTEN or Path(path).exists(), path
    for place, names in re.findall(r"^Written to ([^\s:]+)(?:: (.*))?\.$", printed, re.MULTILINE):
        assert Path(place).exists(), place
        for name in re.findall(r"\w+\.\w+", names):
            assert Path(place, name).is_file(), name
    if command[0] in ("quickstart", "train", "compare", "evaluate", "calibrate") and "--bake" not in command:
        assert "Written to " in printed
    if command[0] == "train":
        [folder] = re.findall("^Written to (.*?):", printed, re.MULTILINE)
        assert [*Path(folder).rglob("model.safetensors")]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_the_commands_of_a_page_run(page, found, trained, server, hub, tmp_path, monkeypatch, capfd):
    shutil.copytree(found, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the processes that commands start
    monkeypatch.setitem(REPLACED, "--endpoint", server.url)
    for words in commands(page):
        if shlex.join(words) in NOT_RUN:
            continue
        for word in words:
            if word.startswith("out/") and not Path(word).exists() and (trained / word).exists():
                shutil.copytree(trained / word, word)
        command = small(words)
        runs = {"demo": serve_demo, "push": lambda command: push(command, hub)}.get(command[0], main)
        code = runs(command)
        printed = capfd.readouterr()
        assert code == 0, f"{shlex.join(command)}: {printed.err[-3000:]}"
        check_files(command, printed.out)


@pytest.mark.parametrize("command", NOT_RUN)
def test_what_is_not_run_is_on_a_page(command):
    assert any(command == shlex.join(words) for page in PAGES for words in commands(page))
    pytest.skip(NOT_RUN[command])
