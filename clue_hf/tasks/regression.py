"""The regression task: an item is one row with a number to predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from transformers.utils import ModelOutput

from .base import Prediction
from .passes import PassTask


if TYPE_CHECKING:
    from ..objectives import Objective


class Moments(NamedTuple):
    """Mean and variance of the prediction of each row, in the units of the labels."""

    mean: torch.Tensor
    variance: torch.Tensor


@dataclass(eq=False)
class RegressionTask(PassTask):
    """
    Regression by the mean over stochastic passes.

    The error is `(y - mean)^2`, the uncertainty the variance over the passes (`correction=1`), plus the mean predicted
    variance where the head predicts one. Labels are standardised; the variance is at least `min_variance`.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            A model with one output, the prediction, or two: the prediction and its log variance.
        mc_samples, seed, data, plain_mc_samples:
            See [`~clue_hf.tasks.passes.PassTask`].
        min_variance (`float`, *optional*, defaults to 1e-6):
            The least variance.
    """

    labels_advice = "name the column of the number to predict (target_column)"

    min_variance: float = 1e-6

    def saved_settings(self) -> dict[str, Any]:
        return {"task": "regression", "mc_samples": self.mc_samples, "min_variance": float(self.min_variance)}

    def predict(
        self, model: nn.Module, inputs: dict[str, Any], objective: Objective, return_outputs: bool = False
    ) -> Prediction:
        labels = self.labels(inputs)
        mean, variance = self.moments(model, inputs, self.passes_for(model, objective.alpha))
        error = (labels.reshape(mean.shape).to(mean.dtype) - mean) ** 2
        outputs = ModelOutput(logits=mean) if return_outputs else None
        return Prediction(error, variance, torch.arange(len(mean), device=mean.device), len(mean), outputs=outputs)

    def moments(self, model: nn.Module, inputs: dict[str, Any], passes: int | None = None) -> Moments:
        """Mean and variance of every row: over the passes, and by the head."""
        mean, variance = _over_passes(self.logits(model, inputs, passes), self.min_variance)
        total = mean.mean(0)
        # of several models as one: what they expect of the error, and how they differ
        spread = (variance + mean**2).mean(0) - total**2 if len(mean) > 1 else variance[0]
        return Moments(total, spread.clamp(min=self.min_variance))

    @torch.no_grad()
    def describe(self, model: nn.Module, inputs: dict[str, Any], passes: int = 1) -> torch.Tensor:
        mean, variance = self.moments(model, inputs, passes if passes > 1 else None)
        error = (inputs["labels"].reshape(mean.shape).to(mean.dtype) - mean) ** 2
        unknown = torch.full_like(error, float("nan"))
        return torch.stack([error, variance, unknown, unknown], -1).unsqueeze(1)

    def count(self, batches: list[dict[str, Any]]) -> torch.Tensor:
        items = torch.tensor(sum(len(batch["labels"]) for batch in batches), device=batches[0]["labels"].device)
        return torch.stack([items, items])


def _over_passes(logits: torch.Tensor, min_variance: float) -> Moments:
    """Mean and variance of each member, (members, rows)."""
    means = logits[..., 0]
    variance = means.var(1, correction=1) if means.shape[1] > 1 else torch.zeros_like(means[:, 0])
    if logits.shape[-1] == 2:
        variance = variance + logits[..., 1].exp().mean(1)
    return Moments(means.mean(1), variance.clamp(min=min_variance))
