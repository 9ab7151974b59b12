"""
What is gained by answering only where the model is certain: rejection curves, their areas, and risk against coverage.

All functions take one uncertainty (higher = less certain) and one quality (higher = better) per item. With the n items
in ascending order of uncertainty, everything here follows from

    S(k) = sum over the k most certain items of (quality - mean quality),   k = 1..n,

because the mean quality of the k items kept is `mean quality + S(k) / k`. Items of equal uncertainty have no order:
each counts with the mean quality of its tie group, which is the expectation over all ways to break the tie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .arrays import checked_arrays


NAN = float("nan")
ROUNDING = 1e-12


def rejection_curve(uncertainty: Any, quality: Any) -> np.ndarray:
    """
    Mean quality of the items kept, as an array of length n: entry j is what remains after rejecting the j most
    uncertain items. Entry 0 is the mean quality.
    """
    uncertainty, quality = checked_arrays(uncertainty=uncertainty, quality=quality)
    return _kept_quality(uncertainty, quality)[::-1]


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
    uncertainty, quality = _inputs(uncertainty, quality, nan_policy)
    rejections = _rejections(max_rejection, len(quality))
    if rejections < 1:
        return NAN
    return float(quality.mean()) + _gain(uncertainty, quality, rejections)


def rejection_area_minmax(
    uncertainty: Any, quality: Any, max_rejection: float = 1.0, nan_policy: str = "error"
) -> float:
    """
    [`rejection_area`] of `(quality - min) / (max - min)`: what LM-Polygraph stores under the key `prr`. It depends on
    the best and the worst item. Same arguments as [`rejection_area`]; nan where all qualities are equal or R is 0.
    """
    uncertainty, quality = _inputs(uncertainty, quality, nan_policy)
    rejections = _rejections(max_rejection, len(quality))
    if rejections < 1 or _all_equal(quality):
        return NAN
    quality = _minmax(quality)
    return float(quality.mean()) + _gain(uncertainty, quality, rejections)


def prediction_rejection_ratio(
    uncertainty: Any, quality: Any, max_rejection: float = 1.0, nan_policy: str = "error"
) -> float:
    """
    How much of the possible gain from rejection the uncertainty achieves: `(A - random) / (oracle - random)`, where A
    is [`rejection_area`], random the mean quality (the exact expectation over all orders) and oracle the area of
    `-quality`. 1 is the best possible order, 0 a useless one (a constant gives exactly 0), below 0 is worse than none.

    Same arguments as [`rejection_area`]. Returns nan where all qualities are equal or R < 2: there is nothing to gain.
    """
    uncertainty, quality = _inputs(uncertainty, quality, nan_policy)
    rejections = _rejections(max_rejection, len(quality))
    if rejections < 2 or _all_equal(quality):
        return NAN
    quality = _minmax(quality)  # cancels in the ratio, but for underflow
    return _gain(uncertainty, quality, rejections) / _gain(-quality, quality, rejections)


def aurc(uncertainty: Any, quality: Any) -> float:
    """
    Area under the risk-coverage curve, `(1/n) sum_k (mean risk of the k most certain items)`, with risk = 1 - quality
    and quality in [0, 1]. Equal to 1 - [`rejection_area`]. Returns nan without items.
    """
    uncertainty, quality = _unit_inputs(uncertainty, quality)
    return 1 - rejection_area(uncertainty, quality)


def e_aurc(uncertainty: Any, quality: Any) -> float:
    """[`aurc`] in excess of the best possible one (that of the order of the risk itself): 0 is perfect."""
    uncertainty, quality = _unit_inputs(uncertainty, quality)
    n = len(quality)
    return _gain(-quality, quality, n) - _gain(uncertainty, quality, n) if n else NAN


def augrc(uncertainty: Any, quality: Any) -> float:
    """
    Area under the generalised risk-coverage curve, `(1/n^2) sum_k (sum of the risks of the k most certain items)`,
    with risk = 1 - quality and quality in [0, 1]: the chance that an item is both kept and wrong, averaged over all
    coverages. Returns nan without items.
    """
    uncertainty, quality = _unit_inputs(uncertainty, quality)
    n = len(quality)
    if n == 0:
        return NAN
    return float((1 - quality.mean()) * (n + 1) / (2 * n) - _sums(uncertainty, quality).sum() / n**2)


def risk_at_coverage(uncertainty: Any, quality: Any, coverage: float) -> float:
    """
    Mean risk (1 - quality, quality in [0, 1]) of the `ceil(coverage * n)` most certain items, the fewest that are at
    least the share `coverage`, in (0, 1]. Returns nan without items.
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"`coverage` is {coverage}; it must lie in (0, 1].")
    uncertainty, quality = _unit_inputs(uncertainty, quality)
    if len(quality) == 0:
        return NAN
    kept = max(1, math.ceil(coverage * len(quality) * (1 - ROUNDING)))  # 0.07 * 100 is 7.000000000000001
    return float(1 - _kept_quality(uncertainty, quality)[kept - 1])


def coverage_at_risk(uncertainty: Any, quality: Any, risk: float) -> float:
    """
    Largest share of items, `max k / n`, such that the mean risk (1 - quality, quality in [0, 1]) of the k most certain
    is at most `risk`; 0 where no k is that safe. Within a tie group this is the risk expected from a random choice.
    Returns nan without items.
    """
    if not 0 <= risk <= 1:
        raise ValueError(f"`risk` is {risk}; it must lie in [0, 1].")
    uncertainty, quality = _unit_inputs(uncertainty, quality)
    if len(quality) == 0:
        return NAN
    safe = np.flatnonzero(1 - _kept_quality(uncertainty, quality) <= risk + ROUNDING)
    return float(safe[-1] + 1) / len(quality) if len(safe) else 0.0


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
    pairs = [_inputs(uncertainty_a, quality_a, "error"), _inputs(uncertainty_b, quality_b, "error")]
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


def rejection_report(
    uncertainty: Any,
    quality: Any,
    max_rejections: Sequence[float] = (1.0, 0.5),
    coverages: Sequence[float] = (0.8,),
    risks: Sequence[float] = (0.1,),
) -> dict[str, dict[str, Any]]:
    """
    Every metric of this module as `name -> {"value": float or None, "reason": None or str}`: where a metric is
    undefined its value is `None` and the reason says why.

    Names end in the maximal rejection unless that is 1 (`prr`, `prr_0.5`), and in the coverage or the risk
    (`risk_at_coverage_0.8`, `coverage_at_risk_0.1`). The metrics of risk need a quality in [0, 1].
    """
    u, q = _inputs(uncertainty, quality, "error")
    empty = None if len(q) else "no items"
    equal = "all qualities are equal" if _all_equal(q) else None
    no_risk = empty or (None if ((q >= 0) & (q <= 1)).all() else "a quality lies outside [0, 1]")
    report: dict[str, dict[str, Any]] = {}

    def add(name: str, reason: str | None, metric: Any, *arguments: Any) -> None:
        report[name] = {"value": None if reason else float(metric(*arguments)), "reason": reason}

    add("mean_quality", empty, np.mean, q)
    for share in max_rejections:
        suffix = "" if share == 1 else f"_{share:g}"
        rejections = _rejections(share, len(q))
        few = f"max_rejection {share:g} of {len(q)} items is {rejections} rejections"
        none, one = empty or (few if rejections < 1 else None), empty or (few if rejections < 2 else None)
        add(f"prr{suffix}", one or equal, prediction_rejection_ratio, u, q, share)
        add(f"rejection_area{suffix}", none, rejection_area, u, q, share)
        add(f"rejection_area_minmax{suffix}", none or equal, rejection_area_minmax, u, q, share)
        add(f"oracle_area{suffix}", none, rejection_area, -q, q, share)
    for metric in (aurc, e_aurc, augrc):
        add(metric.__name__, no_risk, metric, u, q)
    for coverage in coverages:
        add(f"risk_at_coverage_{coverage:g}", no_risk, risk_at_coverage, u, q, coverage)
    for risk in risks:
        add(f"coverage_at_risk_{risk:g}", no_risk, coverage_at_risk, u, q, risk)
    return report


def _sums(uncertainty: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """S(k) for k = 1..n: exact at the end of each tie group, linear within it (equal steps of the group's mean)."""
    n = len(quality)
    order = np.argsort(uncertainty, kind="stable")
    ranked, deviation = uncertainty[order], quality[order] - quality.min()
    sums = np.cumsum(deviation - deviation.mean())
    # deviations from the mean sum to zero: without the rounding, a constant score gains exactly nothing
    sums[-1] = 0.0
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, n)
    if len(ends) == n:
        return sums
    return np.interp(np.arange(1, n + 1), np.append(0, ends), np.append(0.0, sums[ends - 1]))


def _kept_quality(uncertainty: np.ndarray, quality: np.ndarray) -> np.ndarray:
    """Mean quality of the k most certain items, k = 1..n."""
    n = len(quality)
    return quality.mean() + _sums(uncertainty, quality) / np.arange(1, n + 1) if n else np.empty(0)


def _gain(uncertainty: np.ndarray, quality: np.ndarray, rejections: int) -> float:
    """Area minus mean quality: the mean of S(k) / k over k = n-R+1..n."""
    first, n = len(quality) - rejections, len(quality)
    return float((_sums(uncertainty, quality)[first:] / np.arange(first + 1, n + 1)).mean())


def _rejections(max_rejection: float, n: int) -> int:
    """R, the number of points on the curve: 0..R-1 items rejected."""
    if not 0 < max_rejection <= 1:
        raise ValueError(f"`max_rejection` is {max_rejection}; it must lie in (0, 1].")
    return int(max_rejection * n)


def _all_equal(quality: np.ndarray) -> bool:
    """Whether the qualities are equal up to rounding: an order of rounding errors is not a ranking."""
    return len(quality) == 0 or bool(np.ptp(quality) <= ROUNDING * np.abs(quality).max())


def _minmax(quality: np.ndarray) -> np.ndarray:
    return (quality - quality.min()) / np.ptp(quality)


def _inputs(uncertainty: Any, quality: Any, nan_policy: str) -> list[np.ndarray]:
    """Both arrays, checked; uncertainties that are not finite are refused, become +inf, or go with their quality."""
    if nan_policy not in ("error", "reject_last", "drop"):
        raise ValueError(f"`nan_policy` is {nan_policy!r}; it must be 'error', 'reject_last' or 'drop'.")
    if nan_policy == "error":
        return checked_arrays(uncertainty=uncertainty, quality=quality)
    uncertainty = np.asarray(uncertainty, dtype=np.float64).reshape(-1)
    finite = np.isfinite(uncertainty)
    finite_or_zero, quality = checked_arrays(uncertainty=np.where(finite, uncertainty, 0.0), quality=quality)
    if nan_policy == "drop":
        return [finite_or_zero[finite], quality[finite]]
    return [np.where(finite, uncertainty, np.inf), quality]


def _unit_inputs(uncertainty: Any, quality: Any) -> list[np.ndarray]:
    """Both arrays, checked, with the quality in [0, 1]."""
    uncertainty, quality = checked_arrays(uncertainty=uncertainty, quality=quality)
    wrong = np.flatnonzero((quality < 0) | (quality > 1))
    if len(wrong):
        raise ValueError(f"`quality` is {quality[wrong[0]]} at position {wrong[0]}; it must lie in [0, 1].")
    return [uncertainty, quality]
