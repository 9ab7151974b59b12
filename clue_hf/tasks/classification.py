"""The classification task: an item is one example, an image or a text with one label."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from ..functional import error_and_entropy
from ..inputs.labels import number_dataset
from ..kernels import logit_statistics
from .base import Prediction, describe_items
from .passes import PassTask


if TYPE_CHECKING:
    from ..objectives import Objective


class ClassificationTask(PassTask):
    """
    Classification by the mean distribution over stochastic passes, `p_MC = mean_k softmax(f_k(x))`.

    The error is `-ln p_MC(y)`, the uncertainty the entropy of `p_MC`, both in nats.

    See [`~clue_hf.tasks.passes.PassTask`] for the arguments.
    """

    labels_advice = "give the dataset a label column"

    def saved_settings(self) -> dict[str, Any]:
        return {"task": "classification", "mc_samples": self.mc_samples}

    def numbered(self, dataset: Any) -> Any:
        return number_dataset(dataset)

    def predict(
        self, model: nn.Module, inputs: dict[str, Any], objective: Objective, return_outputs: bool = False
    ) -> Prediction:
        labels = self.labels(inputs)
        outputs = self.log_probabilities(model, inputs, self.passes_for(model, objective.alpha))
        self.check_labels(labels, outputs.shape[-1], "classes")
        kept = labels != -100
        logits, targets = outputs[kept], labels[kept]
        error, entropy = error_and_entropy(logits, targets)
        return Prediction(
            error,
            entropy,
            torch.arange(len(labels), device=labels.device)[kept],
            len(labels),
            targets,
            logits,
            ModelOutput(logits=outputs) if return_outputs else None,
            inputs["row"][kept] if "row" in inputs else None,
        )

    def log_probabilities(self, model: nn.Module, inputs: dict[str, Any], passes: int | None = None) -> torch.Tensor:
        """ln p_MC of every class, (examples, classes); the logits where there is one pass only."""
        logits = self.logits(model, inputs, passes).flatten(0, 1)
        self.num_classes = logits.shape[-1]
        if len(logits) == 1:
            return logits[0]
        # the floor keeps the gradient of a class at -inf in every pass at 0 instead of NaN
        floored = logits.log_softmax(-1).clamp(min=torch.finfo(logits.dtype).min)
        return floored.logsumexp(0) - math.log(len(logits))

    @torch.no_grad()
    def describe(self, model: nn.Module, inputs: dict[str, Any], passes: int = 1) -> torch.Tensor:
        labels = inputs["labels"]
        kept = labels != -100
        outputs = self.log_probabilities(model, inputs, passes if passes > 1 else None)
        return describe_items(kept.unsqueeze(1), logit_statistics(outputs[kept], labels[kept]))

    def count(self, batches: list[dict[str, Any]]) -> torch.Tensor:
        items = torch.stack([(batch["labels"] != -100).sum() for batch in batches]).sum()
        return torch.stack([items, items])
