"""Rows with what is to be predicted of them: classes in the order of a model's outputs, numbers in their own units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.image_dataset import ImageDataset
from ..data.labels import class_names, label_numbers, list_names
from ..data.targets import TargetScale, find_target_column, target_values
from ..errors import UserError
from ..models.kind import unwrap
from .base import Inputs, InputSettings, Rows
from .image_rows import ImageInputs
from .table_preprocessor import TablePreprocessor
from .table_rows import TableInputs
from .text_rows import TextInputs


logger = logging.get_logger(__name__)


def make_inputs(processing_class: Any, settings: InputSettings | None = None) -> Inputs:
    """The inputs of a model by what is saved with it to read them."""
    if isinstance(processing_class, TablePreprocessor):
        return TableInputs(processing_class, settings)
    texts = isinstance(processing_class, PreTrainedTokenizerBase)
    return TextInputs(processing_class, settings) if texts else ImageInputs(processing_class, settings)


@dataclass(frozen=True)
class Labelled:
    """Rows of a dataset and what is to be predicted of them."""

    rows: Rows
    labels: Any
    numbers: np.ndarray
    target: str = ""

    def __len__(self) -> int:
        return len(self.rows)


def class_names_of(model: Any) -> list[str]:
    """The classes of a model, in the order of its outputs."""
    return [model.config.id2label[number] for number in range(model.config.num_labels)]


def class_rows(
    dataset: Any, inputs: Inputs, model_names: list[str] | None, names: list[str] | None = None, split: str = "given"
) -> Labelled:
    """The rows of a dataset with their classes."""
    if len(dataset) == 0:
        raise ValueError("The dataset has no rows.")
    label: str | None = None
    labels: Any = None
    if isinstance(dataset, ImageDataset):
        labels, names = dataset.labels, dataset.names
    elif isinstance(dataset, datasets.Dataset) and model_names is not None:
        label = inputs.label_column(dataset.column_names)
        names = class_names(dataset, label) if names is None else names
        labels = label_numbers(dataset, label, names, split)
    rows = inputs.rows(inputs.column(dataset, label, split))
    if model_names is not None and names is not None:
        labels = aligned(labels, names, model_names)
    return Labelled(rows, labels, np.arange(len(rows)), label or "")


def number_rows(dataset: Any, inputs: Inputs, split: str = "given", with_target: bool = True) -> Labelled:
    """The rows of a dataset with the numbers to predict, in their own units."""
    named = inputs.settings.target_column or inputs.settings.label_column
    if isinstance(inputs, TableInputs):
        return _table_rows(dataset, inputs, named, with_target)
    if isinstance(dataset, dict):
        dataset = datasets.Dataset.from_dict(dataset)
    if not isinstance(dataset, (datasets.Dataset, ImageDataset)):
        raise ValueError(f"A regressor takes a datasets.Dataset or a dict of columns, not {type(dataset)}.")
    if len(dataset) == 0:
        raise ValueError("The dataset has no rows.")
    target, labels = None, None
    if with_target:
        target = find_target_column(dataset.column_names, named)
        labels = target_values(dataset, target, split)
    rows = inputs.rows(inputs.column(dataset, target, split))
    return Labelled(rows, labels, np.arange(len(rows)), target or named or "")


def _table_rows(dataset: Any, inputs: TableInputs, named: str | None, with_target: bool) -> Labelled:
    target = inputs.processing_class.target_column
    if named not in (None, target):
        raise UserError(f"target_column is {named!r}, but the model was trained to predict {target!r}: leave it out.")
    rows, labels = inputs.labelled_rows(dataset) if with_target else (inputs.rows(dataset), None)
    if rows.table.num_rows == 0:
        raise ValueError("The dataset has no rows.")
    if len(rows) == 0:
        raise UserError(f"No row has a target {target!r}.")
    return Labelled(rows, labels, rows.numbers, target)


def aligned(numbers: np.ndarray, names: list[str], model_names: list[str]) -> np.ndarray:
    """
    The labels of a dataset as numbers of the model's outputs: by the names of the classes where the model has them
    all, else by number where only one side has names, or both have equally many.
    """
    known = {name.lower(): number for number, name in enumerate(model_names)}
    if len(known) == len(model_names) and all(name.lower() in known for name in names):
        return np.array([known[name.lower()] for name in names])[numbers]
    nameless = names == list(map(str, range(len(names))))
    nameless = nameless or model_names == [f"LABEL_{number}" for number in range(len(model_names))]
    ours, theirs = list_names(names, 8), list_names(model_names, 8)
    if len(names) > len(model_names) or not (nameless or len(names) == len(model_names)):
        raise UserError(f"The classes of the data ({ours}) are not those of the model ({theirs}).")
    if not nameless:
        logger.warning(
            f"The names of the classes differ: those of the data ({ours}) are taken for those of the model ({theirs}) "
            "in this order."
        )
    return numbers


def target_scale(config: Any, processing_class: Any) -> TargetScale:
    """What brings predictions back to the target's own units: kept by the table's preprocessor, or in the config."""
    if isinstance(processing_class, TablePreprocessor):
        return processing_class.target_scale
    return TargetScale.of_config(config) or TargetScale()


# ---- training ----
class TrainingData:
    """Raw examples of a classifier or regressor as a trainer takes them."""

    def __init__(self, inputs: Inputs, config: Any, names: list[str]) -> None:
        self.inputs, self.config, self.names = inputs, config, names

    def settle_config(self, config: Any) -> None:
        """Keeps the scale of the targets in the config of another model."""
        scale = TargetScale.of_config(self.config)
        if scale is not None:
            scale.store(config)
        self.config = config

    def prepare(self, dataset: Any, config: Any, split: str) -> Any:
        """A dataset, or a dict of them; one that is prepared already comes back as it is."""
        if isinstance(dataset, dict):
            return {key: self.prepare(part, config, key) for key, part in dataset.items()}
        if isinstance(dataset, list) and dataset and "pixel_values" not in dataset[0]:
            dataset = datasets.Dataset.from_list(dataset)
        if isinstance(dataset, datasets.Dataset) and "input_ids" not in dataset.column_names:
            dataset = self._prepared(dataset, config, split)
        if isinstance(self.inputs, ImageInputs):
            self.inputs.fit(dataset, config.image_size)
        return dataset

    def _prepared(self, dataset: datasets.Dataset, config: Any, split: str) -> Any:
        if len(dataset) == 0:
            raise UserError(f"The {split} data has no rows.")
        if isinstance(self.inputs, TableInputs):
            return self.inputs.training_data(dataset, "", np.empty(0), config, split)
        settings, columns = self.inputs.settings, dataset.column_names
        if self.names:
            target = self.inputs.label_column(columns)
            labels = label_numbers(dataset, target, self.names, split)
        else:
            target = find_target_column(columns, settings.target_column or settings.label_column)
            values = target_values(dataset, target, split)
            scale = TargetScale.of_config(self.config)
            if scale is None:  # the first targets that come are those of the training data: they decide
                scale = TargetScale.fit(values)
                scale.store(self.config)
            labels = scale.standardize(values)
        prepared = self.inputs.training_data(dataset, target, labels, config, split)
        if isinstance(prepared, ImageDataset):
            prepared.names = self.names
        return prepared


def make_training_data(model: Any, processing_class: Any, config: Any, classes: bool) -> TrainingData | None:
    """What prepares the examples of a classifier or regressor; `None` where nothing says how."""
    base = unwrap(model)
    images = getattr(base, "main_input_name", None) == "pixel_values"
    known = isinstance(processing_class, (TablePreprocessor, PreTrainedTokenizerBase))
    if not known and not images:
        return None
    inputs = make_inputs(processing_class, InputSettings.from_config(config))
    return TrainingData(inputs, base.config, class_names_of(base) if classes else [])


def number_dataset(dataset: Any) -> Any:
    """A prepared dataset whose rows also hold their number as `row`."""
    if isinstance(dataset, ImageDataset):
        return dataset.numbered()
    if isinstance(dataset, datasets.Dataset):
        return dataset.add_column("row", list(range(len(dataset))))
    raise UserError(
        f"This objective remembers every row of the training data, and cannot number those of a "
        f"{type(dataset).__name__}: use a datasets.Dataset."
    )
