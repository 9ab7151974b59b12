from __future__ import annotations

import math

from .base import Objective


class EAFT(Objective):
    """
    Entropy-adaptive fine-tuning (Diao et al., 2026): the error of a token times its normalised entropy,
    `sg(min(uncertainty / ln 20, 1)) * error`, where `sg` stops the gradient. What the model is sure of is hardly
    touched, right or wrong, so that it forgets less of what it knew.

    Requirements:
        A language model that is fine-tuned. From scratch it starts as [`Plain`]: nothing is sure yet.

    Relations:
        The authors take the entropy of the 20 most likely tokens, renormalised, and divide it by 3, about its largest
        value `ln 20`. This is the entropy of the whole vocabulary on the same scale, cut at that value: the same where
        20 tokens hold all the probability. [`DFT`] weighs by the probability of the target instead.
    """

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        return (uncertainty.detach() / math.log(20)).clamp(max=1) * error
