"""A training in a process of its own, to be killed, stopped, or left without room: `worker.py FOLDER HOW [WHAT]`."""

import resource
import signal
import sys
import time

from reliability.kinds import KINDS, make_kind
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


HOW = {
    "slow": ({"max_steps": 400, "save_strategy": "no"}, Slowly(0.05)),
    "full": ({"max_steps": 6, "save_steps": 2}, Full()),
    "often": ({"max_steps": 80, "save_steps": 1, "save_total_limit": 3, "logging_steps": 1000}, Slowly(0.0)),
}


def train(words):
    folder, how, *others = words
    steps, callback = HOW[how]
    kind = next((word for word in others if word in KINDS), "text")
    trainer = make_kind(kind, folder, per_device_train_batch_size=2, **{"save_strategy": "steps", **steps})
    trainer.add_callback(callback)
    trainer.train(resume_from_checkpoint="resume" in others and bool(checkpoints(folder)))
    trainer.save_model()
    return 0


if __name__ == "__main__":
    sys.exit(run(train, sys.argv[1:]))
