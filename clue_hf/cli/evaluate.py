"""`clue-hf evaluate`: how well the uncertainty of a model knows the quality of its outputs, or its errors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from transformers.utils import logging

from ..data.loading import DataArguments, data_name
from ..errors import UserError
from ..evaluation import ClassificationEvaluator, RegressionEvaluator, UncertaintyEvaluator
from ..inputs.base import InputSettings
from ..inputs.splits import EvaluationData
from ..models.kind import MODALITIES, ModelKind, config_kind
from ..models.uncertainty_file import read_uncertainty
from ..posthoc.rules import check_posthoc
from ..predictors.base import NoDropoutError
from ..predictors.endpoint import EndpointArguments
from ..predictors.loading import check_whole, read_config
from ..processes import process_state
from ..training.locks import alone
from .arguments import DATA_OPTIONS, FILE_TYPES, NO_WARPING, SPLIT_OPTIONS, EvaluateArguments
from .launch import launch, must_launch
from .outside import ask_endpoint, check_outside_options, evaluate_outside
from .parser import ConfigParser


logger = logging.get_logger(__name__)


GROUPS = {
    "Options": ["split", "outputs", "compare", "report_dir", "resume", "num_processes", "resamples", "seed"],
    "Scores and quality": ["scorers", "quality", "quality_column", "num_samples", "sampling_temperature",
                           "sampling_top_k", "sampling_top_p", "similarity", "similarity_threshold", "pmi_source",
                           "mc_samples", "compat"],
    "Outputs": ["max_target_length", "generation_num_beams", "do_sample", "temperature", "top_k", "top_p", "dtype",
                "per_device_eval_batch_size"],
    "Classifiers and regressors": ["calibrator", "conformal", "coverage", "corruption", "severity",
                                   "ood_split", "ood_file", "binary_task", "min_variance"],
    "Texts of a server": ["endpoint", "model", "endpoint_api", "concurrent_requests", "request_timeout", "max_retries",
                          "top_log_probabilities"],
    "Data": [*DATA_OPTIONS, "entropy_column", *SPLIT_OPTIONS, "split_seed", "max_eval_samples",
             "merge_references", "on_bad_row"],
}  # fmt: skip

# options that only some kinds of models have a use for
TEXT_OPTIONS = ("scorers", "similarity", "compat", "resume", "do_sample", "entropy_column")
CLASS_OPTIONS = ("corruption", "ood_split", "ood_file", "binary_task")
IMAGE_OPTIONS = ("corruption", "ood_file", "binary_task")
#: What the file of all rows holds.
ROWS_FILES = {
    "text": "examples.jsonl (every output, score and token)",
    "classes": "predictions.jsonl (every answer with its probabilities)",
    "numbers": "predictions.jsonl (every prediction with its intervals)",
}

DESCRIPTION = """MODEL is a Hub id or a folder, of a model or of an adapter (LoRA). Generates an output for each row of
a split, scores each with seven scorers (--scorers all: with all that can run), judges it against the reference, and
reports how well the scores tell good outputs from bad ones (PRR, areas, AURC ... with intervals). A classifier of
images or texts is judged by its answers instead: error, calibration, and how well its uncertainty knows the wrong
ones; a regressor of tables, images or texts by its squared error, its intervals, and how well its variance knows the
errors. The model is used as it was trained: prefix, lengths, columns, passes. --config takes the YAML file of a
training. --outputs evaluates texts that were generated elsewhere, with whatever is known of their tokens and samples,
and needs no MODEL; --endpoint asks a server for them (vLLM, SGLang, TGI, llama.cpp and others that speak OpenAI's
protocol)."""

EXAMPLES = """
clue-hf evaluate out/quickstart/clue --config configs/quickstart/t5_phrases.yaml
clue-hf evaluate out/quickstart/clue --config configs/quickstart/t5_phrases.yaml --compare out/quickstart/ce
clue-hf evaluate google-t5/t5-small --dataset_name ./my-data --scorers msp,perplexity --quality rouge2
clue-hf evaluate --outputs outputs.jsonl --quality exact_match --report_dir report
clue-hf evaluate --endpoint http://127.0.0.1:8000/v1 --model NAME --test_file questions.jsonl --quality exact_match
clue-hf evaluate google-t5/t5-small --dataset_name ./my-data --scorers all --similarity rougeL
clue-hf evaluate out/quickstart_digits/clue --config configs/quickstart/resnet_digits.yaml --calibrator isotonic
clue-hf evaluate out/quickstart_digits/clue --config configs/quickstart/resnet_digits.yaml --conformal aps
clue-hf evaluate out/quickstart_diabetes/clue --config configs/quickstart/tabular_diabetes.yaml --mc_samples 50"""


def command(argv: Sequence[str]) -> int:
    """Runs `clue-hf evaluate`; returns its exit code."""
    parser = ConfigParser(
        "clue-hf evaluate MODEL",
        (EvaluateArguments, DataArguments, EndpointArguments),
        DESCRIPTION,
        EXAMPLES,
        GROUPS,
        FILE_TYPES,
        instead_of_names=["outputs", "endpoint"],
    )
    model, arguments, data, endpoint = parser.parse(argv)
    if model is None:
        return _outside_command(arguments, data, endpoint)
    kind = config_kind(read_config(model))
    if kind.family != "text":
        check_whole(model)
    _check_options(arguments, data, kind)
    if must_launch(arguments.num_processes):
        _load(model, arguments, data, kind)  # mistakes show here, once
        return launch("evaluate", argv, arguments.num_processes)
    state = process_state()
    with state.main_process_first():
        rows = _load(model, arguments, data, kind)

    def evaluate(name: str, folder: Path, is_baseline: bool) -> Any:
        description = {"model": name, "data": data_name(data, arguments.split)}
        if kind.family == "text":
            return _evaluate_text(description, rows, arguments, kind, folder)
        return _evaluate_rows(description, rows, arguments, kind, is_baseline)

    default_folder = os.path.join(model, "uncertainty_report") if os.path.isdir(model) else "uncertainty_report"
    folder = Path(arguments.report_dir or default_folder)
    with alone(folder, "evaluation", "report_dir"):
        try:
            report = evaluate(model, folder, is_baseline=False)
            other = None
            if arguments.compare:
                other_kind = config_kind(read_config(arguments.compare))
                if (other_kind.family, other_kind.modality) != (kind.family, kind.modality):
                    raise UserError(f"{arguments.compare} is {other_kind}, and cannot be compared with {kind}.")
                other = evaluate(arguments.compare, folder / "compared_with", is_baseline=True)
        except KeyboardInterrupt:
            kept = f"finished rows are kept in {folder}; --resume true continues." if kind.family == "text" else ""
            raise KeyboardInterrupt(kept or "start the same command again.") from None
        except ValueError as error:
            raise UserError(str(error)) from error
        if state.is_main_process:
            _save(report, other, folder, arguments, ROWS_FILES[kind.family])
    return 0


def _outside_command(arguments: EvaluateArguments, data: DataArguments, endpoint: EndpointArguments) -> int:
    """Evaluates texts that were generated elsewhere, or are by a server."""
    folder = Path(arguments.report_dir or "uncertainty_report")
    check_outside_options(arguments)
    with alone(folder, "evaluation", "report_dir"):
        try:
            description = {"model": "Texts from elsewhere", "data": str(arguments.outputs)}
            if endpoint.endpoint is not None:
                arguments.outputs = ask_endpoint(arguments, data, endpoint, folder)
                description = {"model": str(endpoint.model), "data": data_name(data, arguments.split)}
            report = evaluate_outside(arguments, data, folder, description)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"finished rows are kept in {folder}; --resume true continues.") from None
        _save(report, None, folder, arguments, ROWS_FILES["text"])
    return 0


def _save(report: Any, other: Any, folder: Path, arguments: EvaluateArguments, rows_file: str) -> None:
    comparison = None
    if other is not None:
        other.save(folder / "compared_with")
        try:
            comparison = report.compare(other, max(arguments.resamples, 1))
        except ValueError as error:
            raise UserError(f"{arguments.compare} cannot be compared: {error}") from error
    report.save(folder, comparison, arguments.compare or "")
    print("\n" + (folder / "summary.md").read_text(encoding="utf-8"))
    calibrator = ", calibrator.json" if getattr(report, "calibrator", None) else ""
    print(f"Written to {folder}: report.json, {rows_file}, summary.md, plots{calibrator}.")
    print(f"Open {(folder / 'report.html').resolve().as_uri()} in a browser.")


# ---- which options go with which kind of model ----


def _check_options(arguments: EvaluateArguments, data: DataArguments, kind: ModelKind) -> None:
    """Raises where options do not go together, before anything is loaded."""
    check_posthoc(kind.family, conformal=arguments.conformal)
    if kind.family == "text":
        if unsuitable := [name for name in ("calibrator", *CLASS_OPTIONS[:3]) if getattr(arguments, name)]:
            raise UserError(f"--{unsuitable[0]} is for classifiers or regressors, but this is {kind}.")
        return
    for field in fields(EvaluateArguments):
        default = field.default_factory() if callable(field.default_factory) else field.default
        if field.name in TEXT_OPTIONS and getattr(arguments, field.name) != default:
            raise UserError(f"--{field.name} is for language models, but this is {kind}.")
    chosen = {name for name in CLASS_OPTIONS if getattr(arguments, name, None) or getattr(data, name, None)}
    for option in (name for name in CLASS_OPTIONS if name in chosen):
        if kind.family != "classes":
            raise UserError(f"--{option} is for classifiers, but this is {kind}.")
        if option in IMAGE_OPTIONS and kind.modality != "image":
            raise UserError(f"--{option} is for images, but this is {kind}.")
    for option, modality in (("image_column", "image"), ("source_column", "text")):
        if kind.family == "numbers" and getattr(arguments, option) and kind.modality != modality:
            raise UserError(f"--{option} is for {MODALITIES[modality]}, but this is {kind}.")
    check_posthoc(kind.family, arguments.calibrator)
    if (fitted := _fitted_options(arguments)) and _is_validation(arguments, data):
        raise UserError(
            f"--{fitted[0]} is fitted on the validation split, so it cannot be judged there: choose another --split."
        )


def _fitted_options(arguments: EvaluateArguments) -> list[str]:
    """The options that fit something on the validation split."""
    return [name for name in ("calibrator", "conformal") if getattr(arguments, name)]


def _is_validation(arguments: EvaluateArguments, data: DataArguments) -> bool:
    return arguments.split in ("validation", data.validation_split)


# ---- data ----


def _load(model: str, arguments: EvaluateArguments, data: DataArguments, kind: ModelKind) -> EvaluationData:
    """The data; raises where something is fitted on validation data and there is none."""
    trained = InputSettings.from_file(model, read_uncertainty(model))
    rows = arguments.load_data(kind, data, arguments.split, trained, arguments.ood_split, arguments.ood_file)
    if _is_validation(arguments, data):
        rows.validation = None
    if (fitted := _fitted_options(arguments)) and rows.validation is None:
        raise UserError(f"--{fitted[0]} needs validation data: give a split or file, or set validation_fraction.")
    return rows


# ---- one model ----


def _evaluate_text(
    description: dict[str, str], rows: EvaluationData, arguments: EvaluateArguments, kind: ModelKind, folder: Path
) -> Any:
    sampled = {option: getattr(arguments, option) for option in NO_WARPING}
    warping = {option: getattr(arguments, f"sampling_{option}") for option in NO_WARPING}
    predictor = arguments.load_predictor(
        description["model"],
        kind,
        rows,
        scorers=arguments.scorers,
        sampling={option: value for option, value in warping.items() if value != NO_WARPING[option]},
        pmi_source=arguments.pmi_source,
        mc_samples=arguments.mc_samples or 0,
        compat=arguments.compat,
        batch_size=arguments.per_device_eval_batch_size,
        seed=arguments.seed,
        generation={
            "num_beams": arguments.generation_num_beams,
            **({"do_sample": True, **sampled} if arguments.do_sample else {}),
        },
    )
    evaluator = UncertaintyEvaluator.from_predictor(predictor, arguments.qualities, arguments.resamples)
    pair = (rows.columns["source_column"], rows.columns["target_column"])
    return evaluator.evaluate(rows.test, *pair, arguments.entropy_column, folder, arguments.resume, description)


def _evaluate_rows(
    description: dict[str, str], rows: EvaluationData, arguments: EvaluateArguments, kind: ModelKind, is_baseline: bool
) -> Any:
    name = description["model"]
    options = {"min_variance": arguments.min_variance, "seed": arguments.seed}
    try:
        predictor = arguments.load_predictor(name, kind, rows, mc_samples=arguments.mc_samples, **options)
    except NoDropoutError:
        if not is_baseline:
            raise
        # a model that is only compared with may have no dropout: it makes one pass then, however many are asked for
        predictor = arguments.load_predictor(name, kind, rows, mc_samples=0, **options)
    fitting: dict[str, Any] = {
        "calibrator": arguments.calibrator,
        "resamples": arguments.resamples,
        "batch_size": arguments.per_device_eval_batch_size,
        "class_names": rows.class_names,
        "conformal": arguments.conformal,
        "coverage": arguments.chosen_coverage,
    }
    _warn_of_conformal(predictor, arguments, kind)
    if kind.family == "numbers":
        if arguments.calibrator and predictor.error_predictor is not None:
            raise UserError(
                f"The error predictor of {name} was fitted on the validation data, so no calibrator of the variance "
                "that it predicts can be fitted there: train the model with --calibrator and --error_predictor, or "
                "leave --calibrator out."
            )
        return RegressionEvaluator.from_predictor(predictor, **fitting).evaluate(
            rows.test, rows.validation, description
        )
    if isinstance(rows.positive, str) and len(predictor.names) != 2:
        raise UserError(f"binary_task needs a classifier of two classes, but {name} has {len(predictor.names)}.")
    shifted = (arguments.corruptions, arguments.severities, rows.ood)
    return ClassificationEvaluator.from_predictor(predictor, **fitting).evaluate(
        rows.test, rows.validation, *shifted, rows.positive, description
    )


def _warn_of_conformal(predictor: Any, arguments: EvaluateArguments, kind: ModelKind) -> None:
    """Says where the guarantee of prediction sets or intervals does not hold, or where there will be none."""
    if arguments.conformal is None:
        if predictor.conformal is not None and arguments.calibrator:
            logger.warning(
                "The model's prediction sets or intervals were fitted for its own probabilities, not for those of "
                f"another calibrator: they are left out. Fit others: --conformal {predictor.conformal.name}"
            )
        return
    # an error predictor of classes leaves their probabilities as they are
    parts = {"calibrator": True, "error_predictor": kind.family == "numbers"}
    own = {name: used and getattr(predictor, name) is not None for name, used in parts.items()}
    own["calibrator"] = own["calibrator"] and not arguments.calibrator
    if fitted := [name for name, is_used in own.items() if is_used]:
        logger.warning(
            f"The model's {' and '.join(fitted)} may have been fitted on the validation data too, so that the "
            "guarantee of its prediction sets or intervals does not hold strictly: calibrate the model on other data "
            "(clue-hf calibrate --split), and leave --conformal out here."
        )
