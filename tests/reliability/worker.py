"""A training in a process of its own, to be killed, stopped, or left without room: `worker.py FOLDER KIND`."""

import resource
import signal
import sys
import time

from helpers import make_data, make_model, make_trainer
from transformers import TrainerCallback

from clue_hf.checkpoints import checkpoints
from clue_hf.cli.main import run


class Slowly(TrainerCallback):
    """Says each step, and takes its time."""

    def __init__(self, seconds):
        self.seconds = seconds

    def on_step_end(self, args, state, control, **kwargs):
        print(f"step {state.global_step}", flush=True)
        time.sleep(self.seconds)


class Full(TrainerCallback):
    """After the first checkpoint the system refuses to write files as large as the weights."""

    def on_save(self, args, state, control, **kwargs):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))


KINDS = {
    "slow": ({"max_steps": 400, "save_strategy": "no"}, Slowly(0.05)),
    "full": ({"max_steps": 6, "save_steps": 2}, Full()),
    "often": ({"max_steps": 80, "save_steps": 1, "save_total_limit": 3, "logging_steps": 1000}, Slowly(0.0)),
}


def train(words):
    folder, kind, *others = words
    steps, callback = KINDS[kind]
    trainer = make_trainer(
        make_model("t5", dropout=True), folder, make_data("t5"), callbacks=[callback], per_device_train_batch_size=2,
        **{"save_strategy": "steps", **steps},
    )  # fmt: skip
    trainer.train(resume_from_checkpoint="resume" in others and bool(checkpoints(folder)))
    trainer.save_model()
    return 0


if __name__ == "__main__":
    sys.exit(run(train, sys.argv[1:]))
