"""The rows that a classifier is evaluated on: batches for the model, labels in its order, and something to look at."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.columns import check_texts, column_values, find_text_columns
from ..data.corruptions import corrupt
from ..data.image_dataset import ImageDataset, as_pixels, image_dataset
from ..data.labels import class_names, label_numbers
from ..errors import UserError
from .images import ImageTransform, eval_collator


logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class Columns:
    """Where image or text and label are found, and how texts are cut; see [`CLUEConfig`]."""

    image_column: str | None = None
    label_column: str | None = None
    source_column: str | None = None
    source_prefix: str = ""
    max_source_length: int = 512


@dataclass(frozen=True)
class ImageRows:
    """
    Images, as they are or corrupted.

    Args:
        dataset ([`ImageDataset`]):
            The images.
        transform ([`ImageTransform`]):
            Resizes and normalises them.
        labels (`np.ndarray`):
            Number of each image's class among the model's outputs.
        corruption (`tuple[str, int, int]`, *optional*):
            Name, severity and seed.
    """

    dataset: ImageDataset
    transform: ImageTransform
    labels: np.ndarray
    corruption: tuple[str, int, int] | None = None

    kind = "image"

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        """The inputs of the model for some rows."""
        pixels = self.pixels(rows)
        return eval_collator(self.transform)([{"pixel_values": image} for image in pixels])

    def pixels(self, rows: Any) -> list[np.ndarray]:
        """
        The images of some rows, uint8 of shape (height, width, channels). Images of many sizes are corrupted as the
        model sees them, after resizing; those of one size before it, as in the published benchmarks.
        """
        images = [row["pixel_values"] for row in self.dataset.__getitems__(list(rows))]
        if self.corruption is None:
            return images
        if self.dataset.size is None:
            images = [self.transform.resize(self.transform.pixels(image)) for image in images]
        return list(corrupt(np.stack(images), *self.corruption, rows=list(rows)))

    def corrupted(self, name: str, severity: int, seed: int) -> ImageRows:
        """The same rows with their images corrupted; what happens to one depends on the seed and its row only."""
        return replace(self, corruption=(name, severity, seed))


@dataclass(frozen=True)
class TextRows:
    """
    Texts, tokenised.

    Args:
        dataset (`datasets.Dataset`):
            Columns that the model takes.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            Pads them.
        labels (`np.ndarray`):
            Number of each text's class among the model's outputs.
        texts (`list[str]`):
            What was tokenised.
    """

    dataset: Any
    tokenizer: PreTrainedTokenizerBase
    labels: np.ndarray
    texts: list[str]

    kind = "text"

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        """The inputs of the model for some rows."""
        return dict(DataCollatorWithPadding(self.tokenizer)([self.dataset[row] for row in rows]))


Rows = ImageRows | TextRows


def make_rows(
    dataset: Any,
    processing_class: Any,
    model_names: list[str] | None,
    columns: Columns,
    names: list[str] | None,
    split: str,
) -> Rows:
    """
    The rows of a dataset for a model.

    Args:
        dataset ([`ImageDataset`] or `datasets.Dataset`):
            Images or texts with labels.
        processing_class:
            The image processor or the tokenizer of the model.
        model_names (`list[str]`, *optional*):
            The classes of the model; without them the labels stay as they are, whatever they are.
        columns ([`Columns`]):
            Which columns to take.
        names (`list[str]`, *optional*):
            The classes of the training data, by default those of the dataset.
        split (`str`):
            What error messages call the dataset.
    """
    if len(dataset) == 0:
        raise ValueError("The dataset has no rows.")
    if isinstance(processing_class, PreTrainedTokenizerBase):
        return _text_rows(dataset, processing_class, model_names, columns, names, split)
    if isinstance(dataset, datasets.Dataset):
        dataset = image_dataset(dataset, columns.image_column, columns.label_column, names, split)
    if not isinstance(dataset, ImageDataset):
        raise ValueError(f"A classifier of images takes a datasets.Dataset or an ImageDataset, not {type(dataset)}.")
    labels = aligned(dataset.labels, dataset.names, model_names)
    return ImageRows(dataset, ImageTransform.from_processor(processing_class), labels)


def _text_rows(
    dataset: Any,
    tokenizer: PreTrainedTokenizerBase,
    model_names: list[str] | None,
    columns: Columns,
    names: list[str] | None,
    split: str,
) -> TextRows:
    if not isinstance(dataset, datasets.Dataset):
        raise ValueError(f"A classifier of texts takes a datasets.Dataset, not {type(dataset)}.")
    text, label = find_text_columns(dataset.column_names, columns.source_column, columns.label_column)
    names = class_names(dataset, label) if names is None else names
    labels = aligned(label_numbers(dataset, label, names, split), names, model_names)
    texts = column_values({name: dataset[name][:] for name in dataset.column_names}, text, "source_column")
    check_texts(texts, text, "source_column", 0)
    sources, limit = [columns.source_prefix + text for text in texts], columns.max_source_length
    encoded = tokenizer(sources, verbose=False)
    count = sum(len(ids) > limit for ids in encoded["input_ids"])
    if count:
        logger.warning(f"{count:,} of {len(texts):,} {split} sources were truncated to max_source_length={limit}.")
        encoded = tokenizer(sources, truncation=True, max_length=limit)
    return TextRows(datasets.Dataset.from_dict(dict(encoded)), tokenizer, labels, texts)


def aligned(numbers: np.ndarray, names: list[str], model_names: list[str] | None) -> np.ndarray:
    """
    The labels of a dataset as numbers of the model's outputs: by the names of the classes where the model has them
    all, else by number where only one side has names, or both have equally many.
    """
    if model_names is None:
        return numbers
    known = {name.lower(): number for number, name in enumerate(model_names)}
    if len(known) == len(model_names) and all(name.lower() in known for name in names):
        return np.array([known[name.lower()] for name in names])[numbers]
    nameless = all(name == str(number) for number, name in enumerate(names)) or all(
        name == f"LABEL_{number}" for number, name in enumerate(model_names)
    )
    if len(names) > len(model_names) or not (nameless or len(names) == len(model_names)):
        raise UserError(
            f"The classes of the data ({_listed(names)}) are not those of the model ({_listed(model_names)})."
        )
    if not nameless:
        logger.warning(
            f"The classes of the data ({_listed(names)}) are taken for those of the model ({_listed(model_names)}) "
            "in this order: their names differ."
        )
    return numbers


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" ... {len(names)} in all" if len(names) > 8 else "")


def images_of_file(path: str, limit: int | None = None) -> ImageDataset:
    """The images of an npz file, which need no labels: those from out of the distribution."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"ood_file {path!r} does not exist.")
    try:
        with np.load(file, allow_pickle=False) as opened:
            arrays = {key: opened[key] for key in opened.files}
    except (OSError, EOFError, zipfile.BadZipFile, AttributeError, ValueError) as error:
        raise UserError(f"ood_file {path!r} cannot be read as npz: {error}") from error
    found = [key for key in arrays if arrays[key].ndim >= 3]
    found = [key for key in found if "test" in key.lower()] or found
    if len(found) != 1:
        raise UserError(f"ood_file {path!r} has the arrays {', '.join(arrays)}; it must hold one array of images.")
    pixels = as_pixels(arrays[found[0]][:limit], f"{found[0]!r} in ood_file {path!r}")
    if len(pixels) == 0:
        raise UserError(f"ood_file {path!r} has no rows.")
    return ImageDataset(pixels, np.zeros(len(pixels), np.int64), ["unknown"])
