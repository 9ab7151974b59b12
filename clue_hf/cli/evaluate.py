"""`clue-hf evaluate`: how well the uncertainty of a model knows the quality of its outputs, or its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..data.loading import DataArguments
from ..errors import UserError
from ..evaluation import ClassificationEvaluator, RegressionEvaluator, UncertaintyEvaluator
from ..inputs.base import InputSettings
from ..inputs.splits import COLUMNS, EvaluationData, load_evaluation_data
from ..models.kind import MODALITIES, ModelKind, config_kind
from ..models.uncertainty_file import read_uncertainty
from ..posthoc.rules import check_posthoc
from ..predictors.base import NoDropoutError
from ..predictors.loading import check_whole, load_predictor, read_config
from ..processes import process_state
from ..training.locks import alone
from .arguments import DATA_ALTERNATIVES, EvaluateArguments
from .launch import launch, must_launch
from .parser import ConfigParser
from .train import TYPES


GROUPS = {
    "Options": ["config", "split", "compare", "report_dir", "resume", "num_processes", "resamples", "seed", "help",
                "help_all"],
    "Scores and quality": ["scorers", "quality", "num_samples", "sampling_temperature", "sampling_top_k",
                           "sampling_top_p", "pmi_source", "mc_samples", "compat"],
    "Outputs": ["max_target_length", "generation_num_beams", "do_sample", "temperature", "top_k", "top_p", "dtype",
                "per_device_eval_batch_size"],
    "Classifiers and regressors": ["calibrator", "corruption", "severity", "ood_split", "ood_file", "binary_task",
                                   "min_variance"],
    "Data": ["dataset_name", "dataset_config", "dataset_revision", "train_file", "validation_file", "test_file",
             "source_column", "target_column", "image_column", "label_column", "entropy_column", "source_prefix",
             "max_source_length", "train_split", "validation_split", "test_split", "split_column",
             "validation_fraction", "test_fraction", "split_seed", "max_eval_samples", "on_bad_row"],
}  # fmt: skip

# options that only some kinds of models have a use for
TEXT_OPTIONS = ("scorers", "compat", "resume", "do_sample", "entropy_column")
CLASS_OPTIONS = ("corruption", "ood_split", "ood_file", "binary_task")
IMAGE_OPTIONS = ("corruption", "ood_file", "binary_task")
#: What the file of all rows holds.
ROWS_FILES = {
    "text": "examples.jsonl (every output, score and token)",
    "classes": "predictions.jsonl (every answer with its probabilities)",
    "numbers": "predictions.jsonl (every prediction with its intervals)",
}
# a sampler's settings that leave the model's distribution as it is
NO_WARPING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}

DESCRIPTION = """MODEL is a Hub id or a folder, of a model or of an adapter (LoRA). Generates an output for each row of
a split, scores each with up to seven scorers, judges it against the reference, and reports how well the scores tell
good outputs from bad ones (PRR, areas, AURC ... with intervals). A classifier of images or texts is judged by its
answers instead: error, calibration, and how well its uncertainty knows the wrong ones; a regressor of tables, images
or texts by its squared error, its intervals, and how well its variance knows the errors. The model is used as it was
trained: prefix, lengths, columns, passes. --config takes the YAML file of a training."""

EXAMPLES = """Examples:
  clue-hf evaluate out/quickstart/clue --config configs/quickstart/t5_phrases.yaml
  clue-hf evaluate out/quickstart/clue --config configs/quickstart/t5_phrases.yaml --compare out/quickstart/ce
  clue-hf evaluate google-t5/t5-small --dataset_name ./my-data --scorers msp,perplexity --quality rouge2
  clue-hf evaluate out/quickstart_digits/clue --config configs/quickstart/resnet_digits.yaml --calibrator isotonic
  clue-hf evaluate out/quickstart_diabetes/clue --config configs/quickstart/tabular_diabetes.yaml --mc_samples 50"""


def command(words: Sequence[str]) -> int:
    """Runs `clue-hf evaluate`; returns its exit code."""
    parser = ConfigParser(
        (EvaluateArguments, DataArguments), GROUPS, (DATA_ALTERNATIVES,), EXAMPLES, TYPES,
        prog="clue-hf evaluate MODEL", description=DESCRIPTION,
    )  # fmt: skip
    model, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else (None, words)
    arguments, data = parser.parse(rest)
    if model is None:
        raise UserError("Which model? clue-hf evaluate MODEL --config CONFIG.yaml")
    kind = config_kind(read_config(model))
    if kind.family != "text":
        check_whole(model)
    _check_options(arguments, data, kind)
    if must_launch(arguments.num_processes):
        _load(model, arguments, data, kind)  # mistakes show here, once
        return launch("evaluate", words, arguments.num_processes)
    state = process_state()
    with state.main_process_first():
        rows = _load(model, arguments, data, kind)
    evaluate = {"text": _evaluate_text, "classes": _evaluate_classes, "numbers": _evaluate_numbers}[kind.family]
    name = data_name(data, arguments.split)
    with report_folder(model, arguments) as folder:
        try:
            report = evaluate(model, rows, arguments, name, folder, False)
            other = None
            if arguments.compare:
                _check_same_kind(arguments.compare, kind)
                other = evaluate(arguments.compare, rows, arguments, name, folder / "compared_with", True)
        except KeyboardInterrupt:
            kept = f"what is finished is kept in {folder}; --resume true continues." if kind.family == "text" else ""
            raise KeyboardInterrupt(kept or "start the same command again.") from None
        except ValueError as error:
            raise UserError(str(error)) from error
        if state.is_main_process:
            _save(report, other, folder, arguments, ROWS_FILES[kind.family])
    return 0


def _save(report: Any, other: Any, folder: Path, arguments: EvaluateArguments, rows_file: str) -> None:
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
    calibrator = ", calibrator.json" if getattr(report, "calibrator", None) else ""
    print(f"Written to {folder}: report.json, {rows_file}, summary.md, plots{calibrator}.")
    print(f"Open {(folder / 'report.html').resolve().as_uri()} in a browser.")


# ---- which options go with which kind of model ----


def _check_options(arguments: EvaluateArguments, data: DataArguments, kind: ModelKind) -> None:
    """Raises where options do not go together, before anything is loaded."""
    if kind.family == "text":
        if unsuitable := [name for name in ("calibrator", *CLASS_OPTIONS[:3]) if getattr(arguments, name)]:
            raise UserError(f"--{unsuitable[0]} is for classifiers or regressors, but this is {kind}.")
        return
    for field in fields(EvaluateArguments):
        usual = field.default_factory() if callable(field.default_factory) else field.default
        if field.name in TEXT_OPTIONS and getattr(arguments, field.name) != usual:
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
    if arguments.calibrator and _is_validation(arguments, data):
        raise UserError(
            "The calibrator is fitted on the validation split, so it cannot be judged there: choose another --split."
        )


def _check_same_kind(name: str, kind: ModelKind) -> None:
    other = config_kind(read_config(name))
    if (other.family, other.modality) != (kind.family, kind.modality):
        raise UserError(f"{name} is {other}, and cannot be compared with {kind}.")


def _is_validation(arguments: EvaluateArguments, data: DataArguments) -> bool:
    return arguments.split in ("validation", data.validation_split)


# ---- data ----


def _load(model: str, arguments: EvaluateArguments, data: DataArguments, kind: ModelKind) -> EvaluationData:
    """The data; raises where a calibrator needs validation data and there is none."""
    columns = {name: getattr(arguments, name) for name in COLUMNS}
    trained = InputSettings.from_file(model, read_uncertainty(model))
    rows = load_evaluation_data(kind, data, arguments.split, columns, trained, arguments.ood_split, arguments.ood_file)
    if _is_validation(arguments, data):
        rows.validation = None
    if arguments.calibrator and rows.validation is None:
        raise UserError("--calibrator needs validation data: give a split or file, or set validation_fraction.")
    return rows


def data_name(data: DataArguments, split: str) -> str:
    """What a report calls the data."""
    files = [file for file in (data.train_file, data.validation_file, data.test_file) if file]
    name = data.dataset_name or getattr(data, f"{split}_file", None) or files[0]
    own = f"The {split} data" if data.dataset_name else f"{split}_file"
    if not data.dataset_name and not getattr(data, own, None):
        own = "train_file"  # of which it is a part
    details = (data.dataset_config, split, data.bad_rows.summary(own))
    return f"{name} ({', '.join(detail for detail in details if detail)})"


@contextmanager
def report_folder(model: str, arguments: EvaluateArguments) -> Iterator[Path]:
    """Where the report about a model goes; no other evaluation writes there meanwhile."""
    usual = os.path.join(model, "uncertainty_report") if os.path.isdir(model) else "uncertainty_report"
    folder = Path(arguments.report_dir or usual)
    with alone(folder, "evaluation", "report_dir"):
        yield folder


# ---- one model of each kind ----


def _predictor(name: str, rows: EvaluationData, arguments: EvaluateArguments, **options: Any) -> Any:
    """A model as it was trained, but for what the options say."""
    texts = config_kind(read_config(name)).modality == "text"
    lengths = {key: getattr(arguments, key) for key in ("source_prefix", "max_source_length") if texts}
    return load_predictor(
        name,
        process_state().device,
        arguments.dtype,
        columns=rows.columns,
        seed=arguments.seed,
        **lengths,
        **options,
    )


def _evaluate_text(
    name: str, rows: EvaluationData, arguments: EvaluateArguments, data: str, folder: Path, compared: bool
) -> Any:
    sampled = {option: getattr(arguments, option) for option in NO_WARPING}
    warping = {option: getattr(arguments, f"sampling_{option}") for option in NO_WARPING}
    predictor = _predictor(
        name,
        rows,
        arguments,
        scorers=arguments.scorers,
        num_samples=arguments.num_samples,
        sampling={option: value for option, value in warping.items() if value != NO_WARPING[option]},
        pmi_source=arguments.pmi_source,
        mc_samples=arguments.mc_samples or 0,
        compat=arguments.compat,
        batch_size=arguments.per_device_eval_batch_size,
        generation={
            "num_beams": arguments.generation_num_beams,
            **({"do_sample": True, **sampled} if arguments.do_sample else {}),
        },
        max_new_tokens=arguments.max_target_length,
    )
    evaluator = UncertaintyEvaluator.from_predictor(predictor, arguments.qualities, arguments.resamples)
    return evaluator.evaluate(
        rows.test,
        rows.columns["source_column"],
        rows.columns["target_column"],
        arguments.entropy_column,
        folder,
        arguments.resume,
        {"model": name, "data": data},
    )


def _row_predictor(name: str, rows: EvaluationData, arguments: EvaluateArguments, compared: bool) -> Any:
    """One that is only compared with may have no dropout: it makes one pass then, however many are asked for."""
    options = {"min_variance": arguments.min_variance}
    try:
        return _predictor(name, rows, arguments, mc_samples=arguments.mc_samples, **options)
    except NoDropoutError:
        if not compared:
            raise
    return _predictor(name, rows, arguments, mc_samples=0, **options)


def _evaluate_classes(
    name: str, rows: EvaluationData, arguments: EvaluateArguments, data: str, folder: Path, compared: bool
) -> Any:
    predictor = _row_predictor(name, rows, arguments, compared)
    if isinstance(rows.positive, str) and len(predictor.names) != 2:
        raise UserError(f"binary_task needs a classifier of two classes, but {name} has {len(predictor.names)}.")
    evaluator = ClassificationEvaluator.from_predictor(
        predictor, arguments.calibrator, arguments.resamples, arguments.per_device_eval_batch_size, rows.class_names
    )
    return evaluator.evaluate(
        rows.test,
        rows.validation,
        arguments.corruptions,
        arguments.severities,
        rows.ood,
        rows.positive,
        {"model": name, "data": data},
    )


def _evaluate_numbers(
    name: str, rows: EvaluationData, arguments: EvaluateArguments, data: str, folder: Path, compared: bool
) -> Any:
    predictor = _row_predictor(name, rows, arguments, compared)
    if arguments.calibrator and predictor.error_predictor is not None:
        raise UserError(
            f"The error predictor of {name} was fitted on the validation data, so no calibrator of the variance that "
            "it predicts can be fitted there: train the model with --calibrator and --error_predictor, or leave "
            "--calibrator out."
        )
    evaluator = RegressionEvaluator.from_predictor(
        predictor, arguments.calibrator, arguments.resamples, arguments.per_device_eval_batch_size
    )
    return evaluator.evaluate(rows.test, rows.validation, {"model": name, "data": data})
