"""The cells of a comparison: one training each, of a method with a seed, from a start that the methods share."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import platform
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from ..config import CLUEConfig
from ..errors import UserError
from ..files import write_json
from ..objectives import OBJECTIVES
from ..processes import process_state
from ..settings import parse_settings
from ..trainer import CLUETrainer
from ..training.checkpoints import last_whole_checkpoint
from ..training.locks import claimed
from ..versions import package_versions
from .costs import cost_clock
from .experiment import Experiment, Outcome, needs_variance_head
from .predictions import PredictingExperiment
from .text import TextExperiment


#: Seconds between looks at the cells that other commands work on.
PAUSE = 5.0


#: Settings that a method may have of its own: those that leave the plain start as it is, or do without it.
OWN_SETTINGS = (
    "alpha", "level", "clue_gradient", "alpha_warmup_steps", "pe_weight", "focal_gamma", "cals_margin",
    "maxsup_weight", "nll_beta", "label_smoothing_factor", "mc_samples", "plain_mc_samples", "variance_head",
    "plain_epochs", "plain_steps",
)  # fmt: skip


@dataclass(frozen=True)
class Method:
    """
    An objective, with settings of its own: `clue`, `clue:alpha=0.5`, `clue:mc_samples=10:clue_gradient=uncertainty`.
    """

    #: Its name in the table, its name in [`~clue_hf.objectives.OBJECTIVES`], and values of [`CLUEConfig`].
    name: str
    objective: str
    settings: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Method:
        """From its name; raises where there is no such objective or setting."""
        objective, colon, settings_text = text.partition(":")
        if objective not in OBJECTIVES:
            raise ValueError(f"`methods`: there is no objective {objective!r}; there are {', '.join(OBJECTIVES)}.")
        settings = parse_settings("methods", settings_text, ":") if colon else {}
        if not set(settings) <= set(OWN_SETTINGS):
            raise ValueError(
                f"`methods`: {text!r} must be like clue:alpha=0.5, with settings among {', '.join(OWN_SETTINGS)}."
            )
        return cls(text, objective, settings)

    def config(self, config: CLUEConfig, seed: int, folder: Path) -> CLUEConfig:
        """The settings of one training."""
        own = copy.copy(config)
        own.label_smoothing_factor = 0.0
        own.objective, own.seed, own.output_dir, own.push_to_hub = self.objective, seed, str(folder), False
        for name, value in self.settings.items():
            setattr(own, name, value)
        try:
            own.check_objective()
        except (TypeError, ValueError) as error:
            raise UserError(f"The method {self.name!r}: {error}") from error
        return own


@dataclass(frozen=True)
class Cell:
    """One training: a method and a seed."""

    method: Method
    seed: int
    output: Path

    @property
    def folder(self) -> Path:
        name = self.method.name.replace(":", ",").replace(" + ", "+")
        return self.output / "cells" / name / f"seed-{self.seed}"

    @property
    def is_finished(self) -> bool:
        return (self.folder / "cell.json").exists()

    def record(self) -> dict[str, Any]:
        """What is stored about a finished cell: times, memory, date, machine and versions."""
        return json.loads((self.folder / "cell.json").read_text())

    def outcome(self, view: str) -> Outcome:
        """What its model predicted."""
        path = self.folder / f"{view}.npz"
        if not path.exists():
            raise UserError(f"{path} is missing: this cell was run without {view!r}. Delete its folder to redo it.")
        with np.load(path) as arrays:
            return dict(arrays)

    def needed(self, experiment: Experiment, config: CLUEConfig) -> Cell | None:
        """The cell that has to be finished first: the plain part of this seed, trained once for all methods."""
        own = self.method.config(config, self.seed, self.folder)
        if not (own.plain_steps or own.plain_epochs):
            return None
        name = experiment.start_name(own)
        settings = {key: getattr(own, key) for key in ("plain_steps", "plain_epochs")}
        name += "".join(f",{key}={value}" for key, value in settings.items() if value != getattr(config, key))
        settings["variance_head"] = needs_variance_head(own)  # what is resumed must have it
        return PlainStart(Method(name, experiment.plain_objective, settings), self.seed, self.output)

    def run(self, experiment: Experiment, config: CLUEConfig) -> dict[str, Any]:
        """Trains and stores what is predicted; returns what else is to be recorded."""
        own = self.method.config(config, self.seed, self.folder / "model")
        start = self.needed(experiment, config)
        if start:  # with another objective than the plain one
            own.resume_from_checkpoint, own.allow_config_change = str(last_whole_checkpoint(start.folder)), True
        trainer, times = experiment.train(own)
        if is_main_process():
            for checkpoint in (self.folder / "model").glob("checkpoint-*"):
                shutil.rmtree(checkpoint)
        self._store(experiment.views(trainer))
        return dataclasses.asdict(times)

    def _store(self, views: Iterable[tuple[str, dict[str, Any]]]) -> None:
        for view, arrays in views:
            if is_main_process():
                np.savez_compressed(self.folder / f"{view}.npz", **arrays)


@dataclass(frozen=True)
class PlainStart(Cell):
    """Plain training, up to where the methods part."""

    def needed(self, experiment: Experiment, config: CLUEConfig) -> Cell | None:
        return None

    def run(self, experiment: Experiment, config: CLUEConfig) -> dict[str, Any]:
        plain = dataclasses.replace(self.method, settings={}).config(config, self.seed, self.folder)
        for name, value in self.method.settings.items():
            setattr(plain, name, value)
        plain.save_strategy, plain.eval_strategy, plain.load_best_model_at_end = "no", "no", False  # type: ignore[assignment]
        experiment.train(plain, [_StopAfterPlain])
        return {}


class _StopAfterPlain(TrainerCallback):
    """Ends a training with the last plain step, and a checkpoint of it."""

    trainer: CLUETrainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.trainer.in_plain_phase:
            control.should_save = control.should_training_stop = True


@dataclass(frozen=True)
class ErrorPredictorCell(Cell):
    """A second model that predicts the errors of the one of another cell."""

    main: Cell

    def needed(self, experiment: Experiment, config: CLUEConfig) -> Cell | None:
        return self.main

    def run(self, experiment: Experiment, config: CLUEConfig) -> dict[str, Any]:
        assert isinstance(experiment, PredictingExperiment)
        own = self.main.method.config(config, self.seed, self.folder / "model")
        outcomes = {name: self.main.outcome(name) for name, _ in experiment.datasets()}
        with_errors, _ = experiment.predict_errors(outcomes, own, self.folder / "model")
        self._store(with_errors.items())
        return {}


@dataclass(frozen=True)
class TokenCalibratorCell(Cell):
    """The model of another cell with its tokens calibrated after training."""

    main: Cell
    calibrator: str

    def needed(self, experiment: Experiment, config: CLUEConfig) -> Cell | None:
        return self.main

    def run(self, experiment: Experiment, config: CLUEConfig) -> dict[str, Any]:
        assert isinstance(experiment, TextExperiment)
        own = self.main.method.config(config, self.seed, self.main.folder / "model")
        outcomes = {view: self.main.outcome(view) for view in experiment.report_splits}
        self._store(experiment.token_calibrated(self.calibrator, self.main.folder / "model", own, outcomes))
        return {}


def make_cells(
    methods: list[Method],
    seeds: range,
    output: Path,
    baseline: str,
    error_predictor: str | None,
    token_calibrators: Iterable[tuple[str, str]] = (),
) -> list[Cell]:
    """Every method with every seed, seed by seed, so that an interrupted comparison has whole rows early."""
    cells: list[Cell] = []
    for seed in seeds:
        trained = {method.name: Cell(method, seed, output) for method in methods}
        cells += trained.values()
        if error_predictor:
            method = Method(f"{baseline} + {error_predictor}", "mse", {})
            cells.append(ErrorPredictorCell(method, seed, output, trained[baseline]))
        for main, name in token_calibrators:
            cells.append(TokenCalibratorCell(Method(f"{main} + {name}", "", {}), seed, output, trained[main], name))
    return cells


def run_cells(cells: list[Cell], experiment: Experiment, config: CLUEConfig) -> None:
    """
    Trains what is not finished. The same command may be started several times at once: each takes cells that no other
    has taken, and all wait for the last one.
    """
    left = dict(enumerate(cells, 1))
    waits = False
    while left:
        for number, cell in list(left.items()):
            if finish(cell, experiment, config, f"[{number}/{len(cells)}] "):
                del left[number]
                waits = False
        if left:
            if not waits:
                say(f"Waiting for {len(left)} cells that another command is running.")
            waits = True
            time.sleep(PAUSE)


def finish(cell: Cell, experiment: Experiment, config: CLUEConfig, place: str = "    ") -> bool:
    """Runs a cell, and what it needs, where that is not done; `False` where another command works on it."""
    needed = None if cell.is_finished else cell.needed(experiment, config)
    if needed and not finish(needed, experiment, config):
        return False
    with claimed(cell.folder / "lock") as mine:
        if not mine:
            return False
        if not cell.is_finished:
            say(f"{place}{cell.method.name}, seed {cell.seed}")
            start = cost_clock()
            record = {"method": cell.method.name, "seed": cell.seed, **cell.run(experiment, config)}
            if is_main_process():  # it comes last: without it, the cell is run again
                write_json(cell.folder / "cell.json", {**record, "cost": cost_clock() - start, **surroundings()})
        elif place.strip():
            say(f"{place}{cell.method.name}, seed {cell.seed}: already finished")
        process_state().wait_for_everyone()
    return True


def by_method(cells: list[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """The cells of each method, in the order of the seeds."""
    for name in dict.fromkeys(cell.method.name for cell in cells):
        yield name, [cell for cell in cells if cell.method.name == name]


def surroundings() -> dict[str, Any]:
    """When and where a cell was run."""
    accelerator = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} processor cores, {platform.machine()}{accelerator}",
        "versions": package_versions(),
    }


def is_main_process() -> bool:
    return process_state().is_main_process


def say(text: str) -> None:
    if is_main_process():
        print(text, flush=True)
