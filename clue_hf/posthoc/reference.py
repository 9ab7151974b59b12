"""How an uncertainty compares with those of the calibration data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics.arrays import checked_arrays
from .stored import Stored, check_ascending


@dataclass(frozen=True)
class ReferenceQuantiles(Stored):
    """
    Quantiles of the uncertainty at equal steps from 0 to 100 %, kept so that a new uncertainty can be placed among
    them: "more uncertain than 93 % of the calibration data".

    Args:
        quantiles (`list[float]`):
            Ascending, the least and the largest uncertainty included.
    """

    name = "reference_quantiles"
    quantiles: list[float]

    def check(self) -> None:
        check_ascending(self.quantiles, 2)

    def percentile_of(self, uncertainty: Any) -> np.ndarray:
        """
        The share of the calibration data, in percent, with a strictly lower uncertainty: linear between the quantiles,
        so right to one step of them. 0 at and below the least, 100 above the largest.
        """
        [uncertainty] = checked_arrays(uncertainty=uncertainty)
        quantiles = np.asarray(self.quantiles)
        last = len(quantiles) - 1
        above = np.searchsorted(quantiles, uncertainty, side="left")
        high, low = quantiles[np.minimum(above, last)], quantiles[np.maximum(above - 1, 0)]
        # strictly between two quantiles or at the upper one; elsewhere the step is empty
        inside = (above > 0) & (above <= last)
        part = np.where(inside, (uncertainty - low) / np.where(inside, high - low, 1), 0)
        return 100 * np.where(inside, above - 1 + part, np.minimum(above, last)) / last


def reference_quantiles(uncertainty: Any, num: int = 101) -> ReferenceQuantiles:
    """
    The quantiles of the uncertainties of calibration data, one number per row.

    Args:
        uncertainty (`array`):
            One number per row.
        num (`int`, *optional*, defaults to 101):
            How many quantiles, at least 2: with 101, one for each percent.
    """
    [uncertainty] = checked_arrays(uncertainty=uncertainty)
    if len(uncertainty) == 0:
        raise ValueError("There is nothing to keep: no uncertainties.")
    if num < 2:
        raise ValueError(f"`num` is {num}; it must be at least 2.")
    # a rounding error of the interpolation must not break the order
    return ReferenceQuantiles(np.maximum.accumulate(np.quantile(uncertainty, np.linspace(0, 1, num))).tolist())
