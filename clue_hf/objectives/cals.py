from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .base import Objective


if TYPE_CHECKING:
    from ..trainer import CLUETrainer


class CALS(Objective):
    """
    Class-adaptive label smoothing (Liu et al., CVPR 2023): cross-entropy under the constraint that no logit lies more
    than `margin` below the largest, by an augmented Lagrangian with a multiplier and a penalty weight per class.

    `h_k = (max_j l_j - l_k - margin) / margin`; to the error comes the mean over classes of
    `lam h + rho h^2 / 2` where `lam + rho h >= 0`, else `-lam^2 / (2 rho)`. After each epoch the multipliers follow
    the validation data (the training data where there is none).

    Requirements:
        A classifier. Its multipliers are saved in checkpoints.
    """

    config_fields = ("cals_margin",)
    needs_logits = True
    needs_validation = True

    #: Bounds of the multipliers, growth and largest value of the penalty weights, epochs between their updates.
    BOUNDS, GROWTH, LARGEST, EVERY, PROGRESS = (1e-6, 1e6), 1.2, 10.0, 10, 0.9

    def __init__(self, margin: float = 10.0) -> None:
        self.margin = margin
        self.lam: torch.Tensor | None = None
        self.rho: torch.Tensor | None = None
        self.previous: torch.Tensor | None = None
        self.epochs = self.step = 0

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        self._start(logits)
        return error + self._penalty(self.excess(logits)).mean(-1)

    def excess(self, logits: torch.Tensor) -> torch.Tensor:
        """`h`: how far each logit lies below the largest, in margins, minus 1."""
        return (logits.max(-1, keepdim=True).values - logits - self.margin) / self.margin

    def _penalty(self, excess: torch.Tensor) -> torch.Tensor:
        lam, rho = self.lam.to(excess), self.rho.to(excess)  # type: ignore[union-attr]
        active = lam + rho * excess >= 0
        return torch.where(active, lam * excess + rho * excess**2 / 2, -(lam**2) / (2 * rho))

    def _start(self, logits: torch.Tensor) -> None:
        if self.lam is None:
            self.lam = logits.new_full((logits.shape[-1],), self.BOUNDS[0], dtype=torch.float64)
            self.rho = torch.ones_like(self.lam)

    def on_train_begin(self, trainer: CLUETrainer) -> None:
        """Makes up for the end of an epoch that came after the checkpoint of its last step was written."""
        if trainer.state.global_step > self.step:
            self.on_epoch_end(trainer)

    def on_epoch_end(self, trainer: CLUETrainer) -> None:
        """Moves the multipliers to where the validation data lies, after every whole epoch with this objective."""
        step = trainer.state.global_step
        if not float(trainer.state.epoch or 0).is_integer() or trainer.objective_at(step - 1) is not self:
            return
        data = trainer.eval_dataset if trainer.eval_dataset is not None else trainer.train_dataset
        parts = data.values() if isinstance(data, dict) else [data]
        predicted = [trainer.class_probabilities(part, "Updating the multipliers") for part in parts]
        self.update(torch.cat([torch.from_numpy(part.log_probabilities) for part in predicted]))
        self.step = step

    def update(self, logits: torch.Tensor) -> None:
        """One epoch is over: new multipliers, and every ten epochs new weights, from logits (items, classes)."""
        logits = logits.double()
        self._start(logits)
        excess = self.excess(logits)
        lam, rho = self.lam.to(excess), self.rho.to(excess)  # type: ignore[union-attr]
        self.lam = (lam + rho * excess).clamp(min=0).mean(0).clamp(*self.BOUNDS)
        self.epochs += 1
        if self.epochs % self.EVERY == 0:
            mean = excess.mean(0)
            if self.previous is not None:
                stuck = mean > self.PROGRESS * self.previous.to(mean).clamp(min=0)
                self.rho = torch.where(stuck, (self.GROWTH * rho).clamp(max=self.LARGEST), rho)
            self.previous = mean

    def state_dict(self):
        state = {"lam": self.lam, "rho": self.rho, "previous": self.previous}
        counts = {"epochs": torch.tensor(self.epochs), "step": torch.tensor(self.step)}
        return {**{name: value for name, value in state.items() if value is not None}, **counts}

    def load_state_dict(self, state):
        self.lam, self.rho, self.previous = (state.get(name) for name in ("lam", "rho", "previous"))
        self.epochs, self.step = int(state["epochs"]), int(state["step"])
