"""The formulas of CLUE as pure functions: no model, no trainer, nothing but tensors.

    loss_i = alpha * error_i + (1 - alpha) * (error_i - uncertainty_i)^2

For language models an item is one target token, its error the cross-entropy and its uncertainty the entropy of the
predicted distribution, both in nats: a calibrated model has `E[error | uncertainty] = uncertainty`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.nn.functional as F

from .settings import check_choice


if TYPE_CHECKING:
    from collections.abc import Callable

Gradient = Literal["both", "uncertainty", "error"]
GRADIENTS: tuple[str, ...] = get_args(Gradient)
Level = Literal["token", "sequence"]
#: What an objective may need of each item's distribution besides error and entropy, see [`row_statistics`].
ROW_STATISTICS = ("sum_squared_probability", "max_log_probability", "mean_log_probability")


def clue_loss(
    error: torch.Tensor, uncertainty: torch.Tensor, alpha: float, clue_gradient: Gradient = "both"
) -> torch.Tensor:
    """
    The CLUE loss of each item.

    Args:
        error (`torch.Tensor`):
            Error of each item, for instance the cross-entropy of a token in nats.
        uncertainty (`torch.Tensor`):
            Uncertainty of each item in the units of the error, for instance the entropy in nats.
        alpha (`float`):
            Weight of the error, in [0, 1]. At 1 the loss *is* the error, bit for bit.
        clue_gradient (`str`, *optional*, defaults to `"both"`):
            `"both"` is the paper: the square moves error and uncertainty. `"uncertainty"` detaches the error inside
            the square, which makes the true distribution a stationary point at every alpha. `"error"` detaches the
            uncertainty instead: the cross-entropy with the weight `alpha + 2 (1 - alpha) (error - uncertainty)`.

    Returns:
        `torch.Tensor`: one loss per item.
    """
    if alpha == 1:
        return error
    return alpha * error + (1 - alpha) * calibration_gap(error, uncertainty, clue_gradient) ** 2


def calibration_gap(error: torch.Tensor, uncertainty: torch.Tensor, clue_gradient: Gradient = "both") -> torch.Tensor:
    """`error - uncertainty`, with the gradient that `clue_gradient` asks for (see [`clue_loss`])."""
    if clue_gradient == "uncertainty":
        return error.detach() - uncertainty
    return error - (uncertainty.detach() if clue_gradient == "error" else uncertainty)


def error_and_entropy(
    logits: torch.Tensor, labels: torch.Tensor, ignore_index: int = -100
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Cross-entropy and predictive entropy of each position, in nats, in at least float32.

    Args:
        logits (`torch.Tensor` of shape `(..., vocabulary)`):
            Scores before the softmax.
        labels (`torch.Tensor` of shape `(...)`):
            Target ids; positions with `ignore_index` yield 0 for both.

    Returns:
        `tuple(torch.Tensor, torch.Tensor)`: error and entropy, each of the shape of `labels`.
    """
    kept = labels != ignore_index
    log_probability = F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    error = -log_probability.gather(-1, labels.where(kept, 0).unsqueeze(-1)).squeeze(-1)
    # 0 ln 0 = 0: a column at -inf has probability 0, and the floor keeps its product at 0 instead of NaN
    floored = log_probability.clamp(min=torch.finfo(log_probability.dtype).min)
    entropy = -(floored.exp() * floored).sum(-1)
    return error.where(kept, 0.0), entropy.where(kept, 0.0)


def row_statistics(logits: torch.Tensor, names: Collection[str]) -> dict[str, torch.Tensor]:
    """
    What some objectives need of each position's distribution besides error and entropy, in at least float32.

    Args:
        logits (`torch.Tensor` of shape `(..., vocabulary)`):
            Scores before the softmax.
        names (`Collection[str]`):
            Names in `ROW_STATISTICS`: `"sum_squared_probability"`, `"max_log_probability"` and
            `"mean_log_probability"`, the mean over the vocabulary.

    Returns:
        `dict[str, torch.Tensor]`: the statistics by name.
    """
    if not names:
        return {}
    log_probability = F.log_softmax(logits, dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    formulas = {
        "sum_squared_probability": lambda: log_probability.exp().square().sum(-1),
        "max_log_probability": lambda: log_probability.max(-1).values,
        "mean_log_probability": lambda: log_probability.mean(-1),
    }
    return {name: formulas[name]() for name in names}


def check_labels(labels: torch.Tensor, size: int, of: str = "vocabulary") -> None:
    """Raises a `ValueError` that names the first label outside a vocabulary, or what else `of` says there is."""
    wrong = labels[(labels < 0) | (labels >= size)]
    if len(wrong):
        raise ValueError(f"Label {wrong[0].item()} is outside the {of} of {size} entries.")


def gaussian_entropy(variance: torch.Tensor) -> torch.Tensor:
    """Entropy of a Gaussian in nats: `0.5 ln(2 pi e variance)`."""
    return 0.5 * (variance.log() + math.log(2 * math.pi * math.e))


def gaussian_nll_loss(error: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Negative log-likelihood under a Gaussian, constant included; the error is the squared distance to its mean."""
    return 0.5 * (variance.log() + math.log(2 * math.pi) + error / variance)


def gaussian_crps(error: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """
    Continuous ranked probability score of a Gaussian, in units of the target; the error is the squared distance to its
    mean: `s [r (2 Phi(r) - 1) + 2 phi(r) - 1 / sqrt(pi)]` with `s^2 = variance` and `r^2 = error / variance`.
    """
    # the derivative of the root at 0 is infinite, that of the score is not
    distance, std = error.clamp(min=torch.finfo(error.dtype).tiny).sqrt(), variance.sqrt()
    r = distance / std
    density = (-0.5 * r**2).exp() / math.sqrt(2 * math.pi)
    return std * (r * torch.erf(r / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))


def sequence_means(values: torch.Tensor, sequence: torch.Tensor, num_sequences: int) -> torch.Tensor:
    """Mean of `values` per sequence; `sequence` holds the index of each value's sequence. Empty sequences yield 0."""
    sums = values.new_zeros(num_sequences).index_add(0, sequence, values)
    counts = values.new_zeros(num_sequences).index_add(0, sequence, torch.ones_like(values))
    return sums / counts.clamp(min=1)


def compute_loss_func(
    alpha: float = 0.9, level: Level = "token", clue_gradient: Gradient = "both", shift: bool = False
) -> Callable[..., torch.Tensor]:
    """
    CLUE for a stock `Trainer(compute_loss_func=...)`: no subclass, the same loss as [`CLUETrainer`] on the logits.

    Args:
        alpha (`float`, *optional*, defaults to 0.9):
            Weight of the error.
        level (`str`, *optional*, defaults to `"token"`):
            `"token"` squares the gap of each token, `"sequence"` that of each sequence's means. A stock Trainer counts
            tokens only, so with `"sequence"` the square is averaged over each micro-batch: to accumulate gradients
            exactly use [`CLUETrainer`].
        clue_gradient (`str`, *optional*, defaults to `"both"`):
            What the square moves: `"both"`, `"uncertainty"` or `"error"`, see [`clue_loss`].
        shift (`bool`, *optional*, defaults to `False`):
            Set it for causal models, whose position i predicts token i + 1. Sequence-to-sequence models need
            `decoder_input_ids` from the collator: `DataCollatorForSeq2Seq(tokenizer, model=model)`.

    Example:

    ```python
    trainer = Trainer(model, args, compute_loss_func=clue_hf.functional.compute_loss_func(alpha=0.9, shift=True))
    ```
    """
    check_fraction("alpha", alpha)
    check_choice("level", level, ("token", "sequence"))
    check_choice("clue_gradient", clue_gradient, GRADIENTS)

    def loss_of_outputs(outputs: Any, labels: torch.Tensor | None, num_items_in_batch: Any = None) -> torch.Tensor:
        if labels is None:
            raise ValueError("The batch has no `labels`: CLUE needs them to know the error.")
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        if logits.shape[:-1] != labels.shape:
            raise ValueError(
                f"The logits {tuple(logits.shape)} do not line up with the labels {tuple(labels.shape)}. Sequence-to-"
                "sequence models need `decoder_input_ids`: DataCollatorForSeq2Seq(tokenizer, model=model) makes them."
            )
        if shift and isinstance(outputs, dict) and "encoder_last_hidden_state" in outputs:
            raise ValueError(
                "This is a sequence-to-sequence model, whose labels are not shifted: leave out shift=True."
            )
        if shift:
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        elif type(outputs).__name__.startswith("CausalLM"):
            warnings.warn(
                "This is a causal model: unless its labels are already shifted, set shift=True.", stacklevel=2
            )
        labels = labels.to(logits.device)
        error, entropy = error_and_entropy(logits, labels)
        kept = labels != -100
        num_items = kept.sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
        num_items = num_items.to(error.device).clamp(min=1)
        if level == "token":
            return clue_loss(error, entropy, alpha, clue_gradient)[kept].sum() / num_items
        lengths = kept.sum(-1)
        gap = calibration_gap(error, entropy, clue_gradient).sum(-1) / lengths.clamp(min=1)
        share = kept.sum() / num_items  # of the window's tokens, so that the accumulated squares form a mean
        square = (gap**2).sum() / (lengths > 0).sum().clamp(min=1) * share
        return alpha * error.sum() / num_items + (1 - alpha) * square

    return loss_of_outputs


def check_fraction(name: str, value: Any) -> None:
    """Raises a `ValueError` that names the setting unless `value` is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be a number from 0 to 1, not {value!r}.")
