"""What watches over a training: steps that are not finite, and a request to stop."""

from __future__ import annotations

import math
import signal
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils import get_total_norm
from transformers import TrainerCallback
from transformers.utils import logging

from ..errors import UserError
from .signals import taking


if TYPE_CHECKING:
    from ..trainer import CLUETrainer

logger = logging.get_logger(__name__)

#: The exit code of a training that was asked to end (SIGTERM), as shells give it.
TERMINATED = 128 + signal.SIGTERM


class FiniteGuard(TrainerCallback):
    """
    Skips optimizer steps with non-finite gradients, counts them (`nonfinite_steps` in the logs), and stops training
    after `limit` consecutive ones. Steps that the float16 scaler skips count too. The running statistics of BatchNorm
    are restored after a skipped step: they would never be finite again.
    """

    def __init__(self, trainer: CLUETrainer, limit: int) -> None:
        self.trainer, self.limit = trainer, limit
        self.in_a_row = self.new = 0
        self.statistics: list[torch.Tensor] = []
        self.before: list[torch.Tensor] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        norms = (module for module in self.trainer.model.modules() if isinstance(module, _NormBase))
        self.statistics = [statistic for norm in norms for statistic in norm.buffers(recurse=False)]

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.before = [statistic.clone() for statistic in self.statistics]

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.trainer.accelerator.scaler is not None:
            return  # it has looked already, and skips the step itself
        what = self._not_finite()
        # each process has statistics of its own
        if self.statistics and _on_any_process(self.trainer, what is not None):
            what = what or "running statistics"
        if what is None:
            self.in_a_row = 0
            return
        self.trainer.model.zero_grad(set_to_none=True)  # what has no gradient is not stepped
        self._skipped(what)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.trainer.accelerator.scaler is not None:
            if self.trainer.accelerator.optimizer_step_was_skipped:
                self._skipped("gradients")
            else:
                self.in_a_row = 0

    def _not_finite(self) -> str | None:
        """What is not finite in the current step: its gradients, or the running statistics; `None` if all is."""
        gradients = [weight.grad for weight in self.trainer.model.parameters() if weight.grad is not None]
        if gradients and not bool(get_total_norm(gradients).isfinite()):
            return "gradients"
        # a variance may overflow where the gradients do not: what is divided by infinity is 0
        running = [statistic for statistic in self.statistics if statistic.is_floating_point()]
        if running and not bool(get_total_norm(running, math.inf).isfinite()):
            return "running statistics"
        return None

    def _skipped(self, what: str) -> None:
        for statistic, before in zip(self.statistics, self.before, strict=True):
            statistic.copy_(before)
        self.new += 1
        self.in_a_row += 1
        step = self.trainer.state.global_step + 1
        if self.in_a_row == 1:
            logger.warning(f"The {what} of step {step} are not finite: the step is skipped.")
        if self.in_a_row >= self.limit:
            raise UserError(
                f"The {what} of {self.in_a_row} consecutive steps, up to step {step}, are not finite. "
                f"{self._advice()} The last checkpoint is in {self.trainer.args.output_dir}."
            )

    def _advice(self) -> str:
        if self.trainer.accelerator.mixed_precision == "fp16" or self.trainer.model.dtype == torch.float16:
            return "float16 overflows (T5 is known for it): use bf16, or float32 (leave out fp16)."
        return (
            "Lower learning_rate, clip gradients (max_grad_norm), start with plain steps (plain_steps), and check the "
            "data for extreme values."
        )

    def take(self) -> dict[str, int]:
        """What there is to log since the last time."""
        count, self.new = self.new, 0
        return {"nonfinite_steps": count} if count else {}


class Termination(TrainerCallback):
    """On SIGTERM, stops training after the current step and saves a checkpoint. A second signal changes nothing."""

    def __init__(self, trainer: CLUETrainer) -> None:
        self.trainer, self.asked, self.ended = trainer, False, False

    def watching(self) -> AbstractContextManager[None]:
        """Takes the signal meanwhile."""
        return taking([signal.SIGTERM], self._ask, lambda: self.ended)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if _on_any_process(self.trainer, self.asked):
            self.ended = control.should_save = control.should_training_stop = True


def _on_any_process(trainer: CLUETrainer, condition: bool) -> bool:
    """Whether a condition holds on any process: all must do the same at the same step."""
    if trainer.args.world_size <= 1:
        return condition
    count = torch.tensor(int(condition), device=trainer.args.device)
    return bool(trainer.accelerator.reduce(count, "sum") > 0)
