"""`clue-hf compare`: several methods from the same start on the same data and seeds, as a paper would."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..config import CLUEConfig
from ..data.loading import DataArguments
from ..errors import UserError
from ..evaluation.comparison import as_csv, as_dict, as_latex, as_markdown, compare_methods
from ..models.arguments import LoraArguments, ModelArguments
from ..objectives import OBJECTIVES
from ..posthoc import CALIBRATORS
from .arguments import EvaluateArguments, RunArguments
from .classifying import ClassificationExperiment
from .parser import ConfigParser
from .train import ALTERNATIVES, load_data, make_experiment


#: The mean of the probabilities of the baseline's seeds.
ENSEMBLE = "ensemble"


@dataclass
class CompareArguments:
    """What to compare."""

    methods: list[str] = field(
        default_factory=lambda: ["ce", "clue"],
        metadata={
            "help": f"Objectives ({', '.join(OBJECTIVES)}), and of the baseline's models: {', '.join(CALIBRATORS)}, "
            f"{ENSEMBLE}."
        },
    )
    seeds: int = field(default=3, metadata={"help": "Seeds of every method: seed, seed + 1 ..."})
    alphas: list[float] = field(
        default_factory=list, metadata={"help": "clue: several weights of the error, each a method of its own."}
    )
    resamples: int = field(default=1000, metadata={"help": "Bootstrap resamples of the intervals."})

    def __post_init__(self) -> None:
        self.methods = [name for word in self.methods for name in word.split(",") if name]
        known = (*OBJECTIVES, *CALIBRATORS, ENSEMBLE)
        for name in self.methods:
            if name not in known:
                raise ValueError(f"`methods` must be among {', '.join(known)}, not {name!r}.")
        if self.seeds < 1:
            raise ValueError(f"`seeds` must be at least 1, but is {self.seeds}.")


TYPES = (CompareArguments, RunArguments, ModelArguments, LoraArguments, DataArguments, CLUEConfig)
GROUPS = {
    "Options": ["config", "methods", "seeds", "alphas", "baseline", "resamples", "output_dir", "seed", "report_splits",
                "help", "help_all"],
}  # fmt: skip

DESCRIPTION = """Trains and evaluates every method from the same start on the same data and seeds, and writes one
table: means over the seeds with intervals over seeds and examples, and a star where the difference to the baseline is
significant (paired bootstrap, Holm). What is finished is not repeated: start the same command again to go on."""

EXAMPLES = """Examples:
  clue-hf compare configs/quickstart/resnet_digits.yaml --methods ce,clue,focal,temperature,ensemble --seeds 3
  clue-hf compare configs/resnet18_cifar10.yaml --methods ce,clue --alphas 0.5 0.9 0.99"""


@dataclass(frozen=True)
class Cell:
    """One training: a method with its settings and a seed."""

    method: str
    objective: str
    alpha: float | None
    seed: int

    def folder(self, output: Path) -> Path:
        return output / "cells" / self.method / f"seed-{self.seed}"


def command(words: Sequence[str]) -> int:
    """Runs `clue-hf compare`; returns its exit code."""
    parser = ConfigParser(
        TYPES, GROUPS, ALTERNATIVES, EXAMPLES, (EvaluateArguments,), prog="clue-hf compare", description=DESCRIPTION
    )
    arguments, run, model, lora, data, config = parser.parse(words)
    baseline = run.baseline or "ce"
    if baseline not in arguments.methods:
        raise UserError(f"The baseline {baseline!r} must be among the methods {', '.join(arguments.methods)}.")
    splits = load_data(data, config)
    line = f"clue-hf compare {shlex.join(words)}"
    experiment = make_experiment(model, lora, config, splits, run, data, line)
    if not isinstance(experiment, ClassificationExperiment):
        raise UserError("`clue-hf compare` compares classifiers so far.")
    output = Path(str(config.output_dir))
    cells = list(_cells(arguments, config))
    for number, cell in enumerate(cells, 1):
        if (cell.folder(output) / "cell.json").exists():
            print(f"[{number}/{len(cells)}] {cell.method}, seed {cell.seed}: finished before")
            continue
        print(f"[{number}/{len(cells)}] {cell.method}, seed {cell.seed}", flush=True)
        _run(cell, experiment, config, output, data.report_splits)
    for split in data.report_splits:
        _summarize(arguments, experiment, cells, output, split, baseline, line)
    return 0


def _cells(arguments: CompareArguments, config: CLUEConfig) -> Iterator[Cell]:
    for seed in range(config.seed, config.seed + arguments.seeds):
        for name in arguments.methods:
            if name not in OBJECTIVES:
                continue
            if name == "clue" and arguments.alphas:
                for alpha in arguments.alphas:
                    yield Cell(f"clue-{alpha:g}", name, alpha, seed)
            else:
                yield Cell(name, name, None, seed)


def _run(
    cell: Cell, experiment: ClassificationExperiment, config: CLUEConfig, output: Path, splits: list[str]
) -> None:
    """Trains one cell and keeps what it predicts. `cell.json` comes last: without it, the cell is done again."""
    folder = cell.folder(output)
    folder.mkdir(parents=True, exist_ok=True)
    settings = copy.copy(config)
    settings.seed, settings.objective, settings.output_dir = cell.seed, cell.objective, str(folder / "model")
    if cell.alpha is not None:
        settings.alpha = cell.alpha
    settings.check_objective()
    trainer, seconds = experiment.train(settings)
    for split in ("validation", *splits):
        arrays: dict[str, Any] = experiment.outcome(trainer, split)
        np.savez_compressed(folder / f"{split}.npz", **arrays)
    for checkpoint in (folder / "model").glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    temporary = folder / "cell.tmp"
    temporary.write_text(json.dumps({**dataclasses.asdict(cell), "seconds_per_step": seconds}, indent=2) + "\n")
    os.replace(temporary, folder / "cell.json")


def _summarize(
    arguments: CompareArguments,
    experiment: ClassificationExperiment,
    cells: list[Cell],
    output: Path,
    split: str,
    baseline: str,
    line: str,
) -> None:
    """The table of one split, in all its forms."""
    outcomes: dict[str, list[dict[str, np.ndarray]]] = {}
    seconds: dict[str, list[float]] = {}
    for cell in cells:
        outcomes.setdefault(cell.method, []).append(_outcome(cell, output, split))
        told = json.loads((cell.folder(output) / "cell.json").read_text())
        seconds.setdefault(cell.method, []).append(told["seconds_per_step"])
    trained = [cell for cell in cells if cell.method == baseline]
    for name in arguments.methods:
        if name in CALIBRATORS:
            outcomes[f"{baseline} + {name}"] = [_calibrated(name, cell, output, split) for cell in trained]
        elif name == ENSEMBLE:
            members = outcomes[baseline]
            mean = np.log(np.mean([np.exp(member["log_probabilities"]) for member in members], axis=0))
            outcomes[f"{ENSEMBLE} of {len(members)}"] = [{**members[0], "log_probabilities": mean}]
    measured = {
        name: [experiment.measure(outcome, arguments.resamples) for outcome in found]
        for name, found in outcomes.items()
    }
    compared = compare_methods(measured, baseline, list(experiment.headings))
    ratios = {name: float(np.median(np.divide(times, seconds[baseline]))) for name, times in seconds.items()}
    times = "\n".join(f"- {name}: {ratio:.2f}x" for name, ratio in ratios.items())
    table = as_markdown(compared, experiment.headings)
    text = (
        f"# {split}\n\nMade by `{line}`.\n\n{table}\n\n{experiment.reading}\n"
        f"Means over {arguments.seeds} seeds with 95 % intervals over seeds and examples; *: differs from {baseline} "
        "(paired bootstrap, Holm, p < 0.05).\n\n"
        f"Time per step relative to {baseline}:\n\n{times}\n"
    )
    print(f"\n{text}")
    (output / f"{split}.md").write_text(text)
    (output / f"{split}.tex").write_text(as_latex(compared, experiment.headings) + "\n")
    (output / f"{split}.csv").write_text(as_csv(compared))
    content = {"command": line, "baseline": baseline, "time_per_step": ratios, "methods": as_dict(compared)}
    (output / f"{split}.json").write_text(json.dumps(content, indent=2) + "\n")


def _outcome(cell: Cell, output: Path, split: str) -> dict[str, np.ndarray]:
    path = cell.folder(output) / f"{split}.npz"
    if not path.exists():
        raise UserError(
            f"{path} is missing: this cell was run without the split {split!r}. Delete its folder to redo it."
        )
    with np.load(path) as found:
        return dict(found)


def _calibrated(name: str, cell: Cell, output: Path, split: str) -> dict[str, np.ndarray]:
    """What a trained cell predicts after a calibrator that was fitted on its validation data."""
    validation, found = _outcome(cell, output, "validation"), _outcome(cell, output, split)
    calibrate = CALIBRATORS[name].fit(np.exp(validation["log_probabilities"]), validation["labels"])
    with np.errstate(divide="ignore"):
        return {**found, "log_probabilities": np.log(calibrate(np.exp(found["log_probabilities"])))}
