"""Tables: csv files, and columns as numbers, times or texts; where a value cannot be read, its row is named."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, DatasetDict, IterableDataset

from ..errors import UserError
from .columns import unknown_column
from .lines import SEPARATORS, UNREADABLE_FILE, csv_rows, file_kind, is_text, open_file


#: What stands for a missing number or time in a column of texts: what pandas takes for one in a csv file.
MISSING = (
    ["#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"]
    + ["N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]
)  # fmt: skip
NUMBER = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:inf|infinity))$"
TIME = r"^\d{4}[-/]\d{2}[-/]\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?)?$"
#: Dates that people write in another order or with fewer digits.
OTHER_TIME = r"^\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?$"
#: How pandas calls an index that was written with the columns.
INDEX = re.compile(r"Unnamed: \d+|__index_level_\d+__")
#: For texts: by default pandas reads the words None, null and NA as missing values.
KEEP_NA_WORDS = {"keep_default_na": False, "na_values": [""]}


class Table:
    """The columns of a dataset as arrow arrays."""

    def __init__(self, data: Any) -> None:
        if isinstance(data, (DatasetDict, IterableDataset)) or not hasattr(data, "__getitem__"):
            raise UserError(f"A table is a datasets.Dataset or a dict of columns, not a {type(data).__name__}.")
        self._data, self._arrays = data, dict[str, pa.Array]()
        self._features = data.features if isinstance(data, Dataset) else None
        self.names: list[str] = list(data) if self._features is None else data.column_names
        self.num_rows = _common_length(data, self.names) if self._features is None else len(data)

    def column(self, name: str, option: str = "The column") -> pa.Array:
        """The values of a column; raises where it does not exist, with the nearest name."""
        if name not in self.names:
            raise unknown_column(self.names, name, option)
        if name not in self._arrays:
            if self._features is None:
                self._arrays[name] = _as_array(self._data[name], name)
            else:
                read = _mixed if isinstance(self._features[name], datasets.Json) else _arrow_column
                self._arrays[name] = read(self._data, name)
        return self._arrays[name]

    def class_names(self, name: str) -> list[str]:
        """The names of the classes where a column is a `ClassLabel`."""
        feature = self._features[name] if self._features else None
        return list(feature.names) if isinstance(feature, datasets.ClassLabel) else []


def _common_length(data: Any, names: list[str]) -> int:
    for name in names:
        if isinstance(data[name], str) or not hasattr(data[name], "__len__") or getattr(data[name], "ndim", 1) == 0:
            value = repr(data[name])[:40]
            raise UserError(f"The column {name!r} must be a list of values, but is {value}: one row is a list of one.")
    lengths = {name: len(data[name]) for name in names}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise UserError(f"The columns differ in their number of rows: {listed}.")
    return next(iter(lengths.values()), 0)


def _as_array(values: Any, name: str) -> pa.Array:
    try:
        return _plain(pa.array(np.asarray(values) if hasattr(values, "detach") else values, from_pandas=True))
    except pa.ArrowNotImplementedError as error:
        raise UserError(f"The column {name!r} holds values that no table can have: {error}") from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:  # values of several types, as in [1, "n/a"]
        if np.ndim(values) != 1:
            raise UserError(f"The column {name!r} must have one value for each row: {error}") from error
        return pa.array([None if value is None else str(value) for value in values], pa.large_string())


def _mixed(dataset: Dataset, name: str) -> pa.Array:
    """A column of a jsonl file with values of several types, as texts; as it is where most are lists or objects."""
    values = dataset.with_format(None)[name][:]
    if 2 * sum(isinstance(value, (list, dict)) for value in values) > len(values):
        return _arrow_column(dataset, name)
    return pa.array([_text(value, ()) for value in values], pa.large_string())


def _arrow_column(dataset: Dataset, name: str) -> pa.Array:
    return _plain(dataset.with_format("arrow")[name][:])


def _plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array without a dictionary; texts of one type."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.large_string()) if _is_text(array.type) else array


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


# ---- what a column holds ----
def find_kind(array: pa.Array, name: str, class_names: list[str]) -> str:
    """
    `"numeric"`, `"datetime"`, `"categorical"`, `"missing"` (no value at all) or `"other"` (lists, images ...).

    Texts are categories unless all are numbers, or all are dates or times. Where most are, but not all, the first
    that is not raises: it may be a mistake in the file.
    """
    if class_names:
        return "categorical"
    if array.null_count == len(array) or (pa.types.is_floating(array.type) and pc.all(pc.is_nan(array)).as_py()):
        return "missing"
    if _is_number(array.type):
        return "numeric"
    if _is_time(array.type):
        return "datetime"
    return _kind_of_texts(_values(array), name) if _is_text(array.type) else "other"


def _kind_of_texts(texts: pa.Array, name: str) -> str:
    present = len(texts) - texts.null_count
    if not present:
        return "missing"
    hint = f" Fix the data, or name {name!r} in categorical_columns (or in ignored_columns)."
    if _count(texts, NUMBER) == present:
        return "numeric"
    if _count(texts, TIME) == present:
        return "datetime"
    if 2 * _count(texts, TIME, OTHER_TIME) > present:
        as_times(texts, name, hint)
    if 2 * _count(pc.replace_substring_regex(texts, r"[,\s]", ""), NUMBER) > present:  # 12,5 or 1,234 among them
        as_numbers(texts, name, hint)
    return "categorical"


def unreadable(array: pa.Array) -> np.ndarray:
    """
    Which values are neither missing nor of the type of most: no number among numbers, no time among times, infinite.
    Nothing where most times cannot be read: `as_times` tells how to write them.
    """
    if pa.types.is_floating(array.type):
        return np.isinf(array.to_numpy(zero_copy_only=False))
    if not _is_text(array.type):
        return np.zeros(len(array), bool)
    texts = _values(array)
    present = len(texts) - texts.null_count
    bad = np.zeros(len(array), bool)
    if 2 * _count(texts, TIME, OTHER_TIME) > present:
        times = pd.isna(_times(texts)).to_numpy()
        bad = times if 2 * (~times).sum() > present else bad
    elif 2 * _count(texts, NUMBER) > present:
        bad = ~np.isfinite([float(text) if re.match(NUMBER, text or "") else np.nan for text in texts.to_pylist()])
    return bad & pc.is_valid(texts).to_numpy(zero_copy_only=False)


def missing(array: pa.Array) -> np.ndarray:
    """Which values are missing."""
    array = _values(array) if _is_text(array.type) else array
    return pc.is_null(array, nan_is_null=True).to_numpy(zero_copy_only=False)


def _count(texts: pa.Array, *patterns: str) -> int:
    return pc.sum(pc.match_substring_regex(texts, "|".join(patterns))).as_py() or 0


# ---- columns as numbers, times, texts ----
def _trimmed(texts: pa.Array) -> pa.Array:
    """Without spaces around the texts; blank ones are missing."""
    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)


def _values(texts: pa.Array) -> pa.Array:
    """Texts to be read as numbers or times: markers of missing ones are missing."""
    texts = _trimmed(texts)
    marked = pc.is_in(texts, value_set=pa.array(MISSING, texts.type))
    return pc.if_else(marked, pa.scalar(None, texts.type), texts)


def as_numbers(array: pa.Array, name: str, hint: str = "", option: str = "The column") -> np.ndarray:
    """Float64, nan where a value is missing; raises with the row where one is not a finite number."""
    if _is_text(array.type):
        texts = _values(array)
        _check(pc.match_substring_regex(texts, NUMBER), texts, name, option, "numbers (as in 12.5 or 1e-4)", hint)
        numbers = np.array([np.nan if text is None else float(text) for text in texts.to_pylist()], np.float64)
    elif pa.types.is_null(array.type) or _is_number(array.type):
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    else:
        raise UserError(f"{option} {name!r} must hold numbers, but holds {array.type}.{hint}")
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise UserError(
            f"{option} {name!r} is infinite in row {infinite[0]} (counted from 0) and {len(infinite)} rows in all: "
            "leave such values empty, or fix them."
        )
    return numbers


def as_times(array: pa.Array, name: str, hint: str = "") -> np.ndarray:
    """`datetime64[us]`, NaT where a value is missing: UTC where there is an offset, otherwise as written."""
    what = "dates or times (as in 2012-04-21 or 2012-04-21 04:30:42)"
    if _is_text(array.type):
        texts = _values(array)
        _check(pc.match_substring_regex(texts, TIME), texts, name, "The column", what, hint)
        times = _times(texts)
        there = pa.array(times.notna().to_numpy())  # false for a 31st of February
        _check(pc.or_(there, pc.is_null(texts)), texts, name, "The column", what, hint)
        return times.to_numpy().astype("datetime64[us]")
    if pa.types.is_null(array.type):
        return np.full(len(array), "NaT", "datetime64[us]")
    if not _is_time(array.type):
        raise UserError(f"The column {name!r} must hold {what}, but holds {array.type}.{hint}")
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("us"))
    exact = array.type.unit != "ns"  # nanoseconds are cut
    return array.cast(pa.timestamp("us", array.type.tz), safe=exact).cast(pa.timestamp("us")).to_numpy(False)


def _times(texts: pa.Array) -> pd.Series:
    """Times as they are written, NaT where a text is not a time."""
    written = pc.replace_substring_regex(texts, r" ?(?:Z|UTC|GMT)$", "")
    written = pc.replace_substring(written, "/", "-")
    series = pd.Series(written.to_pylist(), dtype=object)
    return pd.to_datetime(series, format="ISO8601", utc=True, errors="coerce").dt.tz_convert(None)


def _check(good: pa.Array, texts: pa.Array, name: str, option: str, what: str, hint: str) -> None:
    bad = np.flatnonzero(~pc.fill_null(good, True).to_numpy(zero_copy_only=False))
    if len(bad):
        value = str(texts[int(bad[0])].as_py())[:40]
        others = f" ({len(bad) - 1:,} other rows are wrong too)" if len(bad) > 1 else ""
        raise UserError(
            f"{option} {name!r} must hold {what}, but row {bad[0]} (counted from 0) is {value!r}{others}.{hint}"
        )


def as_texts(array: pa.Array, class_names: list[str] | tuple[str, ...] = ()) -> pa.Array:
    """Categories as texts, null where missing: 1, 1.0 and "1" are the same one, numbers of classes get their names."""
    if _is_text(array.type):
        return _trimmed(array)
    encoded = pc.dictionary_encode(array)
    texts = [_text(value, class_names) for value in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.large_string()).take(encoded.indices)


def _text(value: Any, class_names: list[str] | tuple[str, ...]) -> str | None:
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if class_names and isinstance(value, int):
        return class_names[value] if 0 <= value < len(class_names) else None
    return str(value)


# ---- csv files ----
def read_csv(path: str) -> Dataset:
    """
    The rows of a csv or tsv file, gzipped or not.

    The type of a column is found from all its rows. (`datasets` finds it from the first 10,000, and fails at a later
    row that is 1.5 or "n. a." where those were whole numbers, without a word on where it is.)
    """
    return parse_csv(path, SEPARATORS[file_kind(path)])


def parse_csv(file: Any, separator: str, **settings: Any) -> Dataset:
    """The rows of a csv file, opened or not, all of which have a value for each column."""
    frame = pd.read_csv(file, sep=separator, low_memory=False, **settings)
    for name in frame.columns[frame.dtypes == "object"]:
        if any(type(value) is int for value in frame[name]):  # one of more than 64 bits is among them
            frame[name] = frame[name].astype(np.float64)
    return Dataset.from_pandas(frame, preserve_index=False)


def check_header(path: str, option: str = "train_file") -> None:
    """
    Raises where the first line of a csv or tsv file names a column twice (readers rename the second one without a
    word), or has other separators. Files of other kinds pass.
    """
    where, ending = f"{option} {path!r}", file_kind(path)
    if ending not in SEPARATORS:
        return
    try:
        with open_file(path) as file:
            _, names, problem = next(csv_rows(file, SEPARATORS[ending]), (1, [], None))
    except UNREADABLE_FILE as error:
        raise UserError(f"{where} cannot be read: {error}") from error
    if problem or not all(map(is_text, names)):
        raise UserError(f"{where} cannot be read: its first line {problem or 'is not valid UTF-8'}.")
    if not any(name.strip() for name in names):
        raise UserError(f"{where} is empty, or its first line does not name the columns.")
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise UserError(f"{where} has {names.count(twice[0])} columns named {twice[0]!r}: rename them.")
    other = next((mark for mark in ",;\t" if mark in names[0] and mark != SEPARATORS[ending]), None)
    if len(names) == 1 and other:
        raise UserError(f"{where} seems to be separated by {other!r}: a .csv file has commas, a .tsv file has tabs.")
