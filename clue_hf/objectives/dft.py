from __future__ import annotations

import torch

from .base import Objective


class DFT(Objective):
    """
    Dynamic fine-tuning (Wu et al., 2025): the error of a token times the probability of the target,
    `sg(p_y) * error`, where `sg` stops the gradient. The gradient is that of `-p_y`: every target counts alike, where
    the cross-entropy weighs up those that the model finds unlikely.

    Requirements:
        A language model that knows something of the task already: what it finds impossible, it does not learn.

    Relations:
        [`Focal`] does the opposite, [`EAFT`] weighs by the entropy. It sharpens: where several targets are right, its
        optimum puts all the probability on the most frequent one, so expect a worse calibration than [`Plain`].
    """

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        return torch.exp(-error.detach()) * error
