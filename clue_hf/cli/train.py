"""`clue-hf train`: from a YAML file and options to trained, reported-on models."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..config import CLUEConfig
from ..data.loading import DataArguments
from ..errors import UserError
from ..experiments.arguments import RunArguments
from ..experiments.experiment import Experiment
from ..experiments.make import load_data, make_experiment
from ..hub.escape import without_secret_options
from ..models.arguments import LoraArguments, ModelArguments, check_model
from ..terminal import Result
from ..training.launch import launch, must_launch
from .arguments import DATA_OPTIONS, FILE_TYPES, SPLIT_OPTIONS, TRAINING_TYPES
from .configs import find_config
from .evaluate import make_parser as evaluate_parser
from .parser import ConfigParser


GROUPS = {
    "Run": ["output_dir", "baseline", "quality", "num_processes", "accelerate_config", "seed",
            "resume_from_checkpoint"],
    "Objective": ["objective", "alpha", "level", "clue_gradient", "plain_steps", "plain_epochs", "alpha_warmup_steps",
                  "label_smoothing_factor", "mc_samples", "variance_head", "fused_head"],
    "After training": ["token_calibrator", "calibrator", "ensemble", "error_predictor"],
    "Model": ["model_name_or_path", "tokenizer_name", "model_type", "model_preset", "config_overrides",
              "tokenizer_vocab_size", "task", "dtype"],
    "LoRA": ["use_peft", "lora_r", "lora_alpha", "lora_target_modules"],
    "Data": [*DATA_OPTIONS, "max_target_length", "binary_task", "image_size", "augment", "categorical_columns",
             *SPLIT_OPTIONS, "max_train_samples", "max_eval_samples", "report_splits",
             "merge_references", "on_bad_row"],
    "Training": ["num_train_epochs", "max_steps", "per_device_train_batch_size", "per_device_eval_batch_size",
                 "gradient_accumulation_steps", "learning_rate", "lr_scheduler_type", "warmup_steps", "optim",
                 "optim_args", "weight_decay", "max_grad_norm", "bf16", "gradient_checkpointing", "torch_compile",
                 "train_sampling_strategy", "use_cpu"],
    "Logging, evaluation, saving": ["logging_steps", "report_to", "eval_strategy", "eval_steps",
                                    "predict_with_generate", "generation_num_beams", "eval_uncertainty",
                                    "save_strategy", "save_steps", "save_total_limit", "load_best_model_at_end",
                                    "metric_for_best_model", "push_to_hub", "hub_model_id"],
}  # fmt: skip

DESCRIPTION = """Trains a model so that its uncertainty matches its error: loss = alpha * error + (1 - alpha) *
(error - uncertainty)^2. Language models (cross-entropy and entropy of each token), classifiers of images and texts
(the same of each example), and models that predict numbers (squared error and variance). Options may stand in the YAML
file, without the dashes; the command line wins."""

EXAMPLES = """
clue-hf train quickstart/t5_phrases
clue-hf train t5_small_opus_books --alpha 0.9 --learning_rate 1e-4
clue-hf train t5_small_opus_books --train_file pairs.jsonl.gz --source_column en --target_column fr"""


def make_parser() -> ConfigParser:
    return ConfigParser("clue-hf train", TRAINING_TYPES, DESCRIPTION, EXAMPLES, GROUPS, FILE_TYPES)


def command(argv: Sequence[str]) -> Result | int:
    """Runs `clue-hf train`; returns its result, or the exit code of the processes that it started."""
    run, model, lora, data, config = make_parser().parse(argv)
    objectives = [run.baseline, config.objective] if run.baseline else [config.objective]
    advice = "--resume_from_checkpoint true continues from the last checkpoint."

    def train(experiment: Experiment) -> Result:
        rows = experiment.run(objectives)
        return _result(experiment, rows, objectives, argv) if config.process_index == 0 else Result({})

    return run_experiment("train", argv, (run, model, lora, data, config), train, advice)


def _result(experiment: Experiment, rows: list[dict[str, Any]], objectives: list[str], argv: Sequence[str]) -> Result:
    alone = len(objectives) == 1
    models = {name: str(experiment.config_for(name, alone).output_dir) for name in objectives}
    *baseline, model = models.values()
    evaluate = ["clue-hf", "evaluate", model, *evaluate_parser().passed_on(without_secret_options(argv))]
    return Result(
        {"output_dir": str(experiment.folder), "models": models, "rows": rows},
        experiment.table(rows),
        meaning="\n\n".join(filter(None, [experiment.reading, experiment.advice(rows)])),
        written=f"Written to {experiment.folder}: results.json, results.md, training_curves.png, and the models.",
        next_step=(
            "find out which of its outputs can be trusted",
            shlex.join([*evaluate, *(word for folder in baseline for word in ("--compare", folder))]),
        ),
    )


def run_experiment(
    name: str,
    argv: Sequence[str],
    arguments: tuple[RunArguments, ModelArguments, LoraArguments, DataArguments, CLUEConfig],
    run: Callable[[Experiment], Result],
    after_interruption: str,
) -> Result | int:
    """
    Runs an experiment here, or starts the command again on several processes; returns its result on the main process,
    else an exit code.
    """
    run_arguments, model, lora, data, config = arguments
    output = str(config.output_dir)
    if os.path.exists(output) and not os.path.isdir(output):
        raise UserError(f"output_dir {output!r} is a file.")
    if must_launch(run_arguments.num_processes):
        check_model(model)  # mistakes show here, once
        load_data(model, data, config)
        accelerate = run_arguments.accelerate_config
        accelerate = accelerate and find_config(accelerate, "accelerate_config")
        return launch(name, argv, run_arguments.num_processes, accelerate)
    with config.main_process_first(desc="loading the data"):
        splits = load_data(model, data, config)
    command_line = f"{_as_typed(name)} {shlex.join(without_secret_options(argv))}"
    experiment = make_experiment(model, lora, config, splits, run_arguments, data, command_line)
    try:
        result = run(experiment)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(after_interruption) from None
    return result if config.process_index == 0 else 0


def _as_typed(name: str) -> str:
    """How this command was started, for the commands it suggests."""
    script = Path(sys.argv[0])
    if script.name != "train.py":
        return f"clue-hf {name}"
    python = Path(sys.executable)
    return f"{python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else 'python'} {script}"
