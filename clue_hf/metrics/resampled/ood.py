"""How well an uncertainty tells examples from out of distribution from those of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import checked_arrays
from ..bootstrap import measure_rows
from ..curve import Order
from ..measured import Measured
from ..separation import Separation, Split


def ood_detection(uncertainty_in: Any, uncertainty_out: Any) -> dict[str, float]:
    """
    The uncertainty as a detector of examples from out of distribution, which are the positives.

    Args:
        uncertainty_in (`array`):
            The uncertainty of each example from within the distribution.
        uncertainty_out (`array`):
            The uncertainty of each example from out of it.

    Returns:
        `dict[str, float]`: `ood_auroc` (area under the ROC curve, ties count half), `ood_aupr` (average precision:
        area under the precision-recall curve in steps; a useless score has the share of the positives) and
        `ood_fpr95` (least false positive rate with at least 95 % of the positives found). nan where one of the two
        has no examples.
    """
    uncertainty, outside = _stacked(uncertainty_in, uncertainty_out)
    return _metrics(Separation(Order(uncertainty), outside).split())


def ood_report(
    uncertainty_in: Any, uncertainty_out: Any, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> dict[str, Measured]:
    """
    [`ood_detection`] with bootstrap intervals, by name: a resample draws from all examples, those from within first,
    then those from out.
    """
    uncertainty, outside = _stacked(uncertainty_in, uncertainty_out)
    separation = Separation(Order(uncertainty), outside)
    reason = f"no examples {'from within' if outside.any() else 'from out of'} the distribution"
    return measure_rows(
        lambda counts: _metrics(separation.split(counts)), len(outside), lambda _: reason, resamples, level, seed
    )


def _stacked(uncertainty_in: Any, uncertainty_out: Any) -> tuple[np.ndarray, np.ndarray]:
    """All uncertainties, and whether each is from out of distribution."""
    [inside] = checked_arrays(uncertainty_in=uncertainty_in)
    [outside] = checked_arrays(uncertainty_out=uncertainty_out)
    uncertainty = np.append(inside, outside)
    return uncertainty, np.arange(len(uncertainty)) >= len(inside)


def _metrics(split: Split) -> dict[str, float]:
    return {
        "ood_auroc": split.auc(),
        "ood_aupr": split.average_precision(),
        "ood_fpr95": split.false_positive_rate(0.95),
    }
