"""Rows that cannot be used: named to the row and column, or left out and counted, never lost without a word."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import make_model, make_tokenizer
from PIL import Image

from clue_hf.cli.main import main
from clue_hf.data.images import ImageCollator, ImageTransform
from clue_hf.data.loading import DataArguments, load_splits
from clue_hf.errors import UserError


PAIRS = [{"en": f"a house {number}", "fr": f"une maison {number}"} for number in range(40)]
LINES = [json.dumps(row).encode() for row in PAIRS]
#: Settings without splits.
WHOLE = {"validation_fraction": 0, "test_fraction": 0, "report_splits": []}
CSV = [b"en,fr", *(f"{row['en']},{row['fr']}".encode() for row in PAIRS)]


def write(name, lines, row=None, line=b""):
    """A file of lines, one of them replaced by another."""
    Path(name).write_bytes(b"\n".join([*lines[:row], line, *lines[row + 1 :]] if row is not None else lines) + b"\n")
    return name


def write_parquet(name, **columns):
    pq.write_table(pa.table(columns), name)
    return name


def not_utf8():
    """A column of texts, one of them of bytes that are none."""
    values = pa.array([b"caf\xe9" if row == 7 else b"a" for row in range(40)], pa.binary())
    return pa.Array.from_buffers(pa.utf8(), 40, values.buffers())


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


JSON_LINES = {
    "null": (b'{"en": null, "fr": "x"}', "has nothing (null) in column 'en'"),
    "number": (b'{"en": 5, "fr": "x"}', "has a number, '5', where others have a text, in column 'en'"),
    "list": (b'{"en": ["a"], "fr": "x"}', "where others have a text, in column 'en'"),
    "missing column": (b'{"en": "a"}', "has nothing (null) in column 'fr'"),
    "half a line": (b'{"en": "a", "fr": ', "on line 8 is no JSON"),
    "no object": (b'["a", "b"]', "on line 8 must be an object"),
    "not utf-8": (b'{"en": "caf\xe9", "fr": "x"}', "is no UTF-8 text in column 'en'"),
    "half a pair": (b'{"en": "caf\\ud800", "fr": "x"}', "on line 8 holds half of a surrogate pair"),
    "too deep": (b'{"en": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "on line 8 is nested too deeply"),
}
CSV_LINES = {
    "too many values": (b"a,b,c", "on line 9 has 3 values, but there are 2 columns"),
    "too few values": (b"a", "on line 9 has 1 value, but there are 2 columns"),
    "no value": (b",x", "has nothing (null) in column 'en'"),
    "not utf-8": (b"caf\xe9,x", "on line 9 is no UTF-8 text in column 'en'"),
    "open quotation": (b'"a,b', "on line 9 opens a quotation mark that is never closed"),
}


def files():
    for name, (line, message) in JSON_LINES.items():
        yield pytest.param("pairs.jsonl", LINES, 7, line, message, id=f"jsonl, {name}")
    for name, (line, message) in CSV_LINES.items():
        yield pytest.param("pairs.csv", CSV, 8, line, message, id=f"csv, {name}")


@pytest.mark.parametrize(("name", "lines", "row", "line", "message"), files())
def test_a_bad_row_of_a_file_is_named_or_left_out(here, name, lines, row, line, message):
    write(name, lines, row, line)
    with pytest.raises(UserError) as raised:
        load_splits(DataArguments(train_file=name), "en", "fr")
    assert str(raised.value).startswith(f"train_file {name!r}: row 7 (counted from 0) ")
    assert message in str(raised.value)
    assert "--on_bad_row skip" in str(raised.value)

    data = DataArguments(train_file=name, on_bad_row="skip")
    splits = load_splits(data, "en", "fr")
    texts = sorted(text for split in splits.values() for text in split["en"])
    assert texts == sorted(row["en"] for number, row in enumerate(PAIRS) if number != 7)
    [found] = data.bad_rows.skipped.values()
    assert (found["rows"], found["skipped"]) == (40, 1)
    assert message in found["problems"][0]
    assert data.bad_rows.summary() == "1 of 40 rows left out"


def test_rows_keep_their_numbers_where_others_were_left_out(here):
    lines = [*LINES[:3], b"no json", *LINES[4:9], b'{"en": "a"}', *LINES[10:]]
    data = DataArguments(train_file=write("pairs.jsonl", lines), on_bad_row="skip")
    load_splits(data, "en", "fr")
    [found] = data.bad_rows.skipped.values()
    assert [problem[:6] for problem in found["problems"]] == ["row 3 ", "row 9 "]


@pytest.mark.parametrize(("values", "message"), [
    ([None if row == 7 else "a" for row in range(40)], "row 7 (counted from 0) has nothing (null) in column 'en'"),
    (not_utf8(), "row 7 (counted from 0) is no UTF-8 text in column 'en'"),
], ids=["null", "not utf-8"])  # fmt: skip
def test_bad_rows_of_parquet_files(here, values, message):
    write_parquet("pairs.parquet", en=values, fr=["b"] * 39 + ["c"])
    with pytest.raises(UserError) as raised:
        load_splits(DataArguments(train_file="pairs.parquet", **WHOLE), "en", "fr")
    assert message in str(raised.value)
    data = DataArguments(train_file="pairs.parquet", on_bad_row="skip", **WHOLE)
    assert len(load_splits(data, "en", "fr")["train"]) == 39


def test_a_text_of_ten_megabytes_is_a_text(here):
    write("pairs.jsonl", LINES, 7, json.dumps({"en": "word " * 2_100_000, "fr": "x"}).encode())
    write("pairs.csv", CSV, 8, b"word " * 2_100_000 + b",x")
    for name in ("pairs.jsonl", "pairs.csv"):
        splits = load_splits(DataArguments(train_file=name), "en", "fr")
        assert max(len(text) for split in splits.values() for text in split["en"]) > 10_000_000


def test_words_for_nothing_are_words(here):
    """pandas takes them for missing values; in texts they are not."""
    write("pairs.csv", CSV, 8, b"None,null")
    splits = load_splits(DataArguments(train_file="pairs.csv", **WHOLE), "en", "fr")
    assert splits["train"][7] == {"en": "None", "fr": "null"}


def test_a_column_that_few_rows_have_is_no_mistake(here):
    """datasets gives up a file where one turns up after its first block."""
    text = "a house that is long enough to fill the blocks of a reader " * 20
    rows = [{"en": text, "fr": str(number), **({"note": 1} if number == 19_900 else {})} for number in range(20_000)]
    write("pairs.jsonl", [json.dumps(row).encode() for row in rows])
    splits = load_splits(DataArguments(train_file="pairs.jsonl", **WHOLE), "en", "fr")
    assert len(splits["train"]) == 20_000


def test_nested_columns(here):
    rows = [{"translation": row} for row in PAIRS]
    rows[7] = {"translation": {"en": "a", "fr": None}}
    rows[8] = {"translation": None}
    write("pairs.jsonl", [json.dumps(row).encode() for row in rows])
    with pytest.raises(UserError, match=r"row 7 .* has nothing \(null\) in column 'translation.fr'. 2 rows are bad"):
        load_splits(DataArguments(train_file="pairs.jsonl"), "translation.en", "translation.fr")
    data = DataArguments(train_file="pairs.jsonl", on_bad_row="skip")
    splits = load_splits(data, "translation.en", "translation.fr")
    assert sum(map(len, splits.values())) == 38


def test_files_without_a_good_row(here):
    write("pairs.jsonl", [b"no json"] * 3)
    with pytest.raises(UserError, match="no row can be used; row 0 .* on line 1 is no JSON"):
        load_splits(DataArguments(train_file="pairs.jsonl", on_bad_row="skip"), "en", "fr")


def test_classes_and_numbers(here):
    """One value that is none makes a whole column of a csv file texts: without it they are numbers again."""
    Path("classes.csv").write_text("text,label\n" + "".join(f"w{n},{'NA' if n == 7 else n % 2}\n" for n in range(40)))
    Path("numbers.csv").write_text("text,label\n" + "".join(f"w{n},{'abc' if n == 7 else n / 4}\n" for n in range(40)))
    for name, task, kind in (("classes.csv", "classification", int), ("numbers.csv", "regression", float)):
        with pytest.raises(UserError, match="row 7 .* has a text, .* where others have a number, in column 'label'"):
            load_splits(DataArguments(train_file=name), None, None, None, "label", task)
        data = DataArguments(train_file=name, on_bad_row="skip")
        splits = load_splits(data, None, None, None, "label", task)
        assert sum(map(len, splits.values())) == 39
        assert {type(value) for value in splits["train"]["label"]} == {kind}


def test_damaged_images(here):
    picture = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(picture, "PNG")
    images = [{"bytes": picture.getvalue()[: 30 if row == 7 else None], "path": None} for row in range(40)]
    write_parquet("images.parquet", image=images, label=[row % 2 for row in range(40)])
    data = DataArguments(train_file="images.parquet", on_bad_row="skip")
    splits = load_splits(data, None, None)
    assert sum(map(len, splits.values())) == 39
    assert "row 7 (counted from 0) has no readable image" in next(iter(data.bad_rows.skipped.values()))["problems"][0]


TABLE = ["size,kind,price", *(f"{row % 11},{'uv'[row % 2]},{row / 2}" for row in range(80))]


def train(*more):
    return main([
        "train", "--max_steps", "2", "--output_dir", "out", "--use_cpu", "true", "--disable_tqdm", "true",
        "--save_strategy", "no", "--per_device_train_batch_size", "4", *more,
    ])  # fmt: skip


def test_tables_tell_of_what_was_left_out(here, capsys):
    lines = [*TABLE]
    lines[8], lines[10], lines[12] = "1,u,", "many,v,3", "1,u,2,5"
    Path("table.csv").write_text("\n".join(lines) + "\n")
    words = ["--train_file", "table.csv", "--target_column", "price", "--model_type", "clue_tabular_resnet",
             "--config_overrides", "hidden_size=8,num_blocks=1"]  # fmt: skip
    assert train(*words) == 2
    assert "row 11 (counted from 0) on line 13 has 4 values, but there are 3 columns" in capsys.readouterr().err
    assert train(*words, "--on_bad_row", "skip") == 0
    [found] = json.loads(Path("out/results.json").read_text())["skipped_rows"].values()
    assert (found["rows"], found["skipped"]) == (80, 3)
    assert [problem.split(" (")[0] for problem in found["problems"]] == ["row 11", "row 7", "row 9"]
    assert "train_file 'table.csv': 3 of 80 rows left out." in Path("out/results.md").read_text()

    assert (
        main(["evaluate", "out", *words[:4], "--on_bad_row", "skip", "--report_dir", "report", "--resamples", "20"])
        == 0
    )
    assert "3 of 80 rows left out" in Path("report/summary.md").read_text()
    assert "3 of 80 rows left out" in json.loads(Path("report/report.json").read_text())["description"]["data"]


def test_texts_tell_of_what_was_left_out(here, capsys):
    write("pairs.jsonl", LINES, 7, b'{"en": "a", "fr": 3}')
    make_model("t5").save_pretrained("model")
    make_tokenizer().save_pretrained("model")
    words = [
        "--train_file",
        "pairs.jsonl",
        "--source_column",
        "en",
        "--target_column",
        "fr",
        "--max_target_length",
        "4",
    ]
    assert train("--model_name_or_path", "model", *words) == 2
    error = capsys.readouterr().err
    assert "row 7 (counted from 0) has a number, '3', where others have a text, in column 'fr'" in error
    assert "Traceback" not in error
    assert train("--model_name_or_path", "model", *words, "--on_bad_row", "skip") == 0
    [found] = json.loads(Path("out/results.json").read_text())["skipped_rows"].values()
    assert (found["rows"], found["skipped"]) == (40, 1)
    assert main(["evaluate", "out", *words, "--on_bad_row", "skip", "--report_dir", "report", "--scorers", "msp"]) == 0
    assert "1 of 40 rows left out" in Path("report/summary.md").read_text()
    assert train("--model_name_or_path", "model", *words, "--on_bad_row", "ignore") == 2
    assert "`on_bad_row` must be one of fail, skip, not 'ignore'" in capsys.readouterr().err


def test_batches_without_an_image_are_told_of():
    """Not the quiet end of an iterator, which would look like the end of the data."""
    transform = ImageTransform((8, 8), (0.5,) * 3, (0.5,) * 3)
    with pytest.raises(UserError, match=r"A row has label, but no pixel_values.*remove_unused_columns=False"):
        ImageCollator(transform)([{"label": 1}])
