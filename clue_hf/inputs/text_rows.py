"""Texts of classifiers and regressors: prefixed, tokenised, cut to a length and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from ..data.columns import check_texts, column_values, dataset_values, describe_value, find_text_columns
from ..errors import UserError
from .base import Inputs, Rows
from .text import CUT_SOURCE, cut_message, encode_dataset, encode_texts


def as_texts(values: Any, first_row: int = 0) -> list[str]:
    """One text or many as a list; raises with the number of one that is not a text."""
    if isinstance(values, str):
        return [values]
    if not isinstance(values, Iterable) or isinstance(values, (dict, bytes)):
        raise UserError(f"Give a text or a list of texts, not a {type(values).__name__}.")
    texts = list(values)
    for row, text in enumerate(texts, first_row):
        if not isinstance(text, str):
            raise UserError(f"Row {row} (counted from 0) must be a text, but is {describe_value(text)}.")
    return texts


@dataclass(frozen=True)
class TextRows(Rows):
    """Tokenised texts: `columns` holds a list per input of the model, `texts` what was tokenised."""

    columns: dict[str, list[Any]]
    tokenizer: PreTrainedTokenizerBase
    texts: Sequence[str]
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        part = {name: values[rows.start : rows.stop] for name, values in self.columns.items()}
        items = [dict(zip(part, values, strict=True)) for values in zip(*part.values(), strict=True)]
        return dict(DataCollatorWithPadding(self.tokenizer)(items))

    def labelled(self, labels: np.ndarray, chosen: np.ndarray) -> Dataset:
        columns = {name: [values[row] for row in chosen] for name, values in self.columns.items()}
        return Dataset.from_dict({**columns, "labels": labels.tolist()})

    def text(self, row: int) -> str:
        return self.texts[row]


class TextInputs(Inputs):
    """Texts, as [`~transformers.PreTrainedTokenizerBase`] encodes them."""

    modality = "text"
    used_settings = ("source_prefix", "max_source_length")

    def is_single(self, values: Any) -> bool:
        return isinstance(values, str)

    def rows(self, values: Any, first_row: int = 0) -> TextRows:
        texts = as_texts(values, first_row)
        columns, cut = self._encode(texts) if texts else ({"input_ids": []}, [])
        notes = cut_message(sum(cut), len(texts), "texts", "max_source_length", self.settings.max_source_length)
        return TextRows(columns, self.processing_class, texts, notes)

    def column(self, dataset: Any, target: str | None, split: str) -> list[str]:
        if not isinstance(dataset, Dataset):
            raise ValueError(f"A model of texts takes a datasets.Dataset, not {type(dataset)}.")
        names = dataset.column_names
        path, _ = find_text_columns(names, self.settings.source_column, target or names[0])
        texts = dataset_values(dataset, path, "source_column")
        check_texts(texts, path, "source_column")
        return texts

    def label_column(self, columns: list[str]) -> str:
        return find_text_columns(columns, self.settings.source_column, self.settings.label_column)[1]

    def training_data(self, dataset: Dataset, target: str, labels: np.ndarray, config: Any, split: str) -> Dataset:
        path, _ = find_text_columns(dataset.column_names, self.settings.source_column, target)

        def encode(rows: dict[str, list[Any]], indices: list[int]) -> dict[str, Any]:
            texts = column_values(rows, path, "source_column")
            check_texts(texts, path, "source_column", indices[0])
            columns, cut = self._encode(texts)
            return {**columns, "labels": labels[indices].tolist(), CUT_SOURCE: cut}

        return encode_dataset(dataset, encode, self.settings, config.preprocessing_num_workers, split)

    def collator(self, config: Any) -> DataCollatorWithPadding:
        return DataCollatorWithPadding(self.processing_class, pad_to_multiple_of=config.pad_to_multiple_of)

    def _encode(self, texts: list[str]) -> tuple[dict[str, list[Any]], list[bool]]:
        prefix, limit = self.settings.source_prefix, self.settings.max_source_length
        return encode_texts(self.processing_class, [prefix + text for text in texts], limit)
