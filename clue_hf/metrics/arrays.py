"""The check that every metric makes of its input."""

from __future__ import annotations

from typing import Any

import numpy as np


def checked_arrays(**arrays: Any) -> list[np.ndarray]:
    """The arrays as float64 vectors; raises with the position where one is not finite, or where lengths differ."""
    checked = []
    for name, values in arrays.items():
        array = np.asarray(values, dtype=np.float64).reshape(-1)
        wrong = np.flatnonzero(~np.isfinite(array))
        if len(wrong):
            raise ValueError(f"`{name}` is {array[wrong[0]]} at position {wrong[0]}; it must be finite.")
        checked.append(array)
    lengths = {name: len(array) for name, array in zip(arrays, checked, strict=True)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The arrays differ in length: {lengths}.")
    return checked
