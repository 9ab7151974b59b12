"""A training in a process of its own, to be killed, stopped, or left without room."""

import os
import resource
import signal
import time
from pathlib import Path

from reliability.kinds import KINDS, make_kind
from transformers import TrainerCallback

from clue_hf import CLUETrainer, UncertaintyPipeline
from clue_hf.cli import train as cli
from clue_hf.cli.main import main, run
from clue_hf.evaluation.text.evaluator import UncertaintyEvaluator
from clue_hf.experiments.experiment import Experiment
from clue_hf.predictors.base import RowPredictor
from clue_hf.training import saving
from clue_hf.training.checkpoints import checkpoints


QUICKSTARTS = {"text": "t5_phrases", "image": "resnet_digits", "number": "tabular_diabetes"}


def refuse(size):
    """From now on the system refuses to write files of this size, as it does when the disk is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, size - 1))


class Slowly(TrainerCallback):
    """Says each step, and takes its time."""

    def __init__(self, seconds):
        self.seconds = seconds

    def on_step_end(self, args, state, control, **kwargs):
        print(f"step {state.global_step}", flush=True)
        time.sleep(self.seconds)


class Full(TrainerCallback):
    """After the first checkpoint, or after the training, there is no room for a file like one of the checkpoint."""

    def __init__(self, file, at_the_end=False):
        self.file, self.at_the_end = file, at_the_end

    def on_save(self, args, state, control, **kwargs):
        if not self.at_the_end:
            self.fill(args)

    def on_train_end(self, args, state, control, **kwargs):
        if self.at_the_end:
            self.fill(args)

    def fill(self, args):
        refuse((checkpoints(args.output_dir)[0] / self.file).stat().st_size)


class Killed(TrainerCallback):
    """Is killed in the middle of its third save, just before a function of a module is called."""

    def __init__(self, module, function):
        self.module, self.function = module, function

    def on_train_begin(self, args, state, control, **kwargs):
        plain = getattr(self.module, self.function)

        def die(*arguments, **options):
            if state.global_step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*arguments, **options)

        setattr(self.module, self.function, die)


SAVES = {"max_steps": 6, "save_steps": 2}
SAVES_ALL = {"max_steps": 6, "save_steps": 1, "save_total_limit": 1}
HOW = {
    "slow": ({"max_steps": 400, "save_strategy": "no"}, Slowly(0.05)),
    "full for weights": (SAVES, Full("model.safetensors")),
    "full for the optimizer": (SAVES, Full("optimizer.pt")),
    "full at the end": (SAVES, Full("model.safetensors", at_the_end=True)),
    "killed before the optimizer": (SAVES_ALL, Killed(CLUETrainer, "_save_optimizer_and_scheduler")),
    "killed before the manifest": (SAVES_ALL, Killed(saving, "write_manifest")),
    "killed before rotation": (SAVES_ALL, Killed(saving, "rotate")),
    "often": ({"max_steps": 80, "save_steps": 1, "save_total_limit": 3, "logging_steps": 1000}, Slowly(0.0)),
}


def train(words):
    folder, how, *others = words
    kind = next((word for word in others if word in KINDS), "text")
    if how == "full for results":
        return report(folder, kind)
    steps, callback = HOW[how]
    trainer = make_kind(kind, folder, per_device_train_batch_size=2, **{"save_strategy": "steps", **steps})
    trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint="resume" in others and bool(checkpoints(folder)))
    trainer.save_model()
    return 0


def report(folder, kind):
    """The whole command, but when it has its results there is no room for them."""
    plain = Experiment._write

    def write(self, *arguments):
        refuse(1000)
        plain(self, *arguments)

    Experiment._write = write
    config = Path(__file__).parents[2] / f"configs/quickstart/{QUICKSTARTS[kind]}.yaml"
    settings = {
        "output_dir": folder, "max_steps": 2, "save_strategy": "steps", "save_steps": 1, "eval_strategy": "no",
        "max_train_samples": 64, "max_eval_samples": 8, "report_splits": "test", "use_cpu": "true",
    }  # fmt: skip
    options = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return cli.command([str(config), *options, *(["--quality", "none"] if kind == "text" else [])])


def work(folder, how, *others):
    """`others` may name a kind, and say that the training is resumed; the exit code."""
    return run(train, [str(folder), how, *others])


def slow(method, seconds):
    """Says that it has a batch, and takes its time over it."""

    def slowly(*arguments, **options):
        print("batch", flush=True)
        time.sleep(seconds)
        return method(*arguments, **options)

    return slowly


def evaluate_slowly(seconds, words):
    """`clue-hf evaluate` with slow batches."""
    UncertaintyEvaluator._judged = slow(UncertaintyEvaluator._judged, seconds)
    RowPredictor.run = slow(RowPredictor.run, seconds)
    return main(words)


def predict_slowly(seconds, words):
    """`clue-hf predict` with slow batches."""
    UncertaintyPipeline.__call__ = slow(UncertaintyPipeline.__call__, seconds)
    return main(words)


def run_on_a_full_disk(size, words):
    """`clue-hf`, where the system refuses to write files of this size."""
    refuse(size)
    return main(words)
