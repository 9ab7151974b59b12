import gzip
import json

import datasets
import pytest

from clue_hf.data.loading import DataArguments, load_splits
from clue_hf.errors import UserError


PAIRS = [{"source": f"sentence {i}", "target": f"phrase {i}"} for i in range(40)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def write(path, rows=PAIRS):
    """Writes rows in the format of the file's ending."""
    name = path.name.removesuffix(".gz")
    if name.endswith("parquet"):
        datasets.Dataset.from_list(rows).to_parquet(path)
        return str(path)
    lines = [json.dumps(row) for row in rows]
    if name.endswith("json"):
        lines = [json.dumps(rows)]
    elif name.endswith(("csv", "tsv")):
        separator = "," if name.endswith("csv") else "\t"
        lines = [separator.join(rows[0]), *(separator.join(map(str, row.values())) for row in rows)]
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.name.endswith("gz") else data)
    return str(path)


def sizes(splits):
    return {name: len(split) for name, split in splits.items()}


@pytest.mark.parametrize("ending", ["json", "jsonl", "csv", "tsv", "parquet", "jsonl.gz", "csv.gz", "json.gz"])
def test_files_of_every_kind(ending, tmp_path):
    arguments = DataArguments(
        train_file=write(tmp_path / f"pairs.{ending}"), validation_fraction=0.1, test_fraction=0.2
    )
    splits = load_splits(arguments, None, None)
    assert sizes(splits) == {"train": 28, "validation": 4, "test": 8}
    rows = sorted((row for split in splits.values() for row in split), key=lambda row: int(row["source"].split()[1]))
    assert rows == PAIRS


def test_files_for_each_split_and_limits(tmp_path):
    files = {name: write(tmp_path / f"{name}.jsonl", PAIRS[i::3]) for i, name in enumerate(("train", "validation"))}
    arguments = DataArguments(
        train_file=files["train"], validation_file=files["validation"], test_fraction=0, max_train_samples=5,
        max_eval_samples=3, report_splits=["validation"],
    )  # fmt: skip
    splits = load_splits(arguments, None, None)
    assert sizes(splits) == {"train": 5, "validation": 3}
    assert splits["train"][0] == PAIRS[0]


def test_one_file_with_a_split_column(tmp_path):
    rows = [{**row, "part": "val" if i % 4 == 0 else "train"} for i, row in enumerate(PAIRS)]
    arguments = DataArguments(
        train_file=write(tmp_path / "pairs.jsonl", rows),
        split_column="part",
        validation_split="val",
        test_fraction=0.1,
    )
    splits = load_splits(arguments, None, None)
    assert sizes(splits) == {"train": 27, "validation": 10, "test": 3}


def test_a_dataset_folder(tmp_path):
    datasets.DatasetDict(train=datasets.Dataset.from_list(PAIRS)).save_to_disk(tmp_path / "saved")
    write(tmp_path / "train.jsonl")
    for folder in (tmp_path / "saved", tmp_path):
        splits = load_splits(DataArguments(dataset_name=str(folder)), None, None)
        assert sizes(splits) == {"train": 36, "validation": 2, "test": 2}


def test_the_embedded_phrases_keep_their_extra_split():
    splits = load_splits(DataArguments(dataset_name="embedded:phrases", report_splits=["test", "shifted"]), None, None)
    assert list(splits) == ["train", "validation", "test", "shifted"]


def bad_files(folder):
    (folder / "empty.jsonl").touch()
    (folder / "words.txt").write_text("hello")
    (folder / "broken.jsonl").write_text('{"source": "a", "target": "b"}\n{"source": "a", ')
    (folder / "header.csv").write_text("source,target\n")
    write(folder / "good.jsonl")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "set dataset_name or train_file"),
        ({"train_file": "good.jsonl", "dataset_name": "x/y"}, "not both"),
        ({"train_file": "missing.jsonl"}, "does not exist"),
        ({"train_file": "empty.jsonl"}, "is empty"),
        ({"train_file": "header.csv"}, "has no rows"),
        ({"train_file": "words.txt"}, "must be one of json"),
        ({"train_file": "broken.jsonl"}, "cannot be read as jsonl"),
        ({"train_file": "good.jsonl", "split_column": "fold"}, "split_column 'fold' is not in the data"),
        ({"train_file": "good.jsonl", "validation_split": "dev"}, "validation_split 'dev' is not in the data"),
        ({"train_file": "good.jsonl", "report_splits": ["tset"]}, "report_splits 'tset' is not in the data"),
        ({"train_file": "good.jsonl", "max_train_samples": 0}, "leaves no data"),
        ({"dataset_name": "embedded:nothing"}, "use embedded:phrases"),
        ({"dataset_name": "good.jsonl"}, "use train_file"),
        ({"dataset_name": "nobody/nothing"}, "hf download --repo-type dataset nobody/nothing"),
    ],
)
def test_mistakes_are_explained(settings, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad_files(tmp_path)
    with pytest.raises(UserError, match=message):
        load_splits(DataArguments(**settings), None, None)
