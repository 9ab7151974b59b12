"""`clue-hf evaluate`: how well the uncertainty of a model knows the quality of its outputs, or its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..data.loading import DataArguments, load_splits
from ..errors import UserError
from ..evaluation import EvaluationReport, UncertaintyEvaluator
from ..predictors.loading import check_whole, language_model, model_kind, read_config
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

# options that a language model has no use for
OF_CLASSIFIERS = ("calibrator", "corruption", "ood_split", "ood_file")
# a sampler's settings that leave the model's distribution as it is
NO_WARPING = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}

DESCRIPTION = """MODEL is a Hub id or a folder, of a model or of an adapter (LoRA). Generates an output for each row of
a split, scores each with up to seven scorers, judges it against the reference, and reports how well the scores tell
good outputs from bad ones (PRR, areas, AURC ... with intervals). A classifier of images or texts is judged by its
answers instead: error, calibration, and how well its uncertainty knows the wrong ones; a regressor of tables, images
or texts by its squared error, its intervals, and how well its variance knows the errors. --config takes the YAML file
of a training: data, columns and lengths are then the same."""

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
    config = read_config(model)
    kind = model_kind(config)
    if kind != "text":
        check_whole(model)
    if kind == "regression":
        from .evaluate_numbers import evaluate_regressor

        return evaluate_regressor(model, config, arguments, data, words)
    if kind == "classification":
        from .evaluate_classes import evaluate_classifier

        return evaluate_classifier(model, config, arguments, data, words)
    if unsuitable := [name for name in OF_CLASSIFIERS if getattr(arguments, name)]:
        raise UserError(f"--{unsuitable[0]} is for classifiers or regressors, but {model} is neither.")
    if must_launch(arguments.num_processes):
        _rows(arguments, data)  # mistakes show here, once
        return launch("evaluate", words, arguments.num_processes)
    from ..processes import process_state

    state = process_state()
    with state.main_process_first():
        rows = _rows(arguments, data)
    with report_folder(model, arguments) as folder:
        try:
            report, comparison = _reports(model, rows, arguments, data_name(data, arguments.split), folder, state)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"what is finished is kept in {folder}; --resume true continues.") from None
        if state.is_main_process:
            report.save(folder, comparison, arguments.compare or "")
            print("\n" + (folder / "summary.md").read_text(encoding="utf-8"))
            files = "report.json, examples.jsonl (every output, score and token), summary.md, plots"
            print(f"Written to {folder}: {files}.")
            print(f"Open {(folder / 'report.html').resolve().as_uri()} in a browser.")
    return 0


def _reports(
    model: str, rows: Any, arguments: EvaluateArguments, data: str, folder: Path, state: Any
) -> tuple[EvaluationReport, dict[str, Any] | None]:
    report = evaluate_model(model, rows, arguments, data, folder, state.device)
    if arguments.compare is None:
        return report, None
    beside = folder / "compared_with"
    other = evaluate_model(arguments.compare, rows, arguments, data, beside, state.device)
    if not state.is_main_process:
        return report, None
    other.save(beside)
    return report, report.compare(other, max(arguments.resamples, 1))


def evaluate_model(
    name: str, rows: Any, arguments: EvaluateArguments, data: str, folder: Path, device: Any
) -> EvaluationReport:
    """The report about one model; its examples are kept in the folder as they are finished."""
    return _evaluator(name, arguments, device).evaluate(
        rows,
        arguments.source_column,
        arguments.target_column,
        arguments.entropy_column,
        folder,
        arguments.resume,
        {"model": name, "data": data},
    )


def _evaluator(name: str, arguments: EvaluateArguments, device: Any) -> UncertaintyEvaluator:
    model, tokenizer = language_model(name, arguments.dtype)
    sampled: dict[str, Any] = {
        "temperature": arguments.temperature,
        "top_k": arguments.top_k,
        "top_p": arguments.top_p,
    }
    given = {name: getattr(arguments, f"sampling_{name}") for name in sampled}
    samples = {name: value for name, value in given.items() if value != NO_WARPING[name]}
    try:
        return UncertaintyEvaluator(
            model.to(device),
            tokenizer,
            arguments.scorers,
            arguments.qualities,
            arguments.resamples,
            max_new_tokens=arguments.max_target_length,
            max_source_length=arguments.max_source_length,
            source_prefix=arguments.source_prefix,
            num_samples=arguments.num_samples,
            sampling=samples,
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
    except ValueError as error:
        raise UserError(str(error)) from error


def _rows(arguments: EvaluateArguments, data: DataArguments) -> Any:
    data.report_splits = [arguments.split]
    data.take_alone(arguments.split)
    return load_splits(data, arguments.source_column, arguments.target_column)[arguments.split]


def data_name(data: DataArguments, split: str) -> str:
    files = [file for file in (data.train_file, data.validation_file, data.test_file) if file]
    name = data.dataset_name or getattr(data, f"{split}_file", None) or files[0]
    own = f"The {split} data" if data.dataset_name else f"{split}_file"
    if not data.dataset_name and not getattr(data, own, None):
        own = "train_file"  # of which it is a part
    told = (data.dataset_config, split, data.bad_rows.summary(own))
    return f"{name} ({', '.join(word for word in told if word)})"


@contextmanager
def report_folder(model: str, arguments: EvaluateArguments) -> Iterator[Path]:
    """Where the report about a model goes; no other evaluation writes there meanwhile."""
    usual = os.path.join(model, "uncertainty_report") if os.path.isdir(model) else "uncertainty_report"
    folder = Path(arguments.report_dir or usual)
    with alone(folder, "evaluation", "report_dir"):
        yield folder
