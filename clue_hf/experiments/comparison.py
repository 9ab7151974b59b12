"""Several methods from the same start on the same data and seeds, as a paper compares them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils import logging

from ..deploy.arguments import ConformalArguments
from ..errors import UserError
from ..files import write_json
from ..metrics import Measured
from ..objectives import OBJECTIVES
from ..pages import environment
from ..pages.selection import png_uri
from ..posthoc.error_predictor import ERROR_PREDICTORS
from ..posthoc.rules import EVERY_CALIBRATOR
from ..scorers import DEFAULT_SCORERS, unfitted_names
from ..settings import check_minimum, known_names, parse_fractions, setting
from .arguments import CorruptionArguments
from .cells import Cell, Method, by_method, is_main_process, make_cells, run_cells
from .comparison_results import ComparedView, as_csv, compare_methods, mean_curves
from .costs import cost_unit
from .experiment import ENSEMBLE, TOKEN_METHODS, VALIDATION, Experiment, Outcome
from .predictions import PredictingExperiment


logger = logging.get_logger(__name__)

#: Beginnings of the names of settings that do not change what is trained, or are a cell's own.
WITHOUT_EFFECT = (
    "output_dir", "seed", "data_seed", "logging", "log_", "report_", "run_name", "hub_", "push_", "dataloader_num",
    "dataloader_persistent", "dataloader_pin", "dataloader_prefetch", "save_", "eval_", "do_", "disable_tqdm",
    "resume_", "ddp_", "per_device_eval", "project", "trackio", "remove_unused", "load_best",
)  # fmt: skip
#: Alternative texts of the figures.
FIGURES = {
    "tradeoff": "Metrics of error against metrics of calibration, a point per method with the interval of its "
    "difference to the baseline; dashed: the Pareto front.",
    "rejection_curves": "Quality of the outputs kept when the least certain ones are rejected, a line per method.",
}
#: The predictions of a method for a view.
Outcomes = Callable[[str], Outcome]


@dataclass
class CompareArguments(CorruptionArguments, ConformalArguments):
    """What to compare."""

    methods: list[str] = setting(
        ["ce", "clue"],
        f"Objectives ({', '.join(OBJECTIVES)}), with settings of their own as in clue:mc_samples=10, and "
        f"of the baseline's models: {', '.join(EVERY_CALIBRATOR)}, {ENSEMBLE}, {', '.join(ERROR_PREDICTORS)}; texts: "
        f"{', '.join(TOKEN_METHODS)}, also of other methods as in clue+auto.",
    )
    seeds: int = setting(3, "Number of seeds of every method: seed, seed + 1 ...")
    alphas: list[str] = setting(
        [], "clue: several weights of the error, each a method of its own; also as --alpha 0.5,0.9."
    )
    scorers: list[str] = setting(list(DEFAULT_SCORERS), f"Texts: scorers to compare: {', '.join(DEFAULT_SCORERS)}.")
    num_samples: int = setting(10, "Texts: number of samples per source, for the scorers that need them.")
    resamples: int = setting(1000, "Number of bootstrap resamples of the intervals.")

    def __post_init__(self) -> None:
        super().__post_init__()
        ConformalArguments.__post_init__(self)
        names = [name for text in self.methods for name in text.split(",") if name]
        if self.alphas:
            weighted = [f"clue:alpha={alpha:g}" for alpha in parse_fractions("alphas", self.alphas)]
            names = [
                name.replace("clue", method, 1)
                for name in names
                for method in (weighted if name.partition("+")[0] == "clue" else ["clue"])
            ]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"`methods` names {repeated[0]!r} twice.")
        #: Methods with the token calibrator that follows them.
        self.after = [(name.partition("+")[0], name.partition("+")[2]) for name in names if "+" in name]
        for name, calibrator in self.after:
            if name not in names or calibrator not in TOKEN_METHODS:
                raise ValueError(
                    f"`methods`: {name}+{calibrator} must be one of the methods and one of {', '.join(TOKEN_METHODS)}."
                )
        self.fitted = [name for name in names if name in (*EVERY_CALIBRATOR, *TOKEN_METHODS, ENSEMBLE)]
        self.error_predictor = next((name for name in names if name in ERROR_PREDICTORS), None)
        others = (*self.fitted, self.error_predictor)
        self.trained = [Method.parse(name) for name in names if name not in others and "+" not in name]
        check_minimum(1, seeds=self.seeds, num_samples=self.num_samples)
        self.scorers = known_names("scorers", self.scorers, unfitted_names())

    def token_calibrators(self, baseline: str) -> list[tuple[str, str]]:
        """Which token calibrator follows which method; one without a method follows the baseline."""
        return [*((baseline, name) for name in self.fitted), *self.after]


class Comparison:
    """
    The methods of a comparison: those that are trained, and those that are fitted to the baseline's models.

    Args:
        arguments ([`CompareArguments`]):
            What to compare.
        experiment ([`Experiment`]):
            What is trained on what; its config holds the settings that all methods share.
        baseline (`str`, *optional*):
            The method that the others are compared with; by default plain training.
    """

    def __init__(self, arguments: CompareArguments, experiment: Experiment, baseline: str | None) -> None:
        self.arguments, self.experiment, self.config = arguments, experiment, experiment.config
        self.baseline = baseline or experiment.plain_objective
        self.output = experiment.folder
        names = [method.name for method in arguments.trained]
        if self.baseline not in names:
            raise UserError(f"The baseline {self.baseline!r} must be among the methods {', '.join(names)}.")
        experiment.check_comparison(arguments)
        seeds = range(self.config.seed, self.config.seed + arguments.seeds)
        tokens = arguments.token_calibrators(self.baseline) if experiment.family == "text" else []
        self.cells = make_cells(
            arguments.trained, seeds, self.output, self.baseline, arguments.error_predictor, tokens
        )
        for method in arguments.trained:
            method.config(self.config, self.config.seed, self.output)  # mistakes show before anything is trained

    def run(self, settings: dict[str, Any]) -> list[ComparedView]:
        """
        Trains what is not finished, and writes the results; settings are those that a comparison must keep. Returns
        what the main process compared.
        """
        if is_main_process():
            check_settings(self.output / "settings.json", settings)
        run_cells(self.cells, self.experiment, self.config)
        return self.write() if is_main_process() else []

    def outcomes(self) -> dict[str, list[Outcomes]]:
        """By the name of a method: for each of its seeds, what it predicts for a view."""
        outcomes: dict[str, list[Outcomes]] = {
            name: [cell.outcome for cell in cells] for name, cells in by_method(self.cells)
        }
        experiment = self.experiment
        if not isinstance(experiment, PredictingExperiment):
            return outcomes
        trained = [cell for cell in self.cells if cell.method.name == self.baseline]
        for name in self.arguments.fitted:
            if name == ENSEMBLE:
                outcomes[f"{ENSEMBLE} of {len(trained)}"] = [
                    lambda view: experiment.ensembled([cell.outcome(view) for cell in trained])
                ]
            else:
                outcomes[f"{self.baseline} + {name}"] = [_calibrated(experiment, name, cell) for cell in trained]
        return outcomes

    def write(self) -> list[ComparedView]:
        """Writes the tables of every view in all their forms, and one page of everything with its figures."""
        views = [self.compare(view) for view in self.experiment.compared_views()]
        for view in views:
            stem = self.output / view.name
            stem.with_name(f"{view.name}.md").write_text(view.markdown())
            stem.with_name(f"{view.name}.tex").write_text(view.latex() + "\n")
            stem.with_name(f"{view.name}.csv").write_text(as_csv(view.compared))
            write_json(stem.with_name(f"{view.name}.json"), view.content())
        write_comparison_page(views, self.output / "comparison.html")
        return views

    def compare(self, view: str) -> ComparedView:
        """The methods on one view."""
        outcomes, experiment = self.outcomes(), self.experiment
        measured = {name: [self._measure(view, name, seed) for seed in seeds] for name, seeds in outcomes.items()}
        for runs in measured.values():
            for run, plain in zip(runs, measured[self.baseline], strict=False):
                run.update(experiment.measure_difference(run, plain))
        tables = experiment.compared_columns(view)
        metrics = list(dict.fromkeys(name for columns in tables.values() for name in columns))
        return ComparedView(
            name=view,
            baseline=self.baseline,
            compared=compare_methods(measured, self.baseline, metrics),
            tables=tables,
            costs=self.costs(),
            curves={
                name: mean_curves([experiment.judged(seed(view)) for seed in seeds])
                for name, seeds in outcomes.items()
            },
            curve_label=experiment.curve_label,
            tradeoffs=experiment.tradeoffs,
            higher=experiment.higher,
            reading=experiment.reading + self._reading_of_conformal(),
            definitions=experiment.definitions,
            seeds=self.arguments.seeds,
            command=experiment.command,
            left_out=experiment.bad_rows.summaries(),
            surroundings=f"{_surroundings([cell.record() for cell in self.cells])}; {self.effort()}",
        )

    def _measure(self, view: str, name: str, outcomes: Outcomes) -> dict[str, Measured]:
        """The metrics of a method with one seed."""
        experiment, resamples = self.experiment, self.arguments.resamples
        measured = experiment.measure(view, outcomes, resamples)
        if self.arguments.conformal and isinstance(experiment, PredictingExperiment):
            predicts_errors = name == f"{self.baseline} + {self.arguments.error_predictor}"
            measured |= experiment.measure_conformal(view, outcomes, resamples, predicts_errors)
        return measured

    def _reading_of_conformal(self) -> str:
        if self.arguments.conformal is None:
            return ""
        return (
            f"\nConformal: {self.arguments.conformal}, fitted on half of the validation rows for a coverage of "
            f"{self.arguments.chosen_coverage:g}; calibrators were fitted on the other half."
        )

    def costs(self) -> dict[str, dict[str, float]]:
        """Time and memory of each trained method relative to the baseline's: medians over the seeds."""
        records = {
            name: [cell.record() for cell in cells]
            for name, cells in by_method([cell for cell in self.cells if type(cell) is Cell])
        }

        def relative(cells: list[dict[str, Any]], key: str) -> float:
            pairs = zip(cells, records[self.baseline], strict=True)
            return float(np.median([cell[key] / plain[key] for cell, plain in pairs]))

        keys = {"time": self.experiment.timed, "memory": "peak_memory"}
        return {
            name: {heading: relative(cells, key) for heading, key in keys.items()} for name, cells in records.items()
        }

    def effort(self) -> str:
        """The time that all trainings took, the plain starts included."""
        starts = [cell.needed(self.experiment, self.config) for cell in self.cells]
        every = {cell.folder: cell for cell in (*self.cells, *starts) if cell}
        minutes = [cell.record()["cost"] / 60 for cell in every.values()]
        return f"{len(minutes)} trainings, {sum(minutes):.1f} {cost_unit()} in all, {max(minutes):.1f} the longest"


def _calibrated(experiment: PredictingExperiment, name: str, cell: Cell) -> Outcomes:
    calibrator = experiment.fit(name, experiment.fitting_rows(cell.outcome(VALIDATION)))
    return lambda view: experiment.calibrated(calibrator, cell.outcome(view))


def _surroundings(records: list[dict[str, Any]]) -> str:
    """When, where and with what the cells were run: the last date, everything else that differs between them."""
    dates = [cell["date"] for cell in records if "date" in cell]
    machines = {cell["machine"]: None for cell in records if "machine" in cell}
    versions = {f"{name} {number}": None for cell in records for name, number in cell.get("versions", {}).items()}
    return "; ".join(filter(None, (max(dates, default=""), ", ".join(machines), ", ".join(versions))))


def check_settings(path: Path, settings: dict[str, Any]) -> None:
    """Stores the settings of a comparison; raises where its folder holds cells that were run with others."""
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
                    "settings to continue, or another output_dir."
                )


def write_comparison_page(views: Sequence[ComparedView], path: str | Path) -> None:
    """
    Writes a comparison as one HTML file: for each view its tables and, with the extra `plots`, its figures, which
    are also written beside it as PNG and SVG.
    """
    environment.write_page(
        path,
        "comparison",
        description=dict(views[0].definitions),
        methods=len(views[0].compared),
        views=views,
        figures={view.name: _figures(view, Path(path).parent) for view in views},
    )


def _figures(view: ComparedView, folder: Path) -> list[tuple[str, str]]:
    """Alternative text and data URI of each figure."""
    try:
        from .plots import plot_comparison
    except ImportError:
        logger.warning("Install the extra `plots` (pip install 'clue-hf[plots]') for figures of the comparison.")
        return []
    return [
        (FIGURES[name], png_uri(next(file for file in files if file.suffix == ".png").read_bytes()))
        for name, files in plot_comparison(view, folder).items()
    ]
