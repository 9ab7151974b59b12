"""The cells of a comparison: one training each, of a method with a seed, from a start that the methods share."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from ..config import CLUEConfig
from ..errors import UserError
from ..objectives import OBJECTIVES
from ..trainer import CLUETrainer
from .predicting import PredictingExperiment
from .training import Experiment


#: Settings that a method may have of its own: those that leave the plain start as it is, or do without it.
OWN_SETTINGS = (
    "alpha", "level", "clue_gradient", "alpha_warmup_steps", "pe_weight", "focal_gamma", "cals_margin",
    "label_smoothing_factor", "mc_samples", "plain_mc_samples", "variance_head", "plain_epochs", "plain_steps",
)  # fmt: skip


@dataclass(frozen=True)
class Method:
    """
    An objective, with settings of its own: `clue`, `clue:alpha=0.5`, `clue:mc_samples=10:clue_gradient=uncertainty`.

    Args:
        name (`str`):
            What the table calls it.
        objective (`str`):
            A name in [`~clue_hf.objectives.OBJECTIVES`].
        settings (`dict`):
            Values of [`CLUEConfig`].
    """

    name: str
    objective: str
    settings: dict[str, Any]

    @classmethod
    def parse(cls, text: str) -> Method:
        """From its name; raises where there is no such objective or setting."""
        objective, *assignments = text.split(":")
        if objective not in OBJECTIVES:
            raise ValueError(f"`methods`: there is no objective {objective!r}; there are {', '.join(OBJECTIVES)}.")
        settings = {}
        for assignment in assignments:
            setting, equals, value = assignment.partition("=")
            if not equals or setting not in OWN_SETTINGS:
                raise ValueError(
                    f"`methods`: {text!r} must be like clue:alpha=0.5, with settings among {', '.join(OWN_SETTINGS)}."
                )
            settings[setting] = yaml.safe_load(value)
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

    def told(self) -> dict[str, Any]:
        """What was kept about a finished cell."""
        return json.loads((self.folder / "cell.json").read_text())

    def outcome(self, view: str) -> dict[str, np.ndarray]:
        """What its model predicted."""
        path = self.folder / f"{view}.npz"
        if not path.exists():
            raise UserError(f"{path} is missing: this cell was run without {view!r}. Delete its folder to redo it.")
        with np.load(path) as found:
            return dict(found)

    def run(self, experiment: Experiment, config: CLUEConfig) -> None:
        """Trains and keeps what is predicted. `cell.json` comes last: without it, the cell is done again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        own = self.method.config(config, self.seed, self.folder / "model")
        own.resume_from_checkpoint = self._start(experiment, config, own)
        trainer, times = experiment.train(own)
        _remove_checkpoints(self.folder / "model")
        self._keep(experiment.views(trainer), dataclasses.asdict(times))

    def _keep(self, views: Iterable[tuple[str, dict[str, np.ndarray]]], told: dict[str, Any]) -> None:
        for view, arrays in views:
            kept: dict[str, Any] = arrays
            np.savez_compressed(self.folder / f"{view}.npz", **kept)
        _write({"method": self.method.name, "seed": self.seed, **told}, self.folder / "cell.json")

    def _start(self, experiment: Experiment, config: CLUEConfig, own: CLUEConfig) -> str | None:
        """The checkpoint after the plain part of this seed, which is trained once for all methods."""
        if not (own.plain_steps or own.plain_epochs):
            return None
        folder = self.output / "cells" / experiment.start_name(own) / f"seed-{self.seed}"
        if not (folder / "cell.json").exists():
            print(f"    plain training first, for all methods of seed {self.seed}", flush=True)
            plain = Method.parse(experiment.plain_objective).config(config, self.seed, folder)
            plain.variance_head = own.variance_head or own.objective == "nll"  # what is resumed must have it
            plain.save_strategy, plain.eval_strategy, plain.load_best_model_at_end = "no", "no", False  # type: ignore[assignment]
            trainer, _ = experiment.train(plain, [_StopAfterPlain])
            del trainer
            _write({"method": folder.parent.name, "seed": self.seed}, folder / "cell.json")
        return get_last_checkpoint(str(folder))


class _StopAfterPlain(TrainerCallback):
    """Ends a training with the last plain step, and a checkpoint of it."""

    trainer: CLUETrainer

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self.trainer.in_plain_phase:
            control.should_save = control.should_training_stop = True


@dataclass(frozen=True)
class ErrorPredictorCell(Cell):
    """
    A second model that predicts the errors of the one of another cell.

    Args:
        main (`Cell`):
            That cell.
    """

    main: Cell

    def run(self, experiment: Experiment, config: CLUEConfig) -> None:
        assert isinstance(experiment, PredictingExperiment)
        self.folder.mkdir(parents=True, exist_ok=True)
        own = self.main.method.config(config, self.seed, self.folder / "model")
        found = {name: self.main.outcome(name) for name, _ in experiment.datasets()}
        second, _ = experiment.predict_errors(found, own, self.folder / "model")
        self._keep(second.items(), {})


def make_cells(
    methods: list[Method], seeds: range, output: Path, baseline: str, error_predictor: str | None
) -> list[Cell]:
    """Every method with every seed, seed by seed, so that an interrupted comparison has whole rows early."""
    cells: list[Cell] = []
    for seed in seeds:
        of_seed = {method.name: Cell(method, seed, output) for method in methods}
        cells += of_seed.values()
        if error_predictor:
            method = Method(f"{baseline} + {error_predictor}", "mse", {})
            cells.append(ErrorPredictorCell(method, seed, output, of_seed[baseline]))
    return cells


def run_cells(cells: list[Cell], experiment: Experiment, config: CLUEConfig) -> None:
    """Trains what is not finished."""
    for number, cell in enumerate(cells, 1):
        done = ": finished before" if cell.is_finished else ""
        print(f"[{number}/{len(cells)}] {cell.method.name}, seed {cell.seed}{done}", flush=True)
        if not cell.is_finished:
            cell.run(experiment, config)


def by_method(cells: list[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    """The cells of each method, in the order of the seeds."""
    for name in dict.fromkeys(cell.method.name for cell in cells):
        yield name, [cell for cell in cells if cell.method.name == name]


def _remove_checkpoints(folder: Path) -> None:
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


def _write(content: dict[str, Any], path: Path) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(temporary, path)
