from __future__ import annotations

from .base import Objective


class Plain(Objective):
    """
    Plain training: the loss is the error (`ce` for tokens).

    Requirements:
        Nothing: it is the baseline, and what `plain_steps` runs before another objective takes over.

    Relations:
        [`CLUE`] with `alpha=1`, bit for bit.
    """

    alpha = 1.0

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        return error
