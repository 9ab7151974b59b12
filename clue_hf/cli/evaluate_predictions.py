"""What `clue-hf evaluate` does alike for classifiers and for models that predict numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

from ..data.loading import DataArguments
from ..errors import UserError
from ..evaluation.prediction_report import PredictionReport
from ..posthoc.saved import stored_passes
from .arguments import EvaluateArguments
from .evaluate import data_name, report_folder
from .launch import launch, must_launch


#: Options that only language models have a use for.
OF_LANGUAGE_MODELS = ("scorers", "compat", "resume", "do_sample", "entropy_column")


class MakeReport(Protocol):
    """The report about a model on some data; about one that is only `compared`, with less asked of it."""

    def __call__(
        self, name: str, splits: Any, arguments: EvaluateArguments, data: str, device: Any, compared: bool = False
    ) -> PredictionReport: ...


def evaluate_predictions(
    name: str,
    arguments: EvaluateArguments,
    data: DataArguments,
    words: Sequence[str],
    load: Callable[[], Any],
    make_report: MakeReport,
    rows: str,
) -> int:
    """
    Evaluates a model, and the one that it is compared with, and writes the report; returns the exit code.

    Args:
        name (`str`):
            Hub id or folder of the model.
        arguments, data ([`EvaluateArguments`], [`DataArguments`]):
            What was asked for.
        words (`Sequence[str]`):
            The words of the command, for further processes.
        load (`Callable`):
            Loads the data.
        make_report ([`MakeReport`]):
            Evaluates one model on the data.
        rows (`str`):
            What each line of the file of predictions holds.
    """
    if must_launch(arguments.num_processes):
        load()  # mistakes show here, once
        return launch("evaluate", words, arguments.num_processes)
    from ..processes import process_state

    state = process_state()
    with state.main_process_first():
        splits = load()
    told = data_name(data, arguments.split)
    with report_folder(name, arguments) as folder:
        report = make_report(name, splits, arguments, told, state.device)
        other = None
        if arguments.compare:
            other = make_report(arguments.compare, splits, arguments, told, state.device, compared=True)
        if state.is_main_process:
            _save(report, other, folder, arguments, rows)
    return 0


def check_language_options(arguments: EvaluateArguments, model: str) -> None:
    """Raises where an option is for language models only; `model` says what this one is or does."""
    for field in fields(EvaluateArguments):
        usual = field.default_factory() if callable(field.default_factory) else field.default
        if field.name in OF_LANGUAGE_MODELS and getattr(arguments, field.name) != usual:
            raise UserError(f"--{field.name} is for language models, but this model {model}.")


def check_calibrator_split(arguments: EvaluateArguments, data: DataArguments) -> None:
    """Raises where a calibrator would be judged on what it is fitted to."""
    if arguments.calibrator and is_validation(arguments, data):
        raise UserError(
            "The calibrator is fitted on the validation split, so it cannot be judged there: choose another --split."
        )


def is_validation(arguments: EvaluateArguments, data: DataArguments) -> bool:
    """Whether the split to evaluate on is the validation data."""
    return arguments.split in ("validation", data.validation_split)


def checked_validation(validation: Any, arguments: EvaluateArguments) -> Any:
    """The validation data; raises where a calibrator needs some and there is none."""
    if arguments.calibrator and validation is None:
        raise UserError("--calibrator needs validation data: give a split or file, or set validation_fraction.")
    return validation


def chosen_passes(name: str, stored: dict[str, Any], arguments: EvaluateArguments, has_none: bool) -> int | None:
    """As asked for, or as the model was trained; nothing for a model without dropout that is only compared with."""
    if has_none:
        return None
    return stored_passes(name, stored) if arguments.mc_samples is None else arguments.mc_samples


def _save(
    report: PredictionReport, other: PredictionReport | None, folder: Path, arguments: EvaluateArguments, rows: str
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
    files = f"report.json, predictions.jsonl ({rows}), summary.md, plots"
    print(f"Written to {folder}: {files}{', calibrator.json' if report.calibrator else ''}.")
    print(f"Open {(folder / 'report.html').resolve().as_uri()} in a browser.")
