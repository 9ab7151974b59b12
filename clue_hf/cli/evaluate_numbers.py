"""`clue-hf evaluate` for models that predict numbers, from tables, images or texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers.utils import logging

from ..data.loading import DataArguments, load_splits
from ..errors import UserError
from ..evaluation.numbers.evaluator import RegressionEvaluator
from ..evaluation.numbers.report import RegressionReport
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
from ..posthoc.saved import stored_calibrator, stored_error_predictor
from ..predictors.loading import model_kind
from .arguments import EvaluateArguments
from .evaluate_predictions import (
    check_calibrator_split,
    check_language_options,
    checked_validation,
    chosen_passes,
    evaluate_predictions,
    is_validation,
)


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
    load = partial(_load, arguments, data, kind)
    rows = "every prediction with its intervals"
    return evaluate_predictions(name, arguments, data, words, load, _report, rows)


def _kind(config: Any) -> str:
    if isinstance(config, CLUETabularResNetConfig):
        return "tables"
    return "images" if is_image_model(config) else "texts"


def _check(arguments: EvaluateArguments, data: DataArguments, kind: str) -> None:
    """Raises where options do not go together, before anything is loaded."""
    check_language_options(arguments, "predicts numbers")
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
    check_calibrator_split(arguments, data)


def _load(arguments: EvaluateArguments, data: DataArguments, kind: str) -> NumberSplits:
    """The splits to evaluate on and to fit on."""
    data.report_splits = [arguments.split]
    data.take_alone(arguments.split)
    columns = (arguments.source_column, arguments.target_column, arguments.image_column, arguments.label_column)
    splits = load_splits(data, *columns, task="regression", table=kind == "tables")
    validation = None if is_validation(arguments, data) else splits.get("validation")
    return NumberSplits(kind, splits[arguments.split], checked_validation(validation, arguments))


def _report(
    name: str, splits: NumberSplits, arguments: EvaluateArguments, data: str, device: Any, compared: bool = False
) -> RegressionReport:
    """The report about one model. One that is only compared with may have no dropout: its passes are one then."""
    config, stored = load_config(name), read_uncertainty(name)
    if model_kind(config) != "regression" or _kind(config) != splits.kind:
        raise UserError(f"{name} does not predict numbers from {splits.kind}.")
    model = load_with_members(name, partial(load_regressor, name, arguments.dtype)).to(device)
    error_predictor = stored_error_predictor(name, stored, arguments.dtype, device, numbers=True)
    try:
        evaluator = RegressionEvaluator(
            model,
            load_processing_class(name, config),
            chosen_passes(name, stored, arguments, compared and not has_dropout(model)),
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


def _calibrator(
    name: str, stored: dict[str, Any], error_predictor: ErrorPredictor | None
) -> QuantileCalibrator | None:
    """The calibrator that was saved with a model. It was fitted to the model's own variance, and suits no other."""
    if error_predictor is None:
        return stored_calibrator(name, stored, numbers=True)
    if stored.get("calibrator") is not None:
        logger.warning(
            f"The calibrator saved with {name} is for the model's own variance, not for the error predictor's: it is "
            "not used. --calibrator quantile fits another."
        )
    return None
