"""Rows of tables: preprocessed as the training rows were."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import torch

from ..data.columns import describe_value
from ..data.tables import Table, as_numbers
from ..errors import UserError
from .base import Inputs, InputSettings, Rows
from .table_preprocessor import TablePreprocessor


@dataclass(frozen=True)
class TableRows(Rows):
    """Rows as tensors; `numbers` says which rows of the table they are."""

    tensors: dict[str, torch.Tensor]
    table: Table
    names: Sequence[str]
    numbers: np.ndarray
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.tensors["numeric"])

    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        return {name: values[rows.start : rows.stop] for name, values in self.tensors.items()}

    def labelled(self, labels: np.ndarray, chosen: np.ndarray) -> TableDataset:
        tensors = {name: values[torch.from_numpy(chosen)] for name, values in self.tensors.items()}
        return TableDataset({**tensors, "labels": torch.from_numpy(labels)})

    def text(self, row: int) -> str:
        number = int(self.numbers[row])
        return ", ".join(f"{name} {_cell(self.table.column(name)[number].as_py())}" for name in self.names)


class TableInputs(Inputs):
    """Rows of a table: a dict of values (one row) or of lists, a list of such rows, a `DataFrame`, a `Dataset`."""

    modality = "table"

    def __init__(self, preprocessor: TablePreprocessor, settings: InputSettings | None = None) -> None:
        super().__init__(preprocessor, settings)
        self.names = [column.name for column in preprocessor.columns]

    def is_single(self, values: Any) -> bool:
        return isinstance(values, dict) and not any(isinstance(value, (list, np.ndarray)) for value in values.values())

    def rows(self, values: Any, first_row: int = 0) -> TableRows:
        single = self.is_single(values)
        if single or isinstance(values, (list, tuple)):
            values = self._columns([values] if single else values, first_row)
        elif not isinstance(values, (dict, datasets.Dataset)) and not hasattr(values, "columns"):
            raise UserError(f"Give a row as a dict, a list of rows or a DataFrame, not a {type(values).__name__}.")
        try:
            tensors, notes = self.processing_class.transform(values, target=False)
        except UserError as error:
            raise UserError(_counted_from(first_row, str(error))) from error
        table = Table(values)
        return TableRows(tensors, table, self.names, np.arange(table.num_rows), notes)

    def labelled_rows(self, dataset: Any) -> tuple[TableRows, np.ndarray]:
        """
        The rows that have a target, as far as rows without one may be left out, and their targets in their own units,
        not the standardised ones, which are rounded to float32.
        """
        tensors, notes = self.processing_class.transform(dataset)
        del tensors["labels"]
        table, name = Table(dataset), self.processing_class.target_column
        targets = as_numbers(table.column(name), name)
        numbers = np.flatnonzero(~np.isnan(targets))
        return TableRows(tensors, table, self.names, numbers, notes), targets[numbers]

    def column(self, dataset: Any, target: str | None, split: str) -> Any:
        return dataset

    def training_data(self, dataset: Any, target: str, labels: np.ndarray, config: Any, split: str) -> TableDataset:
        return TableDataset(self.processing_class(dataset))

    def collator(self, config: Any) -> Any:
        return collate_tables

    def _columns(self, rows: Any, first_row: int) -> dict[str, list[Any]]:
        """Rows as columns. A missing value is `None`; a column that a row does not have may be a mistake."""
        for number, row in enumerate(rows, first_row):
            if not isinstance(row, dict):
                raise UserError(f"Row {number} (counted from 0) must be a dict, but is {describe_value(row)}.")
            if missing := [name for name in self.names if name not in row]:
                raise UserError(
                    f"Row {number} (counted from 0) has no {missing[0]!r}; the model needs {', '.join(self.names)}. "
                    "A value that is not known is None (null)."
                )
        return {name: [row[name] for row in rows] for name in self.names}


class TableDataset(torch.utils.data.Dataset):
    """Columns as tensors. A batch is cut out of them at once, not put together from rows."""

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {name: values[row] for name, values in self.columns.items()}

    def __getitems__(self, rows: list[int]) -> list[dict[str, torch.Tensor]]:
        index = torch.as_tensor(rows)
        return [{name: values[index] for name, values in self.columns.items()}]


def collate_tables(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A batch of rows: what [`TableDataset`] has cut out already, or single rows."""
    if len(rows) == 1 and rows[0]["numeric"].ndim == 2:
        return rows[0]
    return {name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in rows[0]}


def _counted_from(first_row: int, message: str) -> str:
    """A message about some rows of a longer table, with the numbers that its rows have there."""
    return re.sub(
        r"\b([Rr]ow) (\d+) \(counted from 0\)",
        lambda match: f"{match[1]} {int(match[2]) + first_row} (counted from 0)",
        message,
    )


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
