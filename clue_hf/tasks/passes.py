"""What classification and regression share: several stochastic passes of a model over one batch."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from ..errors import UserError
from ..models.ensemble import member_logits
from ..models.kind import unwrap
from ..models.mc_dropout import active_dropout, has_dropout
from .base import Task


if TYPE_CHECKING:
    from ..config import CLUEConfig


@dataclass(eq=False)
class PassTask(Task):
    """
    Base of the tasks whose prediction is made of stochastic passes.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            The model.
        mc_samples (`int`, *optional*, defaults to 0):
            Number of MC-dropout passes to average, in training and in evaluation; 0 for one pass, without dropout in
            evaluation.
        seed (`int`, *optional*, defaults to 0):
            Seed of the masks in evaluation, which all rows of all batches share.
        data:
            What prepares and collates raw examples.
        plain_mc_samples (`int`, *optional*):
            Number of passes in training steps whose loss is the error alone.
    """

    #: What to do where a batch has no labels.
    labels_advice: ClassVar[str]

    model: InitVar[nn.Module]
    mc_samples: int = 0
    seed: int = 0
    data: Any = None
    plain_mc_samples: int | None = None

    def __post_init__(self, model: nn.Module) -> None:
        if self.mc_samples and not has_dropout(model):
            raise UserError(
                f"mc_samples={self.mc_samples} needs dropout, and the model has none: its passes would all be the "
                "same. Set `dropout` above 0, or mc_samples=0."
            )

    def prepare(self, dataset: Any, config: CLUEConfig, name: str, training: bool = False) -> Any:
        left_alone = self.has_own_collator and not config.remove_unused_columns
        return dataset if self.data is None or left_alone else self.data.prepare(dataset, config, name)

    def settle_model(self, model: Any) -> None:
        if self.data is not None:
            self.data.settle_config(unwrap(model).config)

    def collator(self, config: CLUEConfig) -> Any:
        return None if self.data is None else self.data.inputs.collator(config)

    def train_collator(self, config: CLUEConfig) -> Any:
        return None if self.data is None else self.data.inputs.train_collator(config)

    def labels(self, inputs: dict[str, Any]) -> torch.Tensor:
        """The labels of a batch."""
        if inputs.get("labels") is None:
            raise ValueError(f"The batch has no `labels`: {self.labels_advice}.")
        return inputs["labels"]

    def passes_for(self, model: nn.Module, alpha: float | None) -> int | None:
        """Number of passes of a training step whose loss is the error alone; `None` for `mc_samples`."""
        passes = self.mc_samples if self.plain_mc_samples is None else self.plain_mc_samples
        return max(passes, 1) if model.training and alpha == 1 else None

    def logits(self, model: nn.Module, inputs: dict[str, Any], passes: int | None = None) -> torch.Tensor:
        """The outputs of every pass: (members, passes, examples, outputs)."""
        features = {name: value for name, value in inputs.items() if name not in ("labels", "row")}
        stochastic = self.mc_samples and not model.training
        with active_dropout(model, self.seed) if stochastic else nullcontext():
            return member_logits(model, features, passes or max(self.mc_samples, 1)).float()
