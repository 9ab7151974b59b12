from __future__ import annotations

from dataclasses import dataclass

import torch

from .base import Objective


@dataclass(frozen=True)
class LabelSmoothing(Objective):
    """
    Cross-entropy against the target mixed with the uniform distribution, as transformers' `label_smoothing_factor`.

    Requirements:
        The mean log-probability over the vocabulary, which is no function of error and entropy: this objective runs on
        the logits, not on the fused head.

    Relations:
        `smoothing=0` is [`Plain`].
    """

    config_fields = ("label_smoothing_factor",)
    needs_logits = True

    smoothing: float = 0.1

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        log_normalizer = torch.logsumexp(logits, -1)
        against_uniform = log_normalizer - logits.mean(-1)
        return (1 - self.smoothing) * error + self.smoothing * against_uniform
