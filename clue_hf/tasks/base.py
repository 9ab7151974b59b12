"""What a task gives the trainer: the items of a batch with their error and uncertainty, and how to sum them up."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..functional import check_labels, row_statistics, sequence_means


if TYPE_CHECKING:
    from ..config import CLUEConfig
    from ..objectives import Objective

# The columns of the per-example sums that a prediction yields and the trainer adds up.
STATISTICS = (
    "loss", "sequence_loss", "aux_loss", "error", "uncertainty", "calibration", "correct", "items", "sequences",
)  # fmt: skip


@dataclass
class AuxiliaryLoss:
    """A loss of a batch that a model has besides that of its items, as for the balance of its experts."""

    value: torch.Tensor
    weight: float


@dataclass
class Prediction:
    """
    Error and uncertainty of the items of one batch; items that do not count (ignored labels) are left out.

    Args:
        error, uncertainty (`torch.Tensor` of shape `(items,)`):
            One value per item.
        example (`torch.Tensor` of shape `(items,)`):
            Ascending index of the example (sequence) each item belongs to.
        num_examples (`int`):
            Examples in the batch, with or without items.
        labels (`torch.Tensor` of shape `(items,)`, *optional*), logits (of shape `(items, classes)`, *optional*):
            For objectives with `needs_logits` or `row_statistics`.
        outputs (`dict[str, Any]`, *optional*):
            What the model returns for the batch, its logits among it, if requested.
        row (`torch.Tensor` of shape `(items,)`, *optional*):
            Which row of the training data each item comes from, for objectives with `needs_row`.
        correct (`torch.Tensor` of shape `(items,)`, *optional*):
            Whether the label is the most probable class, where that is logged.
        auxiliary ([`AuxiliaryLoss`], *optional*):
            A loss of the batch that the model adds.
    """

    error: torch.Tensor
    uncertainty: torch.Tensor
    example: torch.Tensor
    num_examples: int
    labels: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    outputs: dict[str, Any] | None = None
    row: torch.Tensor | None = None
    correct: torch.Tensor | None = None
    auxiliary: AuxiliaryLoss | None = None

    def reduce(self, objective: Objective, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """
        The loss of the batch, and its [`STATISTICS`] per example (detached).

        `counts` holds the two denominators: the items and the non-empty sequences of the whole optimizer step.
        """
        items, sequences = counts
        inputs: dict[str, Any] = {}
        if objective.row_statistics:
            assert self.logits is not None, "an objective of numbers has no row_statistics"
            inputs.update(row_statistics(self.logits, objective.row_statistics))
        if objective.needs_logits:
            inputs.update(logits=self.logits, labels=self.labels)
        if objective.needs_row:
            inputs["row"] = self.row
        losses = objective.item_loss(self.error, self.uncertainty, **inputs)
        loss = losses.sum() / items
        if objective.has_sequence_loss:
            loss = loss + self.sequence_losses(objective).sum() / sequences
        return add_auxiliary(loss, self.statistics(objective, losses.detach()), self.auxiliary, items)

    @torch.no_grad()
    def statistics(self, objective: Objective, losses: torch.Tensor) -> torch.Tensor:
        """Sums over each example's items: a row per example, a column per name in [`STATISTICS`]."""
        error, uncertainty = self.error.detach(), self.uncertainty.detach()
        ones, nothing = torch.ones_like(error), torch.zeros_like(error)
        correct = nothing if self.correct is None else self.correct
        columns = (losses, nothing, nothing, error, uncertainty, (error - uncertainty) ** 2, correct, ones, nothing)
        sums = error.new_zeros(self.num_examples, len(STATISTICS))
        sums.index_add_(0, self.example, torch.stack([column.to(sums.dtype) for column in columns], 1))
        sums[:, STATISTICS.index("sequences")] = (sums[:, STATISTICS.index("items")] > 0).to(sums.dtype)
        if objective.has_sequence_loss:
            sums[:, STATISTICS.index("sequence_loss")] = self.sequence_losses(objective)
        return sums

    def sequence_losses(self, objective: Objective) -> torch.Tensor:
        """The objective's loss of each example from the means over its items; 0 for an example without items."""
        error = sequence_means(self.error, self.example, self.num_examples)
        uncertainty = sequence_means(self.uncertainty, self.example, self.num_examples)
        losses = objective.sequence_loss(error, uncertainty)
        assert losses is not None, f"{type(objective).__name__} says it has a sequence loss, but returns None"
        return losses * torch.zeros_like(error).index_fill(0, self.example, 1.0)


def add_auxiliary(
    loss: torch.Tensor, statistics: torch.Tensor, auxiliary: AuxiliaryLoss | None, items: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Loss and [`STATISTICS`] of a batch with its auxiliary loss, weighted by the batch's share of the `items` of
    the whole optimizer step.
    """
    if auxiliary is None:
        return loss, statistics
    own = statistics[:, STATISTICS.index("items")]
    value = auxiliary.value.detach().to(statistics.dtype)
    statistics[:, STATISTICS.index("aux_loss")] = value * own
    statistics[:, STATISTICS.index("loss")] += auxiliary.weight * value * own
    return loss + auxiliary.weight * auxiliary.value.to(loss.device) * (own.sum() / items), statistics


def describe_items(kept: torch.Tensor, statistics: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The statistics of the items that are kept, (examples, items, statistics); NaN for the others."""
    described = torch.full((*kept.shape, len(statistics)), float("nan"), device=kept.device)
    described[kept] = torch.stack([column.float() for column in statistics], -1)
    return described


def with_loss(outputs: dict[str, Any], loss: torch.Tensor) -> dict[str, Any]:
    """What a model returns, with the loss before the rest, as a model that computes its own loss has it."""
    return type(outputs)(**{"loss": loss, **outputs})


def summarize(sums: torch.Tensor, num_classes: int | None = None, accuracy: str | None = None) -> dict[str, float]:
    """
    Item-weighted means from added-up [`STATISTICS`]: loss, error, uncertainty, calibration and, under the name
    `accuracy`, the share of correct items.
    """
    total = dict(zip(STATISTICS, sums.tolist(), strict=True))
    items, sequences = max(total["items"], 1), max(total["sequences"], 1)
    summary = {name: total[name] / items for name in ("loss", "error", "uncertainty", "calibration")}
    summary["loss"] += total["sequence_loss"] / sequences
    if total["aux_loss"] != 0:
        summary["aux_loss"] = total["aux_loss"] / items
    if accuracy is not None:
        summary[accuracy] = total["correct"] / items
    if num_classes is not None and num_classes > 1:
        summary["normalized_uncertainty"] = summary["uncertainty"] / math.log(num_classes)
    return summary


class Task(ABC):
    """Turns (model, batch) into a [`Prediction`]: defines what an item is, independently of the objective."""

    #: Classes of the predicted distribution, once known: the largest possible entropy is its logarithm.
    num_classes: int | None = None
    #: Name of the share of correct items in the log, where it is logged.
    accuracy: str | None = None
    #: Whether batches are made by a user's own collator: tokenised rows are left as they are for it.
    has_own_collator = False
    _labels_checked = False

    def prepare(self, dataset: Any, config: CLUEConfig, name: str, training: bool = False) -> Any:
        """Converts raw examples to model inputs; a dataset that is already prepared is returned unchanged."""
        return dataset

    def saved_settings(self) -> dict[str, Any]:
        """What `uncertainty.json` keeps of how error and uncertainty are computed."""
        return {}

    def collator(self, config: CLUEConfig) -> Any:
        """Makes batches of prepared examples; `None` leaves it to transformers."""
        return None

    def train_collator(self, config: CLUEConfig) -> Any:
        """The same in training, where examples are varied; `None` where they are not."""
        return None

    def numbered(self, dataset: Any) -> Any:
        """A prepared dataset whose batches say which `row` each example is."""
        raise ValueError("This task has no objective that needs the rows of the training data.")

    def check_labels(self, labels: torch.Tensor, size: int, of: str = "vocabulary") -> None:
        """Raises where a label is out of range: in every batch; on an accelerator, which has to wait, in the first."""
        if labels.device.type == "cpu" or not self._labels_checked:
            check_labels(labels[labels != -100], size, of)
        self._labels_checked = True

    @abstractmethod
    def predict(
        self, model: torch.nn.Module, inputs: dict[str, Any], objective: Objective, return_outputs: bool = False
    ) -> Any:
        """Runs the model on a batch. What it returns has the `reduce` of a [`Prediction`]."""

    def settle_model(self, model: Any) -> None:  # noqa: B027
        """Gives a model that was made anew (`model_init`) what the data decided for the first one; nothing here."""

    @abstractmethod
    def describe(self, model: torch.nn.Module, inputs: dict[str, Any], passes: int = 1) -> torch.Tensor:
        """
        Error, uncertainty, confidence and correctness of each item: (examples, items, 4), NaN where none counts; with
        several (stochastic) passes those of their mean distribution.
        """

    @abstractmethod
    def count(self, batches: list[dict[str, Any]]) -> torch.Tensor:
        """The two denominators: items and non-empty sequences in some batches."""

    def count_tokens(self, batches: list[dict[str, Any]]) -> torch.Tensor | None:
        """Number of tokens that a model reads in some batches, where it reads any; padding does not count."""
        return None

    def generation_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """What `generate` needs of a batch: everything but the targets."""
        raise ValueError("This task generates no text: leave predict_with_generate off.")

    def log_probabilities(self, model: torch.nn.Module, inputs: dict[str, Any]) -> torch.Tensor:
        """ln p of every class, (examples, classes), for tasks that have classes."""
        raise ValueError("This task has no classes.")

    def moments(self, model: torch.nn.Module, inputs: dict[str, Any]) -> Any:
        """Mean and variance of each example's prediction, for tasks that predict numbers."""
        raise ValueError("This task predicts no numbers.")
