"""From the rows of a table to tensors: fitted on the training rows, saved with the model, undone in reports."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers.utils import cached_file

from ..data.tables import Table, as_numbers
from ..data.targets import TargetScale
from ..errors import UserError
from ..files import write_json
from ..offline import notice_missing_network
from .table_columns import TableColumn, fit_column, share


FILE_NAME = "table_preprocessor.json"
FORMAT_VERSION = 1


@dataclass
class TablePreprocessor:
    """
    Makes tensors of the rows of a table: standardised numbers, indices of categories, the standardised target.

    Made by [`~TablePreprocessor.fit`]. As the trainer's `processing_class` it is saved beside the model, as plain
    JSON; what is loaded gives the same tensors, bit for bit.

    Args:
        target_column (`str`):
            The column to predict.
        target_mean, target_std (`float`):
            Of the training rows, in the target's own units.
        columns (`list[TableColumn]`):
            What was learned about each column that is used.
        num_rows (`int`):
            The number of training rows.
        drop_missing_target (`bool`, *optional*, defaults to `False`):
            Whether rows without a target are left out, instead of being an error.
        notes (`list[str]`, *optional*):
            What was done to which column, as short sentences.

    Example:

    ```python
    >>> from clue_hf.data.embedded.diabetes import load_diabetes_splits
    >>> from clue_hf.inputs.table_preprocessor import TablePreprocessor

    >>> splits = load_diabetes_splits()
    >>> preprocessor = TablePreprocessor.fit(splits["train"], "progression")
    >>> preprocessor(splits["test"])["numeric"].shape
    torch.Size([88, 10])
    ```
    """

    target_column: str
    target_mean: float
    target_std: float
    columns: list[TableColumn]
    num_rows: int
    drop_missing_target: bool = False
    notes: list[str] = field(default_factory=list)

    #: What a trainer that groups rows by length asks for.
    model_input_names = ["numeric"]

    @classmethod
    def fit(
        cls,
        dataset: Dataset | dict[str, Any],
        target_column: str,
        numeric_columns: list[str] | None = None,
        categorical_columns: list[str] | None = None,
        datetime_columns: list[str] | None = None,
        ignored_columns: list[str] | None = None,
        drop_missing_target: bool = False,
    ) -> TablePreprocessor:
        """
        Finds the kind of each column, and its statistics.

        Numbers and booleans are numeric; dates and times, also as ISO texts, are times; other texts are categories,
        unless all of them are numbers. Columns without a value, with one value, or with about as many different texts
        as rows are dropped. `notes` says what was done.
        """
        table = Table(dataset)
        named = {"numeric": numeric_columns, "categorical": categorical_columns, "datetime": datetime_columns}
        kinds = _named_kinds(table, target_column, {**named, "ignored": ignored_columns})
        target, kept = _target(table, target_column, drop_missing_target)
        if len(target) < 2:
            raise UserError(f"There are {len(target)} training rows with a target {target_column!r}: two are needed.")
        scale = TargetScale.fit(target, target_column)
        statistics = f"mean {scale.mean:g}, standard deviation {scale.std:g}"
        notes = [f"Target {target_column!r}: {statistics}, {len(target):,} rows.", *_dropped(kept)]
        columns = []
        for name in table.names:
            if name == target_column or kinds.get(name) == "ignored":
                continue
            column, column_notes = fit_column(table, name, kinds.get(name), kept)
            notes += column_notes
            if column is not None:
                columns.append(column)
        if not columns:
            reasons = "".join(f"\n- {note}" for note in notes[1:])
            raise UserError(f"There is no column left to predict {target_column!r} from.{reasons}")
        return cls(target_column, scale.mean, scale.std, columns, len(target), drop_missing_target, notes)

    @property
    def target_scale(self) -> TargetScale:
        """What brings standardised predictions back to the target's own units."""
        return TargetScale(self.target_mean, self.target_std)

    @property
    def num_numeric(self) -> int:
        """The number of numeric features, which may be more or fewer than the columns."""
        return len(self.numeric_names)

    @property
    def numeric_names(self) -> list[str]:
        """The names of the numeric features, in the order of the tensor."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def category_sizes(self) -> list[int]:
        """For each column of categories how many indices there are, with 0 for missing and unknown ones."""
        return [len(column.categories) + 1 for column in self.columns if column.kind == "categorical"]

    def __call__(self, dataset: Dataset | dict[str, Any], target: bool = True) -> dict[str, torch.Tensor]:
        """
        Rows as tensors: `numeric` (rows, features) float32, `categories` (rows, columns) int64 where there are such
        columns, and `labels` (rows,) float32, standardised, unless `target` is false.

        Args:
            dataset (`datasets.Dataset` or `dict[str, list]`):
                Any rows with the columns of the training rows, in any order; others are ignored.
            target (`bool`, *optional*, defaults to `True`):
                Whether the rows have a target.
        """
        return self.transform(dataset, target)[0]

    def transform(
        self, dataset: Dataset | dict[str, Any], target: bool = True
    ) -> tuple[dict[str, torch.Tensor], list[str]]:
        """The tensors of [`~TablePreprocessor.__call__`], and notes on values that were missing or are new."""
        table = Table(dataset)
        tensors, notes, kept = {}, [], np.ones(table.num_rows, bool)
        if target:
            values, kept = _target(table, self.target_column, self.drop_missing_target)
            notes = _dropped(kept)
            tensors["labels"] = torch.from_numpy(self.target_scale.standardize(values))
        rows = int(kept.sum())
        numeric, categories = [np.empty((rows, 0), np.float32)], []
        for column in self.columns:
            array, unknown = table.column(column.name), 0
            if column.kind == "categorical":
                indices, missing, unknown = column.indices(array, kept)
                categories.append(indices)
            else:
                numbers, missing = column.numbers(array, kept)
                numeric.append(numbers)
            if missing:
                notes.append(f"{column.name!r}: {share(missing, rows)} have no value.")
            if unknown:
                notes.append(f"{column.name!r}: {share(unknown, rows)} have a value that no training row had.")
        tensors["numeric"] = torch.from_numpy(np.concatenate(numeric, 1))
        if categories:
            tensors["categories"] = torch.from_numpy(np.stack(categories, 1))
        return tensors, notes

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"format_version": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> TablePreprocessor:
        """What `to_dict` described; raises where it is damaged, or of a later version."""
        version = content.get("format_version") if isinstance(content, dict) else None
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise UserError(
                f"The preprocessing was saved by a later version (format {version}, this one knows {FORMAT_VERSION}): "
                "update with `pip install --upgrade clue-hf`."
            )
        try:
            values = {key: value for key, value in content.items() if key != "format_version"}
            values["columns"] = [TableColumn.from_dict(column) for column in values["columns"]]
            if version != FORMAT_VERSION or not values["target_std"] > 0:
                raise ValueError(f"format_version {version!r}, target_std {values['target_std']!r}")
            return cls(**values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"The saved preprocessing is damaged ({type(error).__name__}: {error}): take {FILE_NAME} again from "
                "where the model was trained."
            ) from error

    def save_pretrained(self, save_directory: str | os.PathLike) -> list[str]:
        """Writes `table_preprocessor.json` into a folder."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / FILE_NAME, self.to_dict(), allow_nan=False, ensure_ascii=False, indent=1, default=None)
        return [str(folder / FILE_NAME)]

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike, subfolder: str = "") -> TablePreprocessor:
        """
        Reads what was saved with a model.

        Args:
            name (`str`):
                A folder, or a model on the Hub.
            subfolder (`str`, *optional*):
                Where in it the file is.
        """
        if not Path(name).is_dir():
            notice_missing_network()
        try:
            path = cached_file(name, FILE_NAME, subfolder=subfolder)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{str(name)!r} has no {FILE_NAME}: it is not a folder with a model for tables, and the Hub has no "
                f"such model or cannot be reached. ({str(error).strip().splitlines()[0]})"
            ) from error
        try:
            content = json.loads(Path(str(path)).read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{path} is not valid JSON ({error}): take it again from the model.") from error
        return cls.from_dict(content)


def _named_kinds(table: Table, target: str, named: dict[str, list[str] | None]) -> dict[str, str]:
    """The kinds that the user named, by column."""
    table.column(target, "target_column")
    kinds: dict[str, str] = {}
    for kind, names in named.items():
        if isinstance(names, str):
            raise UserError(f"{kind}_columns must be a list of columns, not {names!r}.")
        for name in names or []:
            table.column(name, f"{kind}_columns")
            if name == target:
                raise UserError(f"{kind}_columns names {name!r}, which is the target_column.")
            if kinds.get(name, kind) != kind:
                raise UserError(f"{name!r} is both in {kinds[name]}_columns and in {kind}_columns.")
            kinds[name] = kind
    return kinds


def _target(table: Table, column: str, drop_missing: bool) -> tuple[np.ndarray, np.ndarray]:
    """The targets in their own units, and which rows have one."""
    array = table.column(column, "target_column")
    if table.class_names(column):
        raise UserError(f"target_column {column!r} must hold numbers, but holds classes (ClassLabel).")
    values = as_numbers(array, column, " Fix the data.", "target_column")
    kept = ~np.isnan(values)
    if not kept.all() and not drop_missing:
        raise UserError(
            f"target_column {column!r} has no value in {share(int((~kept).sum()), len(kept))}, first in row "
            f"{np.flatnonzero(~kept)[0]} (counted from 0). Fix the data, or set drop_missing_target=True."
        )
    return values[kept], kept


def _dropped(kept: np.ndarray) -> list[str]:
    dropped = int((~kept).sum())
    return [f"{share(dropped, len(kept))} have no target: dropped."] if dropped else []
