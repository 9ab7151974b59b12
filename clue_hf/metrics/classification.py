"""
How right and how calibrated a classifier is, from the probabilities of its classes.

All functions take `probabilities` of shape `(n, classes)`, whose rows sum to 1, and the `labels` of the n examples; or
[`checked_answers`] of both in their place, so that several metrics check them once. The answer is the class of the
largest probability (the first of equal ones), the confidence that probability. Without examples every metric is nan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .answers import CheckedAnswers, checked_answers, checked_labels, checked_probabilities, row_blocks
from .arrays import checked_arrays, mean_or_nan
from .calibration import EqualMassGap, equal_width_bins, mean_gap
from .measured import NAN


def classification_error(probabilities: Any, labels: Any = None) -> float:
    """Share of wrong answers."""
    return mean_or_nan(checked_answers(probabilities, labels).wrong)


def negative_log_likelihood(probabilities: Any, labels: Any = None) -> float:
    """Mean of `-ln p` of the label, in nats; a probability below 2.2e-16 counts as that (as in scikit-learn)."""
    return mean_or_nan(checked_answers(probabilities, labels).error)


def brier_score(probabilities: Any, labels: Any = None) -> float:
    """
    Mean over the examples of the squared differences between the probabilities and the label (1 for its class, 0 for
    the others), summed over *all* classes: from 0 to 2, with two classes twice the binary Brier score.
    """
    return mean_or_nan(checked_answers(probabilities, labels).squared_distance)


def normalized_entropy(probabilities: Any) -> np.ndarray:
    """Predictive entropy of each row divided by `ln(classes)`: 0 where certain, 1 where uniform."""
    if not isinstance(probabilities, CheckedAnswers):
        table = checked_probabilities(probabilities)
        probabilities = CheckedAnswers(table, np.zeros(len(table), np.intp))
    return probabilities.normalized_entropy


def expected_calibration_error(probabilities: Any, labels: Any = None, num_bins: int = 15) -> float:
    """
    Expected calibration error of the answers: `sum |B|/n |accuracy - mean confidence|` over `num_bins` bins B of equal
    width along the confidence, each `(low, high]`.

    Args:
        probabilities (`array` of shape `(n, classes)` or [`CheckedAnswers`]):
            Probability of every class.
        labels (`array`, *optional*):
            The right class of each example; left out with [`CheckedAnswers`].
        num_bins (`int`, *optional*, defaults to 15):
            Number of bins.

    Returns:
        `float`: 0 where every confidence is met, at most 1.
    """
    answers = checked_answers(probabilities, labels)
    bins = equal_width_bins(answers.confidence, num_bins)
    return mean_gap(np.bincount(bins, answers.correct - answers.confidence, minlength=num_bins), answers.n)


def adaptive_calibration_error(probabilities: Any, labels: Any = None, num_bins: int = 15) -> float:
    """
    [`expected_calibration_error`] over bins of equal mass. Equal confidences count as one value (they share their
    accuracy), so the order of the examples does not matter.
    """
    answers = checked_answers(probabilities, labels)
    return EqualMassGap(answers.confidence, answers.correct, num_bins)()


def classwise_calibration_error(probabilities: Any, labels: Any = None, num_bins: int = 15) -> float:
    """
    Mean over the classes c of the calibration error of p_c as the probability that the label is c, over bins of equal
    width, each `(low, high]` (Kull et al. 2019).
    """
    answers = checked_answers(probabilities, labels)
    return mean_gap(ClassGaps(answers, num_bins).sums(), answers.n * answers.num_classes)


def debiased_calibration_error(probabilities: Any, labels: Any = None, num_bins: int = 15) -> float:
    """
    Root mean squared calibration error of the answers without the bias of small bins (Kumar et al. 2019): over the
    bins of [`expected_calibration_error`],

        sqrt( max(0, sum |B|/n [ (accuracy - mean confidence)^2 - accuracy (1 - accuracy) / (|B| - 1) ]) )

    The subtracted term is what chance alone adds to the square. A bin of one example has no such estimate and counts
    as 0. Returns nan where no bin has two.
    """
    answers = checked_answers(probabilities, labels)
    bins = equal_width_bins(answers.confidence, num_bins)
    sums = [
        np.bincount(bins, weights, minlength=num_bins)
        for weights in (None, answers.correct, answers.correct - answers.confidence)
    ]
    return float(debiased_error(*sums))


def debiased_error(counts: np.ndarray, right: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """
    [`debiased_calibration_error`] from sums by bin, along the last axis: examples, right answers, and the differences
    of these and the confidences.
    """
    several, size = counts >= 2, np.maximum(counts, 1)
    accuracy = right / size
    chance = accuracy * (1 - accuracy) / np.maximum(counts - 1, 1)
    terms = np.where(several, counts * ((gaps / size) ** 2 - chance), 0).sum(axis=-1)
    mean = terms / np.maximum(counts.sum(axis=-1), 1)
    return np.where(several.any(axis=-1), np.sqrt(np.maximum(mean, 0)), NAN)


class ClassGaps:
    """The gap between each class (1 where it is the label, else 0) and its probability, in the bins of the latter."""

    def __init__(self, answers: CheckedAnswers, num_bins: int) -> None:
        self.answers, self.num_bins = answers, num_bins
        self.offsets = num_bins * np.arange(answers.num_classes)

    @property
    def size(self) -> int:
        """The number of bins of all classes."""
        return self.num_bins * self.answers.num_classes

    def sums(self, counts: np.ndarray | None = None) -> np.ndarray:
        """The sum of the gaps in each bin, those of the first class first; `counts`: how often each example counts."""
        sums = np.zeros(self.size)
        for rows, bins, gaps in self.blocks():
            if counts is not None:
                gaps *= counts[rows, None]
            sums += np.bincount(bins.reshape(-1), gaps.reshape(-1), minlength=self.size)
        return sums

    def blocks(self) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Some rows, and the bin and the gap of each of their probabilities."""
        for rows in row_blocks(self.answers.probabilities):
            block = self.answers.probabilities[rows].astype(np.float64)
            bins = equal_width_bins(block, self.num_bins)
            bins += self.offsets
            gaps = np.negative(block, out=block)
            gaps[np.arange(len(gaps)), self.answers.labels[rows]] += 1
            yield rows, bins, gaps


def binary_flip(predictions: Any, labels: Any, uncertainty: Any, tau: float, positive: int = 1) -> dict[str, float]:
    """
    The errors of a classifier of two classes before and after a flip: where `uncertainty > tau` the other class is
    answered.

    Take tau from validation data: [`best_threshold`]`(uncertainty, wrong)` leaves the fewest errors after the flip,
    since an answer is right after it just if it was wrong and uncertain, or right and certain.

    Args:
        predictions (`array`):
            The class of each answer, 0 or 1, or the probabilities of both classes, of shape `(n, 2)`.
        labels (`array`):
            The right class of each example, 0 or 1.
        uncertainty (`array`):
            The uncertainty of each answer.
        tau (`float`):
            Answers above this uncertainty are flipped.
        positive (`int`, *optional*, defaults to 1):
            Which class the precision, F1 and the true positive rate are about.

    Returns:
        `dict[str, float]`: `error` before the flip, and after it `flip_error`, `flip_f1`, `flip_precision`, `flip_tpr`
        (true positive rate) and `flip_tnr` (true negative rate); nan where the denominator of one is 0.

    Example:

    ```python
    >>> from clue_hf.metrics import best_threshold, binary_flip

    >>> tau = best_threshold(validation_uncertainty, validation_wrong)
    >>> binary_flip(probabilities, labels, uncertainty, tau)["flip_error"]
    ```
    """
    answers = np.asarray(predictions)
    answers = checked_probabilities(answers).argmax(axis=1) if answers.ndim == 2 else checked_labels(answers, 2)
    labels = checked_labels(labels, 2)
    answers, labels, uncertainty = checked_arrays(predictions=answers, labels=labels, uncertainty=uncertainty)
    outcomes = flip_outcomes(answers, labels, uncertainty, tau, positive).sum(axis=0)
    error = float((answers != labels).mean()) if len(labels) else NAN
    return {"error": error, **{name: float(value) for name, value in flip_rates(outcomes).items()}}


def flip_outcomes(
    answers: np.ndarray, labels: np.ndarray, uncertainty: np.ndarray, tau: float, positive: int
) -> np.ndarray:
    """Of each answer after the flip, four columns of 0 and 1: true and false positive, false and true negative."""
    if positive not in (0, 1):
        raise ValueError(f"`positive` is {positive}; it must be 0 or 1.")
    answered = np.where(uncertainty > tau, 1 - answers, answers) == positive
    truth = labels == positive
    columns = [answered & truth, answered & ~truth, ~answered & truth, ~answered & ~truth]
    return np.column_stack(columns).astype(float)


def flip_rates(outcomes: np.ndarray) -> dict[str, np.ndarray]:
    """The rates after the flip from the sums of the four outcomes, along the last axis."""
    true_positive, false_positive, false_negative, true_negative = np.moveaxis(outcomes, -1, 0)
    wrong = false_positive + false_negative
    return {
        "flip_error": _ratio(wrong, outcomes.sum(axis=-1)),
        "flip_f1": _ratio(2 * true_positive, 2 * true_positive + wrong),
        "flip_precision": _ratio(true_positive, true_positive + false_positive),
        "flip_tpr": _ratio(true_positive, true_positive + false_negative),
        "flip_tnr": _ratio(true_negative, true_negative + false_positive),
    }


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, nan where the whole is 0."""
    return np.where(whole > 0, part / np.maximum(whole, 1), NAN)
