"""What people give a model, one thing or many, as batches that it takes: texts, images, rows of a table."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from PIL import Image
from transformers import DataCollatorWithPadding

from ..data.image_dataset import UNREADABLE, open_image
from ..errors import UserError
from .images import ImageTransform
from .table_preprocessor import TablePreprocessor


@dataclass(frozen=True)
class Items:
    """
    Inputs of a model.

    Args:
        count (`int`):
            How many.
        batch (`Callable[[range], dict[str, torch.Tensor]]`):
            Some of them as the model takes them.
        single (`bool`):
            Whether one was given, not a list of one.
    """

    count: int
    batch: Callable[[range], dict[str, torch.Tensor]]
    single: bool


class Inputs(ABC):
    """
    Reads what people give; `first_row` is the number of the first one where these are part of more.

    Attributes:
        processing_class:
            What is saved with the model to read its inputs: a tokenizer, an image processor, a table preprocessor.
    """

    processing_class: Any

    @abstractmethod
    def read(self, inputs: Any, first_row: int = 0) -> Items: ...


def as_texts(inputs: Any, first_row: int = 0) -> tuple[list[str], bool]:
    """A list of texts, and whether one text was given; raises with the number of one that is no text."""
    if isinstance(inputs, str):
        return [inputs], True
    if not isinstance(inputs, Iterable) or isinstance(inputs, (dict, bytes)):
        raise UserError(f"Give a text or a list of texts, not a {type(inputs).__name__}.")
    texts = list(inputs)
    for row, text in enumerate(texts, first_row):
        if not isinstance(text, str):
            raise UserError(f"Row {row} (counted from 0) must be a text, but is {_shown(text)}.")
    return texts, False


class TextInputs(Inputs):
    """
    Texts for a classifier or regressor.

    Args:
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            The model's tokenizer.
        source_prefix (`str`), max_source_length (`int`):
            What is put before every text, and how many tokens are read of it.
    """

    def __init__(self, tokenizer: Any, source_prefix: str = "", max_source_length: int = 512) -> None:
        self.processing_class, self.prefix, self.limit = tokenizer, source_prefix, max_source_length

    def read(self, inputs: Any, first_row: int = 0) -> Items:
        texts, single = as_texts(inputs, first_row)

        def batch(rows: range) -> dict[str, torch.Tensor]:
            sources = [self.prefix + text for text in texts[rows.start : rows.stop]]
            encoded = self.processing_class(sources, truncation=True, max_length=self.limit)
            return dict(DataCollatorWithPadding(self.processing_class)(encoded))

        return Items(len(texts), batch, single)


class ImageInputs(Inputs):
    """
    Images: paths, Pillow images, arrays of pixels (uint8), or encoded bytes.

    Args:
        processor:
            The model's image processor.
    """

    def __init__(self, processor: Any) -> None:
        self.processing_class, self.transform = processor, ImageTransform.from_processor(processor)

    def read(self, inputs: Any, first_row: int = 0) -> Items:
        one = isinstance(inputs, (str, bytes, Path, Image.Image)) or (
            isinstance(inputs, np.ndarray) and inputs.ndim < 4 and inputs.dtype != object
        )
        if not one and not isinstance(inputs, Iterable):
            raise UserError(f"Give an image or a list of images, not a {type(inputs).__name__}.")
        images = [inputs] if one else list(inputs)

        def batch(rows: range) -> dict[str, torch.Tensor]:
            opened = [read_image(images[row], first_row + row) for row in rows]
            return {"pixel_values": self.transform(opened)}

        return Items(len(images), batch, one)


def read_image(value: Any, row: int) -> Image.Image:
    """An image of any kind, upright; raises with its number where it cannot be read."""
    where = f"Row {row} (counted from 0)"
    try:
        return open_image(value)
    except UNREADABLE as error:
        raise UserError(f"{where} is no readable image: {error}") from error


class TableInputs(Inputs):
    """
    Rows of a table: a dict of values (one row) or of lists, a list of such rows, a `DataFrame`, a `Dataset`.

    Args:
        preprocessor ([`~clue_hf.inputs.table_preprocessor.TablePreprocessor`]):
            The model's.
    """

    def __init__(self, preprocessor: TablePreprocessor) -> None:
        self.processing_class = preprocessor
        self.names = [column.name for column in preprocessor.columns]

    def read(self, inputs: Any, first_row: int = 0) -> Items:
        single = isinstance(inputs, dict) and not any(
            isinstance(value, (list, np.ndarray)) for value in inputs.values()
        )
        if single or isinstance(inputs, (list, tuple)):
            inputs = self._columns([inputs] if single else inputs, first_row)
        elif not isinstance(inputs, (dict, datasets.Dataset)) and not hasattr(inputs, "columns"):
            raise UserError(f"Give a row as a dict, a list of rows or a DataFrame, not a {type(inputs).__name__}.")
        try:
            tensors = self.processing_class(inputs, target=False)
        except UserError as error:
            raise UserError(_counted_from(first_row, str(error))) from error

        def batch(rows: range) -> dict[str, torch.Tensor]:
            return {name: values[rows.start : rows.stop] for name, values in tensors.items()}

        return Items(len(tensors["numeric"]), batch, single)

    def _columns(self, rows: Any, first_row: int) -> dict[str, list[Any]]:
        """Rows as columns. A missing value is `None`; a column that a row does not have may be a mistake."""
        for number, row in enumerate(rows, first_row):
            if not isinstance(row, dict):
                raise UserError(f"Row {number} (counted from 0) must be a dict of values, but is {_shown(row)}.")
            if missing := [name for name in self.names if name not in row]:
                raise UserError(
                    f"Row {number} (counted from 0) has no {missing[0]!r}; the model needs {', '.join(self.names)}. "
                    "A value that is not known is None (null)."
                )
        return {name: [row[name] for row in rows] for name in self.names}


def _counted_from(first_row: int, message: str) -> str:
    """A message about some rows of a longer table, with the numbers that its rows have there."""
    return re.sub(
        r"\b([Rr]ow) (\d+) \(counted from 0\)",
        lambda found: f"{found[1]} {int(found[2]) + first_row} (counted from 0)",
        message,
    )


def _shown(value: Any) -> str:
    return "empty (null)" if value is None else f"a {type(value).__name__}: {str(value)[:40]!r}"
