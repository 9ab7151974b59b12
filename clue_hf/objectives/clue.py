from __future__ import annotations

from dataclasses import dataclass, replace

from ..functional import Gradient, Level, calibration_gap, clue_loss
from .base import Objective


@dataclass(frozen=True)
class CLUE(Objective):
    """
    Calibration via Learning Uncertainty-Error alignment: `alpha * error + (1 - alpha) * (error - uncertainty)^2`.

    Requirements:
        Error and uncertainty in the same units (nats for classes and tokens, squared target units for regression).

    Args:
        alpha (`float`):
            Weight of the error; 1 is plain training.
        level (`str`):
            `"token"` squares the gap of every token (the paper); `"sequence"` squares the gap between the mean error
            and the mean uncertainty of each sequence, which averages out the noise a single token has even under a
            perfectly calibrated model.
        clue_gradient (`str`):
            `"both"` (the paper), `"uncertainty"` or `"error"`, see [`~clue_hf.functional.clue_loss`].
        warmup_steps (`int`):
            Steps over which alpha falls linearly from 1 to its value.

    Relations:
        [`Plain`] is the case `alpha=1`. [`CrossEntropyPlusEntropy`] lowers the entropy everywhere; CLUE raises
        it where the error is larger and lowers it where it is smaller.

    Example:

    ```python
    trainer = CLUETrainer(model, CLUEConfig(output_dir="out", objective="clue", alpha=0.9), train_dataset=data)
    ```
    """

    config_fields = ("alpha", "level", "clue_gradient", "alpha_warmup_steps")

    alpha: float = 0.9
    level: Level = "token"
    clue_gradient: Gradient = "both"
    warmup_steps: int = 0

    def at(self, step):
        if step >= self.warmup_steps:
            return self
        return replace(self, alpha=1 + (self.alpha - 1) * step / self.warmup_steps)

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        if self.level == "sequence":
            return error if self.alpha == 1 else self.alpha * error
        return clue_loss(error, uncertainty, self.alpha, self.clue_gradient)

    @property
    def has_sequence_loss(self):
        return self.level == "sequence" and self.alpha != 1

    def sequence_loss(self, mean_error, mean_uncertainty):
        return (1 - self.alpha) * calibration_gap(mean_error, mean_uncertainty, self.clue_gradient) ** 2
