from __future__ import annotations

from dataclasses import dataclass

from ..functional import gaussian_nll_loss
from .base import Objective


@dataclass(frozen=True)
class BetaNLL(Objective):
    """
    Regression: the negative log-likelihood of a Gaussian, each row weighted by a power of its variance (Seitzer et
    al., 2022), `sg(variance)^beta * nll`, where `sg` stops the gradient.

    Requirements:
        A variance that can be learned: a head that predicts one (`variance_head`), or several passes.

    Relations:
        `beta=0` is [`GaussianNLL`], which hardly moves the mean of rows with a large variance. At `beta=1` the
        gradient of the mean is half that of the squared error. Its loss is not comparable between betas.
    """

    config_fields = ("nll_beta",)
    needs_variance = True

    beta: float = 0.5

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        return uncertainty.detach() ** self.beta * gaussian_nll_loss(error, uncertainty)
