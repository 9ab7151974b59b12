"""
How right and how calibrated a classifier is, from the probabilities of its classes.

All functions take `probabilities` of shape `(n, classes)`, whose rows sum to 1, and the `labels` of the n examples.
The answer is the class of the largest probability (the first of equal ones), the confidence that probability. Without
examples every metric is nan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import entr

from .arrays import checked_arrays, mean_or_nan
from .calibration import alignment_error, confidence_calibration_error, equal_width_bins
from .measured import NAN


#: Smaller probabilities of a label count as this in logarithms (the floor of scikit-learn's `log_loss`; 36 nats).
PROBABILITY_FLOOR = float(np.finfo(np.float64).eps)
#: How far a row of probabilities may be from 1 in sum: rounding of a softmax in half precision is beyond it.
SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Answers:
    """The answers of a classifier: probabilities and labels, checked, and what the metrics need of them."""

    probabilities: np.ndarray
    labels: np.ndarray

    @property
    def n(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return self.probabilities.shape[1]

    @cached_property
    def predictions(self) -> np.ndarray:
        return self.probabilities.argmax(axis=1)

    @cached_property
    def correct(self) -> np.ndarray:
        return (self.predictions == self.labels).astype(float)

    @property
    def wrong(self) -> np.ndarray:
        return 1 - self.correct

    @cached_property
    def confidence(self) -> np.ndarray:
        return self.probabilities.max(axis=1)

    @cached_property
    def label_probability(self) -> np.ndarray:
        """The probability of the label."""
        return self.probabilities[np.arange(self.n), self.labels]

    @property
    def error(self) -> np.ndarray:
        """`-ln p` of the label, in nats."""
        return -np.log(np.maximum(self.label_probability, PROBABILITY_FLOOR))

    @property
    def floored(self) -> int:
        """How many labels have a probability below the floor."""
        return int((self.label_probability < PROBABILITY_FLOOR).sum())

    @cached_property
    def squared_distance(self) -> np.ndarray:
        """Sum over the classes of the squared difference between the probability and 1 or 0."""
        # sum of squares - 2 p_y + 1 would cancel where p_y is close to 1
        difference = self.probabilities.copy()
        difference[np.arange(self.n), self.labels] -= 1
        return (difference**2).sum(axis=1)

    @cached_property
    def entropy(self) -> np.ndarray:
        """Predictive entropy in nats."""
        return predictive_entropy(self.probabilities)


def checked_probabilities(probabilities: Any) -> np.ndarray:
    """The probabilities as a float64 table; raises with the position of a row that is not a distribution."""
    table = np.asarray(probabilities, dtype=np.float64)
    if table.size == 0 and table.ndim < 2:
        table = table.reshape(0, 2)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(
            f"`probabilities` has shape {table.shape}; it must be (examples, classes), two or more classes."
        )
    bad = np.argwhere(~np.isfinite(table) | (table < 0))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"`probabilities` is {table[row, column]} at position ({row}, {column}); it must be in [0, 1]."
        )
    sums = table.sum(axis=1)
    off = np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)
    if len(off):
        raise ValueError(
            f"`probabilities` sums to {sums[off[0]]:.6g} at position {off[0]}; every row must sum to 1 (a softmax in "
            "single precision does, logits do not)."
        )
    return table


def checked_labels(labels: Any, num_classes: int) -> np.ndarray:
    """The labels as integers; raises with the position of one that is not a class."""
    [numbers] = checked_arrays(labels=labels)
    bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= num_classes))
    if len(bad):
        raise ValueError(
            f"`labels` is {numbers[bad[0]]:g} at position {bad[0]}; it must be a class, 0 to {num_classes - 1}."
        )
    return numbers.astype(int)


def checked_answers(probabilities: Any, labels: Any) -> Answers:
    """Probabilities and labels, checked."""
    table = checked_probabilities(probabilities)
    labels = checked_labels(labels, table.shape[1])
    if len(labels) != len(table):
        raise ValueError(f"There are {len(table)} rows of probabilities and {len(labels)} labels.")
    return Answers(table, labels)


def classification_error(probabilities: Any, labels: Any) -> float:
    """Share of wrong answers."""
    return mean_or_nan(checked_answers(probabilities, labels).wrong)


def negative_log_likelihood(probabilities: Any, labels: Any) -> float:
    """Mean of `-ln p` of the label, in nats; a probability below 2.2e-16 counts as that (as in scikit-learn)."""
    return mean_or_nan(checked_answers(probabilities, labels).error)


def brier_score(probabilities: Any, labels: Any) -> float:
    """
    Mean over the examples of the squared differences between the probabilities and the label (1 for its class, 0 for
    the others), summed over *all* classes: from 0 to 2, with two classes twice the binary Brier score.
    """
    return mean_or_nan(checked_answers(probabilities, labels).squared_distance)


def normalized_entropy(probabilities: Any) -> np.ndarray:
    """Predictive entropy of each row divided by `ln(classes)`: 0 where certain, 1 where uniform."""
    table = checked_probabilities(probabilities)
    return np.clip(predictive_entropy(table) / np.log(table.shape[1]), 0, 1)


def predictive_entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy of each row, nats. Summed in order of size: rows with the same values in other places are exact ties."""
    return np.maximum(np.sort(entr(probabilities), axis=1).sum(axis=1), 0)


def expected_calibration_error(probabilities: Any, labels: Any, num_bins: int = 15) -> float:
    """
    Expected calibration error of the answers: `sum |B|/n |accuracy - mean confidence|` over `num_bins` bins B of equal
    width along the confidence, each `(low, high]`.

    Args:
        probabilities (`array` of shape `(n, classes)`):
            Probability of every class.
        labels (`array`):
            The right class of each example.
        num_bins (`int`, *optional*, defaults to 15):
            Number of bins.

    Returns:
        `float`: 0 where every confidence is met, at most 1.
    """
    answers = checked_answers(probabilities, labels)
    return confidence_calibration_error(answers.confidence, answers.correct, num_bins)


def adaptive_calibration_error(probabilities: Any, labels: Any, num_bins: int = 15) -> float:
    """
    [`expected_calibration_error`] over bins of equal mass. Equal confidences count as one value (they share their
    accuracy), so the order of the examples does not matter.
    """
    answers = checked_answers(probabilities, labels)
    return alignment_error(answers.correct, answers.confidence, num_bins)


def classwise_calibration_error(probabilities: Any, labels: Any, num_bins: int = 15) -> float:
    """
    Mean over the classes c of the calibration error of p_c as the probability that the label is c, over bins of equal
    width, each `(low, high]` (Kull et al. 2019).
    """
    answers = checked_answers(probabilities, labels)
    columns = enumerate(answers.probabilities.T)
    return mean_or_nan([confidence_calibration_error(p, answers.labels == c, num_bins) for c, p in columns])


def debiased_calibration_error(probabilities: Any, labels: Any, num_bins: int = 15) -> float:
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
        for weights in (np.ones(answers.n), answers.correct, answers.correct - answers.confidence)
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
