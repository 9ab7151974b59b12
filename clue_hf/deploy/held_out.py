"""Held-out rows for `clue-hf calibrate`: texts with references, images and texts with classes, rows with numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.columns import check_texts, column_values, find_image_columns, find_pair, find_text_columns
from ..data.image_dataset import dataset_images, image_dataset
from ..data.labels import class_names
from ..data.loading import DataArguments, load_splits
from ..data.tables import Table, as_numbers
from ..data.targets import find_target_column
from ..errors import UserError
from ..inputs.class_rows import Columns, TextRows, make_rows
from ..inputs.given import ImageInputs, TableInputs
from ..metrics import quality_signature, sentence_quality
from ..metrics.quality import QUALITIES
from ..models.loading import is_image_model
from ..models.tabular import CLUETabularResNetConfig
from ..posthoc.abstention import MAX_RISKS
from ..predictors.base import Answer, ClassPredictor, NumberPredictor, Predictor, TextPredictor
from ..predictors.loading import model_kind, read_config
from ..settings import known_names


if TYPE_CHECKING:
    import datasets

    from ..cli.calibrate import CalibrateArguments

#: Texts are never perfect by BLEU and the like: their risks reach further.
TEXT_RISKS = (0.05, *(number / 10 for number in range(1, 10)))


@dataclass(frozen=True)
class Calibration:
    """
    Held-out rows.

    Args:
        count (`int`):
            How many.
        inputs (`Callable[[range], Any]`):
            Some of them, as a pipeline takes them.
        judge (`Callable`):
            The quality of all answers, 0 to 1; `None` where nothing says how to judge.
        quality (`str`):
            What that is, in words.
        test (`str`, *optional*):
            The test for thresholds that suits it.
        risks (`Sequence[float]`):
            The usual ones.
    """

    count: int
    inputs: Callable[[range], Any]
    judge: Callable[[list[Answer]], np.ndarray] | None
    quality: str = ""
    test: str | None = "binomial"
    risks: Sequence[float] = MAX_RISKS


def predictor_settings(model: str, arguments: CalibrateArguments) -> dict[str, Any]:
    """The options that decide how a model of this kind answers."""
    config = read_config(model)
    texts = {"source_prefix": arguments.source_prefix, "max_source_length": arguments.max_source_length}
    if model_kind(config) == "text":
        beams = arguments.generation_num_beams
        return {
            "scorer": arguments.scorer,
            **texts,
            "max_new_tokens": arguments.max_target_length,
            "num_samples": arguments.num_samples,
            "seed": arguments.seed,
            "generation": {"num_beams": beams} if beams > 1 else {},
        }
    if arguments.scorer is not None:
        raise UserError(f"--scorer is for models that write texts, and {model} does not.")
    return {} if isinstance(config, CLUETabularResNetConfig) or is_image_model(config) else texts


def held_out_rows(predictor: Predictor, arguments: CalibrateArguments, data: DataArguments) -> Calibration:
    """The rows of the split to calibrate on, as the kind of model needs them."""
    if arguments.tolerance is not None and not isinstance(predictor, NumberPredictor):
        raise UserError("--tolerance is for models that predict numbers.")
    data.report_splits = [arguments.split]
    data.take_alone(arguments.split)
    if isinstance(predictor, TextPredictor):
        return _text_rows(arguments, data)
    if isinstance(predictor, ClassPredictor):
        return _class_rows(predictor, arguments, data)
    assert isinstance(predictor, NumberPredictor)
    return _number_rows(predictor, arguments, data)


def _text_rows(arguments: CalibrateArguments, data: DataArguments) -> Calibration:
    try:
        quality = known_names("quality", [arguments.quality], QUALITIES)[0]
    except ValueError as error:
        raise UserError(str(error)) from error
    split = load_splits(data, arguments.source_column, arguments.target_column)[arguments.split]
    pair = find_pair(split.column_names, arguments.source_column, arguments.target_column)
    columns = split[:]
    sources, references = (
        _texts(columns, path, option) for path, option in zip(pair, ("source_column", "target_column"), strict=True)
    )

    def judge(answers: list[Answer]) -> np.ndarray:
        return sentence_quality(quality, [answer["generated_text"] for answer in answers], references)

    return Calibration(
        len(sources),
        lambda rows: sources[rows.start : rows.stop],
        judge,
        f"sentence {quality} ({quality_signature(quality)})",
        "hoeffding-bentkus",
        TEXT_RISKS,
    )


def _texts(columns: dict[str, list[Any]], path: str, option: str) -> list[str]:
    values = column_values(columns, path, option)
    check_texts(values, path, option, 0)
    return values


def _class_rows(predictor: ClassPredictor, arguments: CalibrateArguments, data: DataArguments) -> Calibration:
    images = isinstance(predictor.inputs, ImageInputs)
    label = arguments.label_column or (None if images else "label")
    splits = load_splits(data, arguments.source_column, None, arguments.image_column, label)
    train, split = splits["train"], splits[arguments.split]
    if images:
        _, label = find_image_columns(train.column_names, arguments.image_column, arguments.label_column)
        names = class_names(train, label)
        split = image_dataset(split, arguments.image_column, arguments.label_column, names, arguments.split)
        if data.binary_task:
            split = split.binary(data.binary_task)
            names = split.names
    else:
        _, label = find_text_columns(train.column_names, arguments.source_column, arguments.label_column)
        names = class_names(train, label)
    columns = Columns(arguments.image_column, label, arguments.source_column)
    rows = make_rows(split, predictor.processing_class, predictor.names, columns, names, arguments.split)

    def inputs(part: range) -> Any:
        return rows.texts[part.start : part.stop] if isinstance(rows, TextRows) else rows.pixels(part)

    def judge(answers: list[Answer]) -> np.ndarray:
        pairs = zip(answers, rows.labels, strict=True)
        return np.array([answer["label"] == predictor.names[number] for answer, number in pairs], float)

    return Calibration(len(rows), inputs, judge, "1 where the class is right, else 0")


def _number_rows(predictor: NumberPredictor, arguments: CalibrateArguments, data: DataArguments) -> Calibration:
    table = isinstance(predictor.inputs, TableInputs)
    named = arguments.target_column or arguments.label_column
    splits = load_splits(
        data, arguments.source_column, arguments.target_column, arguments.image_column, arguments.label_column,
        task="regression", table=table,
    )  # fmt: skip
    split = splits[arguments.split]
    target = predictor.processing_class.target_column if table else find_target_column(split.column_names, named)
    split, values = _with_target(split, target, table and predictor.processing_class.drop_missing_target)
    tolerance = arguments.tolerance

    def judge(answers: list[Answer]) -> np.ndarray:
        return (np.abs(values - np.array([answer["mean"] for answer in answers])) <= tolerance).astype(float)

    return Calibration(
        len(values),
        _number_inputs(predictor, split, target, arguments),
        None if tolerance is None else judge,
        "" if tolerance is None else f"1 where |target - mean| <= {tolerance:g}, else 0",
    )


def _number_inputs(predictor: NumberPredictor, split: datasets.Dataset, target: str, arguments: Any) -> Any:
    """What gives some rows of a table, some images, or some texts."""
    if isinstance(predictor.inputs, TableInputs):
        return lambda rows: split.select(rows)
    if isinstance(predictor.inputs, ImageInputs):
        image, _ = find_image_columns(split.column_names, arguments.image_column, target)
        images = dataset_images(split, image, arguments.split)
        return lambda rows: [images[row] for row in rows]
    text, _ = find_text_columns(split.column_names, arguments.source_column, target)
    texts = _texts(split[:], text, "source_column")
    return lambda rows: texts[rows.start : rows.stop]


def _with_target(split: datasets.Dataset, target: str, drop_missing: bool) -> tuple[datasets.Dataset, np.ndarray]:
    """The rows that have a target, and their targets."""
    values = as_numbers(Table(split).column(target, "target_column"), target, option="target_column")
    missing = np.isnan(values)
    if missing.any() and not drop_missing:
        raise UserError(f"target_column {target!r} has no value in row {int(missing.argmax())} (counted from 0).")
    return (split.select(np.flatnonzero(~missing)), values[~missing]) if missing.any() else (split, values)
