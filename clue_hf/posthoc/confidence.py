"""From an uncertainty, on whatever scale, to the quality to expect: a confidence in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics.arrays import checked_arrays
from .stored import Stored


@dataclass(frozen=True)
class IsotonicConfidence(Stored):
    """
    A decreasing map from uncertainty to expected quality, by isotonic regression: linear between its knots, constant
    outside them.

    Args:
        uncertainty (`list[float]`):
            The knots, ascending.
        quality (`list[float]`):
            The expected quality at each.
    """

    name = "isotonic_confidence"
    uncertainty: list[float]
    quality: list[float]

    @classmethod
    def fit(cls, uncertainty: Any, quality: Any) -> IsotonicConfidence:
        """Least squares among all decreasing maps, on one uncertainty and one quality (0 to 1) per item."""
        from sklearn.isotonic import IsotonicRegression

        uncertainty, quality = checked_arrays(uncertainty=uncertainty, quality=quality)
        if len(quality) == 0:
            raise ValueError("There is nothing to fit: no items.")
        fitted = IsotonicRegression(y_min=0, y_max=1, increasing=False).fit(uncertainty, quality)
        return cls(fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist())

    def __call__(self, uncertainty: Any) -> np.ndarray:
        """The confidence that goes with each uncertainty."""
        return np.interp(np.asarray(uncertainty, float), self.uncertainty, self.quality)


def cross_fitted_confidence(uncertainty: Any, quality: Any, folds: int = 5, seed: int = 0) -> np.ndarray | None:
    """
    The confidence of each item by a map fitted on the others: the items are dealt into `folds` at random, and each
    fold is read off the map of the rest. `None` where there are fewer than two items per fold.
    """
    uncertainty, quality = checked_arrays(uncertainty=uncertainty, quality=quality)
    n = len(quality)
    if n < 2 * folds:
        return None
    fold = np.random.default_rng(seed).permutation(n) % folds
    confidence = np.empty(n)
    for number in range(folds):
        held_out = fold == number
        confidence[held_out] = IsotonicConfidence.fit(uncertainty[~held_out], quality[~held_out])(
            uncertainty[held_out]
        )
    return confidence
