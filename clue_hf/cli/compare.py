"""`clue-hf compare`: several methods from the same start on the same data and seeds, as a paper would."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..experiments.cells import Cell
from ..experiments.comparison import CompareArguments, Comparison
from ..experiments.experiment import Experiment
from ..hub.escape import without_secret_options
from ..terminal import Result
from .arguments import FILE_TYPES, TRAINING_TYPES
from .calibrate import make_parser as calibrate_parser
from .parser import ConfigParser
from .train import run_experiment


GROUPS = {
    "Options": ["methods", "seeds", "alphas", "baseline", "scorers", "num_samples", "quality", "resamples",
                "conformal", "coverage", "corruption", "severity", "output_dir", "seed", "report_splits",
                "merge_references", "on_bad_row",
                "num_processes"],
}  # fmt: skip

DESCRIPTION = """Trains and evaluates every method from the same start on the same data and seeds, and writes one
table: means over the seeds with intervals over seeds and examples, and a star where the difference to the baseline is
significant (paired bootstrap, Holm). Plain training at the beginning (plain_epochs, plain_steps) is done once per
seed, for all methods. Finished cells are not repeated: start the same command again to continue, or several times at
once to work on several cells."""

EXAMPLES = """
clue-hf compare quickstart/t5_phrases --methods ce,clue --alpha 0.5,0.9,0.99 --seeds 3
clue-hf compare quickstart/resnet_digits --methods ce,clue,focal,temperature,ensemble --seeds 3
clue-hf compare resnet18_cifar10 --methods ce,clue --alpha 0.5,0.9,0.99
clue-hf compare resnet18_cifar10 --methods ce,clue:mc_samples=1,clue:mc_samples=20
clue-hf compare quickstart/resnet_digits --methods ce,clue,temperature --conformal lac --coverage 0.9"""


def command(argv: Sequence[str]) -> Result | int:
    """Runs `clue-hf compare`; returns its result, or the exit code of the processes that it started."""
    parser = ConfigParser(
        "clue-hf compare", (CompareArguments, *TRAINING_TYPES), DESCRIPTION, EXAMPLES, GROUPS, FILE_TYPES
    )
    arguments, run, model, lora, data, config = parser.parse(_with_alphas(argv))

    def compare(experiment: Experiment) -> Result:
        data_settings = {name: value for name, value in vars(data).items() if name != "bad_rows"}
        settings = {"model": vars(model), "lora": vars(lora), "data": data_settings, "training": config.to_dict()}
        comparison = Comparison(arguments, experiment, run.baseline)
        views = comparison.run({**settings, "run": {"quality": run.quality}})
        page = (comparison.output / "comparison.html").resolve().as_uri()
        return Result(
            {"output_dir": str(comparison.output), "views": {view.name: view.content() for view in views}},
            "\n".join(view.markdown() for view in views).rstrip(),
            written=f"Written to {comparison.output}: comparison.html, and for each table .md, .tex, .csv, .json and "
            f"figures.\nOpen {page} in a browser.",
            next_step=_next_step(comparison, argv),
        )

    advice = "The same command continues where this one stopped."
    return run_experiment("compare", argv, (run, model, lora, data, config), compare, advice)


def _next_step(comparison: Comparison, argv: Sequence[str]) -> tuple[str, str]:
    cells = [cell for cell in comparison.cells if type(cell) is Cell]  # those with a model of their own
    trained = next((cell for cell in cells if cell.method.name != comparison.baseline), cells[0])
    options = calibrate_parser().passed_on(without_secret_options(argv))
    calibrate = ["clue-hf", "calibrate", str(trained.folder / "model"), *options]
    return "find out what the uncertainty of one of the models means", shlex.join(calibrate)


def _with_alphas(argv: Sequence[str]) -> list[str]:
    """`--alpha 0.5,0.9`, more than one weight, is `--alphas 0.5,0.9`."""
    parts = [part for word in argv for part in (word.split("=", 1) if word.startswith("--alpha=") else [word])]
    for at in range(len(parts) - 1):
        if parts[at] == "--alpha" and "," in parts[at + 1]:
            parts[at] = "--alphas"
    return parts
