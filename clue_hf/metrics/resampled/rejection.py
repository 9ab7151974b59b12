"""
Every rejection metric of one or more scorers at once, with bootstrap intervals, and the differences of two models.

The items are sorted once; a resample only changes how often each counts (see [`~clue_hf.metrics.curve`]). The draws
are those of [`bootstrap_interval`] and [`paired_bootstrap`], so the intervals are theirs up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import rejection_arrays
from ..bootstrap import blocks_of_counts, check_options, measured_columns
from ..curve import Curve, Items, Order, Qualities
from ..measured import NAN, Measured, paired_differences
from ..rejection import RejectionMetric, named_metric, rejection_metrics


#: What [`paired_rejection_differences`] compares.
PAIRED_METRICS = ("prr", "prr_0.5", "rejection_area", "aurc", "augrc", "mean_quality")

#: Counts of items whose curves are made at once: their arrays stay in the cache.
BLOCK = 2**15


def rejection_report(uncertainty: Any, quality: Any, **options: Any) -> dict[str, Measured]:
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
    metrics: Sequence[str] | None = None,
) -> dict[str, dict[str, Measured]]:
    """
    Every rejection metric of every scorer as `scorer -> name -> `[`Measured`], with a percentile bootstrap interval
    over the items where there are resamples. All scorers are judged on the same draws, which depend on `seed` and the
    number of items only.

    Names end in the maximal rejection unless that is 1 (`prr`, `prr_0.5`), and in the coverage or the risk
    (`risk_at_coverage_0.8`, `coverage_at_risk_0.1`); [`metric_info`] says what each is. The metrics of risk
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
        resamples, level, seed (*optional*):
            As in [`bootstrap_interval`], but by default there are 0 resamples, and so no intervals.
        metrics (`Sequence[str]`, *optional*):
            Names of the metrics to compute, by default all at these numbers.
    """
    chosen = (
        rejection_metrics(max_rejections, coverages, risks)
        if metrics is None
        else {name: named_metric(name) for name in metrics}
    )
    # scorers that have the same items left share the resamples and their oracle
    groups: dict[bytes, tuple[np.ndarray, dict[str, Order]]] = {}
    for scorer, uncertainty in uncertainties.items():
        used, left = rejection_arrays(uncertainty, quality, nan_policy)
        groups.setdefault(left.tobytes(), (left, {}))[1][scorer] = Order(used)
    measured = {}
    for left, orders in groups.values():
        measured.update(measure_rejection(Qualities(left), orders, chosen, resamples, level, seed))
    return {scorer: measured[scorer] for scorer in uncertainties}


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
) -> dict[str, dict[str, Measured]]:
    """
    Model a minus model b on the same items, for every scorer that both have: `scorer -> name -> `[`Measured`]
    with a p-value. Every resample draws the same items of both models.

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
    pairs = {scorer: (a[scorer], b[scorer]) for scorer in a if scorer in b}
    if nan_policy == "drop":
        pairs = {scorer: _common(*pair) for scorer, pair in pairs.items()}
    options: dict[str, Any] = {"nan_policy": nan_policy, "resamples": resamples, "level": level, "seed": seed}
    report_a, report_b = (
        rejection_reports({scorer: pair[model] for scorer, pair in pairs.items()}, quality, metrics=metrics, **options)
        for model, quality in enumerate((quality_a, quality_b))
    )
    return {scorer: paired_differences(report_a[scorer], report_b[scorer], level) for scorer in pairs}


def _common(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both uncertainties, nan wherever one of them is not finite."""
    a, b = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (a, b))
    both = np.isfinite(a) & np.isfinite(b)
    return np.where(both, a, NAN), np.where(both, b, NAN)


def measure_rejection(
    qualities: Qualities,
    orders: Mapping[str, Order],
    metrics: Mapping[str, RejectionMetric],
    resamples: int,
    level: float,
    seed: int,
) -> dict[str, dict[str, Measured]]:
    """Every metric of scorers that judge the same items, all checked."""
    check_options(resamples, level)
    items = Items(qualities)
    reasons = {name: metric.reason(items) for name, metric in metrics.items()}
    defined = {name: metric for name, metric in metrics.items() if reasons[name] is None}
    first = {scorer: Curve(items, order) for scorer, order in orders.items()}
    columns = {(scorer, name): [metric(curve)] for scorer, curve in first.items() for name, metric in metrics.items()}
    for counts in blocks_of_counts(items.n, resamples, seed, BLOCK):
        drawn = Items(qualities, counts)
        for scorer, order in orders.items():
            curve = Curve(drawn, order)
            for name, metric in defined.items():
                columns[scorer, name].extend(metric.of_resamples(curve))
    measured = measured_columns(columns, items.n, lambda key: reasons[key[1]], resamples, level)
    return {scorer: {name: measured[scorer, name] for name in metrics} for scorer in orders}
