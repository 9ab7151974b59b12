"""`clue-hf evaluate` for classifiers of images and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from ..data.columns import find_image_columns, find_text_columns
from ..data.image_dataset import class_names, image_dataset
from ..data.loading import DataArguments, load_splits
from ..errors import UserError
from ..evaluation.class_evaluator import ClassificationEvaluator
from ..evaluation.class_report import ClassificationReport
from ..evaluation.class_rows import images_of_file
from ..models.loading import (
    is_image_model,
    load_classifier,
    load_image_processor,
    load_tokenizer,
    load_with_members,
)
from ..models.mc_dropout import has_dropout
from ..models.uncertainty_file import read_uncertainty
from ..posthoc import CALIBRATORS, Calibrator, ErrorNormalizer, ErrorPredictor
from .arguments import EvaluateArguments
from .evaluate import data_name, default_folder
from .launch import launch, must_launch


# options that a classifier has no use for
OF_LANGUAGE_MODELS = ("scorers", "compat", "resume", "do_sample", "entropy_column")


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
    if must_launch(arguments.num_processes):
        _load(arguments, data, images)  # mistakes show here, once
        return launch("evaluate", words, arguments.num_processes)
    from ..processes import process_state

    state = process_state()
    with state.main_process_first():
        splits = _load(arguments, data, images)
    folder = Path(arguments.report_dir or default_folder(name))
    told = data_name(data, arguments.split)
    report = _report(name, splits, arguments, told, state.device)
    other = None
    if arguments.compare:
        other = _report(arguments.compare, splits, arguments, told, state.device, compared=True)
    if state.is_main_process:
        _save(report, other, folder, arguments)
    return 0


def _check(arguments: EvaluateArguments, data: DataArguments, images: bool) -> None:
    """Raises where options do not go together, before anything is loaded."""
    defaults = {field.name: field for field in fields(EvaluateArguments)}
    for option in OF_LANGUAGE_MODELS:
        field = defaults[option]
        usual = field.default_factory() if callable(field.default_factory) else field.default
        if getattr(arguments, option) != usual:
            raise UserError(f"--{option} is for language models, but this model is a classifier.")
    if not images:
        for option, value in (("corruption", arguments.corruption), ("ood_file", arguments.ood_file),
                              ("binary_task", data.binary_task)):  # fmt: skip
            if value:
                raise UserError(f"--{option} is for images, but this model classifies texts.")
    if arguments.calibrator and _is_validation(arguments, data):
        raise UserError(
            "The calibrator is fitted on the validation split, so it cannot be judged there: choose another --split."
        )


def _is_validation(arguments: EvaluateArguments, data: DataArguments) -> bool:
    return arguments.split in ("validation", data.validation_split)


def _load(arguments: EvaluateArguments, data: DataArguments, images: bool) -> ClassSplits:
    """The splits to evaluate on, to fit on, and from out of the distribution."""
    data.report_splits = list(dict.fromkeys(filter(None, (arguments.split, arguments.ood_split))))
    label = arguments.label_column or (None if images else "label")
    splits = load_splits(data, arguments.source_column, None, arguments.image_column, label)
    wanted = [*data.report_splits, *([] if _is_validation(arguments, data) else ["validation"])]
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
    if arguments.calibrator and validation is None:
        raise UserError("--calibrator needs validation data: give a split or file, or set validation_fraction.")
    return ClassSplits(
        images,
        names,
        splits[arguments.split],
        validation,
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
            _passes(arguments, stored, compared and not has_dropout(model)),
            arguments.calibrator or stored_calibrator(stored),
            arguments.resamples,
            arguments.per_device_eval_batch_size,
            arguments.seed,
            splits.names,
            stored_error_predictor(name, stored, arguments.dtype, device),
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


def _passes(arguments: EvaluateArguments, stored: dict[str, Any], has_none: bool) -> int | None:
    """As asked for, or as the model was trained; nothing for a model without dropout that is only compared with."""
    return None if has_none else stored.get("mc_samples") if arguments.mc_samples is None else arguments.mc_samples


def stored_calibrator(stored: dict[str, Any]) -> Calibrator | None:
    """The calibrator that was saved with a model."""
    content = stored.get("calibrator")
    return None if content is None else CALIBRATORS[content["name"]].from_dict(content)


def stored_error_predictor(name: str, stored: dict[str, Any], dtype: str, device: Any) -> ErrorPredictor | None:
    """The predictor of errors that was saved with a model."""
    content = stored.get("error_predictor")
    if content is None:
        return None
    model = load_classifier(name, dtype=dtype, subfolder=content["folder"]).to(device)
    return ErrorPredictor(model, ErrorNormalizer.from_dict(content["normalizer"]))


def _save(
    report: ClassificationReport, other: ClassificationReport | None, folder: Path, arguments: EvaluateArguments
) -> None:
    """Writes the files and tells where they are."""
    comparison = None
    if other is not None:
        other.save(folder / "compared_with")
        try:
            comparison = report.compare(other, max(arguments.resamples, 1))
        except ValueError as error:
            raise UserError(f"{arguments.compare} cannot be compared: {error}") from error
    report.save(folder, comparison, arguments.compare or "")
    print("\n" + (folder / "summary.md").read_text(encoding="utf-8"))
    files = "report.json, predictions.jsonl (every answer with its probabilities), summary.md, plots"
    print(f"Written to {folder}: {files}{', calibrator.json' if report.calibrator else ''}.")
    print(f"Open {(folder / 'report.html').resolve().as_uri()} in a browser.")
