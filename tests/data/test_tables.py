"""Columns as numbers, times and texts, and csv files: read right, or with the row of the first mistake."""

import datetime
import gzip
from decimal import Decimal

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.data.bad_rows import BadRows, read_by_line
from clue_hf.data.lines import read_rows
from clue_hf.data.loading import load_file
from clue_hf.data.tables import MISSING, Table, as_numbers, as_texts, as_times, check_header, find_kind, read_csv
from clue_hf.errors import UserError


def column(values, kind=None):
    return Table({"c": values}).column("c") if kind is None else pa.array(values, kind)


def kind_of(values):
    return find_kind(column(values), "c", [])


# ---- what a table is ----


@pytest.mark.parametrize(
    "values",
    [
        [1.5, None, 3.0],
        np.array([1.5, np.nan, 3.0]),
        torch.tensor([1.5, torch.nan, 3.0]),
        pd.Series([1.5, None, 3.0]),
        pd.Series(["1.5", None, "3.0"]).astype("category"),
        ["1.5", None, 3],
        [Decimal("1.5"), None, Decimal(3)],
    ],
)
def test_values_of_every_type_are_numbers(values):
    np.testing.assert_array_equal(as_numbers(column(values), "c"), [1.5, np.nan, 3.0])


def test_a_dataset_and_its_selected_rows():
    table = Table(datasets.Dataset.from_dict({"a": [1, 2, 3], "b": ["x", "y", None]}).select([2, 0]))
    assert (table.names, table.num_rows) == (["a", "b"], 2)
    assert table.column("a").to_pylist() == [3, 1]
    assert table.column("b").to_pylist() == [None, "x"]


def test_a_dataframe_is_a_table():
    assert Table(pd.DataFrame({"a": [1, 2]})).column("a").to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": [1, 2], "b": [1]}, "'a' 2, 'b' 1"),
        ({"a": "text"}, "'a' must be a list.*one row is a list of one"),
        ({"a": 3.0}, "'a' must be a list"),
        ({"a": torch.tensor(3.0)}, "'a' must be a list"),
        (datasets.DatasetDict(), "not a DatasetDict"),
        (7, "not a int"),
    ],
)
def test_what_is_no_table(data, message):
    with pytest.raises(UserError, match=message):
        Table(data)


def test_a_column_of_rows():
    table = Table({"a": np.zeros((2, 2)), "b": [1, 2]})
    assert table.column("b").to_pylist() == [1, 2]
    with pytest.raises(UserError, match="'a'.*one value for each row"):
        table.column("a")


def test_the_nearest_name_of_a_missing_column():
    with pytest.raises(UserError, match="target_column 'prize' is not in the data.*Did you mean 'price'"):
        Table({"price": [1], "a": [2]}).column("prize", "target_column")


# ---- the kind of a column ----


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 3], "numeric"),
        ([True, False], "numeric"),
        ([1.0, float("nan")], "numeric"),
        (["1", " 2.5 ", "-1e-3", "", "n/a", "+4", ".5"], "numeric"),
        (["red", "blue", "12"], "categorical"),
        (["1", "a", "b"], "categorical"),
        ([datetime.date(2020, 1, 2)], "datetime"),
        ([datetime.datetime(2020, 1, 2, 3)], "datetime"),
        (["2012-04-21 04:30:42 UTC", None], "datetime"),
        (["2012/04/21", "2012-04-21T04:30", "2012-04-21T04:30:42.25+02:00", "NA"], "datetime"),
        (["now", "today"], "categorical"),
        (["", "  ", None], "missing"),
        (["NaN", "null"], "missing"),
        ([None, None], "missing"),
        (np.array([np.nan, np.nan]), "missing"),
        ([[1, 2], [3]], "other"),
        ([b"12", b"13"], "other"),
    ],
)
def test_the_kind_of_a_column(values, kind):
    assert kind_of(values) == kind


@pytest.mark.parametrize(
    ("values", "row", "value"),
    [
        (["1", "2", "3", "x", "y"], 3, "x"),
        (["1.5", "2,5", "3.5"], 1, "2,5"),
        (["12,5", "13,5"], 0, "12,5"),
        (["1", "1,234.5", "2"], 1, "1,234.5"),
        (["2012-04-21", "2012-04-22", "yesterday"], 2, "yesterday"),
        (["2012-04-21", "21.04.2012"], 1, "21.04.2012"),
        (["4/21/2012", "4/22/2012"], 0, "4/21/2012"),
    ],
)
def test_mostly_numbers_or_times_names_the_first_that_is_none(values, row, value):
    with pytest.raises(UserError, match=rf"'c'.*row {row} \(counted from 0\) is '{value}'.*in categorical_columns"):
        kind_of(values)


def test_a_day_that_does_not_exist():
    values = ["2012-02-28", "2012-02-31"]
    assert kind_of(values) == "datetime"
    with pytest.raises(UserError, match=r"'c' must hold dates or times.*row 1 \(counted from 0\) is '2012-02-31'"):
        as_times(column(values), "c")


# ---- numbers, times, texts ----


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_as_texts_are_the_same_numbers(values):
    texts = [None if value is None else repr(value) for value in values]
    expected = np.array([np.nan if value is None else value for value in values])
    np.testing.assert_array_equal(as_numbers(pa.array(texts, pa.large_string()), "c"), expected)
    np.testing.assert_array_equal(as_numbers(pa.array(values, pa.float64()), "c"), expected)


@pytest.mark.parametrize("values", [[1.0, np.inf, -np.inf], ["1", "inf", "-Infinity"], ["1", "1e999", "inf"]])
def test_infinite_numbers_are_an_error(values):
    with pytest.raises(UserError, match=r"'c' is infinite in row 1 \(counted from 0\) and 2 rows in all"):
        as_numbers(column(values), "c")


@pytest.mark.parametrize("text", ["1_000", "0x10", "True", "1 2", "١٢", "1e", "--1"])
def test_what_is_no_number(text):
    with pytest.raises(UserError, match="row 1 .*Mend"):
        as_numbers(pa.array(["1", text], pa.large_string()), "c", " Mend it.")


def test_times_are_not_numbers_nor_numbers_times():
    with pytest.raises(UserError, match=r"must hold numbers, but holds timestamp\[us\]"):
        as_numbers(column([datetime.datetime(2020, 1, 1)]), "c")
    with pytest.raises(UserError, match="must hold dates or times.*but holds int64"):
        as_times(column([20200101]), "c")


@given(st.lists(st.none() | st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)), min_size=1))
def test_times_as_texts_are_the_same_times(values):
    expected = np.array([np.datetime64("NaT") if value is None else value for value in values], "datetime64[us]")
    hours = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    aware = [value and value.replace(tzinfo=datetime.UTC).astimezone(hours) for value in values]
    written = {
        "as they are": pa.array(values, pa.timestamp("us")),
        "with a zone": pa.array(aware, pa.timestamp("us", "Asia/Kolkata")),
        "nanoseconds": pa.array(values, pa.timestamp("us")).cast(pa.timestamp("ns")),
        "spaced": pa.array([value and str(value) for value in values], pa.large_string()),
        "UTC": pa.array([value and f"{value} UTC" for value in values], pa.large_string()),
        "ISO": pa.array([value and f"{value.isoformat()}Z" for value in values], pa.large_string()),
        "offset": pa.array([value and value.isoformat() for value in aware], pa.large_string()),
    }
    for name, array in written.items():
        np.testing.assert_array_equal(as_times(array, "c"), expected, err_msg=name)


def test_dates_are_times():
    expected = np.array(["2012-04-21", "NaT"], "datetime64[us]")
    for values in ([datetime.date(2012, 4, 21), None], ["2012/04/21", ""]):
        np.testing.assert_array_equal(as_times(column(values), "c"), expected)


@pytest.mark.parametrize("values", [[1, 2, None], [1.0, 2.0, None], ["1", " 2", " "], np.array([1, 2, np.nan])])
def test_categories_do_not_depend_on_how_they_are_stored(values):
    assert as_texts(column(values)).to_pylist() == ["1", "2", None]


def test_other_categories():
    assert as_texts(column([True, None, False])).to_pylist() == ["True", None, "False"]
    assert as_texts(column([0.5, 2.0])).to_pylist() == ["0.5", "2"]
    assert as_texts(column([1, 0, -1, None]), ["cat", "dog"]).to_pylist() == ["dog", "cat", None, None]
    assert as_texts(column(["dog", "emu"]), ["cat", "dog"]).to_pylist() == ["dog", "emu"]


# ---- csv files ----


def write(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    return str(path)


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "CSV"])
def test_reading_a_file(ending, tmp_path):
    text = "a,b,c\n1,x,2.5\n2,,NA\n"
    path = write(tmp_path / f"t.{ending}", text.replace(",", "\t") if ending == "tsv" else text)
    assert read_csv(path).to_dict() == {"a": [1, 2], "b": ["x", None], "c": [2.5, None]}


def test_a_late_value_decides_the_type_too(tmp_path):
    rows = [f"{row},{row}" for row in range(30_000)]
    data = read_csv(write(tmp_path / "t.csv", "\n".join(["a,b", *rows, "1.5,x"])))
    assert data["a"][-1] == 1.5
    with pytest.raises(UserError, match="'b'.*row 30000 .* is 'x'"):
        find_kind(Table(data).column("b"), "b", [])


def test_pandas_reads_the_same_markers_as_missing(tmp_path):
    data = read_csv(write(tmp_path / "t.csv", "a,b\n" + "".join(f"{marker},1\n" for marker in MISSING)))
    assert data["a"][:] == [None] * len(MISSING)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "a,b,a\n1,2,3\n", "2 columns named 'a'"),
        ("t.csv.gz", 'a,"b",b\n1,2,3\n', "2 columns named 'b'"),
        ("t.tsv", "\ufeffa\tb\ta\n1\t2\t3\n", "2 columns named 'a'"),
        ("t.csv", "", "is empty"),
        ("t.csv", "\n1,2\n", "is empty, or its first line"),
        ("t.csv", "a;b\n1;2\n", "separated by ';'"),
        ("t.tsv", "a,b\n1,2\n", "separated by ','"),
        ("t.csv", "a,b\n", "has no rows"),
        ("t.csv", "a,b\n1,2\n1,2,3\n", "row 1 .counted from 0. on line 3 has 3 values, but there are 2 columns"),
        ("t.csv", "a,b\n1,2,3\n1,2,3\n", "row 0 .counted from 0. on line 2 has 3 values.*2 rows are bad"),
        ("t.csv", "a,b\n0,2,3\n1,2,3\n", "row 0 .* on line 2 has 3 values.*2 rows are bad"),  # no index of a frame
        ("t.csv", "a,b,c\nx,y,z,w\nx,y,z\nx,y,z\n", "row 0 .* on line 2 has 4 values, but there are 3 columns. Fix"),
        ("t.tsv", "a\tb\nx\ty\t\nx\ty\t\n", "row 0 .* on line 2 has 3 values.*2 rows are bad"),
        ("t.csv.gz", "a,b\n1,2\n3\n", "row 1 .* on line 3 has 1 value, but there are 2 columns"),
        ("t.csv", 'a,b\n1,2\n""\n', "row 1 .* on line 3 has 1 value, but there are 2 columns"),
        ("t.csv", "a,b\n1,2\n  \n\n3,4,5\n", "row 1 .* on line 5 has 3 values"),
        ("t.csv", 'a,b\n1,2\n3,"d e f', "row 1 .* on line 3 opens a quotation mark that is never closed"),
        ("t.csv", '"a,b\n1,2\n', "cannot be read: its first line opens a quotation mark"),
    ],
)
@pytest.mark.parametrize("table", [True, False])
def test_bad_files(name, text, message, table, tmp_path):
    path = write(tmp_path / name, text)
    with pytest.raises(UserError, match=message) as raised:
        load_file(path, "test_file", table)
    assert str(raised.value).startswith("test_file")


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a\n1\n99999999999999999999999\n", {"a": [1.0, 1e23]}),
        ('a\nx\n""\n" "\n  \ny\n', {"a": ["x", None, " ", "y"]}),
        ('a,b\n5" pipe,"two\nlines"\n', {"a": ['5" pipe'], "b": ["two\nlines"]}),
    ],
    ids=["more than 64 bits", "blank values and lines", "quotation marks"],
)
def test_good_files_read_whole_or_by_line(text, rows, table, tmp_path):
    path = write(tmp_path / "t.csv", text)
    assert load_file(path, "test_file", table).to_dict() == rows
    assert read_by_line(path, "test_file", BadRows(), table).to_dict() == rows
    assert len(list(read_rows(path))) == len(rows["a"])


@pytest.mark.parametrize("table", [True, False])
def test_words_for_nothing_do_not_depend_on_other_rows(table, tmp_path):
    good, bad = (write(tmp_path / f"{name}.csv", f"a,b\nx,NA\ny,z\n{name}\n") for name in ("u,v", "u,v,w"))
    read = load_file(good, "test_file", table).to_dict()
    assert read["b"] == [None if table else "NA", "z", "v"]
    assert load_file(bad, "test_file", table, BadRows("skip")).to_dict()["b"] == read["b"][:2]


def test_files_that_are_no_text(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,\xff\n1,2\n")
    (tmp_path / "t.csv.gz").write_bytes(b"a,b\n1,2\n")
    for name in ("t.csv", "t.csv.gz", "none.csv"):
        with pytest.raises(UserError, match="cannot be read"):
            check_header(str(tmp_path / name))


def test_headers_that_pass(tmp_path):
    check_header(write(tmp_path / "t.csv", "a.1,a,A,,\n1,2,3,4,5\n"))
    check_header(write(tmp_path / "one.csv", "a\n1\n"))
    (tmp_path / "T.CSV.GZ").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert load_file(str(tmp_path / "T.CSV.GZ"), "test_file", table=True).to_dict() == {"a": [1], "b": [2]}
    check_header(write(tmp_path / "t.parquet", "a,a\n"))
