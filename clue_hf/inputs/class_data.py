"""Raw examples of a classifier: images or texts with a label, as the model takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..data.columns import find_text_columns
from ..data.image_dataset import ImageDataset, image_dataset
from ..data.labels import label_numbers
from ..errors import UserError
from .images import make_transform
from .raw_data import RawImages, RawTexts


if TYPE_CHECKING:
    from ..config import CLUEConfig


class ImageData(RawImages):
    """
    Images, resized and normalised.

    Args:
        names (`list[str]`):
            The classes, in the order of the model's outputs.
        processor (*optional*):
            An image processor of transformers; without one, images are normalised by the training data.
    """

    def __init__(self, names: list[str], processor: Any = None) -> None:
        super().__init__(processor)
        self.names = names

    def prepare(self, dataset: Any, config: CLUEConfig, name: str) -> Any:
        if isinstance(dataset, list) and dataset and "pixel_values" not in dataset[0]:
            dataset = datasets.Dataset.from_list(dataset)
        dataset = image_dataset(dataset, config.image_column, config.label_column, self.names, name)
        if self.transform is None and isinstance(dataset, ImageDataset):
            self.transform = make_transform(dataset, config.image_size)
        elif self.transform and config.image_size and self.transform.size != (config.image_size, config.image_size):
            height, width = self.transform.size
            raise UserError(
                f"image_size {config.image_size} does not go with the model's image processor, which makes images of "
                f"{height} x {width} pixels: leave it out."
            )
        return dataset


class TextData(RawTexts):
    """
    Texts, tokenised.

    Args:
        names (`list[str]`):
            The classes, in the order of the model's outputs.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            The model's tokenizer.
    """

    def __init__(self, names: list[str], tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(tokenizer)
        self.names = names

    def text_and_labels(self, dataset: datasets.Dataset, config: CLUEConfig, name: str) -> tuple[str, np.ndarray]:
        text, label = find_text_columns(dataset.column_names, config.source_column, config.label_column)
        return text, label_numbers(dataset, label, self.names, name)


def number_rows(dataset: Any) -> Any:
    """A prepared dataset whose rows also hold their number as `row`."""
    if isinstance(dataset, ImageDataset):
        return dataset.numbered()
    if isinstance(dataset, datasets.Dataset):
        return dataset.add_column("row", list(range(len(dataset))))
    raise UserError(
        f"This objective remembers every row of the training data, and cannot number those of a "
        f"{type(dataset).__name__}: use a datasets.Dataset."
    )


def class_names_of(model: Any) -> list[str]:
    """The classes of a model, in the order of its outputs."""
    return [model.config.id2label[number] for number in range(model.config.num_labels)]


def make_class_data(model: Any, processing_class: Any) -> ImageData | TextData | None:
    """What prepares the examples of a classifier; `None` where nothing says how."""
    base = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
    if isinstance(processing_class, PreTrainedTokenizerBase):
        return TextData(class_names_of(base), processing_class)
    if getattr(base, "main_input_name", None) == "pixel_values":
        return ImageData(class_names_of(base), processing_class)
    return None
