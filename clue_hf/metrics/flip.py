"""Two classes: what is gained by taking the other class where the uncertainty is high."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import checked_arrays
from .bootstrap import NAN
from .classification import checked_labels, checked_probabilities


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
    said = np.where(uncertainty > tau, 1 - answers, answers) == positive
    truth = labels == positive
    return np.column_stack([said & truth, said & ~truth, ~said & truth, ~said & ~truth]).astype(float)


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
