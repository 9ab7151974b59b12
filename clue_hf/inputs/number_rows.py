"""The rows that a regressor is evaluated on: batches for the model, the truth in its own units, something to see."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import datasets
import numpy as np
import torch
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from ..data.columns import check_texts, column_values, find_image_columns, find_text_columns
from ..data.image_dataset import ImageDataset, dataset_images
from ..data.tables import Table, as_numbers
from ..data.targets import TargetScale, find_target_column, target_values
from ..errors import UserError
from .images import ImageTransform, eval_collator
from .table_preprocessor import TablePreprocessor


@dataclass(frozen=True)
class NumberColumns:
    """Where image or text and the number to predict are found, and how texts are cut; see [`CLUEConfig`]."""

    target_column: str | None = None
    image_column: str | None = None
    source_column: str | None = None
    source_prefix: str = ""
    max_source_length: int = 512


@dataclass(frozen=True)
class NumberRows(ABC):
    """
    Base of the rows of a regressor.

    Args:
        numbers (`np.ndarray`):
            Which rows of the dataset these are: all but those that were left out.
        target (`np.ndarray`, *optional*):
            The numbers to predict, in their own units.
        target_name (`str`):
            Their column.
        notes (`list[str]`):
            What was done to the rows.
    """

    numbers: np.ndarray
    target: np.ndarray | None
    target_name: str
    notes: list[str] = field(kw_only=True, default_factory=list)

    def __len__(self) -> int:
        return len(self.numbers)

    @abstractmethod
    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        """The inputs of the model for some rows."""

    def text(self, row: int) -> str | None:
        """A row in words, if it has any."""
        return None

    def pixels(self, row: int) -> np.ndarray | None:
        """The image of a row, if it is one: uint8 of shape (height, width, channels)."""
        return None


@dataclass(frozen=True)
class TableRows(NumberRows):
    """
    Rows of a table.

    Args:
        tensors (`dict[str, torch.Tensor]`):
            What the model takes.
        table ([`Table`]):
            The columns as they were given.
        names (`list[str]`):
            Those that the model sees.
    """

    tensors: dict[str, torch.Tensor]
    table: Table
    names: list[str]

    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        return {name: tensor[rows.start : rows.stop] for name, tensor in self.tensors.items()}

    def text(self, row: int) -> str:
        where = int(self.numbers[row])
        return ", ".join(f"{name} {_shown(self.table.column(name)[where].as_py())}" for name in self.names)


@dataclass(frozen=True)
class ImageRows(NumberRows):
    """
    Images.

    Args:
        images ([`ImageDataset`]):
            The images.
        transform ([`ImageTransform`]):
            Resizes and normalises them.
    """

    images: ImageDataset
    transform: ImageTransform

    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        found = self.images.__getitems__(list(rows))
        return eval_collator(self.transform)([{"pixel_values": row["pixel_values"]} for row in found])

    def pixels(self, row: int) -> np.ndarray:
        return self.images[row]["pixel_values"]


@dataclass(frozen=True)
class TextRows(NumberRows):
    """
    Texts, tokenised.

    Args:
        encoded (`datasets.Dataset`):
            Columns that the model takes.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            Pads them.
        texts (`list[str]`):
            What was tokenised.
    """

    encoded: datasets.Dataset
    tokenizer: PreTrainedTokenizerBase
    texts: list[str]

    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        return dict(DataCollatorWithPadding(self.tokenizer)([self.encoded[row] for row in rows]))

    def text(self, row: int) -> str:
        return self.texts[row]


def target_scale(config: Any, processing_class: Any) -> TargetScale:
    """What brings predictions back to the target's own units: kept by the table's preprocessor, or in the config."""
    if isinstance(processing_class, TablePreprocessor):
        return TargetScale(processing_class.target_mean, processing_class.target_std)
    return TargetScale.of_config(config) or TargetScale()


def make_rows(
    dataset: Any, processing_class: Any, columns: NumberColumns, split: str, with_target: bool = True
) -> NumberRows:
    """
    The rows of a dataset for a model.

    Args:
        dataset (`datasets.Dataset`, `dict` of columns or [`ImageDataset`]):
            Rows of a table, images or texts.
        processing_class:
            The table preprocessor, the image processor or the tokenizer of the model.
        columns ([`NumberColumns`]):
            Which columns to take.
        split (`str`):
            What error messages call the dataset.
        with_target (`bool`, *optional*, defaults to `True`):
            Whether the truth is wanted; without it, no row is left out.
    """
    if isinstance(processing_class, TablePreprocessor):
        return _table_rows(dataset, processing_class, columns, with_target)
    texts = isinstance(processing_class, PreTrainedTokenizerBase)
    if isinstance(dataset, ImageDataset) and not texts and not with_target:
        return _image_rows(dataset, processing_class, None, "")
    if isinstance(dataset, dict):
        dataset = datasets.Dataset.from_dict(dataset)
    if not isinstance(dataset, datasets.Dataset):
        raise ValueError(f"A regressor takes a datasets.Dataset or a dict of columns, not {type(dataset)}.")
    if len(dataset) == 0:
        raise ValueError("The dataset has no rows.")
    names = dataset.column_names
    target, name = None, columns.target_column or ""
    if with_target:
        name = find_target_column(names, columns.target_column)
        target = target_values(dataset, name, split)
    # with any column for the label these find the other one
    if texts:
        source = find_text_columns(names, columns.source_column, name if with_target else names[0])[0]
        return _text_rows(dataset, processing_class, source, target, name, columns)
    image = find_image_columns(names, columns.image_column, name if with_target else names[0])[0]
    images = ImageDataset(dataset_images(dataset, image, split), np.zeros(len(dataset)), [])
    return _image_rows(images, processing_class, target, name)


def _table_rows(dataset: Any, preprocessor: TablePreprocessor, columns: NumberColumns, with_target: bool) -> TableRows:
    name = preprocessor.target_column
    if columns.target_column not in (None, name):
        raise UserError(
            f"target_column is {columns.target_column!r}, but the model was trained to predict {name!r}: leave it out."
        )
    table = Table(dataset)
    if table.num_rows == 0:
        raise ValueError("The dataset has no rows.")
    tensors, notes = preprocessor.transform(dataset, with_target)
    numbers, target = np.arange(table.num_rows), None
    if with_target:
        # not the standardised ones brought back, which are rounded to float32
        target = as_numbers(table.column(name), name)
        numbers = np.flatnonzero(~np.isnan(target))
        target = target[numbers]
        del tensors["labels"]
    if len(numbers) == 0:
        raise UserError(f"No row has a target {name!r}.")
    return TableRows(
        numbers, target, name, tensors, table, [column.name for column in preprocessor.columns], notes=notes
    )


def _image_rows(images: ImageDataset, processor: Any, target: np.ndarray | None, name: str) -> ImageRows:
    if len(images) == 0:
        raise ValueError("The dataset has no rows.")
    return ImageRows(np.arange(len(images)), target, name, images, ImageTransform.from_processor(processor))


def _text_rows(
    dataset: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    source: str,
    target: np.ndarray | None,
    name: str,
    columns: NumberColumns,
) -> TextRows:
    top = source if source in dataset.column_names else source.split(".")[0]
    texts = column_values({top: dataset[top][:]}, source, "source_column")
    check_texts(texts, source, "source_column", 0)
    sources, limit = [columns.source_prefix + text for text in texts], columns.max_source_length
    encoded = tokenizer(sources, verbose=False)
    cut = sum(len(ids) > limit for ids in encoded["input_ids"])
    notes = []
    if cut:
        notes.append(f"{cut:,} of {len(texts):,} texts were truncated to max_source_length={limit}.")
        encoded = tokenizer(sources, truncation=True, max_length=limit)
    rows = datasets.Dataset.from_dict(dict(encoded))
    return TextRows(np.arange(len(texts)), target, name, rows, tokenizer, texts, notes=notes)


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
