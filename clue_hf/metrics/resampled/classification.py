"""
Every metric of a classifier at once, with bootstrap intervals, and the differences of two classifiers.

A resample only changes how often each example counts. Metrics of sums (over examples, or over those in a bin) come
from one product of these counts with a sparse table, metrics of an order from what was sorted once. The draws are
those of [`bootstrap_interval`] and [`paired_bootstrap`], so the intervals are theirs up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from scipy import sparse

from ..arrays import checked_arrays
from ..bootstrap import check_options, measured_columns, multiplicities
from ..calibration import EqualMassGap, equal_width_bins
from ..classification import Answers, checked_answers, debiased_error, flip_outcomes, flip_rates, normalized_entropy
from ..measured import NAN, Measured, paired_differences
from ..registry import METRICS
from ..separation import Correlation, Separation, best_threshold, uncertain_as_wrong
from .rejection import rejection_report


#: The rejection metrics of a report, with quality 1 for a right answer and 0 for a wrong one.
REJECTION_METRICS = (
    "prr", "prr_0.5", "aurc", "e_aurc", "augrc",
    "risk_at_coverage_0.5", "risk_at_coverage_0.8", "coverage_at_risk_0.1", "coverage_at_risk_0.2",
)  # fmt: skip
#: How many numbers a block of resamples holds.
BLOCK = 2**21

_TWO_SIDED = ("uncertainty_auc", "residual_correlation", "wasserstein", "uncertainty_gap")
_LOGARITHMIC = ("nll", "alignment_error", "residual_correlation_nll")
_FLIP_REASONS = {
    "flip_f1": "no label and no answer is positive",
    "flip_precision": "no answer is positive",
    "flip_tpr": "no label is positive",
    "flip_tnr": "no label is negative",
}


def classification_report(
    probabilities: Any,
    labels: Any,
    uncertainty: Any = None,
    resamples: int = 2000,
    tau: float | None = None,
    positive: int = 1,
    num_bins: int = 15,
    level: float = 0.95,
    seed: int = 0,
    rejection: bool = True,
) -> dict[str, Measured]:
    """
    Every metric of a classifier by name, as [`Measured`]: error, calibration, how the uncertainty goes with the error,
    and rejection. [`metric_info`] says what each is.

    The entry of `uncertainty_accuracy` also has its `tau`, and metrics of logarithms have `floored`, the number of
    labels with a probability below 2.2e-16, if there are any. The draws depend on `seed` and n only.

    Calibration errors sum absolute gaps, to which a resample adds noise: where a model is close to calibrated, the
    interval lies mostly above the value.

    Args:
        probabilities (`array` of shape `(n, classes)`):
            Probability of every class.
        labels (`array`):
            The right class of each example.
        uncertainty (`array`, *optional*):
            The uncertainty of each answer, by default [`normalized_entropy`]. Above 1 there is no `uce`. The
            `alignment_error` is always that of the entropy of the probabilities, in nats.
        resamples, level, seed (*optional*):
            As in [`bootstrap_interval`]; 0 resamples for no intervals.
        tau (`float`, *optional*):
            Threshold of the uncertainty from validation data ([`best_threshold`]). Adds `uncertainty_accuracy_val`
            and, with two classes, the metrics after a flip ([`binary_flip`]).
        positive (`int`, *optional*, defaults to 1):
            The positive class of the flip.
        num_bins (`int`, *optional*, defaults to 15):
            Number of bins of all calibration errors.
        rejection (`bool`, *optional*, defaults to `True`):
            Whether to compute the rejection metrics too.

    Example:

    ```python
    >>> from clue_hf.metrics import classification_report

    >>> classification_report(probabilities, labels)["ece"].value
    0.043
    ```
    """
    answers = checked_answers(probabilities, labels)
    if uncertainty is None:
        uncertainty = normalized_entropy(answers.probabilities)
    uncertainty, _ = checked_arrays(uncertainty=uncertainty, labels=answers.labels)
    measured = _measure(_Model(answers, uncertainty, tau, positive, num_bins), resamples, level, seed)
    if answers.n:
        best_tau = best_threshold(uncertainty, answers.wrong)
        measured["uncertainty_accuracy"] = measured["uncertainty_accuracy"].with_details(tau=best_tau)
    if answers.floored:
        for name in _LOGARITHMIC:
            measured[name] = measured[name].with_details(floored=answers.floored)
    if rejection:
        options: dict[str, Any] = {"resamples": resamples, "level": level, "seed": seed}
        measured |= rejection_report(uncertainty, answers.correct, metrics=REJECTION_METRICS, **options)
    return measured


def paired_classification_differences(
    a: Any,
    b: Any,
    labels: Any,
    uncertainty_a: Any = None,
    uncertainty_b: Any = None,
    tau_a: float | None = None,
    tau_b: float | None = None,
    positive: int = 1,
    num_bins: int = 15,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Measured]:
    """
    Classifier a minus classifier b on the same examples, for every metric that both have in
    [`classification_report`], as [`Measured`] with a p-value. Every resample draws the same examples of both.

    Args:
        a, b (`array` of shape `(n, classes)`):
            Probability of every class under either classifier.
        labels (`array`):
            The right class of each example.
        uncertainty_a, uncertainty_b, tau_a, tau_b (*optional*):
            The uncertainties and their thresholds, as in [`classification_report`].
        positive, num_bins, resamples, level, seed (*optional*):
            As in [`classification_report`].
    """
    report_a, report_b = (
        classification_report(probabilities, labels, uncertainty, resamples, tau, positive, num_bins, level, seed)
        for probabilities, uncertainty, tau in ((a, uncertainty_a, tau_a), (b, uncertainty_b, tau_b))
    )
    return paired_differences(report_a, report_b, level)


@dataclass(frozen=True)
class _Model:
    """What a report is about."""

    answers: Answers
    uncertainty: np.ndarray
    tau: float | None
    positive: int
    num_bins: int


def _measure(model: _Model, resamples: int, level: float, seed: int) -> dict[str, Measured]:
    """Every metric but those of rejection, on all examples and on each resample, in the order of the registry."""
    check_options(resamples, level)
    n = model.answers.n
    tables, ordered = _Tables(model), _Ordered(model)
    blocks: dict[str, list[np.ndarray]] = {}
    for counts in _blocks(n, resamples, seed):
        for name, values in {**tables.metrics(counts), **ordered.metrics(counts)}.items():
            blocks.setdefault(name, []).append(values)
    columns = {name: np.concatenate(blocks[name]).tolist() for name in METRICS["classes"] if name in blocks}
    return measured_columns(columns, n, lambda name: _reason(name, model), resamples, level)


def _blocks(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each example counts, as `(rows, n)`: first once each, then in every resample."""
    every = chain([np.ones(n, int)], multiplicities(n, resamples, seed))
    while block := list(islice(every, max(1, BLOCK // max(n, 1)))):
        yield np.array(block)


class _Tables:
    """The metrics that follow from sums over the examples: one row per example in a sparse table."""

    def __init__(self, model: _Model) -> None:
        self.model, answers = model, model.answers
        gap = answers.correct - answers.confidence
        bins = equal_width_bins(answers.confidence, model.num_bins)
        tables = {
            "means": sparse.csr_array(np.column_stack([answers.wrong, answers.squared_distance, answers.error])),
            "size": self._binned(bins, np.ones(answers.n)),
            "right": self._binned(bins, answers.correct),
            "gap": self._binned(bins, gap),
            "classes": sparse.hstack([self._class_gaps(c) for c in range(answers.num_classes)]),
        }
        if ((model.uncertainty >= 0) & (model.uncertainty <= 1)).all():
            bins = equal_width_bins(model.uncertainty, model.num_bins)
            tables["uncertainty"] = self._binned(bins, answers.wrong - model.uncertainty)
        if model.tau is not None:
            alike = uncertain_as_wrong(model.uncertainty, answers.wrong, model.tau)
            tables["alike"] = sparse.csr_array(alike.reshape(-1, 1).astype(float))
        if model.tau is not None and answers.num_classes == 2:
            outcomes = flip_outcomes(answers.predictions, answers.labels, model.uncertainty, model.tau, model.positive)
            tables["flip"] = sparse.csr_array(outcomes)
        self.names = list(tables)
        self.ends = np.cumsum([table.shape[1] for table in tables.values()])
        self.table = sparse.csr_array(sparse.hstack(list(tables.values())))

    def _binned(self, bins: np.ndarray, numbers: np.ndarray) -> sparse.csr_array:
        """One number per row, in the column of its bin."""
        shape = len(bins), self.model.num_bins
        return sparse.csr_array((numbers, (np.arange(len(bins)), bins)), shape=shape)

    def _class_gaps(self, c: int) -> sparse.csr_array:
        probability = self.model.answers.probabilities[:, c]
        bins = equal_width_bins(probability, self.model.num_bins)
        return self._binned(bins, (self.model.answers.labels == c) - probability)

    def metrics(self, counts: np.ndarray) -> dict[str, np.ndarray]:
        """The metrics for each row of counts."""
        product = (self.table.T @ np.ascontiguousarray(counts.T, dtype=float)).T
        sums = dict(zip(self.names, np.split(product, self.ends[:-1], axis=1), strict=True))
        n = self.model.answers.n or NAN
        error, brier, nll = sums["means"].T / n
        metrics = {
            "error": error,
            "brier": brier,
            "nll": nll,
            "ece": np.abs(sums["gap"]).sum(axis=1) / n,
            "ece_debiased": debiased_error(sums["size"], sums["right"], sums["gap"]),
            "ece_classwise": np.abs(sums["classes"]).sum(axis=1) / n / self.model.answers.num_classes,
            "uce": np.abs(sums["uncertainty"]).sum(axis=1) / n if "uncertainty" in sums else np.full(len(counts), NAN),
        }
        if "alike" in sums:
            metrics["uncertainty_accuracy_val"] = sums["alike"][:, 0] / n
        if "flip" in sums:
            metrics.update(flip_rates(sums["flip"]))
        return metrics


class _Ordered:
    """The metrics that follow from an order of the examples, and the correlations."""

    def __init__(self, model: _Model) -> None:
        answers, uncertainty = model.answers, model.uncertainty
        self.separation = Separation(uncertainty, answers.wrong)
        self.gaps = {
            "ece_adaptive": EqualMassGap(answers.confidence, answers.correct, model.num_bins),
            "alignment_error": EqualMassGap(answers.entropy, answers.error, model.num_bins),
        }
        self.correlations = {
            "residual_correlation": Correlation(uncertainty, answers.wrong),
            "residual_correlation_probability": Correlation(uncertainty, 1 - answers.label_probability),
            "residual_correlation_nll": Correlation(uncertainty, answers.error),
        }

    def metrics(self, counts: np.ndarray) -> dict[str, np.ndarray]:
        """The metrics for each row of counts."""
        rows = [self._metrics(row) for row in counts]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def _metrics(self, counts: np.ndarray) -> dict[str, float]:
        split = self.separation.split(counts)
        return {
            "uncertainty_accuracy": split.accuracy(),
            "uncertainty_auc": split.auc(),
            "wasserstein": split.wasserstein(),
            "uncertainty_gap": split.gap(),
            **{name: gap(counts) for name, gap in self.gaps.items()},
            **{name: correlation(counts) for name, correlation in self.correlations.items()},
        }


def _reason(name: str, model: _Model) -> str:
    """Why a metric is undefined on all examples."""
    if model.answers.n == 0:
        return "no examples"
    if name in _FLIP_REASONS:
        return _FLIP_REASONS[name]
    if name == "uce":
        return "an uncertainty lies outside [0, 1]"
    if name == "ece_debiased":
        return "no bin holds two examples"
    if name in _TWO_SIDED and len(np.unique(model.answers.correct)) == 1:
        return "all answers are right" if model.answers.correct[0] else "all answers are wrong"
    return "the uncertainty is constant" if np.ptp(model.uncertainty) == 0 else "the residual is constant"
