from __future__ import annotations

import torch

from .base import Objective


class Brier(Objective):
    """
    The Brier score: the squared distance between the predicted distribution and the target,
    `1 - 2 p_y + sum_k p_k^2`, from 0 to 2.

    Relations:
        Like the cross-entropy of [`Plain`] a proper score, whose optimum is the true distribution, but bounded: a
        target that the model excludes costs 2, not infinitely much, and moves it little (the gradient falls with
        `p_y`). So start from a model that knows something already, or with `plain_steps`.
    """

    row_statistics = ("sum_squared_probability",)

    def item_loss(self, error, uncertainty, logits=None, labels=None, sum_squared_probability=None):
        return 1 - 2 * torch.exp(-error) + sum_squared_probability
