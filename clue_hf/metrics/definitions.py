"""What each rejection metric is: its definition in a sentence, when it is undefined, and its value from the curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .curve import NAN, ROUNDING, Curve, Items


@dataclass(frozen=True)
class Kind:
    """
    A kind of rejection metric.

    Args:
        definition (`str`): One sentence, for reports.
        compute (`Callable`): Its value from the curve and the argument.
        argument (`str`, *optional*): What its number is called: the maximal rejection, the coverage or the risk.
        rejections (`int`): The fewest rejections R that it needs.
        varied (`bool`): Whether it needs qualities that differ.
        risk (`bool`): Whether it is about the risk, 1 - quality, and so needs a quality in [0, 1].
    """

    definition: str
    compute: Callable[[Curve, float], float]
    argument: str | None = None
    rejections: int = 0
    varied: bool = False
    risk: bool = False


@dataclass(frozen=True)
class RejectionMetric:
    """A kind of metric with its number: called with a curve, it gives the value, nan where `reason` says why."""

    kind: Kind
    number: float = 1.0

    def __post_init__(self) -> None:
        low_is_allowed = self.kind.argument == "risk"
        if not (0 < self.number <= 1 or (low_is_allowed and self.number == 0)):
            limits = "[0, 1]" if low_is_allowed else "(0, 1]"
            raise ValueError(f"`{self.kind.argument}` is {self.number}; it must lie in {limits}.")

    def reason(self, items: Items) -> str | None:
        """Why the metric is undefined on these items; `None` where it is defined."""
        kind = self.kind
        if items.n == 0:
            return "no items"
        if kind.risk and not (items.least >= 0 and items.largest <= 1):
            return "a quality lies outside [0, 1]"
        if kind.rejections and _rejections(items, self.number) < kind.rejections:
            return f"max_rejection {self.number:g} of {items.n} items is {_rejections(items, self.number)} rejections"
        return "all qualities are equal" if kind.varied and items.equal else None

    def __call__(self, curve: Curve) -> float:
        return NAN if self.reason(curve.items) else float(self.kind.compute(curve, self.number))


def _rejections(items: Items, max_rejection: float) -> int:
    """R, the number of points on the curve: 0..R-1 items rejected."""
    return int(max_rejection * items.n)


def _mean(curve: Curve, _: float) -> float:
    return curve.items.mean


def _area(curve: Curve, max_rejection: float) -> float:
    return curve.items.mean + curve.scale * curve.gain(_rejections(curve.items, max_rejection))


def _area_minmax(curve: Curve, max_rejection: float) -> float:
    # the range first: a quality of 5e-324 has no reciprocal
    gain = curve.gain(_rejections(curve.items, max_rejection)) * (curve.scale / _range(curve))
    return (curve.items.mean - curve.items.least) / _range(curve) + gain


def _range(curve: Curve) -> float:
    return curve.items.largest - curve.items.least


def _oracle_area(curve: Curve, max_rejection: float) -> float:
    return _area(curve.items.best, max_rejection)


def _ratio(curve: Curve, max_rejection: float) -> float:
    rejections = _rejections(curve.items, max_rejection)
    return curve.gain(rejections) / curve.items.best.gain(rejections)


def _aurc(curve: Curve, _: float) -> float:
    return 1 - _area(curve, 1.0)


def _e_aurc(curve: Curve, _: float) -> float:
    return curve.scale * (curve.items.best.gain(curve.items.n) - curve.gain(curve.items.n))


def _augrc(curve: Curve, _: float) -> float:
    n = curve.items.n
    return (1 - curve.items.mean) * (n + 1) / (2 * n) - curve.scale * curve.sums.sum() / n**2


def _risk_at_coverage(curve: Curve, coverage: float) -> float:
    kept = max(1, math.ceil(coverage * curve.items.n * (1 - ROUNDING)))  # 0.07 * 100 is 7.000000000000001
    return 1 - curve.kept[kept - 1]


def _coverage_at_risk(curve: Curve, risk: float) -> float:
    safe = np.flatnonzero(curve.kept >= 1 - risk - ROUNDING)
    return (safe[-1] + 1) / curve.items.n if len(safe) else 0.0


KINDS = {
    "mean_quality": Kind("mean quality of all items", _mean),
    "random_area": Kind("rejection area of a useless order: the mean quality, exactly", _mean),
    "prr": Kind(
        "(rejection area - random area) / (oracle area - random area): the share achieved of what rejection can gain",
        _ratio, "max_rejection", rejections=2, varied=True,
    ),
    "rejection_area": Kind(
        "(1/R) sum over k = n-R+1..n of the mean quality of the k most certain items, R = int(max_rejection n); ties "
        "count with the mean of their group",
        _area, "max_rejection", rejections=1,
    ),
    "rejection_area_minmax": Kind(
        "rejection area of (quality - min) / (max - min)", _area_minmax, "max_rejection", rejections=1, varied=True
    ),
    "oracle_area": Kind(
        "rejection area of the order of the quality itself", _oracle_area, "max_rejection", rejections=1
    ),
    "aurc": Kind(
        "(1/n) sum over k of the mean risk of the k most certain items, risk = 1 - quality", _aurc, risk=True
    ),
    "e_aurc": Kind("aurc minus the aurc of the order of the risk itself", _e_aurc, risk=True),
    "augrc": Kind(
        "(1/n^2) sum over k of the sum of the risks of the k most certain items, risk = 1 - quality", _augrc, risk=True
    ),
    "risk_at_coverage": Kind(
        "mean risk (1 - quality) of the ceil(coverage n) most certain items", _risk_at_coverage, "coverage", risk=True
    ),
    "coverage_at_risk": Kind(
        "largest k/n such that the mean risk (1 - quality) of the k most certain items is at most risk",
        _coverage_at_risk, "risk", risk=True,
    ),
}  # fmt: skip

#: The definition of each kind of rejection metric.
REJECTION_DEFINITIONS: dict[str, str] = {name: kind.definition for name, kind in KINDS.items()}


def rejection_metrics(
    max_rejections: Sequence[float], coverages: Sequence[float], risks: Sequence[float]
) -> dict[str, RejectionMetric]:
    """The metrics of a report under their names."""
    numbers = {"max_rejection": max_rejections, "coverage": coverages, "risk": risks}
    found = {}
    for name, kind in KINDS.items():
        for number in numbers[kind.argument] if kind.argument else (1.0,):
            plain = kind.argument is None or (kind.argument == "max_rejection" and number == 1)
            found[name if plain else f"{name}_{number:g}"] = RejectionMetric(kind, number)
    return found


def named_metric(name: str) -> RejectionMetric:
    """The metric that has a name in a report: `prr`, `prr_0.5`, `risk_at_coverage_0.8`."""
    if name in KINDS and KINDS[name].argument in (None, "max_rejection"):
        return RejectionMetric(KINDS[name])
    base, _, number = name.rpartition("_")
    try:
        if KINDS[base].argument:
            return RejectionMetric(KINDS[base], float(number))
    except (KeyError, ValueError):
        pass
    raise ValueError(f"There is no rejection metric {name!r}; there are {', '.join(KINDS)}, with a number after some.")


def rejection_definition(name: str) -> str:
    """The definition of a metric in a report, its number included: `rejection_definition("prr_0.5")`."""
    metric = named_metric(name)
    number = f"; {metric.kind.argument} = {metric.number:g}" if metric.kind.argument else ""
    return metric.kind.definition + number
