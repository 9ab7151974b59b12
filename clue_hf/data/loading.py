"""Datasets from the Hub, from folders, from json/jsonl/csv/tsv/parquet/npz files (gzipped too), or embedded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets import Dataset, DatasetDict
from datasets.exceptions import DatasetsError

from ..errors import UserError
from ..offline import notice_missing_network
from ..settings import setting
from .bad_rows import POLICIES, BadRows, bad_texts, read_by_line
from .columns import check_column
from .labels import check_classes, split_by_label
from .lines import SEPARATORS, UNREADABLE_FILE, file_kind, is_misread
from .needs import RowNeeds, as_plain, bad_cells, bad_values
from .npz import load_npz
from .splits import merge_references, rows_by_value, split_by_source
from .tables import KEEP_NA_WORDS, check_header, read_csv
from .targets import find_target_column


EMBEDDED = "embedded:"
FORMATS = {"json": "json", "jsonl": "json", "csv": "csv", "tsv": "csv", "parquet": "parquet"}
SPLITS = ("train", "validation", "test")


@dataclass
class DataArguments:
    """Where the data comes from and how it is split."""

    dataset_name: str | None = setting(None, "Hub id, folder of data or images, or embedded:phrases|digits|diabetes.")
    dataset_config: str | None = setting(None, "Configuration of the dataset, such as en-fr.")
    dataset_revision: str | None = setting(None, "Branch, tag or commit of the dataset.")
    train_file: str | None = setting(None, "Training file: json, jsonl, csv, tsv, parquet (also gzipped) or npz.")
    validation_file: str | None = setting(None, "Validation file.")
    test_file: str | None = setting(None, "Test file.")
    train_split: str = setting("train", "Name of the split to train on.")
    validation_split: str | None = setting(None, "Name of the validation split (default: validation, if present).")
    test_split: str | None = setting(None, "Name of the test split (default: test, if present).")
    split_column: str | None = setting(None, "Column of one file that says which split a row belongs to.")
    validation_fraction: float = setting(0.05, "Fraction of the training rows used if there is no validation split.")
    test_fraction: float = setting(0.05, "Fraction of the training rows used if there is no test split.")
    split_seed: int = setting(42, "Seed of those splits.")
    max_train_samples: int | None = setting(None, "Maximum number of training rows.")
    max_eval_samples: int | None = setting(None, "Maximum number of validation and of test rows.")
    numeric_columns: list[str] | None = setting(None, "Tables: numeric columns, if they cannot be inferred.")
    categorical_columns: list[str] | None = setting(None, "Tables: categorical columns, such as numeric codes.")
    datetime_columns: list[str] | None = setting(None, "Tables: columns of dates and times.")
    ignored_columns: list[str] | None = setting(None, "Tables: columns to ignore.")
    drop_missing_target: bool = setting(False, "Tables: skip rows without a target instead of raising an error.")
    binary_task: str | None = setting(None, "Two of the classes, 'cat,dog', or one against the rest, 'cat'.")
    merge_references: bool = setting(
        False, "Texts: in the validation and test data, rows with equal sources become one with all their references."
    )
    report_splits: list[str] = setting(["test"], "Splits to report on after training.")
    on_bad_row: str = setting("fail", "Rows that cannot be used: fail (naming the first) or skip (and count them).")
    bad_rows: BadRows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.on_bad_row not in POLICIES:
            raise ValueError(f"`on_bad_row` must be one of {', '.join(POLICIES)}, not {self.on_bad_row!r}.")
        self.bad_rows = BadRows(self.on_bad_row)

    @property
    def table_columns(self) -> dict[str, Any]:
        """How the columns of a table are to be taken."""
        names = [f"{kind}_columns" for kind in ("numeric", "categorical", "datetime", "ignored")]
        return {name: getattr(self, name) for name in (*names, "drop_missing_target")}


def data_name(data: DataArguments, split: str) -> str:
    """What a report calls the data."""
    files = [file for file in (data.train_file, data.validation_file, data.test_file) if file]
    name = data.dataset_name or getattr(data, f"{split}_file", None) or files[0]
    own = f"The {split} data" if data.dataset_name else f"{split}_file"
    if not data.dataset_name and not getattr(data, own, None):
        own = "train_file"  # of which it is a part
    merged = "equal sources merged" if data.merge_references else ""
    skipped = {data.bad_rows.summary(where): None for where in (own, f"The {split} data")}
    details = (data.dataset_config, split, *skipped, merged)
    return f"{name} ({', '.join(detail for detail in details if detail)})"


def load_splits(
    arguments: DataArguments,
    source: str | None,
    target: str | None,
    image: str | None = None,
    label: str | None = None,
    task: str = "auto",
    table: bool = False,
    text: str = "text",
    answers: bool = True,
) -> DatasetDict:
    """
    The splits train, validation and test of the data that the arguments name; missing ones are split off.

    Texts are split by their source, images by their row, each class alike, and rows with a number to predict (the
    task `"regression"`) by their row. [`RowNeeds`] tells which columns are used. Files of a `table` are read with all
    rows of a column in view.
    """
    needs = RowNeeds(source, target, image, label, task, table, text, answers)
    loaded = _load(arguments, needs)
    train = _named(loaded, arguments.train_split, "train_split")
    images = needs.image_and_class(train.column_names)
    wanted = {"train": arguments.train_split, **_evaluation_splits(arguments, loaded, images is not None)}
    splits = {name: _named(loaded, split, f"{name}_split") for name, split in wanted.items() if split is not None}
    splits |= {name: loaded[name] for name in arguments.report_splits if name in loaded and name not in splits}
    if arguments.dataset_name and not arguments.dataset_name.startswith(EMBEDDED):
        where = "The {} data of " + repr(arguments.dataset_name)
        splits = {name: _usable(arguments, needs, rows, where.format(name)) for name, rows in splits.items()}
        train = splits["train"]
    fractions = {"validation": arguments.validation_fraction, "test": arguments.test_fraction}
    missing = {name: fraction for name, fraction in fractions.items() if name not in splits}
    if any(missing.values()) and images:
        splits.update(split_by_label(train, missing, arguments.split_seed, images[1]))
    elif any(missing.values()):
        key = None if task == "regression" else next(iter(needs.columns(train.column_names)))
        splits.update(split_by_source(train, missing, arguments.split_seed, None if key == "input_ids" else key))
    for name in arguments.report_splits:
        if name not in splits:
            splits[name] = _named(loaded, name, "report_splits")
    if arguments.merge_references:
        if images or label or table or task in ("regression", "classification"):
            raise UserError("merge_references is for models that write texts: leave it out.")
        merged = {name: merge_references(rows, source, target) for name, rows in splits.items() if name != "train"}
        splits.update(merged)
    if images:
        check_classes(splits, images[1])
    limits = dict.fromkeys(splits, arguments.max_eval_samples) | {"train": arguments.max_train_samples}
    return DatasetDict({name: _first(rows, limits[name]) for name, rows in splits.items()})


def _evaluation_splits(arguments: DataArguments, loaded: dict[str, Dataset], images: bool) -> dict[str, str | None]:
    """Which of the loaded splits to validate and to test on: those named, or those called so."""
    validation = arguments.validation_split or ("validation" if "validation" in loaded else None)
    if images and not arguments.validation_split and arguments.test_split == "validation":
        validation = None  # ImageNet is tested on it, its test images have no labels: validate on training rows
    return {"validation": validation, "test": arguments.test_split or ("test" if "test" in loaded else None)}


def _named(loaded: dict[str, Dataset], split: str, option: str) -> Dataset:
    if split not in loaded:
        raise UserError(f"{option} {split!r} is not in the data, which has {', '.join(loaded)}.")
    if len(loaded[split]) == 0:
        raise UserError(f"The split {split!r} has no rows.")
    return loaded[split]


def _usable(arguments: DataArguments, needs: RowNeeds, rows: Dataset, where: str, from_csv: bool = False) -> Dataset:
    """The rows that have what the task needs."""
    bad_rows, columns = arguments.bad_rows, rows.column_names
    try:
        if needs.table:
            target = find_target_column(columns, needs.target or needs.label)
        else:
            needed = needs.columns(columns, open_images=bad_rows.policy == "skip")
    except UserError:
        return rows  # without its columns: reported where they are used
    if needs.table:
        named = (arguments.categorical_columns or [], arguments.ignored_columns or [], arguments.drop_missing_target)
        return bad_rows.keep_good(rows, where, bad_cells(rows, target, *named))
    problems = bad_values(rows, needed, from_csv)
    return as_plain(bad_rows.keep_good(rows, where, problems), rows, needed, from_csv) if problems else rows


def _first(split: Dataset, limit: int | None) -> Dataset:
    if limit is not None and limit < 1:
        raise UserError(f"A limit of {limit} samples leaves no data.")
    return split if limit is None else split.select(range(min(limit, len(split))))


def _load(arguments: DataArguments, needs: RowNeeds) -> dict[str, Dataset]:
    files = {name: path for name in SPLITS if (path := getattr(arguments, f"{name}_file"))}
    if arguments.dataset_name and files:
        raise UserError("Give dataset_name or files (train_file ...), not both.")
    if arguments.dataset_name:
        return _load_named(arguments.dataset_name, arguments.dataset_config, arguments.dataset_revision)
    if (arguments.train_split if arguments.train_split in SPLITS else "train") not in files:
        raise UserError("No data: set dataset_name or train_file.")
    loaded: dict[str, Dataset] = {}
    for name, path in files.items():
        if path.lower().endswith(".npz"):
            loaded.update(_load_npz_file(path, name))
            continue
        rows = load_file(path, f"{name}_file", needs.table, arguments.bad_rows)
        is_csv = file_kind(path) in SEPARATORS
        loaded[name] = _usable(arguments, needs, rows, f"{name}_file {path!r}", is_csv)
        if name == "train" and arguments.split_column:
            return _by_column(loaded[name], arguments.split_column)
    return loaded


def _load_npz_file(path: str, name: str) -> dict[str, Dataset]:
    """All splits of the training file; of another file its split of that name, or the only one."""
    splits = load_npz(path, f"{name}_file", name)
    if name == "train":
        return splits
    if name not in splits and len(splits) > 1:
        raise UserError(f"{name}_file {path!r} has the splits {', '.join(splits)}, none of which is {name!r}.")
    return {name: splits.get(name, next(iter(splits.values())))}


def _load_named(name: str, config: str | None, revision: str | None) -> dict[str, Dataset]:
    if name.startswith(EMBEDDED):
        return _load_embedded(name.removeprefix(EMBEDDED))
    if Path(name).is_file():
        raise UserError(f"dataset_name {name!r} is a file: use train_file.")
    if not Path(name).is_dir():
        notice_missing_network()
    try:
        if (Path(name) / "dataset_dict.json").exists():
            return DatasetDict.load_from_disk(name)
        return datasets.load_dataset(name, config, revision=revision)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise UserError(
            f"The dataset {name!r} cannot be loaded: it is not a local folder with data, and the Hub has no such "
            f"dataset or cannot be reached. Offline: download it on a connected machine with `hf download --repo-type "
            f"dataset {name}`, or give files with train_file. ({_reason(error)})"
        ) from error


def _load_embedded(name: str) -> dict[str, Dataset]:
    from .embedded import diabetes, digits, phrases

    loaders: dict[str, Callable[[], dict[str, Dataset]]] = {
        "phrases": phrases.load_phrases,
        "digits": digits.load_digits_splits,
        "diabetes": diabetes.load_diabetes_splits,
    }
    if name not in loaders:
        choices = " or ".join(EMBEDDED + known for known in loaders)
        raise UserError(f"There is no embedded dataset {name!r}: use {choices}.")
    return loaders[name]()


def load_file(path: str, option: str, table: bool = False, bad_rows: BadRows | None = None) -> Dataset:
    """The rows of a json, jsonl, csv, tsv or parquet file, gzipped or not."""
    file, where = Path(path).expanduser(), f"{option} {path!r}"
    bad_rows = bad_rows or BadRows()
    if not file.is_file():
        raise UserError(f"{where} does not exist.")
    kind = file_kind(file)
    if kind not in FORMATS:
        raise UserError(f"{where} must be one of {', '.join(FORMATS)} (or one of them with .gz).")
    if file.stat().st_size == 0:
        raise UserError(f"{where} is empty.")
    check_header(str(file), option)
    dataset = _read_whole(str(file), kind, table, where)
    if dataset is None:
        dataset = read_by_line(str(file), where, bad_rows, table)
    if len(dataset) == 0:
        raise UserError(f"{where} has no rows.")
    return bad_rows.keep_good(dataset, where, bad_texts(dataset))


def _read_whole(file: str, kind: str, table: bool, where: str) -> Dataset | None:
    """The rows of a file, read at once; none where that does not do, and its lines are to be looked at."""
    try:
        if is_misread(file):
            return None
        return read_csv(file) if table and kind in SEPARATORS else _read(file, kind)
    except (*UNREADABLE_FILE, ValueError, OverflowError, pa.ArrowException, DatasetsError) as error:
        if "corresponds to no data" in str(error):
            raise UserError(f"{where} has no rows.") from error
        if kind == "parquet":
            raise UserError(f"{where} cannot be read as {kind}: {_reason(error)}") from error
        return None


def _read(file: str, kind: str) -> Dataset:
    settings: dict[str, Any] = {"sep": SEPARATORS[kind], **KEEP_NA_WORDS} if kind in SEPARATORS else {}
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what cannot be read is reported once, and by us
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False  # a local file is nobody's download
    try:
        return datasets.load_dataset(FORMATS[kind], data_files=file, split="train", **settings)
    finally:
        datasets.logging.set_verbosity(verbosity)


def _by_column(dataset: Dataset, column: str) -> dict[str, Dataset]:
    check_column(dataset.column_names, column, "split_column")
    return {name: dataset.select(rows) for name, rows in rows_by_value(dataset[column][:]).items()}


def _reason(error: BaseException) -> str:
    """The first line of the innermost cause: what datasets wraps says little."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
