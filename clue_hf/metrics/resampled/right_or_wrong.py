"""How well an uncertainty, and a confidence made of it, know which outputs are right and which are wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..bootstrap import cluster_mean_interval, measure_rows
from ..curve import Order
from ..measured import Measured
from ..separation import Separation, checked_wrong


def is_right_or_wrong(quality: np.ndarray) -> bool:
    """Whether every quality is 1 or 0."""
    return bool(np.isin(quality, (0, 1)).all())


def right_or_wrong_report(
    uncertainty: Any, right: Any, confidence: np.ndarray | None = None, resamples: int = 2000, seed: int = 0
) -> dict[str, Measured]:
    """
    `auroc` and `aupr` of an uncertainty as a detector of wrong outputs, and the Brier score of a confidence
    (`confidence_brier`, undefined without one), each with its bootstrap interval over the outputs.

    Args:
        uncertainty (`array`):
            One number per output.
        right (`array`):
            1 where the output is right, 0 where it is wrong.
        confidence (`array`, *optional*):
            The probability that it is right.
        resamples, seed (`int`, *optional*):
            As in [`bootstrap_interval`].
    """
    uncertainty, wrong = checked_wrong(uncertainty, 1 - np.asarray(right, dtype=float))
    separation = Separation(Order(uncertainty), wrong)
    reason = f"all outputs are {'wrong' if wrong.any() else 'right'}"

    def detection(counts: np.ndarray | None) -> dict[str, float]:
        split = separation.split(counts)
        return {"auroc": split.auc(), "aupr": split.average_precision()}

    report = measure_rows(detection, len(wrong), lambda _: reason, resamples, 0.95, seed)
    if confidence is None:
        brier = Measured(math.nan, "too few examples to fit a confidence", len(wrong))
    else:
        brier = cluster_mean_interval((confidence - (1 - wrong)) ** 2, np.ones(len(wrong)), resamples, seed=seed)
    return {**report, "confidence_brier": brier}
