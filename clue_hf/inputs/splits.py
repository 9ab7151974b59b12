"""The splits that a trained model is evaluated or calibrated on, as its kind needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..data.columns import find_image_columns, find_text_columns
from ..data.image_dataset import image_dataset
from ..data.labels import class_names
from ..data.loading import DataArguments, load_splits
from ..data.npz import load_ood_images
from ..data.splits import merge_references
from ..errors import UserError
from ..models.kind import ModelKind
from .base import InputSettings


COLUMNS = ("source_column", "target_column", "image_column", "label_column")


@dataclass
class EvaluationData:
    """The data of an evaluation."""

    test: Any
    columns: dict[str, str | None]
    validation: Any = None
    ood: Any = None
    class_names: list[str] | None = None
    positive: str | int = 1


def load_evaluation_data(
    kind: ModelKind,
    data: DataArguments,
    split: str,
    columns: dict[str, str | None],
    trained: InputSettings,
    ood_split: str | None = None,
    ood_file: str | None = None,
) -> EvaluationData:
    """Loads the data for a model."""
    data.report_splits = list(dict.fromkeys(filter(None, (split, ood_split))))
    if getattr(data, f"{split}_file", None) and not (data.dataset_name or data.train_file):
        # the file of one split is all there is: nothing has to be split off for it
        data.train_split, data.validation_fraction, data.test_fraction = split, 0.0, 0.0
    ood = load_ood_images(ood_file, limit=data.max_eval_samples) if ood_file else None
    known = {name: columns.get(name) or getattr(trained, name) for name in COLUMNS}
    try:
        return _load(kind, data, split, known, ood_split, ood)
    except UserError:
        if known == columns:
            raise
    return _load(kind, data, split, {name: columns.get(name) for name in COLUMNS}, ood_split, ood)


def _load(
    kind: ModelKind, data: DataArguments, split: str, columns: dict[str, Any], ood_split: str | None, ood: Any
) -> EvaluationData:
    source, target, image, label = (columns[name] for name in COLUMNS)
    if kind.family == "text":
        rows = load_splits(data, source, target)[split]
        if data.merge_references and split == "train":
            rows = merge_references(rows, source, target)
        return EvaluationData(rows, columns)
    if kind.family == "numbers":
        table = kind.modality == "table"
        splits = load_splits(data, source, target, image, label, task="regression", table=table)
        return EvaluationData(splits[split], columns, splits.get("validation"))
    images = kind.modality == "image"
    splits = load_splits(data, source, None, image, label if images else label or "label")
    train, find = splits["train"], find_image_columns if images else find_text_columns
    _, label_column = find(train.column_names, image if images else source, label)
    names, positive = class_names(train, label_column), 1
    chosen = {name: splits[name] for name in (*data.report_splits, "validation") if name in splits}
    if images:
        chosen = {name: image_dataset(rows, image, label, names, name) for name, rows in chosen.items()}
        if data.binary_task:
            chosen = {name: rows.binary(data.binary_task) for name, rows in chosen.items()}
            names = chosen[split].names
            positive = names[1]
    ood = chosen[ood_split] if ood_split else ood
    return EvaluationData(chosen[split], columns, chosen.get("validation"), ood, names, positive)
