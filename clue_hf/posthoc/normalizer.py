"""From predicted errors, on whatever scale, to an uncertainty in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics.arrays import checked_arrays
from .stored import Stored


@dataclass(frozen=True)
class ErrorNormalizer(Stored):
    """
    `(error - low) / (high - low)`, clipped to [0, 1]: the uncertainty of a model that predicts the error of another
    (DEUP). The bounds are the least and the largest error predicted on validation data.

    Args:
        low, high (`float`):
            The bounds. Where they are equal, errors above them become 1, all others 0.
    """

    name = "error_normalizer"
    low: float
    high: float

    @classmethod
    def fit(cls, predicted_error: Any) -> ErrorNormalizer:
        """The bounds of the errors that were predicted on validation data."""
        [errors] = checked_arrays(predicted_error=predicted_error)
        if len(errors) == 0:
            raise ValueError("There is nothing to fit: no errors.")
        return cls(float(errors.min()), float(errors.max()))

    def __call__(self, predicted_error: Any) -> np.ndarray:
        """The uncertainty that goes with each predicted error."""
        [errors] = checked_arrays(predicted_error=predicted_error)
        if self.low == self.high:
            return (errors > self.high).astype(float)
        return np.clip((errors - self.low) / (self.high - self.low), 0, 1)
