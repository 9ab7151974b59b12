"""The one type of a measured number, from the array to the page: a value with its interval, or the reason for none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


NAN = float("nan")
#: A metric, measured or as it stands in a `report.json`.
Entry = Mapping[str, Any]
_NUMBERS = ("value", "low", "high", "p_value")


@dataclass(frozen=True, eq=False, repr=False)
class Measured(dict[str, Any]):
    """
    A metric on all items, with its bootstrap interval and, for the difference of two models, its p-value.

    Like the outputs of transformers it is a dict as well: the entry of a `report.json`. `entry["value"]` and
    `entry.get("low")` are plain data, `None` where the attribute is nan. Two are equal if their entries are.

    Args:
        value (`float`):
            The metric on all items; nan where it is undefined.
        reason (`str`, *optional*):
            Why it has no value, where it has none.
        n (`int`, *optional*, defaults to 0):
            Number of items.
        resampled (`np.ndarray`, *optional*):
            The metric on each resample, nan where it is undefined. Not kept in files.
        low, high (`float`, *optional*):
            The ends of the interval; nan where no resample has a value.
        p_value (`float`, *optional*):
            Of a difference: the two-sided p-value of no difference, `min(1, 2 (1 + m) / (1 + B))`: of the B resampled
            differences that are defined, m is the smaller of the number at or below zero and the number at or above
            zero. Never 0: at least 2 / (1 + B). nan where no resample has a value.
        undefined (`int`, *optional*, defaults to 0):
            Number of resamples on which the metric was nan; the interval leaves them out.
        has_interval (`bool`, *optional*, defaults to `False`):
            Whether there were any resamples.
        details (`Mapping`, *optional*):
            What else the entry holds, such as the `tau` of an uncertainty accuracy.
    """

    value: float
    reason: str | None = None
    n: int = 0
    resampled: np.ndarray = field(default_factory=lambda: np.empty(0))
    low: float = NAN
    high: float = NAN
    p_value: float | None = None
    undefined: int = 0
    has_interval: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entry: dict[str, Any] = {"value": self.value, "reason": self.reason, "n": self.n}
        if self.has_interval:
            entry.update(low=self.low, high=self.high)
            if self.p_value is not None:
                entry["p_value"] = self.p_value
            if self.undefined and not self.reason:
                entry["undefined"] = self.undefined
        self.update({key: None if isinstance(v, float) and math.isnan(v) else v for key, v in entry.items()})
        self.update(self.details)

    @classmethod
    def from_resamples(
        cls, value: float, values: np.ndarray, n: int, reason: str | None = None, level: float = 0.95
    ) -> Measured:
        """With the percentile interval of the values on each resample; those that are nan are left out and counted."""
        if math.isnan(value) and reason is None:
            reason = "not defined on these items" if n else "no items"
        defined = values[~np.isnan(values)]
        low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2]).tolist() if len(defined) else (NAN, NAN)
        undefined = len(values) - len(defined)
        return cls(float(value), reason, n, values, low, high, undefined=undefined, has_interval=len(values) > 0)

    def minus(self, other: Measured, level: float = 0.95) -> Measured:
        """The difference to a measurement on the same items and draws, with its interval and p-value."""
        if any(measured.has_interval and not len(measured.resampled) for measured in (self, other)):
            raise ValueError("A paired difference needs the values on each resample, which files do not hold.")
        value, values = self.value - other.value, self.resampled - other.resampled
        difference = Measured.from_resamples(value, values, self.n, self.reason or other.reason, level)
        return replace(difference, p_value=difference_p_value(values))

    def __sub__(self, other: Measured) -> Measured:
        return self.minus(other)

    def with_details(self, **details: Any) -> Measured:
        """The same with more in its entry."""
        return replace(self, details={**self.details, **details})

    def to_dict(self) -> dict[str, Any]:
        """The entry of a `report.json`, without anything else."""
        return dict(self)

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Measured:
        """Reads what [`to_dict`] gave."""
        numbers: dict[str, Any] = {key: NAN if entry[key] is None else entry[key] for key in _NUMBERS if key in entry}
        known = {key: entry[key] for key in ("reason", "n", "undefined") if key in entry}
        details = {key: value for key, value in entry.items() if key not in numbers and key not in known}
        return cls(**numbers, **known, has_interval="low" in entry, details=details)


def difference_p_value(differences: np.ndarray) -> float:
    """Two-sided p-value of "no difference" from the resampled differences: see [`Measured`]."""
    defined = differences[~np.isnan(differences)]
    if len(defined) == 0:
        return NAN
    fewer = min((defined <= 0).sum(), (defined >= 0).sum())
    return float(min(1.0, 2 * (1 + fewer) / (1 + len(defined))))


def paired_differences(
    a: Mapping[str, Measured], b: Mapping[str, Measured], level: float = 0.95
) -> dict[str, Measured]:
    """Model a minus model b for every metric that both have; both on the same items and draws."""
    return {name: measured.minus(b[name], level) for name, measured in a.items() if name in b}


def read_metrics(content: Any) -> Any:
    """The metrics of a `report.json` or `comparison.json` with [`Measured`] in place of the entries."""
    if not isinstance(content, dict):
        return content
    if "value" in content:
        return content if isinstance(content, Measured) else Measured.from_dict(content)
    return {name: read_metrics(part) for name, part in content.items()}


def interval_description(resamples: int, items: str, level: float = 0.95, seed: int = 0) -> str:
    """How the intervals of a report over `items` such as "examples" were computed, in words."""
    if not resamples:
        return "none computed (0 resamples)"
    return f"{100 * level:g} % percentile bootstrap over {items}, {resamples} resamples, seed {seed}"
