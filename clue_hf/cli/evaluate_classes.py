"""`clue-hf evaluate` for classifiers of images and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..data.columns import find_image_columns, find_text_columns
from ..data.image_dataset import image_dataset
from ..data.labels import class_names
from ..data.loading import DataArguments, load_splits
from ..errors import UserError
from ..evaluation.classes.evaluator import ClassificationEvaluator
from ..evaluation.classes.report import ClassificationReport
from ..inputs.class_rows import images_of_file
from ..models.loading import (
    is_image_model,
    load_classifier,
    load_image_processor,
    load_tokenizer,
    load_with_members,
)
from ..models.mc_dropout import has_dropout
from ..models.uncertainty_file import read_uncertainty
from ..posthoc.saved import stored_calibrator, stored_error_predictor
from .arguments import EvaluateArguments
from .evaluate_predictions import (
    check_calibrator_split,
    check_language_options,
    checked_validation,
    chosen_passes,
    evaluate_predictions,
    is_validation,
)


@dataclass
class ClassSplits:
    """The data of an evaluation, images or texts, and the classes of its training data."""

    images: bool
    names: list[str]
    test: Any
    validation: Any
    ood: Any
    positive: str | int


def evaluate_classifier(
    name: str, config: Any, arguments: EvaluateArguments, data: DataArguments, words: Sequence[str]
) -> int:
    """Evaluates a classifier and writes its report; returns the exit code."""
    images = is_image_model(config)
    _check(arguments, data, images)
    load = partial(_load, arguments, data, images)
    rows = "every answer with its probabilities"
    return evaluate_predictions(name, arguments, data, words, load, _report, rows)


def _check(arguments: EvaluateArguments, data: DataArguments, images: bool) -> None:
    """Raises where options do not go together, before anything is loaded."""
    check_language_options(arguments, "is a classifier")
    if not images:
        for option, value in (("corruption", arguments.corruption), ("ood_file", arguments.ood_file),
                              ("binary_task", data.binary_task)):  # fmt: skip
            if value:
                raise UserError(f"--{option} is for images, but this model classifies texts.")
    check_calibrator_split(arguments, data)


def _load(arguments: EvaluateArguments, data: DataArguments, images: bool) -> ClassSplits:
    """The splits to evaluate on, to fit on, and from out of the distribution."""
    data.report_splits = list(dict.fromkeys(filter(None, (arguments.split, arguments.ood_split))))
    data.take_alone(arguments.split)
    label = arguments.label_column or (None if images else "label")
    splits = load_splits(data, arguments.source_column, None, arguments.image_column, label)
    wanted = [*data.report_splits, *([] if is_validation(arguments, data) else ["validation"])]
    columns = splits["train"].column_names
    if not images:
        _, label = find_text_columns(columns, arguments.source_column, arguments.label_column)
        found = {name: splits[name] for name in wanted if name in splits}
        return _splits(False, class_names(splits["train"], label), found, arguments, 1)
    _, label = find_image_columns(columns, arguments.image_column, arguments.label_column)
    names = class_names(splits["train"], label)
    given = (arguments.image_column, arguments.label_column, names)
    found = {name: image_dataset(splits[name], *given, name) for name in wanted if name in splits}
    if data.binary_task:
        found = {name: split.binary(data.binary_task) for name, split in found.items()}
        names = found[arguments.split].names
    ood = images_of_file(arguments.ood_file, data.max_eval_samples) if arguments.ood_file else None
    return _splits(True, names, found, arguments, names[1] if data.binary_task else 1, ood)


def _splits(
    images: bool, names: list[str], splits: Any, arguments: EvaluateArguments, positive: str | int, ood: Any = None
) -> ClassSplits:
    validation = splits.get("validation") if arguments.split != "validation" else None
    return ClassSplits(
        images,
        names,
        splits[arguments.split],
        checked_validation(validation, arguments),
        splits[arguments.ood_split] if arguments.ood_split else ood,
        positive,
    )


def _report(
    name: str, splits: ClassSplits, arguments: EvaluateArguments, data: str, device: Any, compared: bool = False
) -> ClassificationReport:
    """The report about one model. One that is only compared with may have no dropout: its passes are one then."""
    stored = read_uncertainty(name)
    model = load_with_members(name, partial(load_classifier, name, dtype=arguments.dtype)).to(device)
    images = is_image_model(model.config)
    if images != splits.images:
        raise UserError(f"{name} is no classifier of {'images' if splits.images else 'texts'}.")
    if isinstance(splits.positive, str) and model.config.num_labels != 2:
        raise UserError(f"binary_task needs a classifier of two classes, but {name} has {model.config.num_labels}.")
    try:
        evaluator = ClassificationEvaluator(
            model,
            load_image_processor(name) if images else load_tokenizer(name),
            chosen_passes(name, stored, arguments, compared and not has_dropout(model)),
            arguments.calibrator or stored_calibrator(name, stored, numbers=False),
            arguments.resamples,
            arguments.per_device_eval_batch_size,
            arguments.seed,
            splits.names,
            stored_error_predictor(name, stored, arguments.dtype, device, numbers=False),
            image_column=arguments.image_column,
            label_column=arguments.label_column,
            source_column=arguments.source_column,
            source_prefix=arguments.source_prefix,
            max_source_length=arguments.max_source_length,
        )
        return evaluator.evaluate(
            splits.test,
            splits.validation,
            arguments.corruptions,
            arguments.severities,
            splits.ood,
            splits.positive,
            {"model": name, "data": data},
        )
    except ValueError as error:
        raise UserError(str(error)) from error
