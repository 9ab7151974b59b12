"""How far uncertainty and error, or confidence and accuracy, are apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import checked_arrays


def alignment_error(error: Any, uncertainty: Any, num_bins: int = 15) -> float:
    """
    CLUE's own criterion, `E[error | uncertainty] = uncertainty`, measured: `sum |B|/n |mean error - mean uncertainty|`
    over `num_bins` bins B of equal mass along the uncertainty.

    Equal uncertainties count as one value (they share their mean error), so the order of the rows does not matter.
    Returns nan without items.
    """
    error, uncertainty = checked_arrays(error=error, uncertainty=uncertainty)
    if len(error) == 0:
        return float("nan")
    values, group, counts = np.unique(uncertainty, return_inverse=True, return_counts=True)
    mean_error = np.bincount(group, weights=error) / counts
    order = np.argsort(uncertainty, kind="stable")
    gaps = (mean_error[group] - values[group])[order]
    return float(sum(abs(part.sum()) for part in np.array_split(gaps, num_bins)) / len(error))


def confidence_calibration_error(confidence: Any, correct: Any, num_bins: int = 15) -> float:
    """
    Expected calibration error from the confidence in each answer and whether it was right: `sum |B|/n |accuracy -
    mean confidence|` over `num_bins` bins of equal width, each `(low, high]`. Returns nan without items.
    """
    confidence, correct = checked_arrays(confidence=confidence, correct=correct)
    if len(confidence) == 0:
        return float("nan")
    bins = np.clip(np.ceil(confidence * num_bins).astype(int) - 1, 0, num_bins - 1)
    gaps = np.bincount(bins, weights=correct - confidence, minlength=num_bins)
    return float(np.abs(gaps).sum() / len(confidence))
