"""`clue-hf compare`: several methods from the same start on the same data and seeds, as a paper would."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..config import CLUEConfig
from ..data.corruptions import CORRUPTIONS
from ..data.loading import DataArguments
from ..errors import UserError
from ..evaluation.comparison import as_csv, as_dict, as_latex, as_markdown, compare_methods
from ..hub.escape import without_secret_options
from ..models.arguments import LoraArguments, ModelArguments
from ..objectives import OBJECTIVES
from ..posthoc.error_predictor import ERROR_PREDICTORS
from .arguments import EVERY_CALIBRATOR, EvaluateArguments, RunArguments, known_names, parse_severities
from .cells import Cell, Method, by_method, make_cells, run_cells
from .parser import ConfigParser
from .train import ALTERNATIVES, load_data, make_experiment
from .training import Experiment


#: The baseline's seeds as one model.
ENSEMBLE = "ensemble"
#: A prediction of a method for a view.
Outcomes = Callable[[str], dict[str, np.ndarray]]


@dataclass
class CompareArguments:
    """What to compare."""

    methods: list[str] = field(
        default_factory=lambda: ["ce", "clue"],
        metadata={
            "help": f"Objectives ({', '.join(OBJECTIVES)}), with settings of their own as in clue:mc_samples=10, and "
            f"of the baseline's models: {', '.join(EVERY_CALIBRATOR)}, {ENSEMBLE}, {', '.join(ERROR_PREDICTORS)}."
        },
    )
    seeds: int = field(default=3, metadata={"help": "Seeds of every method: seed, seed + 1 ..."})
    alphas: list[float] = field(
        default_factory=list, metadata={"help": "clue: several weights of the error, each a method of its own."}
    )
    resamples: int = field(default=1000, metadata={"help": "Bootstrap resamples of the intervals."})
    corruption: str | None = field(
        default=None, metadata={"help": "Images: also compare on corrupted ones: gaussian_noise,fog."}
    )
    severity: str = field(default="1-5", metadata={"help": "Severities of the corruptions: 1-5, 3, or 1,3,5."})

    def __post_init__(self) -> None:
        names = [name for word in self.methods for name in word.split(",") if name]
        if self.alphas:
            spread = [f"clue:alpha={alpha:g}" for alpha in self.alphas]
            names = [found for name in names for found in (spread if name == "clue" else [name])]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"`methods` names {repeated[0]!r} twice.")
        self.fitted = [name for name in names if name in (*EVERY_CALIBRATOR, ENSEMBLE)]
        self.error_predictor = next((name for name in names if name in ERROR_PREDICTORS), None)
        others = (*self.fitted, self.error_predictor)
        self.trained = [Method.parse(name) for name in names if name not in others]
        if self.seeds < 1:
            raise ValueError(f"`seeds` must be at least 1, but is {self.seeds}.")
        self.corruptions = known_names("corruption", [self.corruption], CORRUPTIONS) if self.corruption else []
        self.severities = parse_severities(self.severity)


TYPES = (CompareArguments, RunArguments, ModelArguments, LoraArguments, DataArguments, CLUEConfig)
GROUPS = {
    "Options": ["config", "methods", "seeds", "alphas", "baseline", "resamples", "corruption", "severity",
                "output_dir", "seed", "report_splits", "help", "help_all"],
}  # fmt: skip

DESCRIPTION = """Trains and evaluates every method from the same start on the same data and seeds, and writes one
table: means over the seeds with intervals over seeds and examples, and a star where the difference to the baseline is
significant (paired bootstrap, Holm). Plain training at the beginning (plain_epochs, plain_steps) is done once per
seed, for all methods. What is finished is not repeated: start the same command again to go on."""

EXAMPLES = """Examples:
  clue-hf compare configs/quickstart/resnet_digits.yaml --methods ce,clue,focal,temperature,ensemble --seeds 3
  clue-hf compare configs/resnet18_cifar10.yaml --methods ce,clue --alphas 0.5 0.9 0.99
  clue-hf compare configs/resnet18_cifar10.yaml --methods ce,clue:mc_samples=1,clue:mc_samples=20"""


def command(words: Sequence[str]) -> int:
    """Runs `clue-hf compare`; returns its exit code."""
    parser = ConfigParser(
        TYPES, GROUPS, ALTERNATIVES, EXAMPLES, (EvaluateArguments,), prog="clue-hf compare", description=DESCRIPTION
    )
    arguments, run, model, lora, data, config = parser.parse(words)
    line = f"clue-hf compare {shlex.join(without_secret_options(words))}"
    experiment = make_experiment(model, lora, config, load_data(model, data, config), run, data, line)
    comparison = Comparison(arguments, experiment, config, run.baseline)
    run_cells(comparison.cells, experiment, config)
    for view in experiment.compared_views():
        comparison.write(view)
    return 0


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
        self.arguments, self.experiment = arguments, experiment
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
        trained = [cell for cell in self.cells if cell.method.name == self.baseline]
        for name in self.arguments.fitted:
            if name == ENSEMBLE:
                found[f"{ENSEMBLE} of {len(trained)}"] = [
                    lambda view: self.experiment.ensembled([cell.outcome(view) for cell in trained])
                ]
            else:
                found[f"{self.baseline} + {name}"] = [self._calibrated(name, cell) for cell in trained]
        return found

    def _calibrated(self, name: str, cell: Cell) -> Outcomes:
        calibrate = self.experiment.after_training(name, cell.outcome("validation"))
        return lambda view: calibrate(cell.outcome(view))

    def write(self, view: str) -> None:
        """The table of one view, in all its forms."""
        columns = self.experiment.compared_columns(view)
        measured = {
            name: [self.experiment.measure(view, seed, self.arguments.resamples) for seed in seeds]
            for name, seeds in self.outcomes().items()
        }
        compared = compare_methods(measured, self.baseline, list(columns))
        costs = self.costs()
        line = self.experiment.command
        text = (
            f"# {view}\n\nMade by `{line}`.\n\n{as_markdown(compared, columns, costs)}\n\n{self.experiment.reading}\n"
            f"Means over {self.arguments.seeds} seeds with 95 % intervals over seeds and examples; *: differs from "
            f"{self.baseline} (paired bootstrap, Holm, p < 0.05). Time per epoch and peak memory relative to "
            f"{self.baseline}'s.\n"
        )
        print(f"\n{text}")
        (self.output / f"{view}.md").write_text(text)
        (self.output / f"{view}.tex").write_text(as_latex(compared, columns, costs) + "\n")
        (self.output / f"{view}.csv").write_text(as_csv(compared))
        content = {"command": line, "baseline": self.baseline, "costs": costs, "methods": as_dict(compared)}
        (self.output / f"{view}.json").write_text(json.dumps(content, indent=2) + "\n")

    def costs(self) -> dict[str, dict[str, float]]:
        """Time and memory of each trained method relative to the baseline's: medians over the seeds."""
        told: dict[str, list[dict[str, Any]]] = {
            name: [cell.told() for cell in cells]
            for name, cells in by_method([cell for cell in self.cells if type(cell) is Cell])
        }
        keys = {"time": "seconds_per_epoch", "memory": "peak_memory"}
        return {
            name: {
                what: float(np.median([cell[key] / plain[key] for cell, plain in pairs])) for what, key in keys.items()
            }
            for name, cells in told.items()
            for pairs in [list(zip(cells, told[self.baseline], strict=True))]
        }
