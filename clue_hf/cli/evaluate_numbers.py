"""`clue-hf evaluate` for models that predict numbers, from tables, images or texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from transformers.utils import logging

from ..data.loading import DataArguments, load_splits
from ..errors import UserError
from ..evaluation.number_evaluator import RegressionEvaluator
from ..evaluation.number_report import RegressionReport
from ..models.loading import (
    is_image_model,
    load_config,
    load_processing_class,
    load_regressor,
    load_with_members,
)
from ..models.mc_dropout import has_dropout
from ..models.tabular import CLUETabularResNetConfig
from ..models.uncertainty_file import read_uncertainty
from ..posthoc import ErrorPredictor, QuantileCalibrator
from .arguments import EvaluateArguments
from .evaluate import data_name, default_folder, predicts_numbers
from .evaluate_classes import OF_LANGUAGE_MODELS
from .launch import launch, must_launch


logger = logging.get_logger(__name__)

# options that a regressor has no use for, and those that only one kind of regressor has
OF_CLASSIFIERS = ("corruption", "ood_split", "ood_file", "binary_task")
OF_KINDS = {"image_column": "images", "source_column": "texts"}


@dataclass
class NumberSplits:
    """The data of an evaluation, and what it is: rows of a table, images or texts."""

    kind: str
    test: Any
    validation: Any


def evaluate_regressor(
    name: str, config: Any, arguments: EvaluateArguments, data: DataArguments, words: Sequence[str]
) -> int:
    """Evaluates a regressor and writes its report; returns the exit code."""
    kind = _kind(config)
    _check(arguments, data, kind)
    if must_launch(arguments.num_processes):
        _load(arguments, data, kind)  # mistakes show here, once
        return launch("evaluate", words, arguments.num_processes)
    from ..processes import process_state

    state = process_state()
    with state.main_process_first():
        splits = _load(arguments, data, kind)
    folder = Path(arguments.report_dir or default_folder(name))
    told = data_name(data, arguments.split)
    report = _report(name, splits, arguments, told, state.device)
    other = None
    if arguments.compare:
        other = _report(arguments.compare, splits, arguments, told, state.device, compared=True)
    if state.is_main_process:
        _save(report, other, folder, arguments)
    return 0


def _kind(config: Any) -> str:
    if isinstance(config, CLUETabularResNetConfig):
        return "tables"
    return "images" if is_image_model(config) else "texts"


def _check(arguments: EvaluateArguments, data: DataArguments, kind: str) -> None:
    """Raises where options do not go together, before anything is loaded."""
    defaults = {field.name: field for field in fields(EvaluateArguments)}
    for option in OF_LANGUAGE_MODELS:
        field = defaults[option]
        usual = field.default_factory() if callable(field.default_factory) else field.default
        if getattr(arguments, option) != usual:
            raise UserError(f"--{option} is for language models, but this model predicts numbers.")
    for option in OF_CLASSIFIERS:
        if getattr(arguments, option, None) or getattr(data, option, None):
            raise UserError(f"--{option} is for classifiers, but this model predicts numbers.")
    for option, wanted in OF_KINDS.items():
        if getattr(arguments, option) and kind != wanted:
            raise UserError(f"--{option} is for {wanted}, but this model predicts numbers from {kind}.")
    if arguments.calibrator not in (None, QuantileCalibrator.name):
        raise UserError(
            f"--calibrator {arguments.calibrator} is for classifiers; a model that predicts numbers has "
            f"{QuantileCalibrator.name}."
        )
    if arguments.calibrator and _is_validation(arguments, data):
        raise UserError(
            "The calibrator is fitted on the validation split, so it cannot be judged there: choose another --split."
        )


def _is_validation(arguments: EvaluateArguments, data: DataArguments) -> bool:
    return arguments.split in ("validation", data.validation_split)


def _load(arguments: EvaluateArguments, data: DataArguments, kind: str) -> NumberSplits:
    """The splits to evaluate on and to fit on."""
    data.report_splits = [arguments.split]
    columns = (arguments.source_column, arguments.target_column, arguments.image_column, arguments.label_column)
    splits = load_splits(data, *columns, task="regression", table=kind == "tables")
    validation = None if _is_validation(arguments, data) else splits.get("validation")
    if arguments.calibrator and validation is None:
        raise UserError("--calibrator needs validation data: give a split or file, or set validation_fraction.")
    return NumberSplits(kind, splits[arguments.split], validation)


def _report(
    name: str, splits: NumberSplits, arguments: EvaluateArguments, data: str, device: Any, compared: bool = False
) -> RegressionReport:
    """The report about one model. One that is only compared with may have no dropout: its passes are one then."""
    config, stored = load_config(name), read_uncertainty(name)
    if not predicts_numbers(config) or _kind(config) != splits.kind:
        raise UserError(f"{name} does not predict numbers from {splits.kind}.")
    model = load_with_members(name, partial(load_regressor, name, arguments.dtype)).to(device)
    error_predictor = _error_predictor(name, stored, arguments.dtype, device)
    try:
        evaluator = RegressionEvaluator(
            model,
            load_processing_class(name, config),
            _passes(arguments, stored, compared and not has_dropout(model)),
            arguments.calibrator or _calibrator(name, stored, error_predictor),
            arguments.resamples,
            arguments.per_device_eval_batch_size,
            arguments.seed,
            error_predictor,
            arguments.min_variance,
            target_column=arguments.target_column or arguments.label_column,
            image_column=arguments.image_column,
            source_column=arguments.source_column,
            source_prefix=arguments.source_prefix,
            max_source_length=arguments.max_source_length,
        )
        return evaluator.evaluate(splits.test, splits.validation, {"model": name, "data": data})
    except ValueError as error:
        raise UserError(str(error)) from error


def _passes(arguments: EvaluateArguments, stored: dict[str, Any], has_none: bool) -> int | None:
    """As asked for, or as the model was trained; nothing for a model without dropout that is only compared with."""
    return None if has_none else stored.get("mc_samples") if arguments.mc_samples is None else arguments.mc_samples


def _calibrator(
    name: str, stored: dict[str, Any], error_predictor: ErrorPredictor | None
) -> QuantileCalibrator | None:
    """The calibrator that was saved with a model. It was fitted to the model's own variance, and suits no other."""
    content = stored.get("calibrator")
    if content is not None and error_predictor is not None:
        logger.warning(
            f"The calibrator saved with {name} is for the model's own variance, not for the error predictor's: it is "
            "not used. --calibrator quantile fits another."
        )
        return None
    return None if content is None else QuantileCalibrator.from_dict(content)


def _error_predictor(name: str, stored: dict[str, Any], dtype: str, device: Any) -> ErrorPredictor | None:
    """The predictor of errors that was saved with a model."""
    content = stored.get("error_predictor")
    if content is None:
        return None
    return ErrorPredictor(load_regressor(name, dtype, content["folder"]).to(device))


def _save(
    report: RegressionReport, other: RegressionReport | None, folder: Path, arguments: EvaluateArguments
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
    files = "report.json, predictions.jsonl (every prediction with its intervals), summary.md, plots"
    print(f"Written to {folder}: {files}{', calibrator.json' if report.calibrator else ''}.")
    print(f"Open {(folder / 'report.html').resolve().as_uri()} in a browser.")
