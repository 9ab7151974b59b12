"""What a training costs: the time of its steps and epochs, and the largest memory that it took."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from ..trainer import CLUETrainer


#: Writing 5 here makes Linux forget the largest memory of the process so far.
CLEAR = Path("/proc/self/clear_refs")


def reset_peak_memory() -> None:
    """Forgets what came before, where the system can."""
    if torch.accelerator.is_available():
        torch.accelerator.reset_peak_memory_stats()
    elif CLEAR.exists():
        CLEAR.write_text("5")


def peak_memory() -> int:
    """Bytes: of the accelerator, or else of the process."""
    if torch.accelerator.is_available():
        return torch.accelerator.max_memory_allocated()
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        return int(lines["VmHWM"].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@dataclass(frozen=True)
class Times:
    """How long training took: medians over what came after the plain part, where there was one."""

    seconds_per_step: float
    step_cost: float
    epoch_cost: float
    peak_memory: int


def cost_clock() -> float:
    """
    Seconds of the processor; with an accelerator, of the wall. With one thread (OMP_NUM_THREADS=1) other programs
    hardly matter to it; several threads wait for each other busily, which counts.
    """
    return time.perf_counter() if torch.accelerator.is_available() else time.process_time()


def cost_unit() -> str:
    """What sixty of its seconds are called."""
    return "minutes" if torch.accelerator.is_available() else "minutes of processor time"


class StepTimer(TrainerCallback):
    """Times each optimizer step and each whole epoch, and tells plain training from what comes after it."""

    trainer: CLUETrainer

    def __init__(self) -> None:
        #: (wall, cost) of each, by whether it was plain.
        self.steps: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        self.epochs: dict[bool, list[tuple[float, float]]] = {True: [], False: []}

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._epoch, self._epoch_is_plain = _now(), self.trainer.in_plain_phase

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._step, self._step_is_plain = _now(), self.trainer.in_plain_phase

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps[self._step_is_plain].append(_since(self._step))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.epochs[self._epoch_is_plain].append(_since(self._epoch))

    def times(self) -> Times:
        steps, epochs = (durations[False] or durations[True] for durations in (self.steps, self.epochs))
        return Times(
            seconds_per_step=_median(wall for wall, _ in steps),
            step_cost=_median(cost for _, cost in steps),
            epoch_cost=_median(cost for _, cost in epochs),
            peak_memory=peak_memory(),
        )


def _now() -> tuple[float, float]:
    return time.perf_counter(), cost_clock()


def _since(start: tuple[float, float]) -> tuple[float, float]:
    wall, cost = _now()
    return wall - start[0], cost - start[1]


def _median(seconds: Iterable[float]) -> float:
    values = list(seconds)
    return statistics.median(values) if values else float("nan")
