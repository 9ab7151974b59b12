from __future__ import annotations

from dataclasses import dataclass

from .base import Objective


@dataclass(frozen=True)
class MaxSup(Objective):
    """
    Max suppression (Zhou et al., 2025): the error plus how far the largest logit lies above their mean,
    `error + weight * (max_k z_k - mean_k z_k)`.

    Relations:
        [`LabelSmoothing`] is the same with the logit of the target in place of the largest one, so that it also pushes
        down targets that the model gets wrong. The authors' code raises the weight linearly from 0.1 to 0.2 over the
        training; here it is constant. `weight=0` is [`Plain`].
    """

    config_fields = ("maxsup_weight",)
    row_statistics = ("max_log_probability", "mean_log_probability")

    weight: float = 0.1

    def item_loss(
        self, error, uncertainty, logits=None, labels=None, max_log_probability=None, mean_log_probability=None
    ):
        # the same difference as that of the logits
        return error + self.weight * (max_log_probability - mean_log_probability)
