"""Raw examples of a classifier: images or texts with a label, as the model takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.columns import check_texts, column_values, find_text_columns
from ..data.image_dataset import ImageDataset, image_dataset, label_numbers
from ..data.images import ImageTransform, eval_collator, make_transform, train_collator
from ..errors import UserError


if TYPE_CHECKING:
    from ..config import CLUEConfig

logger = logging.get_logger(__name__)
#: Column that says whether a text was cut; read for the report, then dropped.
CUT = "source_was_cut"


class ImageData:
    """
    Images, resized and normalised.

    Args:
        names (`list[str]`):
            The classes, in the order of the model's outputs.
        processor (*optional*):
            An image processor of transformers; without one, images are normalised by the training data.
    """

    def __init__(self, names: list[str], processor: Any = None) -> None:
        self.names = names
        self.transform = None if processor is None else ImageTransform.from_processor(processor)

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

    def collator(self, config: CLUEConfig) -> Any:
        return None if self.transform is None else eval_collator(self.transform)

    def train_collator(self, config: CLUEConfig) -> Any:
        return None if self.transform is None else train_collator(self.transform, config.augment, config.seed)


class TextData:
    """
    Texts, tokenised.

    Args:
        names (`list[str]`):
            The classes, in the order of the model's outputs.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            The model's tokenizer.
    """

    def __init__(self, names: list[str], tokenizer: PreTrainedTokenizerBase) -> None:
        self.names, self.tokenizer = names, tokenizer

    def prepare(self, dataset: Any, config: CLUEConfig, name: str) -> Any:
        if isinstance(dataset, dict):
            return {key: self.prepare(part, config, key) for key, part in dataset.items()}
        if isinstance(dataset, list):
            dataset = datasets.Dataset.from_list(dataset)
        if not isinstance(dataset, datasets.Dataset) or "input_ids" in dataset.column_names:
            return dataset
        text, label = find_text_columns(dataset.column_names, config.source_column, config.label_column)
        labels = label_numbers(dataset, label, self.names, name)
        return tokenized(dataset, text, labels, self.tokenizer, config, name)

    def collator(self, config: CLUEConfig) -> Any:
        return DataCollatorWithPadding(self.tokenizer, pad_to_multiple_of=config.pad_to_multiple_of)

    def train_collator(self, config: CLUEConfig) -> Any:
        return None


def tokenized(
    dataset: datasets.Dataset,
    text: str,
    labels: np.ndarray,
    tokenizer: PreTrainedTokenizerBase,
    config: CLUEConfig,
    name: str,
) -> datasets.Dataset:
    """The texts of a column as tokens, with their labels; those that are too long are cut and counted."""
    limit = config.max_source_length

    def encode(rows: dict[str, list[Any]], indices: list[int]) -> dict[str, Any]:
        values = column_values(rows, text, "source_column")
        check_texts(values, text, "source_column", indices[0])
        sources = [config.source_prefix + value for value in values]
        encoded = tokenizer(sources, verbose=False)
        cut = [len(ids) > limit for ids in encoded["input_ids"]]
        if any(cut):
            encoded = tokenizer(sources, truncation=True, max_length=limit)
        return {**encoded, "labels": labels[indices].tolist(), CUT: cut}

    found = dataset.map(
        encode,
        batched=True,
        with_indices=True,
        remove_columns=dataset.column_names,
        num_proc=config.preprocessing_num_workers,
        desc=f"Tokenising {name}",
    )
    count, rows = sum(found[CUT][:]), len(found)
    if count:
        share = f"{count:,} of {rows:,} {name} sources ({count / rows:.1%})"
        logger.warning(f"{share} were truncated to max_source_length={limit}.")
    return found.remove_columns(CUT)


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
