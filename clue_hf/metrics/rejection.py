"""
What is gained by answering only where the model is certain: rejection curves, their areas, and risk against coverage.

All functions take one uncertainty (higher = less certain) and one quality (higher = better) per item, and the
`nan_policy` that [`rejection_area`] explains. Items of equal uncertainty have no order: each counts with the mean
quality of its tie group, which is the expectation over all ways to break the tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import check_unit_quality, rejection_arrays
from .curve import NAN, curve
from .definitions import KINDS, RejectionMetric


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
    metric = RejectionMetric(KINDS[name], number)
    uncertainty, quality = rejection_arrays(uncertainty, quality, nan_policy)
    if metric.kind.risk:
        check_unit_quality(quality)
    return metric(curve(uncertainty, quality))
