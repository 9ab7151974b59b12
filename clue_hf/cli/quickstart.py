"""`clue-hf quickstart`: a tiny model, offline, from training to a calibrated model that can abstain."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ..terminal import Result
from . import calibrate, evaluate, train
from .arguments import FILE_TYPES, TRAINING_TYPES
from .parser import ConfigParser


CONFIG = "quickstart/t5_phrases"
OPTIONS = ["output_dir", "alpha", "max_steps", "max_train_samples", "max_eval_samples", "seed"]

DESCRIPTION = """Runs three commands on a tiny T5 and on data that come with clue-hf: no network, a few minutes on two
cores. train: with plain cross-entropy and with CLUE from the same start; evaluate: which outputs can be trusted, in
comparison with plain training; calibrate: when to abstain. CONFIG may name another one: quickstart/resnet_digits.
Takes the options of clue-hf train; evaluate and calibrate get those that they have, too."""

EXAMPLES = """
clue-hf quickstart
clue-hf quickstart --max_steps 100 --max_eval_samples 200 --output_dir out/quickstart-small"""


def command(argv: Sequence[str]) -> Result | int:
    """Runs `clue-hf quickstart`; returns its result, or the exit code of a command that failed."""
    parser = ConfigParser(
        "clue-hf quickstart", TRAINING_TYPES, DESCRIPTION, EXAMPLES, {"Options": OPTIONS}, FILE_TYPES
    )
    has_config = "--config" in argv or (len(argv) > 0 and not argv[0].startswith("-"))
    options = list(argv) if has_config else [CONFIG, *argv]
    run, *_, config = parser.parse(options)
    folder = model = str(config.output_dir)
    compared = ["--report_dir", f"{folder}/uncertainty"]
    if run.baseline:
        model = f"{folder}/{config.objective}"
        compared += ["--compare", f"{folder}/{run.baseline}"]
    steps: dict[str, tuple[Any, list[str]]] = {
        "train": (train, options),
        "evaluate": (evaluate, [model, *evaluate.make_parser().passed_on(options), *compared]),
        "calibrate": (calibrate, [model, *calibrate.make_parser().passed_on(options)]),
    }
    results: dict[str, Result] = {}
    for number, (name, (module, words)) in enumerate(steps.items(), 1):
        print(f"\nStep {number} of {len(steps)}: clue-hf {shlex.join([name, *words])}", flush=True)
        result = module.command(words)
        if isinstance(result, int):
            return result
        results[name] = result
        if number < len(steps):
            print(f"\n{result.text()}", flush=True)
    last = results["calibrate"]
    return Result(
        {name: result.data for name, result in results.items()},
        "\n\n".join(result.table for result in results.values()),
        summary=last.summary,
        meaning=last.meaning,
        written=last.written,
        next_step=("try it in a browser (needs pip install 'clue-hf[demo]')", shlex.join(["clue-hf", "demo", model])),
    )
