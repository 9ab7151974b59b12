"""`clue-hf compare`: several methods from the same start on the same data and seeds, as a paper would."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..config import CLUEConfig
from ..data.corruptions import CORRUPTIONS
from ..data.loading import DataArguments
from ..errors import UserError
from ..experiments.arguments import RunArguments, parse_severities
from ..experiments.cells import Cell, Method, by_method, is_main_process, make_cells, run_cells
from ..experiments.compared_view import ComparedView, mean_curves
from ..experiments.comparison import as_csv, compare_methods
from ..experiments.comparison_page import write_comparison_page
from ..experiments.costs import cost_unit
from ..experiments.experiment import Experiment, Outcome
from ..experiments.make import load_data, make_experiment
from ..experiments.predictions import ENSEMBLE, PredictingExperiment
from ..files import write_json
from ..hub.escape import without_secret_options
from ..models.arguments import LoraArguments, ModelArguments, check_model
from ..objectives import OBJECTIVES
from ..posthoc.error_predictor import ERROR_PREDICTORS
from ..posthoc.rules import EVERY_CALIBRATOR
from ..scorers import SCORERS
from ..settings import known_names, setting
from .arguments import EvaluateArguments
from .launch import launch, must_launch
from .parser import ConfigParser
from .train import ALTERNATIVES, check_directory


#: Beginnings of the names of settings that do not change what is trained, or are a cell's own.
WITHOUT_EFFECT = (
    "output_dir", "seed", "data_seed", "logging", "log_", "report_", "run_name", "hub_", "push_", "dataloader_num",
    "dataloader_persistent", "dataloader_pin", "dataloader_prefetch", "save_", "eval_", "do_", "disable_tqdm",
    "resume_", "ddp_", "per_device_eval", "project", "trackio", "remove_unused", "load_best",
)  # fmt: skip
#: A prediction of a method for a view.
Outcomes = Callable[[str], Outcome]


@dataclass
class CompareArguments:
    """What to compare."""

    methods: list[str] = setting(
        ["ce", "clue"],
        f"Objectives ({', '.join(OBJECTIVES)}), with settings of their own as in clue:mc_samples=10, and "
        f"of the baseline's models: {', '.join(EVERY_CALIBRATOR)}, {ENSEMBLE}, {', '.join(ERROR_PREDICTORS)}.",
    )
    seeds: int = setting(3, "Seeds of every method: seed, seed + 1 ...")
    alphas: list[str] = setting(
        [], "clue: several weights of the error, each a method of its own; also as --alpha 0.5,0.9."
    )
    scorers: list[str] = setting(list(SCORERS), f"Texts: scorers to compare: {', '.join(SCORERS)}.")
    num_samples: int = setting(10, "Texts: samples per source, for the scorers that need them.")
    resamples: int = setting(1000, "Bootstrap resamples of the intervals.")
    corruption: str | None = setting(None, "Images: also compare on corrupted ones: gaussian_noise,fog.")
    severity: str = setting("1-5", "Severities of the corruptions: 1-5, 3, or 1,3,5.")

    def __post_init__(self) -> None:
        names = [name for word in self.methods for name in word.split(",") if name]
        if self.alphas:
            spread = [f"clue:alpha={alpha:g}" for word in self.alphas for alpha in map(_weight, word.split(","))]
            names = [found for name in names for found in (spread if name == "clue" else [name])]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"`methods` names {repeated[0]!r} twice.")
        self.fitted = [name for name in names if name in (*EVERY_CALIBRATOR, ENSEMBLE)]
        self.error_predictor = next((name for name in names if name in ERROR_PREDICTORS), None)
        others = (*self.fitted, self.error_predictor)
        self.trained = [Method.parse(name) for name in names if name not in others]
        for name in ("seeds", "num_samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {getattr(self, name)}.")
        self.scorers = known_names("scorers", self.scorers, SCORERS)
        self.corruptions = known_names("corruption", [self.corruption], CORRUPTIONS) if self.corruption else []
        self.severities = parse_severities(self.severity)


TYPES = (CompareArguments, RunArguments, ModelArguments, LoraArguments, DataArguments, CLUEConfig)
GROUPS = {
    "Options": ["config", "methods", "seeds", "alphas", "baseline", "scorers", "num_samples", "quality",
                "resamples", "corruption", "severity", "output_dir", "seed", "report_splits", "on_bad_row",
                "num_processes", "help", "help_all"],
}  # fmt: skip

DESCRIPTION = """Trains and evaluates every method from the same start on the same data and seeds, and writes one
table: means over the seeds with intervals over seeds and examples, and a star where the difference to the baseline is
significant (paired bootstrap, Holm). Plain training at the beginning (plain_epochs, plain_steps) is done once per
seed, for all methods. What is finished is not repeated: start the same command again to go on, or several times at
once to work on several cells."""

EXAMPLES = """Examples:
  clue-hf compare configs/quickstart/t5_phrases.yaml --methods ce,clue --alpha 0.5,0.9,0.99 --seeds 3
  clue-hf compare configs/quickstart/resnet_digits.yaml --methods ce,clue,focal,temperature,ensemble --seeds 3
  clue-hf compare configs/resnet18_cifar10.yaml --methods ce,clue --alpha 0.5,0.9,0.99
  clue-hf compare configs/resnet18_cifar10.yaml --methods ce,clue:mc_samples=1,clue:mc_samples=20"""


def command(words: Sequence[str]) -> int:
    """Runs `clue-hf compare`; returns its exit code."""
    parser = ConfigParser(
        TYPES, GROUPS, ALTERNATIVES, EXAMPLES, (EvaluateArguments,), prog="clue-hf compare", description=DESCRIPTION
    )
    arguments, run, model, lora, data, config = parser.parse(_with_alphas(words))
    check_directory(config.output_dir)
    if must_launch(run.num_processes):
        check_model(model)  # mistakes show here, once
        load_data(model, data, config)
        return launch("compare", words, run.num_processes, run.accelerate_config)
    with config.main_process_first(desc="loading the data"):
        splits = load_data(model, data, config)
    line = f"clue-hf compare {shlex.join(without_secret_options(words))}"
    experiment = make_experiment(model, lora, config, splits, run, data, line)
    comparison = Comparison(arguments, experiment, config, run.baseline)
    if is_main_process():
        given = {name: value for name, value in vars(data).items() if name != "bad_rows"}
        settings = {"model": vars(model), "lora": vars(lora), "data": given, "training": config.to_dict()}
        check_settings(comparison.output / "settings.json", {**settings, "run": {"quality": run.quality}})
    try:
        run_cells(comparison.cells, experiment, config)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("The same command goes on where this one stopped.") from None
    if is_main_process():
        comparison.write()
    return 0


def _weight(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"`alphas` must be numbers from 0 to 1, like 0.5,0.9, but there is {word!r}.") from None


def _with_alphas(words: Sequence[str]) -> list[str]:
    """`--alpha 0.5,0.9`, more than one weight, is `--alphas 0.5,0.9`."""
    found = [part for word in words for part in (word.split("=", 1) if word.startswith("--alpha=") else [word])]
    for at in range(len(found) - 1):
        if found[at] == "--alpha" and "," in found[at + 1]:
            found[at] = "--alphas"
    return found


class Comparison:
    """
    The methods of a comparison: those that are trained, and those that are fitted to the baseline's models.

    Args:
        arguments ([`CompareArguments`]):
            What to compare.
        experiment ([`Experiment`]):
            What is trained on what.
        config ([`CLUEConfig`]):
            The settings that all methods share.
        baseline (`str`, *optional*):
            The method that the others are compared with; by default plain training.
    """

    def __init__(
        self, arguments: CompareArguments, experiment: Experiment, config: CLUEConfig, baseline: str | None
    ) -> None:
        self.arguments, self.experiment, self.config = arguments, experiment, config
        self.baseline = baseline or experiment.plain_objective
        self.output = Path(str(config.output_dir))
        names = [method.name for method in arguments.trained]
        if self.baseline not in names:
            raise UserError(f"The baseline {self.baseline!r} must be among the methods {', '.join(names)}.")
        experiment.check_comparison(arguments)
        seeds = range(config.seed, config.seed + arguments.seeds)
        self.cells = make_cells(arguments.trained, seeds, self.output, self.baseline, arguments.error_predictor)
        for method in arguments.trained:
            method.config(config, config.seed, self.output)  # mistakes show before anything is trained

    def outcomes(self) -> dict[str, list[Outcomes]]:
        """By the name of a method: for each of its seeds, what it predicts for a view."""
        found: dict[str, list[Outcomes]] = {name: [c.outcome for c in cells] for name, cells in by_method(self.cells)}
        if not self.arguments.fitted:
            return found
        experiment = self.experiment
        assert isinstance(experiment, PredictingExperiment)
        trained = [cell for cell in self.cells if cell.method.name == self.baseline]
        for name in self.arguments.fitted:
            if name == ENSEMBLE:
                found[f"{ENSEMBLE} of {len(trained)}"] = [
                    lambda view: experiment.ensembled([cell.outcome(view) for cell in trained])
                ]
            else:
                found[f"{self.baseline} + {name}"] = [_calibrated(experiment, name, cell) for cell in trained]
        return found

    def write(self) -> None:
        """The tables of every view in all their forms, and one page of everything with its pictures."""
        views = [self.compare(view) for view in self.experiment.compared_views()]
        for view in views:
            text = view.markdown()
            print(f"\n{text}")
            stem = self.output / view.name
            stem.with_name(f"{view.name}.md").write_text(text)
            stem.with_name(f"{view.name}.tex").write_text(view.latex() + "\n")
            stem.with_name(f"{view.name}.csv").write_text(as_csv(view.compared))
            write_json(stem.with_name(f"{view.name}.json"), view.content())
        write_comparison_page(views, self.output / "comparison.html")
        print(f"Written to {self.output}: comparison.html, and for each table .md, .tex, .csv, .json and pictures.")

    def compare(self, view: str) -> ComparedView:
        """The methods on one view."""
        outcomes = self.outcomes()
        measured = {
            name: [self.experiment.measure(view, seed, self.arguments.resamples) for seed in seeds]
            for name, seeds in outcomes.items()
        }
        for runs in measured.values():
            for run, plain in zip(runs, measured[self.baseline], strict=False):
                run.update(self.experiment.measure_difference(run, plain))
        tables = self.experiment.compared_columns(view)
        metrics = list(dict.fromkeys(name for columns in tables.values() for name in columns))
        return ComparedView(
            name=view,
            baseline=self.baseline,
            compared=compare_methods(measured, self.baseline, metrics),
            tables=tables,
            costs=self.costs(),
            curves={
                name: mean_curves([self.experiment.judged(seed(view)) for seed in seeds])
                for name, seeds in outcomes.items()
            },
            kept=self.experiment.kept,
            tradeoffs=self.experiment.tradeoffs,
            higher=self.experiment.higher,
            reading=self.experiment.reading,
            definitions=self.experiment.definitions,
            seeds=self.arguments.seeds,
            command=self.experiment.command,
            left_out=self.experiment.bad_rows.summaries(),
            surroundings=f"{_surroundings([cell.told() for cell in self.cells])}; {self.effort()}",
        )

    def costs(self) -> dict[str, dict[str, float]]:
        """Time and memory of each trained method relative to the baseline's: medians over the seeds."""
        told: dict[str, list[dict[str, Any]]] = {
            name: [cell.told() for cell in cells]
            for name, cells in by_method([cell for cell in self.cells if type(cell) is Cell])
        }
        keys = {"time": self.experiment.timed, "memory": "peak_memory"}
        return {
            name: {
                what: float(np.median([cell[key] / plain[key] for cell, plain in pairs])) for what, key in keys.items()
            }
            for name, cells in told.items()
            for pairs in [list(zip(cells, told[self.baseline], strict=True))]
        }

    def effort(self) -> str:
        """How long everything took that was trained, the plain starts included."""
        starts = [cell.needed(self.experiment, self.config) for cell in self.cells]
        every = {cell.folder: cell for cell in (*self.cells, *starts) if cell}
        minutes = [cell.told()["cost"] / 60 for cell in every.values()]
        return f"{len(minutes)} trainings, {sum(minutes):.1f} {cost_unit()} in all, {max(minutes):.1f} the longest"


def _calibrated(experiment: PredictingExperiment, name: str, cell: Cell) -> Outcomes:
    calibrate = experiment.after_training(name, cell.outcome("validation"))
    return lambda view: calibrate(cell.outcome(view))


def _surroundings(told: list[dict[str, Any]]) -> str:
    """When, where and with what the cells were run: the last date, everything else that differs between them."""
    dates = [cell["date"] for cell in told if "date" in cell]
    machines = {cell["machine"]: None for cell in told if "machine" in cell}
    versions = {f"{name} {number}": None for cell in told for name, number in cell.get("versions", {}).items()}
    return "; ".join(filter(None, (max(dates, default=""), ", ".join(machines), ", ".join(versions))))


def check_settings(path: Path, settings: dict[str, Any]) -> None:
    """Remembers the settings of a comparison; raises where its folder holds cells that were run with others."""
    now = json.loads(json.dumps(settings, default=str))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, now)
        return
    before = json.loads(path.read_text(encoding="utf-8"))
    for part, values in now.items():
        for name, value in values.items():
            earlier = before.get(part, {}).get(name, value)
            if earlier != value and not name.startswith(WITHOUT_EFFECT):
                raise UserError(
                    f"{path.parent} holds a comparison with another {name}: {earlier!r}, now {value!r}. Use the same "
                    "settings to go on, or another output_dir."
                )
