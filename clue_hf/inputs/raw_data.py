"""Raw images and texts, whatever is learned of them: how they are collated, and how texts become tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.columns import check_texts, column_values
from .images import ImageTransform, eval_collator, train_collator


if TYPE_CHECKING:
    from ..config import CLUEConfig

logger = logging.get_logger(__name__)
#: Column that says whether a text was cut; read for the report, then dropped.
CUT = "source_was_cut"


class RawImages:
    """
    Images, resized and normalised.

    Args:
        processor (*optional*):
            An image processor of transformers; without one, images are normalised by the training data.
    """

    def __init__(self, processor: Any = None) -> None:
        self.transform = None if processor is None else ImageTransform.from_processor(processor)

    def collator(self, config: CLUEConfig) -> Any:
        return None if self.transform is None else eval_collator(self.transform)

    def train_collator(self, config: CLUEConfig) -> Any:
        return None if self.transform is None else train_collator(self.transform, config.augment, config.seed)


class RawTexts(ABC):
    """
    Texts, tokenised.

    Args:
        tokenizer ([`~transformers.PreTrainedTokenizerBase`]):
            The model's tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer

    @abstractmethod
    def text_and_labels(self, dataset: datasets.Dataset, config: CLUEConfig, name: str) -> tuple[str, np.ndarray]:
        """The column of the texts, and what is to be learned of each."""

    def prepare(self, dataset: Any, config: CLUEConfig, name: str) -> Any:
        if isinstance(dataset, dict):
            return {key: self.prepare(part, config, key) for key, part in dataset.items()}
        if isinstance(dataset, list):
            dataset = datasets.Dataset.from_list(dataset)
        if not isinstance(dataset, datasets.Dataset) or "input_ids" in dataset.column_names:
            return dataset
        text, labels = self.text_and_labels(dataset, config, name)
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
