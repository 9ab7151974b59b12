"""`clue-hf compare`: several methods from the same start on the same data and seeds, as a paper would."""

from __future__ import annotations

from collections.abc import Sequence

from ..experiments.comparison import CompareArguments, Comparison
from ..experiments.experiment import Experiment
from .arguments import FILE_TYPES, TRAINING_TYPES
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
clue-hf compare configs/quickstart/t5_phrases.yaml --methods ce,clue --alpha 0.5,0.9,0.99 --seeds 3
clue-hf compare configs/quickstart/resnet_digits.yaml --methods ce,clue,focal,temperature,ensemble --seeds 3
clue-hf compare configs/resnet18_cifar10.yaml --methods ce,clue --alpha 0.5,0.9,0.99
clue-hf compare configs/resnet18_cifar10.yaml --methods ce,clue:mc_samples=1,clue:mc_samples=20
clue-hf compare configs/quickstart/resnet_digits.yaml --methods ce,clue,temperature --conformal lac --coverage 0.9"""


def command(argv: Sequence[str]) -> int:
    """Runs `clue-hf compare`; returns its exit code."""
    parser = ConfigParser(
        "clue-hf compare", (CompareArguments, *TRAINING_TYPES), DESCRIPTION, EXAMPLES, GROUPS, FILE_TYPES
    )
    arguments, run, model, lora, data, config = parser.parse(_with_alphas(argv))

    def compare(experiment: Experiment) -> None:
        data_settings = {name: value for name, value in vars(data).items() if name != "bad_rows"}
        settings = {"model": vars(model), "lora": vars(lora), "data": data_settings, "training": config.to_dict()}
        Comparison(arguments, experiment, run.baseline).run({**settings, "run": {"quality": run.quality}})

    advice = "The same command continues where this one stopped."
    return run_experiment("compare", argv, (run, model, lora, data, config), compare, advice)


def _with_alphas(argv: Sequence[str]) -> list[str]:
    """`--alpha 0.5,0.9`, more than one weight, is `--alphas 0.5,0.9`."""
    parts = [part for word in argv for part in (word.split("=", 1) if word.startswith("--alpha=") else [word])]
    for at in range(len(parts) - 1):
        if parts[at] == "--alpha" and "," in parts[at + 1]:
            parts[at] = "--alphas"
    return parts
