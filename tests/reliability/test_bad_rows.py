"""Rows that cannot be used: named to the row and column, or left out and counted, never lost without a word."""

import gzip
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import make_model, make_tokenizer
from PIL import Image

from clue_hf.cli.main import main
from clue_hf.data.bad_rows import BadRows
from clue_hf.data.labels import class_names, label_numbers
from clue_hf.data.loading import DataArguments, load_file, load_splits
from clue_hf.data.targets import target_values
from clue_hf.errors import UserError
from clue_hf.inputs.images import ImageCollator, ImageTransform
from clue_hf.inputs.table_preprocessor import TablePreprocessor


PAIRS = [{"en": f"a house {number}", "fr": f"une maison {number}"} for number in range(40)]
LINES = [json.dumps(row).encode() for row in PAIRS]
LISTS = [json.dumps({**row, "fr": [row["fr"], "un"][: 1 + number % 2]}).encode() for number, row in enumerate(PAIRS)]
MIXED = [line if number % 3 else listed for number, (line, listed) in enumerate(zip(LINES, LISTS, strict=True))]
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
    "half a line": (b'{"en": "a", "fr": ', "on line 8 is not valid JSON"),
    "no object": (b'["a", "b"]', "on line 8 must be an object"),
    "not utf-8": (b'{"en": "caf\xe9", "fr": "x"}', "is not valid UTF-8 in column 'en'"),
    "half a pair": (b'{"en": "caf\\ud800", "fr": "x"}', "on line 8 holds half of a surrogate pair"),
    "too deep": (b'{"en": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "on line 8 is nested too deeply"),
}
REFERENCES = {
    "empty list": (b'{"en": "a", "fr": []}', "has an empty list in column 'fr'"),
    "null in a list": (b'{"en": "a", "fr": ["x", null]}', "nothing (null) at place 1 (counted from 0) of its list in"),
    "number in a list": (b'{"en": "a", "fr": [7]}', "has a int, '7', at place 0 (counted from 0) of its list in"),
    "number": (b'{"en": "a", "fr": 7}', "has a number, '7', where others have a text, in column 'fr'"),
    "null": (b'{"en": "a", "fr": null}', "has nothing (null) in column 'fr'"),
}
CSV_LINES = {
    "too many values": (b"a,b,c", "on line 9 has 3 values, but there are 2 columns"),
    "too few values": (b"a", "on line 9 has 1 value, but there are 2 columns"),
    "no value": (b",x", "has nothing (null) in column 'en'"),
    "not utf-8": (b"caf\xe9,x", "on line 9 is not valid UTF-8 in column 'en'"),
    "open quotation": (b'"a,b', "on line 9 opens a quotation mark that is never closed"),
}


def files():
    for name, (line, message) in JSON_LINES.items():
        yield pytest.param("pairs.jsonl", LINES, 7, line, message, id=f"jsonl, {name}")
    for name, (line, message) in REFERENCES.items():
        yield pytest.param("pairs.jsonl", LISTS, 7, line, message, id=f"jsonl, lists, {name}")
        yield pytest.param("pairs.jsonl", MIXED, 7, line, message, id=f"jsonl, texts and lists, {name}")
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
    assert data.bad_rows.summary("train_file") == "1 of 40 rows skipped"


def test_half_of_a_surrogate_pair_in_a_list_of_a_json_file(here):
    """datasets would leave it out of the text."""
    whole, half = b'{"en": "caf\\ud83d\\ude00", "fr": "x"}', b'{"en": "caf\\ud800e", "fr": "x"}'
    Path("pairs.json").write_bytes(b"[" + b", ".join([LINES[0], whole, half, b"3", LINES[1]]) + b"]")
    with pytest.raises(UserError, match="row 2 .counted from 0. holds half of a surrogate pair.*2 rows are bad"):
        load_splits(DataArguments(train_file="pairs.json", **WHOLE), "en", "fr")
    splits = load_splits(DataArguments(train_file="pairs.json", on_bad_row="skip", **WHOLE), "en", "fr")
    assert splits["train"]["en"][:] == [PAIRS[0]["en"], "caf\U0001f600", PAIRS[1]["en"]]


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize(("ending", "lines"), [("csv", CSV), ("jsonl", LINES)])
@pytest.mark.parametrize("damage", ["cut short", "no longer compressed"])
def test_compressed_files_that_are_damaged(here, table, ending, lines, damage):
    content = gzip.compress(b"\n".join(lines * 99))
    Path(f"pairs.{ending}.gz").write_bytes(
        content[:-40] if damage == "cut short" else content + content[:10] + b"\7" * 9
    )
    message = "ended before the end-of-stream" if damage == "cut short" else "rror -3 while decompressing"
    for policy in ("fail", "skip"):
        with pytest.raises(UserError, match=f"train_file 'pairs.{ending}.gz' cannot be read: .*{message}"):
            load_file(f"pairs.{ending}.gz", "train_file", table, BadRows(policy))


def test_rows_keep_their_numbers_where_others_were_left_out(here):
    lines = [*LINES[:3], b"no json", *LINES[4:9], b'{"en": "a"}', *LINES[10:]]
    data = DataArguments(train_file=write("pairs.jsonl", lines), on_bad_row="skip")
    load_splits(data, "en", "fr")
    [found] = data.bad_rows.skipped.values()
    assert [problem[:6] for problem in found["problems"]] == ["row 3 ", "row 9 "]


@pytest.mark.parametrize(("values", "message"), [
    ([None if row == 7 else "a" for row in range(40)], "row 7 (counted from 0) has nothing (null) in column 'en'"),
    (not_utf8(), "row 7 (counted from 0) is not valid UTF-8 in column 'en'"),
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
    with pytest.raises(UserError, match="no row can be used; row 0 .* on line 1 is not valid JSON"):
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


def write_lines(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


TEXTS = [{"text": f"w{row}", "label": row % 2} for row in range(40)]


@pytest.mark.parametrize(("task", "values"), [
    ("classification", {7: "x"}),
    ("classification", {7: -1, 8: 1.5, 9: float("nan"), 10: float("inf"), 11: None}),
    ("classification", {7: "x", 8: -1}),
    ("regression", {7: "x", 8: 0.25}),
    ("regression", {7: [1], 8: 0.25}),
])  # fmt: skip
def test_labels_that_are_none_in_jsonl(here, task, values):
    write_lines("rows.jsonl", [{**row, "label": values.get(number, row["label"])} for number, row in enumerate(TEXTS)])
    where = (None, None, None, "label", task)
    with pytest.raises(UserError, match=r"row 7 \(counted from 0\) has .* in column 'label'"):
        load_splits(DataArguments(train_file="rows.jsonl", **WHOLE), *where)
    data = DataArguments(train_file="rows.jsonl", on_bad_row="skip", **WHOLE)
    rows = load_splits(data, *where)["train"]
    assert len(rows) == 40 - len(values) + (0.25 in values.values())
    if task == "regression":
        assert set(target_values(rows, "label")) == {0, 0.25, 1}
    else:
        assert class_names(rows, "label") == ["0", "1"]


def test_values_of_several_types_in_tables_of_jsonl(here):
    rows = [{"size": row, "kind": "uv"[row % 2], "price": row / 2} for row in range(40)]
    rows[7]["size"], rows[8]["price"], rows[9]["kind"], rows[10]["size"] = "many", "dear", 5, None
    write_lines("rows.jsonl", rows)
    words = {"task": "regression", "table": True}
    with pytest.raises(UserError, match=r"row 7 .* has 'many' in column 'size'.* 2 rows are bad"):
        load_splits(DataArguments(train_file="rows.jsonl", **WHOLE), None, "price", **words)
    data = DataArguments(train_file="rows.jsonl", on_bad_row="skip", **WHOLE)
    table = load_splits(data, None, "price", **words)["train"]
    columns = {column.name: column for column in TablePreprocessor.fit(table, "price").columns}
    assert len(table) == 38
    assert {name: column.kind for name, column in columns.items()} == {"size": "numeric", "kind": "categorical"}
    assert columns["kind"].categories == ("5", "u", "v")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_names_of_classes_that_look_like_numbers(here, ending, policy):
    """Where every eighth is none, they are no numbers with some mistakes."""
    rows = [{"text": f"w{row}", "label": ("1", "2", "3", "10+")[row // 2 % 4]} for row in range(40)]
    if ending == "csv":
        Path("rows.csv").write_text("text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in rows))
    elif ending == "jsonl":
        write_lines("rows.jsonl", rows)
    else:
        write_parquet("rows.parquet", **{name: [row[name] for row in rows] for name in rows[0]})
    data = DataArguments(train_file=f"rows.{ending}", on_bad_row=policy, **WHOLE)
    splits = load_splits(data, None, None, None, "label", "classification")
    assert class_names(splits["train"], "label") == ["1", "10+", "2", "3"]
    assert len(splits["train"]) == 40


def test_few_texts_among_classes_of_a_csv_file_tell_the_way_out(here):
    Path("rows.csv").write_text(
        "text,label\n" + "".join(f"w{row},{'2+' if row == 7 else row % 2}\n" for row in range(40))
    )
    with pytest.raises(
        UserError, match=r"row 7 .* has a text, '2\+', .* \(if it names a class: write the file as jsonl"
    ):
        load_splits(DataArguments(train_file="rows.csv"), None, None, None, "label", "classification")


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("damaged", ["train", "test"])
def test_classes_of_two_files_are_the_same_where_rows_of_one_are_left_out(here, ending, damaged):
    """Texts of a jsonl file are names in both; texts of a csv file that are all numbers are numbers in both."""
    rows = [{"text": f"w{row}", "label": str(row % 12)} for row in range(48)]
    for split in ("train", "test"):
        found = [
            {**row, "text": None} if split == damaged and number == 40 else row for number, row in enumerate(rows)
        ]
        if ending == "jsonl":
            write_lines(f"{split}.jsonl", found)
        else:
            values = [f"{row['text'] or ''},{'NA' if row['text'] is None else row['label']}" for row in found]
            Path(f"{split}.csv").write_text("\n".join(["text,label", *values, ""]))
    files = {f"{split}_file": f"{split}.{ending}" for split in ("train", "test")}
    data = DataArguments(**files, on_bad_row="skip", validation_fraction=0)
    splits = load_splits(data, None, None, None, "label", "classification")
    assert splits["train"].features["label"] == splits["test"].features["label"]
    names = class_names(splits["train"], "label")
    for split in splits.values():
        found = [names[number] for number in label_numbers(split, "label", names)]
        assert found == [str(int(text[1:]) % 12) for text in split["text"]]
    assert data.bad_rows.summaries()[0].endswith(": 1 of 48 rows skipped.")


ANSWERED = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
SAID = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]


@pytest.mark.parametrize(("name", "good", "bad", "problem"), [
    ("messages", ANSWERED, ANSWERED[:1], "a chat without an assistant turn"),
    ("messages", ANSWERED, [], "no chat"),
    ("conversations", SAID, SAID[:1], "a chat without an assistant turn"),
    ("completion", ANSWERED[1:], ANSWERED[:1], "a chat without an assistant turn"),
])  # fmt: skip
def test_chats_that_teach_nothing(here, name, good, bad, problem):
    rows = [{name: bad if row == 7 else good, "row": row} for row in range(40)]
    rows = [{**row, "prompt": ANSWERED[:1]} for row in rows] if name == "completion" else rows
    write_lines("chats.jsonl", rows)
    with pytest.raises(UserError, match=rf"row 7 \(counted from 0\) has {problem}.* in column '{name}'"):
        load_splits(DataArguments(train_file="chats.jsonl", **WHOLE), None, None)
    data = DataArguments(train_file="chats.jsonl", on_bad_row="skip", **WHOLE)
    assert load_splits(data, None, None)["train"]["row"] == [row for row in range(40) if row != 7]
    if bad and name != "completion":  # where every token is learned
        assert (
            len(load_splits(DataArguments(train_file="chats.jsonl", **WHOLE), None, None, answers=False)["train"])
            == 40
        )


def as_png(pixels):
    picture = io.BytesIO()
    Image.fromarray(pixels).save(picture, "PNG")
    return picture.getvalue()


GOOD = as_png(np.zeros((8, 8, 3), np.uint8))
HUGE = GOOD[:16] + struct.pack(">II", 30_000, 30_000) + GOOD[24:29]


@pytest.mark.parametrize("damaged", [
    GOOD[:30],
    HUGE + struct.pack(">I", zlib.crc32(HUGE[12:])) + GOOD[33:],
    as_png(np.zeros((8, 8), np.uint16)),
], ids=["half an image", "30,000 x 30,000 pixels", "16 bits"])  # fmt: skip
def test_damaged_images(here, damaged):
    images = [{"bytes": damaged if row == 7 else GOOD, "path": None} for row in range(40)]
    write_parquet("images.parquet", image=images, label=[row % 2 for row in range(40)])
    data = DataArguments(train_file="images.parquet", on_bad_row="skip")
    splits = load_splits(data, None, None)
    assert sum(map(len, splits.values())) == 39
    assert "row 7 (counted from 0) has no readable image" in next(iter(data.bad_rows.skipped.values()))["problems"][0]


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_times_of_another_order_are_no_matter_of_rows(here, policy):
    """How to write them is told, and not to leave out the days after the 12th."""
    rows = [f"{1 + row % 28:02}/04/2012,{row}" for row in range(40)]
    Path("table.csv").write_text("\n".join(["day,price", *rows, ""]))
    data = DataArguments(train_file="table.csv", on_bad_row=policy, **WHOLE)
    table = load_splits(data, None, "price", task="regression", table=True)["train"]
    assert len(table) == 40
    with pytest.raises(
        UserError, match=r"must hold dates or times \(as in 2012-04-21 .*, but row 0 .* is '01/04/2012'"
    ):
        TablePreprocessor.fit(table, "price")


TABLE = ["size,kind,price", *(f"{row % 11},{'uv'[row % 2]},{row / 2}" for row in range(80))]


def train(*more):
    return main([
        "train", "--max_steps", "2", "--output_dir", "out", "--use_cpu", "true", "--disable_tqdm", "true",
        "--save_strategy", "no", "--per_device_train_batch_size", "4", *more,
    ])  # fmt: skip


@pytest.mark.usefixtures("without_pictures")
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
    assert "train_file 'table.csv': 3 of 80 rows skipped." in Path("out/results.md").read_text()

    assert (
        main(["evaluate", "out", *words[:4], "--on_bad_row", "skip", "--report_dir", "report", "--resamples", "20"])
        == 0
    )
    assert "3 of 80 rows skipped" in Path("report/summary.md").read_text()
    assert "3 of 80 rows skipped" in json.loads(Path("report/report.json").read_text())["description"]["data"]


@pytest.mark.usefixtures("without_pictures")
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
    assert "1 of 40 rows skipped" in Path("report/summary.md").read_text()
    assert train("--model_name_or_path", "model", *words, "--on_bad_row", "ignore") == 2
    assert "`on_bad_row` must be one of fail, skip, not 'ignore'" in capsys.readouterr().err


def test_batches_without_an_image_are_told_of():
    """Not the quiet end of an iterator, which would look like the end of the data."""
    transform = ImageTransform((8, 8), (0.5,) * 3, (0.5,) * 3)
    with pytest.raises(UserError, match=r"A row has label, but no pixel_values.*remove_unused_columns=False"):
        ImageCollator(transform)([{"label": 1}])
