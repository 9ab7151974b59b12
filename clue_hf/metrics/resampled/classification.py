"""
Every metric of a classifier at once, with bootstrap intervals, and the differences of two classifiers.

A resample only changes how often each example counts. Metrics of sums (over examples, or over those in a bin) come
from one product of these counts with a sparse table, metrics of an order from what was sorted once. The draws are
those of [`bootstrap_interval`] and [`paired_bootstrap`], so the intervals are theirs up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from ..answers import CheckedAnswers, checked_answers
from ..arrays import checked_arrays
from ..bootstrap import blocks_of_counts, check_options, measured_columns
from ..calibration import EqualMassGap, equal_width_bins
from ..classification import ClassGaps, debiased_error, flip_outcomes, flip_rates
from ..curve import Order, Qualities
from ..measured import NAN, Measured, paired_differences
from ..registry import METRICS
from ..rejection import named_metric
from ..separation import Correlation, Separation, Split, uncertain_as_wrong
from .rejection import measure_rejection


#: The rejection metrics of a report, with quality 1 for a right answer and 0 for a wrong one.
REJECTION_METRICS = (
    "prr", "prr_0.5", "aurc", "e_aurc", "augrc",
    "risk_at_coverage_0.5", "risk_at_coverage_0.8", "coverage_at_risk_0.1", "coverage_at_risk_0.2",
)  # fmt: skip
#: How many numbers a block of resamples holds.
BLOCK = 2**21
#: Up to so many probabilities, a table of them serves all resamples (12 bytes each); beyond, each reads them again.
TABLE_LIMIT = 2**26

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
    labels: Any = None,
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
        probabilities (`array` of shape `(n, classes)` or [`CheckedAnswers`]):
            Probability of every class.
        labels (`array`, *optional*):
            The right class of each example; left out with [`CheckedAnswers`].
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
    check_options(resamples, level)
    answers = checked_answers(probabilities, labels)
    if uncertainty is None:
        uncertainty = answers.normalized_entropy
    else:
        uncertainty, _ = checked_arrays(uncertainty=uncertainty, labels=answers.labels)
    model = _Model(answers, uncertainty, tau, positive, num_bins)
    measured = _measure(model, resamples, level, seed)
    if answers.n:
        best_tau = model.separation.split().threshold()
        measured["uncertainty_accuracy"] = measured["uncertainty_accuracy"].with_details(tau=best_tau)
    if answers.floored:
        for name in _LOGARITHMIC:
            measured[name] = measured[name].with_details(floored=answers.floored)
    if rejection:
        metrics = {name: named_metric(name) for name in REJECTION_METRICS}
        qualities, orders = Qualities(answers.correct), {"": model.separation.order}
        measured |= measure_rejection(qualities, orders, metrics, resamples, level, seed)[""]
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

    answers: CheckedAnswers
    uncertainty: np.ndarray
    tau: float | None
    positive: int
    num_bins: int

    @cached_property
    def separation(self) -> Separation:
        return Separation(Order(self.uncertainty), self.answers.wrong)


def _measure(model: _Model, resamples: int, level: float, seed: int) -> dict[str, Measured]:
    """Every metric but those of rejection, on all examples and on each resample, in the order of the registry."""
    n = model.answers.n
    parts: Iterable[_Part] = _parts(model, keep=resamples > 0)
    if resamples:  # else each part is made, asked once and forgotten
        parts = list(parts)
    blocks: dict[str, list[np.ndarray]] = {}
    for counts in _blocks(n, resamples, seed):
        for part in parts:
            for name, values in part(counts).items():
                blocks.setdefault(name, []).append(np.atleast_1d(values))
    columns = {name: np.concatenate(blocks[name]).tolist() for name in METRICS["classes"] if name in blocks}
    return measured_columns(columns, n, lambda name: _reason(name, model), resamples, level)


def _blocks(n: int, resamples: int, seed: int) -> Iterator[np.ndarray | None]:
    """How often each example counts: first `None` for once each, then `(rows, n)`, a row for each resample."""
    yield None
    yield from blocks_of_counts(n, resamples, seed, BLOCK)


#: Some metrics for each row of counts.
_Part = Callable[[np.ndarray | None], dict[str, Any]]


def _parts(model: _Model, keep: bool) -> Iterator[_Part]:
    """All metrics: those of sums, then those of an order and the correlations; `keep`: they are asked again."""
    answers, uncertainty = model.answers, model.uncertainty
    yield _Sums(model, keep)
    split = model.separation.split
    yield _by_row(lambda counts: _separations(split(counts)))
    yield _by_row(_named("ece_adaptive", EqualMassGap(answers.confidence, answers.correct, model.num_bins)))
    yield _by_row(_named("alignment_error", EqualMassGap(answers.entropy, answers.error, model.num_bins)))
    yield _by_row(_named("residual_correlation", Correlation(uncertainty, answers.wrong)))
    residual = 1 - answers.label_probability
    yield _by_row(_named("residual_correlation_probability", Correlation(uncertainty, residual)))
    yield _by_row(_named("residual_correlation_nll", Correlation(uncertainty, answers.error)))


def _named(name: str, metric: Callable[[np.ndarray | None], float]) -> _Part:
    return lambda counts: {name: metric(counts)}


def _separations(split: Split) -> dict[str, float]:
    return {
        "uncertainty_accuracy": split.accuracy(),
        "uncertainty_auc": split.auc(),
        "wasserstein": split.wasserstein(),
        "uncertainty_gap": split.gap(),
    }


def _by_row(metrics: _Part) -> _Part:
    """Metrics of one row of counts, for many."""

    def of_all(counts: np.ndarray | None) -> dict[str, Any]:
        if counts is None:
            return metrics(None)
        rows = [metrics(row) for row in counts]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    return of_all


@dataclass(frozen=True)
class _Binned:
    """One number per example, in the column of its bin."""

    bins: np.ndarray
    numbers: np.ndarray
    size: int

    def sums(self) -> np.ndarray:
        return np.bincount(self.bins, self.numbers, minlength=self.size)

    def table(self) -> sparse.csr_array:
        starts = np.arange(len(self.bins) + 1)
        return sparse.csr_array((self.numbers, self.bins, starts), shape=(len(self.bins), self.size))


class _Sums:
    """
    The metrics that follow from sums over the examples. For resamples the numbers are kept, one row per example, in a
    sparse table, unless it were too large.
    """

    def __init__(self, model: _Model, keep: bool) -> None:
        self.model, self.class_gaps = model, ClassGaps(model.answers, model.num_bins)
        if not keep:
            return
        tables = {name: columns.table() for name, columns in self._columns()}
        if model.answers.probabilities.size <= TABLE_LIMIT:
            tables["classes"] = _class_table(self.class_gaps)
        self.names = list(tables)
        self.ends = np.cumsum([table.shape[1] for table in tables.values()])
        self.table = sparse.csr_array(sparse.hstack(list(tables.values()))).T

    def _columns(self) -> Iterator[tuple[str, _Binned]]:
        """What is summed; one at a time, since each is as long as there are examples."""
        answers, uncertainty, num_bins = self.model.answers, self.model.uncertainty, self.model.num_bins
        once = np.zeros(answers.n, np.intp)
        yield "error", _Binned(once, answers.wrong, 1)
        yield "brier", _Binned(once, answers.squared_distance, 1)
        yield "nll", _Binned(once, answers.error, 1)
        bins = equal_width_bins(answers.confidence, num_bins)
        yield "size", _Binned(bins, np.ones(answers.n), num_bins)
        yield "right", _Binned(bins, answers.correct, num_bins)
        yield "gap", _Binned(bins, answers.correct - answers.confidence, num_bins)
        if ((uncertainty >= 0) & (uncertainty <= 1)).all():
            bins = equal_width_bins(uncertainty, num_bins)
            yield "uncertainty", _Binned(bins, answers.wrong - uncertainty, num_bins)
        tau = self.model.tau
        if tau is not None:
            alike = uncertain_as_wrong(uncertainty, answers.wrong, tau).astype(float)
            yield "alike", _Binned(once, alike, 1)
        if tau is not None and answers.num_classes == 2:
            outcomes = flip_outcomes(answers.predictions, answers.labels, uncertainty, tau, self.model.positive)
            yield "flip", _Binned(outcomes.argmax(axis=1), np.ones(answers.n), outcomes.shape[1])

    def _all_sums(self, counts: np.ndarray | None) -> dict[str, np.ndarray]:
        """The sums by name, of shape `(rows, columns)`."""
        if counts is None:
            sums = {name: columns.sums()[None] for name, columns in self._columns()}
            return {**sums, "classes": self.class_gaps.sums()[None]}
        product = (self.table @ np.ascontiguousarray(counts.T, dtype=float)).T
        sums = dict(zip(self.names, np.split(product, self.ends[:-1], axis=1), strict=True))
        if "classes" not in sums:
            sums["classes"] = np.array([self.class_gaps.sums(row) for row in counts])
        return sums

    def __call__(self, counts: np.ndarray | None) -> dict[str, np.ndarray]:
        """The metrics for each row of counts."""
        sums = self._all_sums(counts)
        n = self.model.answers.n or NAN
        metrics = {
            **{name: sums[name][:, 0] / n for name in ("error", "brier", "nll")},
            "ece": np.abs(sums["gap"]).sum(axis=1) / n,
            "ece_debiased": debiased_error(sums["size"], sums["right"], sums["gap"]),
            "ece_classwise": np.abs(sums["classes"]).sum(axis=1) / n / self.model.answers.num_classes,
            "uce": np.abs(sums["uncertainty"]).sum(axis=1) / n if "uncertainty" in sums else [NAN] * len(sums["gap"]),
        }
        if "alike" in sums:
            metrics["uncertainty_accuracy_val"] = sums["alike"][:, 0] / n
        if "flip" in sums:
            metrics.update(flip_rates(sums["flip"]))
        return metrics


def _class_table(gaps: ClassGaps) -> sparse.csr_array:
    """The gaps of all classes, one row per example, each in the column of its bin."""
    n, classes = gaps.answers.probabilities.shape
    columns, numbers = np.empty((n, classes), np.int32), np.empty((n, classes))
    for rows, bins, values in gaps.blocks():
        columns[rows], numbers[rows] = bins, values
    starts = np.arange(0, n * classes + 1, classes)
    return sparse.csr_array((numbers.reshape(-1), columns.reshape(-1), starts), shape=(n, gaps.size))


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
