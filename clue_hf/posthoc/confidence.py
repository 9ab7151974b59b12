"""From an uncertainty, on whatever scale, to the quality to expect: a confidence in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics.arrays import checked_arrays
from .stored import Stored, check_ascending


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
        uncertainty, quality = checked_arrays(uncertainty=uncertainty, quality=quality)
        if len(quality) == 0:
            raise ValueError("There is nothing to fit: no items.")
        return cls(*isotonic_knots(uncertainty, quality, increasing=False))

    def check(self) -> None:
        check_ascending(self.uncertainty, 1)
        [quality] = checked_arrays(quality=self.quality)
        if len(quality) != len(self.uncertainty) or (np.diff(quality) > 0).any() or quality[0] > 1 or quality[-1] < 0:
            raise ValueError("the qualities must fall within 1 and 0, one for each uncertainty")

    def __call__(self, uncertainty: Any) -> np.ndarray:
        """The confidence that goes with each uncertainty."""
        return np.interp(np.asarray(uncertainty, float), self.uncertainty, self.quality)


def isotonic_knots(x: np.ndarray, y: np.ndarray, increasing: bool) -> tuple[list[float], list[float]]:
    """The knots of the isotonic regression of y, in [0, 1], on x, and its value at each."""
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(y_min=0, y_max=1, increasing=increasing).fit(x, y)
    return fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist()


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
        fitted = IsotonicConfidence.fit(uncertainty[~held_out], quality[~held_out])
        confidence[held_out] = fitted(uncertainty[held_out])
    return confidence
