"""Raw examples of a regressor: rows of a table, images or texts with a number, as the model takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..data.columns import find_image_columns, find_text_columns
from ..data.image_dataset import ImageDataset, dataset_images
from ..data.targets import TargetScale, find_target_column, target_values
from ..tasks.head import unwrap
from .images import make_transform
from .raw_data import RawImages, RawTexts
from .table_preprocessor import TablePreprocessor


if TYPE_CHECKING:
    from ..config import CLUEConfig


class TableData:
    """
    Rows of a table.

    Args:
        preprocessor ([`TablePreprocessor`]):
            Makes numbers of columns.
    """

    def __init__(self, preprocessor: TablePreprocessor) -> None:
        self.preprocessor = preprocessor

    def prepare(self, dataset: Any, config: CLUEConfig, name: str) -> Any:
        if isinstance(dataset, dict):
            return {key: self.prepare(part, config, key) for key, part in dataset.items()}
        return TableDataset(self.preprocessor(dataset)) if isinstance(dataset, datasets.Dataset) else dataset

    def collator(self, config: CLUEConfig) -> Any:
        return collate_tables

    def train_collator(self, config: CLUEConfig) -> Any:
        return None


class TableDataset(torch.utils.data.Dataset):
    """
    Columns as tensors. A batch is cut out of them at once, not put together from rows.

    Args:
        columns (`dict[str, torch.Tensor]`):
            `numeric`, `categories` and `labels`, of equally many rows.
    """

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


def standardized(values: Any, model_config: Any) -> Any:
    """
    The target of images and texts by the scale that the model's config keeps. The first that comes, the training data,
    decides that of a model that has none.
    """
    scale = TargetScale.of_config(model_config)
    if scale is None:
        scale = TargetScale.fit(values)
        scale.store(model_config)
    return scale.standardize(values)


class NumberImages(RawImages):
    """
    Images with a number.

    Args:
        model_config ([`~transformers.PreTrainedConfig`]):
            Config of the model, which keeps the scale of the target.
        processor (*optional*):
            An image processor of transformers; without one, images are normalised by the training data.
    """

    def __init__(self, model_config: Any, processor: Any = None) -> None:
        super().__init__(processor)
        self.model_config = model_config

    def prepare(self, dataset: Any, config: CLUEConfig, name: str) -> Any:
        if isinstance(dataset, dict):
            return {key: self.prepare(part, config, key) for key, part in dataset.items()}
        if isinstance(dataset, datasets.Dataset):
            target = find_target_column(dataset.column_names, config.target_column or config.label_column)
            image, _ = find_image_columns(dataset.column_names, config.image_column, target)
            labels = standardized(target_values(dataset, target, name), self.model_config)
            dataset = ImageDataset(dataset_images(dataset, image, name), labels, [])
        if self.transform is None and isinstance(dataset, ImageDataset):
            self.transform = make_transform(dataset, config.image_size)
        return dataset


class NumberTexts(RawTexts):
    """
    Texts with a number.

    Args:
        model_config ([`~transformers.PreTrainedConfig`]):
            Config of the model, which keeps the scale of the target.
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            The model's tokenizer.
    """

    def __init__(self, model_config: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(tokenizer)
        self.model_config = model_config

    def text_and_labels(self, dataset: datasets.Dataset, config: CLUEConfig, name: str) -> tuple[str, np.ndarray]:
        target = find_target_column(dataset.column_names, config.target_column or config.label_column)
        text, _ = find_text_columns(dataset.column_names, config.source_column, target)
        return text, standardized(target_values(dataset, target, name), self.model_config)


def make_number_data(model: Any, processing_class: Any) -> TableData | NumberImages | NumberTexts | None:
    """What prepares the examples of a regressor; `None` where nothing says how."""
    base = unwrap(model)
    if isinstance(processing_class, TablePreprocessor):
        return TableData(processing_class)
    if isinstance(processing_class, PreTrainedTokenizerBase):
        return NumberTexts(base.config, processing_class)
    if getattr(base, "main_input_name", None) == "pixel_values":
        return NumberImages(base.config, processing_class)
    return None
