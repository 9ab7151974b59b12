"""`clue-hf train`: from a YAML file and options to trained, reported-on models."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..config import CLUEConfig
from ..data.loading import DataArguments, load_splits
from ..errors import UserError
from ..metrics.quality import QUALITIES
from ..models.arguments import LoraArguments, ModelArguments, check_model
from ..objectives import OBJECTIVES
from .parser import ConfigParser
from .training import Experiment


@dataclass
class RunArguments:
    """What to run beside the training itself."""

    baseline: str | None = field(
        default=None, metadata={"help": "Also train this objective from the same start, and compare: ce."}
    )
    quality: str = field(
        default="bleu", metadata={"help": f"How generated texts are judged: {', '.join(QUALITIES)}, or none."}
    )
    num_processes: int = field(default=1, metadata={"help": "Train on so many processes (or use accelerate launch)."})
    accelerate_config: str | None = field(
        default=None, metadata={"help": "accelerate config file for them: configs/accelerate/*.yaml."}
    )

    def __post_init__(self) -> None:
        if self.quality not in (*QUALITIES, "none"):
            raise ValueError(f"`quality` must be one of {', '.join(QUALITIES)} or none, not {self.quality!r}.")
        if self.baseline is not None and self.baseline not in OBJECTIVES:
            raise ValueError(f"`baseline` must be one of {', '.join(OBJECTIVES)}, not {self.baseline!r}.")
        if self.num_processes < 1:
            raise ValueError(f"`num_processes` must be at least 1, but is {self.num_processes}.")


# set for the processes of a launched command, which must not launch again
LAUNCHED = "CLUE_HF_LAUNCHED"

GROUPS = {
    "Run": ["config", "output_dir", "baseline", "quality", "num_processes", "accelerate_config", "seed",
            "resume_from_checkpoint", "help", "help_all"],
    "Objective": ["objective", "alpha", "level", "clue_gradient", "plain_steps", "plain_epochs", "alpha_warmup_steps",
                  "pe_weight", "focal_gamma", "label_smoothing_factor", "fused_head"],
    "Model": ["model_name_or_path", "tokenizer_name", "model_type", "config_overrides", "tokenizer_vocab_size", "task",
              "dtype"],
    "LoRA": ["use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save",
             "use_rslora", "use_dora"],
    "Data": ["dataset_name", "dataset_config", "dataset_revision", "train_file", "validation_file", "test_file",
             "source_column", "target_column", "source_prefix", "max_source_length", "max_target_length",
             "train_split", "validation_split", "test_split", "split_column", "validation_fraction", "test_fraction",
             "split_seed", "max_train_samples", "max_eval_samples", "report_splits", "preprocessing_num_workers"],
    "Training": ["num_train_epochs", "max_steps", "per_device_train_batch_size", "per_device_eval_batch_size",
                 "gradient_accumulation_steps", "learning_rate", "lr_scheduler_type", "warmup_steps", "optim",
                 "optim_args", "weight_decay", "max_grad_norm", "bf16", "gradient_checkpointing", "torch_compile",
                 "train_sampling_strategy", "use_cpu"],
    "Logging, evaluation, saving": ["logging_steps", "report_to", "eval_strategy", "eval_steps",
                                    "predict_with_generate", "generation_num_beams", "save_strategy", "save_steps",
                                    "save_total_limit", "load_best_model_at_end", "metric_for_best_model",
                                    "push_to_hub", "hub_model_id"],
}  # fmt: skip

DESCRIPTION = """Fine-tunes a language model so that its uncertainty (entropy) matches its error (cross-entropy):
loss = alpha * error + (1 - alpha) * (error - uncertainty)^2. Options may stand in the YAML file, without the dashes;
the command line wins."""

EXAMPLES = """Examples:
  clue-hf train configs/quickstart/t5_phrases.yaml
  clue-hf train configs/t5_small_opus_books.yaml --alpha 0.9 --learning_rate 1e-4
  clue-hf train configs/t5_small_opus_books.yaml --train_file pairs.jsonl.gz --source_column en --target_column fr"""

# where the data and the model come from: what the command line says replaces the other way in the file
DATA_ALTERNATIVES = (
    {"dataset_name", "dataset_config", "dataset_revision"},
    {"train_file", "validation_file", "test_file", "split_column"},
)
ALTERNATIVES = (
    DATA_ALTERNATIVES,
    ({"model_name_or_path"}, {"model_type", "tokenizer_vocab_size"}),
    ({"tokenizer_name"}, {"tokenizer_vocab_size"}),
)

TYPES = (RunArguments, ModelArguments, LoraArguments, DataArguments, CLUEConfig)


def make_parser() -> ConfigParser:
    return ConfigParser(TYPES, GROUPS, ALTERNATIVES, EXAMPLES, prog="clue-hf train", description=DESCRIPTION)


def command(words: Sequence[str]) -> int:
    """Runs `clue-hf train`; returns its exit code."""
    run, model, lora, data, config = make_parser().parse(words)
    _check_directory(config.output_dir)
    if run.num_processes > 1 and LAUNCHED not in os.environ and "WORLD_SIZE" not in os.environ:
        check_model(model)  # mistakes show here, once
        load_splits(data, config.source_column, config.target_column)
        return _launch(words, run)
    with config.main_process_first(desc="loading the data"):
        splits = load_splits(data, config.source_column, config.target_column)
    command_line = f"{_as_typed()} {shlex.join(words)}"
    experiment = Experiment(model, lora, config, splits, run.quality, data.report_splits, command_line)
    experiment.run([run.baseline, config.objective] if run.baseline else [config.objective])
    return 0


def _as_typed() -> str:
    """How this command was started, for the commands it suggests."""
    script = Path(sys.argv[0])
    if script.name != "train.py":
        return "clue-hf train"
    python = Path(sys.executable)
    return f"{python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else 'python'} {script}"


def _launch(words: Sequence[str], run: RunArguments) -> int:
    """Starts the same command on several processes: through accelerate where it has a config file, else torchrun."""
    if run.accelerate_config:
        if not os.path.isfile(run.accelerate_config):
            raise UserError(f"accelerate_config {run.accelerate_config!r} does not exist.")
        launcher = ["accelerate.commands.launch", "--config_file", run.accelerate_config]
        launcher += ["--num_processes", str(run.num_processes)]
    else:
        launcher = ["torch.distributed.run", "--standalone", f"--nproc_per_node={run.num_processes}"]
    environment = {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // run.num_processes)),
        **os.environ,
        LAUNCHED: "1",
    }
    command = [sys.executable, "-m", *launcher, "-m", "clue_hf.cli.main", "train", *words]
    return subprocess.run(command, env=environment, check=False).returncode


def _check_directory(path: str) -> None:
    if os.path.exists(path) and not os.path.isdir(path):
        raise UserError(f"output_dir {path!r} is a file.")
