from __future__ import annotations

from dataclasses import dataclass

from .base import Objective


@dataclass(frozen=True)
class LabelSmoothing(Objective):
    """
    Cross-entropy against the target mixed with the uniform distribution, as transformers' `label_smoothing_factor`:
    `(1 - smoothing) * error - smoothing * mean_k ln p_k`, which is `error + smoothing * (z_y - mean_k z_k)`.

    Relations:
        `smoothing=0` is [`Plain`].
    """

    config_fields = ("label_smoothing_factor",)
    row_statistics = ("mean_log_probability",)

    smoothing: float = 0.1

    def item_loss(self, error, uncertainty, logits=None, labels=None, mean_log_probability=None):
        return (1 - self.smoothing) * error - self.smoothing * mean_log_probability
