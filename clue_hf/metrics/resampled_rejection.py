"""
Every rejection metric of one or more scorers at once, with bootstrap intervals, and the differences of two models.

The items are sorted once; a resample only changes how often each counts (see [`~clue_hf.metrics.curve`]). The draws
are those of [`bootstrap_interval`] and [`paired_bootstrap`], so the intervals are theirs up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .arrays import rejection_arrays
from .bootstrap import Measured, check_options, difference_p_value, multiplicities
from .curve import NAN, Curve, Items, Order, Qualities
from .definitions import RejectionMetric, named_metric, rejection_metrics


#: What [`paired_rejection_differences`] compares.
PAIRED_METRICS = ("prr", "prr_0.5", "rejection_area", "aurc", "augrc", "mean_quality")


def rejection_report(uncertainty: Any, quality: Any, **options: Any) -> dict[str, dict[str, Any]]:
    """
    Every rejection metric of one uncertainty: [`rejection_reports`] of one scorer, with the same options
    (`max_rejections`, `coverages`, `risks`, `nan_policy`, `resamples`, `level`, `seed`).

    Example:

    ```python
    >>> from clue_hf.metrics import rejection_report

    >>> report = rejection_report(uncertainty, quality, resamples=2000)
    >>> report["prr"]
    {'value': 0.42, 'reason': None, 'n': 1000, 'low': 0.38, 'high': 0.46}
    ```
    """
    return rejection_reports({"": uncertainty}, quality, **options)[""]


def rejection_reports(
    uncertainties: Mapping[str, Any],
    quality: Any,
    max_rejections: Sequence[float] = (1.0, 0.5),
    coverages: Sequence[float] = (0.5, 0.8),
    risks: Sequence[float] = (0.1, 0.2),
    nan_policy: str = "error",
    resamples: int = 0,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, dict[str, Any]]]:
    """
    Every rejection metric of every scorer as `scorer -> name -> entry`.

    An entry holds `value`, `reason` and `n`, the number of items: where a metric is undefined its value is `None` and
    the reason says why. With resamples it also holds `low` and `high`, the percentile bootstrap interval over the
    items (`None` where the metric is undefined), and `undefined`, the number of resamples without a value, if there
    are any. All scorers are judged on the same draws.

    Names end in the maximal rejection unless that is 1 (`prr`, `prr_0.5`), and in the coverage or the risk
    (`risk_at_coverage_0.8`, `coverage_at_risk_0.1`); [`rejection_definition`] says what each is. The metrics of risk
    need a quality in [0, 1].

    Args:
        uncertainties (`Mapping[str, array]`):
            The uncertainty of each item, by scorer.
        quality (`array`):
            The quality of each item.
        max_rejections, coverages, risks (`Sequence[float]`, *optional*):
            The numbers to compute metrics at.
        nan_policy (`str`, *optional*, defaults to `"error"`):
            As in [`rejection_area`]. With `"drop"`, draws are from the items that are left.
        resamples (`int`, *optional*, defaults to 0):
            Number of bootstrap resamples; 0 for no intervals.
        level (`float`, *optional*, defaults to 0.95):
            Share of the resampled values inside the interval.
        seed (`int`, *optional*, defaults to 0):
            Seed of the draws.
    """
    metrics = rejection_metrics(max_rejections, coverages, risks)
    measured = _measure(uncertainties, quality, metrics, nan_policy, resamples, level, seed)
    return {
        scorer: {name: as_entry(found[name], resamples, level) for name in metrics}
        for scorer, found in measured.items()
    }


def paired_rejection_differences(
    a: Mapping[str, Any],
    quality_a: Any,
    b: Mapping[str, Any],
    quality_b: Any,
    metrics: Sequence[str] = PAIRED_METRICS,
    nan_policy: str = "error",
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, dict[str, Any]]]:
    """
    Model a minus model b on the same items, for every scorer that both have: `scorer -> name -> entry` with `value`,
    `low`, `high`, `p_value` (see [`Difference`]), `n` and `reason`, and `undefined` as in [`rejection_reports`]. Every
    resample draws the same items of both models.

    Args:
        a, b (`Mapping[str, array]`):
            The uncertainty of each item under either model, by scorer; both in the same order of items.
        quality_a, quality_b (`array`):
            The quality of each item under either model.
        metrics (`Sequence[str]`, *optional*):
            Names as in [`rejection_reports`].
        nan_policy (`str`, *optional*, defaults to `"error"`):
            As in [`rejection_area`]; `"drop"` leaves an item out of both models where one uncertainty is not finite.
        resamples, level, seed (*optional*):
            As in [`rejection_reports`].
    """
    if len(quality_a) != len(quality_b):
        raise ValueError(f"The models have {len(quality_a)} and {len(quality_b)} items; they must be the same items.")
    chosen = {name: named_metric(name) for name in metrics}
    pairs = {scorer: (a[scorer], b[scorer]) for scorer in a if scorer in b}
    if nan_policy == "drop":
        pairs = {scorer: _common(*pair) for scorer, pair in pairs.items()}
    options = (chosen, nan_policy, resamples, level, seed)
    of_a = _measure({scorer: pair[0] for scorer, pair in pairs.items()}, quality_a, *options)
    of_b = _measure({scorer: pair[1] for scorer, pair in pairs.items()}, quality_b, *options)
    return {
        scorer: {name: as_entry(found[name] - of_b[scorer][name], resamples, level, paired=True) for name in chosen}
        for scorer, found in of_a.items()
    }


def measured_rejection(
    uncertainties: Mapping[str, Any], quality: Any, metrics: Sequence[str], resamples: int = 2000, seed: int = 0
) -> dict[str, dict[str, Measured]]:
    """Metrics of every scorer, named as in [`rejection_reports`], with their values on each resample."""
    chosen = {name: named_metric(name) for name in metrics}
    return _measure(uncertainties, quality, chosen, "error", resamples, 0.95, seed)


def _measure(
    uncertainties: Mapping[str, Any],
    quality: Any,
    metrics: Mapping[str, RejectionMetric],
    nan_policy: str,
    resamples: int,
    level: float,
    seed: int,
) -> dict[str, dict[str, Measured]]:
    """Every metric of every scorer. Scorers that have the same items left share the resamples and their oracle."""
    check_options(resamples, level)
    groups: dict[bytes, tuple[np.ndarray, dict[str, Order]]] = {}
    for scorer, uncertainty in uncertainties.items():
        used, left = rejection_arrays(uncertainty, quality, nan_policy)
        groups.setdefault(left.tobytes(), (left, {}))[1][scorer] = Order(used)
    found = {}
    for left, orders in groups.values():
        found.update(_measure_group(Qualities(left), orders, metrics, resamples, seed))
    return {scorer: found[scorer] for scorer in uncertainties}


def _measure_group(
    qualities: Qualities,
    orders: Mapping[str, Order],
    metrics: Mapping[str, RejectionMetric],
    resamples: int,
    seed: int,
) -> dict[str, dict[str, Measured]]:
    """Every metric of scorers that judge the same items; one undefined on all items is so on every resample."""
    items = Items(qualities)
    curves = {scorer: Curve(items, order) for scorer, order in orders.items()}
    defined = [(i, metric) for i, metric in enumerate(metrics.values()) if not metric.reason(items)]
    values = np.full((len(orders), len(metrics), resamples), NAN)
    for index, counts in enumerate(multiplicities(items.n, resamples, seed)):
        drawn = Items(qualities, counts)
        for row, order in zip(values, orders.values(), strict=True):
            curve = Curve(drawn, order)
            for column, metric in defined:
                row[column, index] = metric(curve)
    return {
        scorer: {
            name: Measured(metric(curve), metric.reason(items), items.n, row[column])
            for column, (name, metric) in enumerate(metrics.items())
        }
        for row, (scorer, curve) in zip(values, curves.items(), strict=True)
    }


def as_entry(found: Measured, resamples: int, level: float, paired: bool = False) -> dict[str, Any]:
    """A metric as plain data: what is undefined is `None`."""
    entry: dict[str, Any] = {"value": found.value, "reason": found.reason, "n": found.n}
    if resamples:
        interval = found.interval(level)
        entry.update(low=interval.low, high=interval.high)
        if paired:
            entry["p_value"] = difference_p_value(found.values)
        if interval.undefined and not found.reason:
            entry["undefined"] = interval.undefined
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in entry.items()}


def _common(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both uncertainties, nan wherever one of them is not finite."""
    a, b = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (a, b))
    both = np.isfinite(a) & np.isfinite(b)
    return np.where(both, a, NAN), np.where(both, b, NAN)
