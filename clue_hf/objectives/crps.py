from __future__ import annotations

from ..functional import gaussian_crps
from .base import Objective


class CRPS(Objective):
    """
    Regression: the continuous ranked probability score of a Gaussian,
    `s [r (2 Phi(r) - 1) + 2 phi(r) - 1 / sqrt(pi)]` with `s^2 = variance` and `r = (y - mean) / s`.

    Requirements:
        A variance that can be learned: a head that predicts one (`variance_head`), or several passes.

    Relations:
        A proper objective like [`GaussianNLL`], in units of the target: it grows with the absolute error, not with
        the squared one, so that outliers and small variances count less. Without any variance it is the absolute
        error.
    """

    needs_variance = True

    def item_loss(self, error, uncertainty, logits=None, labels=None):
        return gaussian_crps(error, uncertainty)
