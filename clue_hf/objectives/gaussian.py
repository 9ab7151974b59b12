from __future__ import annotations

from dataclasses import dataclass

from ..functional import gaussian_entropy, gaussian_nll_loss
from .base import Objective


@dataclass(frozen=True)
class ErrorPlusGaussianEntropy(Objective):
    """
    Regression: squared error plus the entropy of the predicted Gaussian (Shamsi et al.),
    `error + pe_weight * 0.5 ln(2 pi e variance)`.

    Relations:
        What [`CrossEntropyPlusEntropy`] is to classes. It shrinks every variance, right or wrong: nothing but
        `min_variance` stops it.
    """

    config_fields = ("pe_weight",)

    pe_weight: float = 1.0

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        return error + self.pe_weight * gaussian_entropy(uncertainty)


class GaussianNLL(Objective):
    """
    Regression: the negative log-likelihood of a Gaussian, `0.5 ln(2 pi variance) + error / (2 variance)`.

    Requirements:
        A variance that can be learned: a head that predicts one (`variance_head`), or several passes.

    Relations:
        A proper objective: its optimum is the true mean and variance. Where the variance is small, it weighs errors
        up; [`BetaNLL`], [`CRPS`] and [`CLUE`] do not.
    """

    needs_variance = True

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        return gaussian_nll_loss(error, uncertainty)
