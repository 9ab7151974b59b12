"""The one type of a measured number, from the array to the page: a value with its interval, or the reason for none."""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


NAN = float("nan")
_NUMBERS = ("value", "low", "high")


@dataclass(frozen=True, eq=False)
class Measured:
    """
    A metric on all items, with its bootstrap interval and, for the difference of two models, its p-value.

    It also reads like the entry of a `report.json` that it becomes: `entry["value"]`, `entry.get("low")` (an undefined
    number is nan as an attribute and `None` there). Two are equal if their entries are.

    Args:
        value (`float`):
            The metric on all items; nan where it is undefined.
        reason (`str`, *optional*):
            Why it has no value, where it has none.
        n (`int`, *optional*, defaults to 0):
            Number of items.
        values (`np.ndarray`, *optional*):
            The metric on each resample, nan where it is undefined. Not kept in files.
        low, high (`float`, *optional*):
            The ends of the interval; nan where no resample has a value.
        p_value (`float`, *optional*):
            Of a difference: the two-sided p-value of no difference, `min(1, 2 (1 + m) / (1 + B))`: of the B resampled
            differences that are defined, m is the smaller of the number at or below zero and the number at or above
            zero. Never 0: at least 2 / (1 + B). nan where no resample has a value.
        undefined (`int`, *optional*, defaults to 0):
            Number of resamples on which the metric was nan; the interval leaves them out.
        resampled (`bool`, *optional*, defaults to `False`):
            Whether there were any resamples.
        details (`Mapping`, *optional*):
            What else the entry holds, such as the `tau` of an uncertainty accuracy.
    """

    value: float
    reason: str | None = None
    n: int = 0
    values: np.ndarray | None = field(default=None, repr=False)
    low: float = NAN
    high: float = NAN
    p_value: float | None = None
    undefined: int = 0
    resampled: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

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
        return cls(float(value), reason, n, values, low, high, undefined=undefined, resampled=len(values) > 0)

    def minus(self, other: Measured, level: float = 0.95) -> Measured:
        """The difference to a measurement on the same items and draws, with its interval and p-value."""
        if self.values is None or other.values is None:
            raise ValueError("A paired difference needs the values on each resample, which files do not hold.")
        value, values = self.value - other.value, self.values - other.values
        found = Measured.from_resamples(value, values, self.n, self.reason or other.reason, level)
        return Measured(**{**vars(found), "p_value": difference_p_value(values)})

    def __sub__(self, other: Measured) -> Measured:
        return self.minus(other)

    def with_details(self, **details: Any) -> Measured:
        """The same with more in its entry."""
        return Measured(**{**vars(self), "details": {**self.details, **details}})

    def to_dict(self) -> dict[str, Any]:
        """The entry of a `report.json`: plain data, with `None` for what is undefined."""
        entry: dict[str, Any] = {"value": self.value, "reason": self.reason, "n": self.n}
        if self.resampled:
            entry.update(low=self.low, high=self.high)
            if self.p_value is not None:
                entry["p_value"] = self.p_value
            if self.undefined and not self.reason:
                entry["undefined"] = self.undefined
        numbers = {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in entry.items()}
        return {**numbers, **self.details}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Measured:
        """Reads what [`to_dict`] gave."""
        rest = dict(entry)
        resampled = "low" in rest
        value, low, high = (NAN if number is None else number for number in map(rest.pop, _NUMBERS, [None] * 3))
        p_value = (NAN if rest["p_value"] is None else rest["p_value"]) if "p_value" in rest else None
        rest.pop("p_value", None)
        reason, n, undefined = rest.pop("reason", None), rest.pop("n", 0), rest.pop("undefined", 0)
        return cls(value, reason, n, None, low, high, p_value, undefined, resampled, rest)

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.to_dict()

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def keys(self) -> KeysView[str]:
        """The keys of the entry."""
        return self.to_dict().keys()

    def items(self) -> ItemsView[str, Any]:
        """The keys and values of the entry."""
        return self.to_dict().items()

    def get(self, name: str, default: Any = None) -> Any:
        """A value of the entry."""
        return self.to_dict().get(name, default)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Measured | dict):
            return NotImplemented
        return self.to_dict() == (other if isinstance(other, dict) else other.to_dict())

    __hash__ = None  # type: ignore[assignment]


#: A metric: measured, or as it stands in a `report.json`.
Entry = Measured | Mapping[str, Any]


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
        return Measured.from_dict(content)
    return {name: read_metrics(part) for name, part in content.items()}


def plain_data(value: Any) -> Any:
    """For `json.dumps(default=...)`: a measured number as its entry, everything else as text."""
    return value.to_dict() if isinstance(value, Measured) else str(value)


def interval_description(resamples: int, items: str, level: float = 0.95, seed: int = 0) -> str:
    """How the intervals of a report over `items` such as "examples" were computed, in words."""
    if not resamples:
        return "none computed (0 resamples)"
    return f"{100 * level:g} % percentile bootstrap over {items}, {resamples} resamples, seed {seed}"
