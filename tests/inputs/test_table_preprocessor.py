"""What a model gets of a table: compared with scikit-learn, the same after saving, and clear about bad tables."""

import datetime
import json
import math

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from transformers import Trainer, TrainingArguments

from clue_hf.data.tables import read_csv
from clue_hf.errors import UserError
from clue_hf.inputs.table_preprocessor import TablePreprocessor


START = datetime.datetime(2019, 12, 30, 22, 15)
ZONES = ("north", "east", "south")


def rides(rows=60, seed=0):
    """A table with a column of every kind."""
    draw = np.random.default_rng(seed)
    distance = draw.gamma(2, 3, rows)
    wait = draw.normal(5, 2, rows)
    return {
        "distance": distance.tolist(),
        "wait": [None if row % 7 == 0 else float(wait[row]) for row in range(rows)],
        "zone": [None if row % 11 == 0 else ZONES[draw.integers(3)] for row in range(rows)],
        "when": [(START + datetime.timedelta(hours=7 * row)).isoformat() for row in range(rows)],
        "company": draw.integers(1, 5, rows).tolist(),
        "shared": (draw.random(rows) < 0.4).tolist(),
        "fare": (3 + 2 * distance + draw.normal(0, 1, rows)).tolist(),
    }


def fit(table=None, **settings):
    table = rides() if table is None else table
    return TablePreprocessor.fit(datasets.Dataset.from_dict(table), "fare", **settings)


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=0)


# ---- what the model gets ----


def test_numbers_as_scikit_learn_has_them():
    train, test = rides(), rides(25, seed=1)
    preprocessor = fit(train)
    found = preprocessor(test)
    assert {name: values.dtype for name, values in found.items()} == {
        "labels": torch.float32, "numeric": torch.float32, "categories": torch.int64,
    }  # fmt: skip
    pipeline = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    names = ["distance", "wait", "company", "shared"]
    expected = pipeline.fit(matrix(train, names)).transform(matrix(test, names))
    numeric = [preprocessor.numeric_names.index(name) for name in names]
    np.testing.assert_allclose(found["numeric"][:, numeric], expected, rtol=1e-5, atol=1e-6)
    marks = found["numeric"][:, preprocessor.numeric_names.index("wait (missing)")]
    assert marks.tolist() == [float(row % 7 == 0) for row in range(25)]
    scaler = StandardScaler().fit(matrix(train, ["fare"]))
    np.testing.assert_allclose(found["labels"], scaler.transform(matrix(test, ["fare"]))[:, 0], rtol=1e-5, atol=1e-6)
    assert (preprocessor.target_mean, preprocessor.target_std) == pytest.approx((scaler.mean_[0], scaler.scale_[0]))
    restored = found["labels"].double() * preprocessor.target_std + preprocessor.target_mean
    np.testing.assert_allclose(restored, test["fare"], rtol=1e-6)


def matrix(table, names):
    return np.array([table[name] for name in names], np.float64).T


def test_categories_as_scikit_learn_has_them():
    train, test = rides(), rides(25, seed=1)
    test["zone"][3] = "west"
    preprocessor = fit(train, categorical_columns=["company"])
    assert [column.name for column in preprocessor.columns if column.kind == "categorical"] == ["zone", "company"]
    assert preprocessor.category_sizes == [4, 5]
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
    encoder.fit(pd.DataFrame(train)[["zone", "company"]])
    expected = encoder.transform(pd.DataFrame(test)[["zone", "company"]]) + 1
    found, notes = preprocessor.transform(test)
    np.testing.assert_array_equal(found["categories"], expected)
    assert found["categories"][3, 0] == 0
    assert notes == [
        "'wait': 4 of 25 rows have no value.",
        "'zone': 3 of 25 rows have no value.",
        "'zone': 1 of 25 rows have a value that no training row had.",
    ]


def test_parts_of_times():
    times = [datetime.datetime(2019, 1, 1), datetime.datetime(2020, 7, 5, 18, 30), datetime.datetime(2021, 3, 4, 6)]
    table = {"when": [*times, None], "fare": [1.0, 2.0, 3.0, 4.0]}
    preprocessor = TablePreprocessor.fit(table, "fare")
    parts = ["year", "month", "day", "weekday", "hour"]
    parts += [f"{wave} {turn}" for turn in ("time of day", "week", "time of year") for wave in ("sin", "cos")]
    assert preprocessor.numeric_names == [f"when ({part})" for part in [*parts, "missing"]]
    angles = [
        2 * math.pi * share
        for share in (18.5 / 24, times[1].weekday() / 7, (times[1].timetuple().tm_yday - 1) / 365.25)
    ]
    expected = [2020, 7, 5, 6, 18, *(wave(angle) for angle in angles for wave in (math.sin, math.cos)), 0]
    found = preprocessor({"when": [times[1]]}, target=False)["numeric"][0].double()
    features = preprocessor.columns[0].features
    own = [value * feature.std + feature.mean for value, feature in zip(found, features, strict=True)]
    np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(preprocessor(table)["numeric"][:, :-1].mean(0), np.zeros(11), atol=1e-6)


def test_dates_have_no_hours():
    table = {"day": [f"2020-0{month}-0{month + 1}" for month in range(1, 8)], "fare": list(range(7))}
    names = TablePreprocessor.fit(table, "fare").numeric_names
    assert names == [f"day ({part})" for part in ("month", "day", "weekday", "sin week", "cos week",
                                                  "sin time of year", "cos time of year")]  # fmt: skip


def test_neither_the_order_nor_other_columns_nor_the_storage_matter():
    table, preprocessor = rides(), fit(categorical_columns=["company"])
    expected = preprocessor(table)
    other = {name: table[name] for name in reversed(table)} | {"more": ["?"] * 60}
    other["company"] = [float(value) for value in table["company"]]
    other["when"] = [datetime.datetime.fromisoformat(text) for text in table["when"]]
    other["distance"] = [repr(value) for value in table["distance"]]
    other["shared"] = [int(value) for value in table["shared"]]
    same(preprocessor(other), expected)
    same(preprocessor(datasets.Dataset.from_dict(other)), expected)
    del other["fare"]
    features = preprocessor(other, target=False)
    same(features, {name: values for name, values in expected.items() if name != "labels"})
    same(preprocessor({name: values[5:6] for name, values in other.items()}, target=False),
         {name: values[5:6] for name, values in features.items()})  # fmt: skip


def test_no_rows_and_no_numbers():
    preprocessor = TablePreprocessor.fit({"zone": ["a", "b", "a"], "fare": [1, 2, 3]}, "fare")
    assert preprocessor.num_numeric == 0
    found = preprocessor({"zone": ["b"]}, target=False)
    assert found["numeric"].shape == (1, 0)
    assert found["categories"].tolist() == [[2]]
    empty = preprocessor({"zone": [], "fare": []})
    assert {name: tuple(values.shape) for name, values in empty.items()} == {
        "labels": (0,), "numeric": (0, 0), "categories": (0, 1),
    }  # fmt: skip


def test_classes_are_known_by_name_and_by_number():
    features = datasets.Features(zone=datasets.ClassLabel(names=["b", "a", "c"]), fare=datasets.Value("float64"))
    train = datasets.Dataset.from_dict({"zone": [0, 1, 2, -1], "fare": [1.0, 2, 3, 4]}, features)
    preprocessor = TablePreprocessor.fit(train, "fare")
    expected = [[2], [1], [3], [0]]
    for zone in (train["zone"][:], ["b", "a", "c", None]):
        assert preprocessor({"zone": zone}, target=False)["categories"].tolist() == expected
    assert preprocessor(train)["categories"].tolist() == expected


# ---- what is done to columns, and said ----


def test_notes():
    table = rides(60)
    table |= {
        "nothing": [None] * 60,
        "constant": [3] * 60,
        "word": ["same"] * 60,
        "now and then": [1.0 if row % 2 else None for row in range(60)],
        "text number": [f"{row % 5}.0" for row in range(60)],
        "name": [f"driver {row // 1.5:g}" for row in range(60)],
        "list": [[row] for row in range(60)],
        "id": list(range(60)),
        "Unnamed: 0": list(range(60)),
        "skipped": ["1", "2", "x"] * 20,
    }
    preprocessor = fit(table, ignored_columns=["skipped"])
    mean, std = np.mean(table["fare"]), np.std(table["fare"])
    median = np.median([wait for wait in table["wait"] if wait is not None])
    assert preprocessor.notes == [
        f"Target 'fare': mean {mean:g}, standard deviation {std:g}, 60 rows.",
        f"'wait': 9 of 60 rows have no value: filled with the median {median:g}, marked by a feature of 0 and 1.",
        "'zone': 3 categories; 6 of 60 rows have no value: category 0.",
        "'when': times, as year, month, day, weekday, hour, sin time of day, cos time of day, sin week, cos week, "
        "sin time of year, cos time of year.",
        "'nothing': dropped, no row has a value.",
        "'constant': dropped, every row has the same value.",
        "'word': dropped, every row has the same value.",
        "'now and then': all values are equal, 30 of 60 rows have none: marked by a feature of 0 and 1.",
        "'text number': texts that are all numbers, read as numbers.",
        "'name': dropped, 40 different texts in 60 rows are too many for categories; name it in categorical_columns "
        "to keep it.",
        f"'list': dropped, {pa.list_(pa.int64())} is neither a number nor a text nor a time.",
        "'id': rises from row to row; if it only counts them, ignore it.",
        "'Unnamed: 0': dropped, an index that was saved with the table.",
    ]
    used = [column.name for column in preprocessor.columns]
    assert used == ["distance", "wait", "zone", "when", "company", "shared", "now and then", "text number", "id"]
    assert "skipped" not in " ".join(preprocessor.notes)


def test_many_categories_are_kept_where_they_are_named():
    table = {"zone": [f"zone {row % 1001}" for row in range(3000)], "fare": list(range(3000)), "a": [1, 2] * 1500}
    assert [column.name for column in TablePreprocessor.fit(table, "fare").columns] == ["a"]
    assert TablePreprocessor.fit(table, "fare", categorical_columns=["zone"]).category_sizes == [1002]
    table["zone"] = [f"zone {row % 1000}" for row in range(3000)]
    assert TablePreprocessor.fit(table, "fare").category_sizes == [1001]


def test_named_kinds_win():
    table = {"n": ["1", "2", "1"], "d": ["2020-01-01", "2021-01-02", "2020-01-02"], "fare": [1, 2, 3]}
    preprocessor = TablePreprocessor.fit(table, "fare", categorical_columns=["n", "d"])
    assert preprocessor.category_sizes == [3, 4]
    preprocessor = TablePreprocessor.fit(table, "fare", numeric_columns=["n"], datetime_columns=["d"])
    assert [column.kind for column in preprocessor.columns] == ["numeric", "datetime"]


def test_missing_values_in_a_column_that_had_none():
    preprocessor = TablePreprocessor.fit({"a": [1.0, 2.0, 9.0], "fare": [1, 2, 4]}, "fare")
    found, notes = preprocessor.transform({"a": [None, 2.0]}, target=False)
    assert found["numeric"][0] == found["numeric"][1]
    assert notes == ["'a': 1 of 2 rows have no value."]


@given(
    st.lists(st.none() | st.floats(-1e300, 1e300, allow_subnormal=False), min_size=2, max_size=20),
    st.randoms(use_true_random=False),
)
def test_every_column_of_numbers_is_standardised_or_dropped(values, random):
    table = {"a": values, "b": [0, 1] * (len(values) // 2) + [0] * (len(values) % 2), "fare": range(len(values))}
    preprocessor = TablePreprocessor.fit(table, "fare")
    found = preprocessor(table)["numeric"].double()
    assert torch.isfinite(found).all()
    present = {value for value in values if value is not None}
    assert ("a" in preprocessor.numeric_names) == (len(present) > 1)
    assert ("a (missing)" in preprocessor.numeric_names) == (bool(present) and None in values)
    if "a" in preprocessor.numeric_names:
        mean, std = found[:, 0].mean(), found[:, 0].std(correction=0)
        wide = np.ptp(sorted(present)) > 1e-9 * max(map(abs, present))  # otherwise nothing is left of the digits
        assert not wide or (abs(mean) < 1e-5 and abs(std - 1) < 1e-5)
    order = random.sample(range(len(values)), len(values))
    shuffled = TablePreprocessor.fit({name: [column[row] for row in order] for name, column in table.items()}, "fare")
    assert shuffled.numeric_names == preprocessor.numeric_names


# ---- kept with the model ----


def test_what_is_saved_gives_the_same_tensors(tmp_path):
    preprocessor = fit(categorical_columns=["company"], drop_missing_target=True)
    again = TablePreprocessor.from_dict(json.loads(json.dumps(preprocessor.to_dict())))
    assert again == preprocessor
    files = preprocessor.save_pretrained(tmp_path / "model" / "inner")
    assert files == [str(tmp_path / "model" / "inner" / "table_preprocessor.json")]
    loaded = TablePreprocessor.from_pretrained(tmp_path / "model", subfolder="inner")
    assert loaded == preprocessor
    table = rides(30, seed=2)
    for other in (again, loaded):
        same(other(table), preprocessor(table))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=9, unique=True))
def test_numbers_survive_json(values):
    table = {"a": values, "fare": range(len(values))}
    preprocessor = TablePreprocessor.fit(table, "fare")
    again = TablePreprocessor.from_dict(json.loads(json.dumps(preprocessor.to_dict())))
    same(again(table), preprocessor(table))


def test_a_trainer_saves_it(tmp_path):
    preprocessor = fit()
    arguments = TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
    Trainer(torch.nn.Linear(2, 1), arguments, processing_class=preprocessor).save_model()
    assert TablePreprocessor.from_pretrained(str(tmp_path)) == preprocessor


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.update(format_version=2), "later version.*format 2.*pip install --upgrade"),
        (lambda content: content.pop("format_version"), "damaged"),
        (lambda content: content.pop("columns"), "damaged.*columns"),
        (lambda content: content.update(target_std=0), "damaged.*target_std"),
        (lambda content: content.update(surplus=1), "damaged.*surplus"),
        (lambda content: content["columns"][0].update(kind="image"), "damaged.*'distance'"),
        (lambda content: content["columns"][0]["features"][0].update(mean=None), "damaged"),
        (lambda content: content["columns"][0].pop("categories"), "damaged.*categories"),
    ],
)
def test_damaged_and_later_files(change, message, tmp_path):
    content = fit().to_dict()
    change(content)
    (tmp_path / "table_preprocessor.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        TablePreprocessor.from_pretrained(tmp_path)


def test_files_that_are_not_there_or_no_json(tmp_path):
    with pytest.raises(UserError, match="has no table_preprocessor.json"):
        TablePreprocessor.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="'nobody/nothing' has no table_preprocessor.json"):
        TablePreprocessor.from_pretrained("nobody/nothing")
    for text, message in (('{"format_version": 1, ', "not valid JSON"), ("[]", "damaged")):
        (tmp_path / "table_preprocessor.json").write_text(text)
        with pytest.raises(UserError, match=message):
            TablePreprocessor.from_pretrained(tmp_path)


# ---- bad tables ----


def changed(**columns):
    return {**rides(), **columns}


def put(name, row, value):
    table = rides()
    table[name] = list(map(str, table[name])) if isinstance(value, str) else list(table[name])
    table[name][row] = value
    return table


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        (put("fare", 4, "12,5"), {}, "target_column 'fare' must hold numbers.*row 4 .*'12,5'.*Fix"),
        (put("fare", 4, float("inf")), {}, "target_column 'fare' is infinite in row 4"),
        (put("fare", 4, None), {}, "target_column 'fare' has no value in 1 of 60 rows, first in row 4.*drop_missing"),
        (changed(fare=[2.5] * 60), {}, "target_column 'fare' is the same in every training row.*2.5"),
        (changed(fare=rides()["when"]), {}, "target_column 'fare' must hold numbers.*row 0 .*'2019-12-30T22:15:00'"),
        ({name: values[:1] for name, values in rides().items()}, {}, "There are 1 training rows"),
        ({name: [] for name in rides()}, {}, "There are 0 training rows"),
        (changed(fare=[None] * 60), {"drop_missing_target": True}, "There are 0 training rows"),
        (put("distance", 7, float("-inf")), {}, "The column 'distance' is infinite in row 7"),
        (put("distance", 7, "far"), {}, "'distance' must hold numbers.*row 7 .*'far'.*in categorical_columns"),
        (rides(), {"numeric_columns": ["zone"]}, "'zone' must hold numbers.*row 1 "),
        (rides(), {"datetime_columns": ["company"]}, "'company' must hold dates.*int64"),
        (rides(), {"numeric_columns": ["list"]}, "numeric_columns 'list' is not in the data"),
        (rides(), {"categorical_columns": ["zones"]}, "categorical_columns 'zones'.*Did you mean 'zone'"),
        (rides(), {"categorical_columns": "zone"}, "categorical_columns must be a list of columns, not 'zone'"),
        (rides(), {"ignored_columns": ["fare"]}, "ignored_columns names 'fare', which is the target_column"),
        (rides(), {"numeric_columns": ["wait"], "ignored_columns": ["wait"]}, "'wait' is both in numeric_columns and"),
        ({"fare": [1, 2]}, {}, "no column left to predict 'fare'"),
        ({"fare": [1, 2], "x": [3, 3]}, {}, "no column left to predict 'fare'(?s:.*)'x': dropped, every row has the"),
    ],
)
def test_bad_training_tables(table, settings, message):
    with pytest.raises(UserError, match=message):
        fit(table, **settings)


def test_a_missing_target_column():
    with pytest.raises(UserError, match="target_column 'fares' is not in the data.*Did you mean 'fare'"):
        TablePreprocessor.fit(rides(), "fares")
    features = datasets.Features(a=datasets.Value("int64"), fare=datasets.ClassLabel(names=["x", "y"]))
    with pytest.raises(UserError, match="'fare' must hold numbers, but holds classes"):
        TablePreprocessor.fit(datasets.Dataset.from_dict({"a": [1, 2], "fare": [0, 1]}, features), "fare")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({name: values for name, values in rides().items() if name != "wait"} | {"waits": [1.0] * 60},
         "'wait' is not in the data.*Did you mean 'waits'"),
        (put("wait", 5, "long"), "The column 'wait' must hold numbers.*row 5 .*'long'"),
        (put("when", 5, "long ago"), "The column 'when' must hold dates or times.*row 5 .*'long ago'"),
        (put("distance", 5, float("inf")), "The column 'distance' is infinite in row 5"),
        (put("distance", 5, 1e60), r"The column 'distance' is 1e\+60 in row 5 .*too far"),
        (put("fare", 5, None), "target_column 'fare' has no value in 1 of 60 rows"),
    ],
)  # fmt: skip
def test_bad_tables_later(table, message):
    with pytest.raises(UserError, match=message):
        fit()(table)


def test_rows_without_a_target_are_dropped_on_request():
    table = rides()
    table["fare"][4] = table["fare"][9] = None
    kept = [row for row in range(60) if row not in (4, 9)]
    rest = {name: [values[row] for row in kept] for name, values in table.items()}
    preprocessor = fit(table, drop_missing_target=True)
    expected = fit(rest, drop_missing_target=True)
    assert preprocessor.columns == expected.columns
    assert preprocessor.notes[1] == "2 of 60 rows have no target: dropped."
    found, notes = preprocessor.transform(table)
    same(found, expected(rest))
    assert notes[0] == "2 of 60 rows have no target: dropped."
    for value, message in ((math.inf, "infinite"), (1e60, r"1e\+60")):
        table["distance"][10] = value  # named as a row of the table that was given
        with pytest.raises(UserError, match=f"'distance' is {message} in row 10 "):
            preprocessor(table)


def test_from_a_csv_file(tmp_path):
    table = datasets.Dataset.from_dict(rides())
    table.to_csv(tmp_path / "rides.csv")
    preprocessor = TablePreprocessor.fit(read_csv(str(tmp_path / "rides.csv")), "fare")
    assert preprocessor.notes == fit().notes
    same(preprocessor(read_csv(str(tmp_path / "rides.csv"))), fit()(table))
