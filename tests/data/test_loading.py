import gzip
import json

import datasets
import numpy as np
import pytest
from PIL import Image

from clue_hf.data.image_dataset import image_dataset
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


# ---- images ----


def pixels(rows, seed=0, size=(6, 5)):
    return np.random.default_rng(seed).integers(0, 256, (rows, *size, 3), dtype=np.uint8)


def labels(rows):
    return np.arange(rows) % 4


NPZ_FILES = {
    "keras": {"x_train": pixels(40), "y_train": labels(40), "x_test": pixels(8, 1), "y_test": labels(8)[:, None]},
    "medmnist": {"train_images": pixels(40), "train_labels": labels(40)[:, None], "val_images": pixels(12, 2),
                 "val_labels": labels(12), "test_images": pixels(8, 1), "test_labels": labels(8)},
    "one": {"images": np.concatenate([pixels(40), pixels(8, 1)]), "labels": np.concatenate([labels(40), labels(8)]),
            "split": ["train"] * 40 + ["test"] * 8},
}  # fmt: skip


@pytest.mark.parametrize("kind", NPZ_FILES)
@pytest.mark.parametrize("named", [True, False])
def test_npz_files(kind, named, tmp_path):
    names = {"classes": ["ant", "bee", "cat", "dog"]} if named else {}
    np.savez(tmp_path / "images.npz", **NPZ_FILES[kind], **names)
    arguments = DataArguments(train_file=str(tmp_path / "images.npz"), validation_fraction=0.1)
    splits = load_splits(arguments, None, None)
    validation = 12 if kind == "medmnist" else 4
    assert sizes(splits) == {"train": 40 - (validation == 4) * 4, "test": 8, "validation": validation}
    data = image_dataset(splits)
    np.testing.assert_array_equal(data["test"].pixels(), pixels(8, 1))
    assert data["test"].labels.tolist() == labels(8).tolist()
    assert data["train"].names == names.get("classes", ["0", "1", "2", "3"])
    assert np.bincount(data["validation"].labels).tolist() == [validation // 4] * 4
    assert splits["train"].column_names == ["image", "label"]
    if kind != "medmnist":
        both = np.concatenate([data["train"].pixels(), data["validation"].pixels()])
        assert sorted(image.tobytes() for image in both) == sorted(image.tobytes() for image in pixels(40))
    again = image_dataset(load_splits(arguments, None, None))
    np.testing.assert_array_equal(again["validation"].pixels(), data["validation"].pixels())


def test_npz_files_for_each_split(tmp_path):
    for name, rows in (("train", 40), ("test", 8)):
        np.savez(tmp_path / f"{name}.npz", x=pixels(rows), y=np.array(["cat", "dog", "emu", "fox"])[labels(rows)])
    files = {f"{name}_file": str(tmp_path / f"{name}.npz") for name in ("train", "test")}
    splits = load_splits(DataArguments(**files, validation_fraction=0.1, max_train_samples=9), None, None)
    assert sizes(splits) == {"train": 9, "test": 8, "validation": 4}
    assert splits["test"]["label"][:4] == ["cat", "dog", "emu", "fox"]


def test_a_folder_of_images(tmp_path):
    for split, rows in (("train", 20), ("test", 8)):
        for row, image in enumerate(pixels(rows)):
            path = tmp_path / split / ("cat", "dog")[row % 2] / f"{row:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    splits = load_splits(DataArguments(dataset_name=str(tmp_path), validation_fraction=0.2), None, None)
    assert sizes(splits) == {"train": 16, "test": 8, "validation": 4}
    data = image_dataset(splits)
    assert data["train"].names == ["cat", "dog"]
    np.testing.assert_array_equal(data["test"].pixels(), pixels(8)[[0, 2, 4, 6, 1, 3, 5, 7]])
    (tmp_path / "test" / "emu").mkdir()
    Image.fromarray(image).save(tmp_path / "test" / "emu" / "1.png")
    with pytest.raises(UserError, match="Row 8 .* of the test data has the class 'emu', of which"):
        load_splits(DataArguments(dataset_name=str(tmp_path)), None, None)


@pytest.mark.parametrize("encoded", [True, False])
def test_parquet_files_of_images(encoded, tmp_path):
    pictures = [Image.fromarray(image) for image in pixels(20)] if encoded else pixels(20).tolist()
    rows = datasets.Dataset.from_dict({"picture_of": pictures, "kind": labels(20)})
    rows.to_parquet(tmp_path / "images.parquet")
    arguments = DataArguments(train_file=str(tmp_path / "images.parquet"), validation_fraction=0.2, test_fraction=0.2)
    splits = load_splits(arguments, None, None, image="picture_of", label="kind")
    assert sizes(splits) == {"train": 12, "validation": 4, "test": 4}
    found = image_dataset(splits, "picture_of", "kind")
    both = np.concatenate([found[name].pixels() for name in splits])
    assert sorted(image.tobytes() for image in both) == sorted(image.tobytes() for image in pixels(20))


def test_tested_on_the_validation_split_images_are_validated_on_training_rows(tmp_path):
    files = {}
    for name, rows in (("train", 40), ("validation", 8)):
        files[f"{name}_file"] = str(tmp_path / f"{name}.npz")
        np.savez(files[f"{name}_file"], x=pixels(rows), y=labels(rows))
    arguments = DataArguments(**files, test_split="validation", validation_fraction=0.1)
    assert sizes(load_splits(arguments, None, None)) == {"train": 36, "test": 8, "validation": 4}


def test_the_embedded_digits():
    arguments = DataArguments(dataset_name="embedded:digits", report_splits=["test", "shifted"])
    assert list(load_splits(arguments, None, None)) == ["train", "validation", "test", "shifted"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": pixels(4)}, "has the arrays a: call them x_train, y_train"),
        ({"x": pixels(4), "y": labels(3)}, "one label for each of the 4 images, not .3,."),
        ({"x": pixels(4), "y": labels(4), "classes": ["a", "b"]}, "Row 2 .counted from 0. .* has the label 2"),
        ({"x": pixels(4), "y": np.array([0, 1, np.nan, 1])}, "Row 2 .* has no 'label'"),
        ({"x": pixels(4), "y": np.array([0, -2, 1, 1])}, "Row 1 .* has the 'label' -2, which is not a class number"),
        ({"x": pixels(4)[..., :2], "y": labels(4)}, "must have 1 channel .grey. or 3 .RGB., not 2"),
        ({"x": pixels(4) / 255, "y": labels(4)}, "must be whole numbers from 0 to 255"),
        ({"x": pixels(4)[:, 0, 0], "y": labels(4)}, "must have the shape"),
        ({"x": np.array([pixels(1)[0], pixels(1, size=(3, 3))[0]], object), "y": labels(2)}, "of unequal sizes"),
        ({"x": pixels(4)[:0], "y": labels(0)}, "has no rows"),
        ({"x": pixels(4), "y": labels(4), "split": ["train"]}, "must name the split of each of the 4 images"),
        ({"x_train": pixels(4), "y_train": labels(4) % 2, "x_test": pixels(4), "y_test": labels(4)},
         "Row 2 .* of the test data has the label 2, but there are only the 2 classes"),
    ],
)  # fmt: skip
def test_bad_npz_files_are_explained(arrays, message, tmp_path):
    np.savez(tmp_path / "images.npz", **arrays)
    with pytest.raises(UserError, match=message):
        load_splits(DataArguments(train_file=str(tmp_path / "images.npz")), None, None)


def test_files_that_are_no_npz(tmp_path):
    (tmp_path / "broken.npz").write_text("nothing")
    with pytest.raises(UserError, match="cannot be read as npz"):
        load_splits(DataArguments(train_file=str(tmp_path / "broken.npz")), None, None)
    with open(tmp_path / "array.npz", "wb") as file:
        np.save(file, pixels(2))
    with pytest.raises(UserError, match="cannot be read as npz"):
        load_splits(DataArguments(train_file=str(tmp_path / "array.npz")), None, None)
    with pytest.raises(UserError, match="does not exist"):
        load_splits(DataArguments(train_file=str(tmp_path / "missing.npz")), None, None)
    np.savez(tmp_path / "two.npz", **NPZ_FILES["keras"])
    np.savez(tmp_path / "one.npz", x=pixels(8), y=labels(8))
    arguments = DataArguments(train_file=str(tmp_path / "one.npz"), validation_file=str(tmp_path / "two.npz"))
    with pytest.raises(UserError, match="has the splits train, test, none of which is 'validation'"):
        load_splits(arguments, None, None)


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
        ({"train_file": "broken.jsonl"}, "row . .counted from 0. on line . is not valid JSON"),
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


def test_equal_sources_are_merged_in_what_is_evaluated_and_not_in_training(tmp_path):
    rows = [{**pair, "target": f"{pair['target']} {n}"} for pair in PAIRS for n in "ab"]
    files = {f"{split}_file": write(tmp_path / f"{split}.jsonl", rows) for split in ("train", "validation", "test")}
    splits = load_splits(DataArguments(**files, merge_references=True, max_eval_samples=30), None, None)
    assert sizes(splits) == {"train": 80, "validation": 30, "test": 30}  # limited after merging
    assert splits["test"][2] == {"source": "sentence 2", "target": ["phrase 2 a", "phrase 2 b"]}
    assert splits["train"][2]["target"] == "phrase 1 a"
    with pytest.raises(UserError, match="merge_references is for models that write texts"):
        load_splits(DataArguments(**files, merge_references=True), "source", None, None, "target", "classification")
