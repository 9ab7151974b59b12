"""Raw examples of a classifier: images or texts with a label, as the model takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
import torch
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from ..data.columns import check_texts, column_values, find_text_columns
from ..data.image_dataset import ImageDataset, image_dataset, label_numbers
from ..data.images import ImageTransform, eval_collator, make_transform, train_collator


if TYPE_CHECKING:
    from ..config import CLUEConfig


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
        if isinstance(dataset, (datasets.Dataset, datasets.DatasetDict)):
            dataset = image_dataset(dataset, config.image_column, config.label_column, self.names, name)
        if self.transform is None and isinstance(dataset, ImageDataset):
            self.transform = make_transform(dataset, config.image_size)
        return dataset

    def numbered(self, dataset: Any) -> Any:
        return dataset.numbered()

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
        columns = list(getattr(dataset, "column_names", None) or [])
        if dataset is None or "input_ids" in columns:
            return dataset
        text, label = find_text_columns(columns, config.source_column, config.label_column)
        numbers = label_numbers(dataset, label, self.names, name)

        def encode(rows: dict[str, list[Any]], indices: list[int]) -> dict[str, Any]:
            values = column_values(rows, text, "source_column")
            check_texts(values, text, "source_column", indices[0])
            sources = [config.source_prefix + value for value in values]
            encoded = self.tokenizer(sources, truncation=True, max_length=config.max_source_length)
            return {**encoded, "labels": numbers[indices].tolist()}

        return dataset.map(encode, batched=True, with_indices=True, remove_columns=columns, desc=f"Tokenising {name}")

    def numbered(self, dataset: Any) -> Any:
        return dataset.add_column("row", list(range(len(dataset))))

    def collator(self, config: CLUEConfig) -> Any:
        return DataCollatorWithPadding(self.tokenizer, pad_to_multiple_of=config.pad_to_multiple_of)

    def train_collator(self, config: CLUEConfig) -> Any:
        return None


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
