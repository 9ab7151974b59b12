"""How well an uncertainty tells examples from out of distribution from those of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import checked_arrays
from .bootstrap import Measured, check_options, multiplicities
from .resampled_rejection import as_entry
from .separation import Separation, Split


#: What the metrics of [`ood_report`] are.
OOD_DEFINITIONS = {
    "ood_auroc": "chance that an example from out of distribution is more uncertain than one from within, ties half",
    "ood_aupr": "average precision of the uncertainty, examples from out of distribution being the positives",
    "ood_fpr95": "share of examples from within that are called out of distribution where 95 % of those from out are",
}


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
    return _metrics(Separation(*_stacked(uncertainty_in, uncertainty_out)).split())


def ood_report(
    uncertainty_in: Any, uncertainty_out: Any, resamples: int = 2000, level: float = 0.95, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """
    [`ood_detection`] with bootstrap intervals, as `name -> entry` like [`classification_report`]: a resample draws
    from all examples, those from within first, then those from out.
    """
    check_options(resamples, level)
    found = measured_ood(uncertainty_in, uncertainty_out, resamples, seed)
    return {name: as_entry(measured, resamples, level) for name, measured in found.items()}


def measured_ood(
    uncertainty_in: Any, uncertainty_out: Any, resamples: int = 2000, seed: int = 0
) -> dict[str, Measured]:
    """The same with the value on each resample, for those who combine several models."""
    uncertainty, outside = _stacked(uncertainty_in, uncertainty_out)
    separation, n = Separation(uncertainty, outside), len(outside)
    drawn = [_metrics(separation.split(counts)) for counts in multiplicities(n, resamples, seed)]
    missing = "no examples from out of" if not outside.any() else "no examples from within" if outside.all() else None
    reason = f"{missing} the distribution" if missing else None
    return {
        name: Measured(value, reason, n, np.array([values[name] for values in drawn]))
        for name, value in _metrics(separation.split()).items()
    }


def _stacked(uncertainty_in: Any, uncertainty_out: Any) -> tuple[np.ndarray, np.ndarray]:
    """All uncertainties, and 1 for each from out of distribution."""
    [inside], [outside] = (
        checked_arrays(uncertainty_in=uncertainty_in),
        checked_arrays(uncertainty_out=uncertainty_out),
    )
    return np.append(inside, outside), np.append(np.zeros(len(inside)), np.ones(len(outside)))


def _metrics(split: Split) -> dict[str, float]:
    return {
        "ood_auroc": split.auc(),
        "ood_aupr": split.average_precision(),
        "ood_fpr95": split.false_positive_rate(0.95),
    }
