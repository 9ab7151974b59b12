"""The checks that every metric makes of its input."""

from __future__ import annotations

from typing import Any

import numpy as np


#: What to do where an uncertainty is not finite: see [`~clue_hf.metrics.rejection_area`].
NAN_POLICIES = ("error", "reject_last", "drop")


def checked_arrays(**arrays: Any) -> list[np.ndarray]:
    """The arrays as float64 vectors; raises with the position where one is not finite, or where lengths differ."""
    checked = []
    for name, values in arrays.items():
        array = np.asarray(values, dtype=np.float64).reshape(-1)
        if not _surely_finite(array):
            check_values(name, array, np.isfinite(array), "it must be finite")
        checked.append(array)
    lengths = {name: len(array) for name, array in zip(arrays, checked, strict=True)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The arrays differ in length: {lengths}.")
    return checked


def _surely_finite(array: np.ndarray) -> bool:
    """Whether the sum is finite: nan and infinity would be in it, and it takes one pass and no memory."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum()))


def check_values(name: str, values: np.ndarray, valid: np.ndarray, requirement: str) -> None:
    """Raises with the position of the first value that is not valid."""
    wrong = np.flatnonzero(~valid)
    if len(wrong):
        raise ValueError(f"`{name}` is {values[wrong[0]]} at position {wrong[0]}; {requirement}.")


def check_unit_range(name: str, values: np.ndarray) -> None:
    """Raises with the position where a value lies outside [0, 1]."""
    check_values(name, values, (values >= 0) & (values <= 1), "it must lie in [0, 1]")


def rejection_arrays(uncertainty: Any, quality: Any, nan_policy: str) -> list[np.ndarray]:
    """Both arrays, checked; uncertainties that are not finite are refused, become +inf, or go with their quality."""
    if nan_policy not in NAN_POLICIES:
        raise ValueError(f"`nan_policy` is {nan_policy!r}; it must be 'error', 'reject_last' or 'drop'.")
    if nan_policy == "error":
        return checked_arrays(uncertainty=uncertainty, quality=quality)
    uncertainty = np.asarray(uncertainty, dtype=np.float64).reshape(-1)
    finite = np.isfinite(uncertainty)
    finite_or_zero, quality = checked_arrays(uncertainty=np.where(finite, uncertainty, 0.0), quality=quality)
    if nan_policy == "drop":
        return [finite_or_zero[finite], quality[finite]]
    return [np.where(finite, uncertainty, np.inf), quality]


def mean_or_nan(numbers: Any) -> float:
    """The mean, nan of nothing."""
    return float(np.mean(numbers)) if len(numbers) else float("nan")
