from __future__ import annotations

from dataclasses import dataclass

from .base import Objective


@dataclass(frozen=True)
class Focal(Objective):
    """
    Focal loss (Lin et al.): `(1 - p_y)^gamma * error`, with `p_y = exp(-error)` the probability of the target.

    Relations:
        `gamma=0` is [`Plain`]. Like CLUE it prevents overconfident predictions, but it does not use the uncertainty.
    """

    config_fields = ("focal_gamma",)

    gamma: float = 2.0

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        # -expm1(-error) = 1 - p_y, exact for small errors; the floor keeps the derivative of 0^gamma finite
        return (-(-error).expm1()).clamp(min=1e-12) ** self.gamma * error
