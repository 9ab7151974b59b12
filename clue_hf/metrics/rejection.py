"""
What is gained by answering only where the model is certain: rejection curves, their areas, and risk against coverage.

All functions take one uncertainty (higher = less certain) and one quality (higher = better) per item, and the
`nan_policy` that [`rejection_area`] explains. Items of equal uncertainty have no order: each counts with the mean
quality of its tie group, which is the expectation over all ways to break the tie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import check_unit_range, rejection_arrays
from .curve import ROUNDING, Curve, Items, curve
from .measured import NAN
from .registry import METRICS


def rejection_curve(uncertainty: Any, quality: Any, nan_policy: str = "error") -> np.ndarray:
    """
    Mean quality of the items kept, as an array of length n: entry j is what remains after rejecting the j most
    uncertain items. Entry 0 is the mean quality.
    """
    return curve(*rejection_arrays(uncertainty, quality, nan_policy)).kept[::-1]


def rejection_area(uncertainty: Any, quality: Any, max_rejection: float = 1.0, nan_policy: str = "error") -> float:
    """
    Area under the rejection curve, in units of quality: `A = (1/R) sum_{k=n-R+1..n} (mean quality of the k most
    certain items)` with `R = int(max_rejection * n)`.

    A useless score has the mean quality as its area, so areas of models of different quality must not be compared: see
    [`prediction_rejection_ratio`] and [`split_of_area_gain`].

    Args:
        uncertainty (`array`):
            One number per item, higher where less certain. Only its order matters.
        quality (`array`):
            One number per item, higher where better.
        max_rejection (`float`, *optional*, defaults to 1.0):
            Largest share of items to reject, in (0, 1].
        nan_policy (`str`, *optional*, defaults to `"error"`):
            What to do where the uncertainty is NaN or infinite. `"error"` raises with the position. `"reject_last"`
            puts these items last in the order of certainty: all tied (also -inf), more uncertain than every finite
            item, and so the first to be rejected. `"drop"` leaves the items out. A NaN quality always raises.

    Returns:
        `float`: The area, nan where R is 0.
    """
    return _value("rejection_area", uncertainty, quality, nan_policy, max_rejection)


def rejection_area_minmax(
    uncertainty: Any, quality: Any, max_rejection: float = 1.0, nan_policy: str = "error"
) -> float:
    """
    [`rejection_area`] of `(quality - min) / (max - min)`: what LM-Polygraph stores under the key `prr`. It depends on
    the best and the worst item. Same arguments as [`rejection_area`]; nan where all qualities are equal or R is 0.
    """
    return _value("rejection_area_minmax", uncertainty, quality, nan_policy, max_rejection)


def prediction_rejection_ratio(
    uncertainty: Any, quality: Any, max_rejection: float = 1.0, nan_policy: str = "error"
) -> float:
    """
    How much of the possible gain from rejection the uncertainty achieves: `(A - random) / (oracle - random)`, where A
    is [`rejection_area`], random the mean quality (the exact expectation over all orders) and oracle the area of
    `-quality`. 1 is the best possible order, 0 a useless one (a constant gives exactly 0), below 0 is worse than none.

    Same arguments as [`rejection_area`]. Returns nan where all qualities are equal or R < 2: there is nothing to gain.
    """
    return _value("prr", uncertainty, quality, nan_policy, max_rejection)


def aurc(uncertainty: Any, quality: Any, nan_policy: str = "error") -> float:
    """
    Area under the risk-coverage curve, `(1/n) sum_k (mean risk of the k most certain items)`, with risk = 1 - quality
    and quality in [0, 1]. Equal to 1 - [`rejection_area`]. Returns nan without items.
    """
    return _value("aurc", uncertainty, quality, nan_policy)


def e_aurc(uncertainty: Any, quality: Any, nan_policy: str = "error") -> float:
    """[`aurc`] in excess of the best possible one (that of the order of the risk itself): 0 is perfect."""
    return _value("e_aurc", uncertainty, quality, nan_policy)


def augrc(uncertainty: Any, quality: Any, nan_policy: str = "error") -> float:
    """
    Area under the generalised risk-coverage curve, `(1/n^2) sum_k (sum of the risks of the k most certain items)`,
    with risk = 1 - quality and quality in [0, 1]: the chance that an item is both kept and wrong, averaged over all
    coverages. Returns nan without items.
    """
    return _value("augrc", uncertainty, quality, nan_policy)


def risk_at_coverage(uncertainty: Any, quality: Any, coverage: float, nan_policy: str = "error") -> float:
    """
    Mean risk (1 - quality, quality in [0, 1]) of the `ceil(coverage * n)` most certain items, the fewest that are at
    least the share `coverage`, in (0, 1]. Returns nan without items.
    """
    return _value("risk_at_coverage", uncertainty, quality, nan_policy, coverage)


def coverage_at_risk(uncertainty: Any, quality: Any, risk: float, nan_policy: str = "error") -> float:
    """
    Largest share of items, `max k / n`, such that the mean risk (1 - quality, quality in [0, 1]) of the k most certain
    is at most `risk`; 0 where no k is that safe. Within a tie group this is the risk expected from a random choice.
    Returns nan without items.
    """
    return _value("coverage_at_risk", uncertainty, quality, nan_policy, risk)


def split_of_area_gain(
    uncertainty_a: Any, quality_a: Any, uncertainty_b: Any, quality_b: Any, max_rejection: float = 1.0
) -> dict[str, float]:
    """
    Why the [`rejection_area`] of model a differs from that of model b: `difference = ranking + quality`, with

        ranking = mean(D) * (PRR_a - PRR_b)
        quality = (mean quality_a - mean quality_b) + mean(PRR) * (D_a - D_b),

    where D = oracle area - mean quality is what rejection could gain and the means are over the two models. This is an
    identity, since area = mean quality + PRR * D. Both parts are nan where one of the ratios is undefined.
    """
    pairs = [rejection_arrays(u, q, "error") for u, q in ((uncertainty_a, quality_a), (uncertainty_b, quality_b))]
    area_a, area_b = (rejection_area(u, q, max_rejection) for u, q in pairs)
    mean_a, mean_b = (float(q.mean()) if len(q) else NAN for _, q in pairs)
    room_a, room_b = (
        rejection_area(-q, q, max_rejection) - mean for (_, q), mean in zip(pairs, (mean_a, mean_b), strict=True)
    )
    ratio_a, ratio_b = (prediction_rejection_ratio(u, q, max_rejection) for u, q in pairs)
    return {
        "difference": area_a - area_b,
        "ranking": (room_a + room_b) / 2 * (ratio_a - ratio_b),
        "quality": mean_a - mean_b + (ratio_a + ratio_b) / 2 * (room_a - room_b),
    }


def _value(name: str, uncertainty: Any, quality: Any, nan_policy: str, number: float = 1.0) -> float:
    """A metric of this module, nan where it is undefined; raises where it needs a quality in [0, 1] and has none."""
    metric = RejectionMetric(name, number)
    uncertainty, quality = rejection_arrays(uncertainty, quality, nan_policy)
    if metric.formula.risk:
        check_unit_range("quality", quality)
    return metric(curve(uncertainty, quality))


# ---- what each metric is on a curve ----


@dataclass(frozen=True)
class Formula:
    """
    How a rejection metric is computed.

    Args:
        compute (`Callable`): Its value from the curve and the number that may follow its name.
        rejections (`int`): The fewest rejections R that it needs.
        varied (`bool`): Whether it needs qualities that differ.
        risk (`bool`): Whether it is about the risk, 1 - quality, and so needs a quality in [0, 1].
    """

    compute: Callable[[Curve, float], Any]
    rejections: int = 0
    varied: bool = False
    risk: bool = False


@dataclass(frozen=True)
class RejectionMetric:
    """
    A metric by its name in the registry, with its number (the maximal rejection, the coverage or the risk): called
    with a curve, it gives the value, nan where `reason` says why.
    """

    name: str
    number: float = 1.0

    @property
    def formula(self) -> Formula:
        return FORMULAS[self.name]

    def __post_init__(self) -> None:
        low_is_allowed = _argument(self.name) == "risk"
        if not (0 < self.number <= 1 or (low_is_allowed and self.number == 0)):
            limits = "[0, 1]" if low_is_allowed else "(0, 1]"
            raise ValueError(f"`{_argument(self.name)}` is {self.number}; it must lie in {limits}.")

    def reason(self, items: Items) -> str | None:
        """Why the metric is undefined on these items; `None` where it is defined."""
        formula = self.formula
        if items.n == 0:
            return "no items"
        if formula.risk and not (items.least >= 0 and items.largest <= 1):
            return "a quality lies outside [0, 1]"
        if formula.rejections and _rejections(items, self.number) < formula.rejections:
            return f"max_rejection {self.number:g} of {items.n} items is {_rejections(items, self.number)} rejections"
        return "all qualities are equal" if formula.varied and items.equal else None

    def __call__(self, curve: Curve) -> float:
        return NAN if self.reason(curve.items) else float(self.formula.compute(curve, self.number))

    def of_resamples(self, curve: Curve) -> np.ndarray:
        """Its value on each of several resamples of items on which it is defined."""
        with np.errstate(divide="ignore", invalid="ignore"):
            values = self.formula.compute(curve, self.number)
        return np.where(curve.items.equal, NAN, values) if self.formula.varied else values


def _rejections(items: Items, max_rejection: float) -> int:
    """R, the number of points on the curve: 0..R-1 items rejected."""
    return int(max_rejection * items.n)


def _area(curve: Curve, max_rejection: float) -> Any:
    return curve.items.mean + curve.scale * curve.gain(_rejections(curve.items, max_rejection))


def _area_minmax(curve: Curve, max_rejection: float) -> Any:
    items = curve.items
    value_range = items.largest - items.least
    # the range first: a quality of 5e-324 has no reciprocal
    gain = curve.gain(_rejections(items, max_rejection)) * (curve.scale / value_range)
    return (items.mean - items.least) / value_range + gain


def _ratio(curve: Curve, max_rejection: float) -> Any:
    rejections = _rejections(curve.items, max_rejection)
    return curve.gain(rejections) / curve.items.best.gain(rejections)


def _e_aurc(curve: Curve, _: float) -> Any:
    return curve.scale * (curve.items.best.gain(curve.items.n) - curve.gain(curve.items.n))


def _augrc(curve: Curve, _: float) -> Any:
    n = curve.items.n
    return (1 - curve.items.mean) * (n + 1) / (2 * n) - curve.scale * curve.sums.sum(-1) / n**2


def _risk_at_coverage(curve: Curve, coverage: float) -> Any:
    kept = max(1, math.ceil(coverage * curve.items.n * (1 - ROUNDING)))  # 0.07 * 100 is 7.000000000000001
    return 1 - curve.kept[..., kept - 1]


def _coverage_at_risk(curve: Curve, risk: float) -> Any:
    safe, n = curve.kept >= 1 - risk - ROUNDING, curve.items.n
    return np.where(safe.any(-1), (n - safe[..., ::-1].argmax(-1)) / n, 0.0)


FORMULAS = {
    "mean_quality": Formula(lambda curve, _: curve.items.mean),
    "random_area": Formula(lambda curve, _: curve.items.mean),
    "prr": Formula(_ratio, rejections=2, varied=True),
    "rejection_area": Formula(_area, rejections=1),
    "rejection_area_minmax": Formula(_area_minmax, rejections=1, varied=True),
    "oracle_area": Formula(lambda curve, max_rejection: _area(curve.items.best, max_rejection), rejections=1),
    "aurc": Formula(lambda curve, _: 1 - _area(curve, 1.0), risk=True),
    "e_aurc": Formula(_e_aurc, risk=True),
    "augrc": Formula(_augrc, risk=True),
    "risk_at_coverage": Formula(_risk_at_coverage, risk=True),
    "coverage_at_risk": Formula(_coverage_at_risk, risk=True),
}


def _argument(name: str) -> str:
    """What the number of a metric is."""
    return METRICS["shared"][name].argument


def rejection_metrics(
    max_rejections: Sequence[float], coverages: Sequence[float], risks: Sequence[float]
) -> dict[str, RejectionMetric]:
    """The metrics of a report under their names."""
    numbers = {"max_rejection": max_rejections, "coverage": coverages, "risk": risks}
    metrics = {}
    for name in FORMULAS:
        argument = _argument(name)
        for number in numbers[argument] if argument else (1.0,):
            plain = not argument or (argument == "max_rejection" and number == 1)
            metrics[name if plain else f"{name}_{number:g}"] = RejectionMetric(name, number)
    return metrics


def named_metric(name: str) -> RejectionMetric:
    """The metric that has a name in a report: `prr`, `prr_0.5`, `risk_at_coverage_0.8`."""
    if name in FORMULAS and _argument(name) in ("", "max_rejection"):
        return RejectionMetric(name)
    base, _, number = name.rpartition("_")
    with suppress(KeyError, ValueError):
        if _argument(base):
            return RejectionMetric(base, float(number))
    raise ValueError(
        f"There is no rejection metric {name!r}; there are {', '.join(FORMULAS)}, with a number after some."
    )
