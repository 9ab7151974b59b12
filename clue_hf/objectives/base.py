"""What every training objective is: error and uncertainty of the items in, one loss per item out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch


if TYPE_CHECKING:
    from ..config import CLUEConfig
    from ..trainer import CLUETrainer


class Objective(ABC):
    """
    A training objective: one loss per item, and where it wants one, one loss per sequence.

    The loss of an optimizer step is `sum(item losses) / items + sum(sequence losses) / sequences`, both counted over
    the whole accumulation window and all processes, so that it does not depend on how the batch is laid out.

    A subclass is a small immutable object built by `from_config`; add it to `OBJECTIVES` and `--objective name` finds
    it. One with state of its own changes it in `on_train_begin` and `on_epoch_end`, and hands it over in
    `state_dict()` and `load_state_dict()`: checkpoints hold it.
    """

    #: Fields of the config that it is built from, in the order of its arguments.
    config_fields: ClassVar[tuple[str, ...]] = ()
    #: The weight of the error, where the objective has one: it is logged. Plain training is alpha = 1.
    alpha: float | None = None
    #: Names in [`~clue_hf.functional.ROW_STATISTICS`] of what `item_loss` needs besides error and entropy: it is given
    #: them as keywords. The fused head computes them too.
    row_statistics: ClassVar[tuple[str, ...]] = ()
    #: Set by objectives that need even more than that: the trainer then keeps the logits for `item_loss`.
    needs_logits: ClassVar[bool] = False
    #: Set by objectives of numbers that learn a variance: a new regressor then predicts one.
    needs_variance: ClassVar[bool] = False
    #: Set by objectives that learn from validation data between the epochs.
    needs_validation: ClassVar[bool] = False
    #: Set by objectives that treat rows of the training data differently: `item_loss` is then given their numbers.
    needs_row: ClassVar[bool] = False

    @classmethod
    def from_config(cls, config: CLUEConfig) -> Objective:
        """Builds the objective from the settings of a run."""
        return cls(*(getattr(config, name) for name in cls.config_fields))

    def at(self, step: int) -> Objective:
        """The objective at a global step after the plain phase: a pure function, so that resuming is exact."""
        return self

    @abstractmethod
    def item_loss(
        self,
        error: torch.Tensor,
        uncertainty: torch.Tensor,
        logits: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        Loss of each item. `logits` (items, classes) and `labels` are only given when `needs_logits` is set, each of
        `row_statistics` as a keyword of its name; when `needs_row` is set, another argument `row` as well, which is
        `None` outside of training.
        """

    def sequence_loss(self, mean_error: torch.Tensor, mean_uncertainty: torch.Tensor) -> torch.Tensor | None:
        """Loss of each non-empty sequence from its means, or `None` if the objective has no such term."""
        return None

    @property
    def has_sequence_loss(self) -> bool:
        return type(self).sequence_loss is not Objective.sequence_loss

    def train_sampler(self, trainer: CLUETrainer) -> Any:
        """The order of the training data, or `None` for the usual one."""
        return None

    def on_train_begin(self, trainer: CLUETrainer) -> None:  # noqa: B027
        """Called before the first step, after a checkpoint was loaded."""

    def on_epoch_end(self, trainer: CLUETrainer) -> None:  # noqa: B027
        """Called after each epoch."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What a checkpoint must hold to go on exactly."""
        return {}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:  # noqa: B027
        """Takes it back."""
