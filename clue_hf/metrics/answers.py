"""
The answers of a classifier, checked once for all metrics.

The probabilities stay the array that they came in: whatever is as large as they are is computed in blocks of rows, in
double precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .arrays import checked_arrays


#: Smaller probabilities of a label count as this in logarithms (the floor of scikit-learn's `log_loss`; 36 nats).
PROBABILITY_FLOOR = float(np.finfo(np.float64).eps)
#: How far a row of probabilities may be from 1 in sum: rounding of a softmax in half precision is beyond it.
SUM_TOLERANCE = 1e-3
#: How many probabilities a block of rows holds: they stay in the cache of a processor.
BLOCK = 2**17


@dataclass(frozen=True)
class CheckedAnswers:
    """
    The answers of a classifier, as [`checked_answers`] gives them: probabilities and labels that were checked, and
    what the metrics need of them, computed when it is first used.

    Args:
        probabilities (`np.ndarray` of shape `(n, classes)`):
            Probability of every class, in single or double precision.
        labels (`np.ndarray`):
            The right class of each example.
    """

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
    def _confidence_and_correct(self) -> tuple[np.ndarray, np.ndarray]:
        confidence, correct = np.empty(self.n), np.empty(self.n)
        for rows in row_blocks(self.probabilities):
            block = self.probabilities[rows]
            answers = block.argmax(axis=1)
            confidence[rows] = block[np.arange(len(block)), answers]
            correct[rows] = answers == self.labels[rows]
        return confidence, correct

    @property
    def confidence(self) -> np.ndarray:
        return self._confidence_and_correct[0]

    @property
    def correct(self) -> np.ndarray:
        return self._confidence_and_correct[1]

    @property
    def wrong(self) -> np.ndarray:
        return 1 - self.correct

    @cached_property
    def label_probability(self) -> np.ndarray:
        """The probability of the label."""
        picked = np.empty(self.n)
        for rows in row_blocks(self.probabilities):
            block = self.probabilities[rows]
            picked[rows] = block[np.arange(len(block)), self.labels[rows]]
        return picked

    @property
    def error(self) -> np.ndarray:
        """`-ln p` of the label, in nats."""
        error = np.maximum(self.label_probability, PROBABILITY_FLOOR)
        return np.negative(np.log(error, out=error), out=error)

    @property
    def floored(self) -> int:
        """How many labels have a probability below the floor."""
        return int((self.label_probability < PROBABILITY_FLOOR).sum())

    @property
    def squared_distance(self) -> np.ndarray:
        """Sum over the classes of the squared difference between the probability and 1 or 0."""
        distance = np.empty(self.n)
        for rows in row_blocks(self.probabilities):
            # sum of squares - 2 p_y + 1 would cancel where p_y is close to 1
            difference = self.probabilities[rows].astype(np.float64)
            difference[np.arange(len(difference)), self.labels[rows]] -= 1
            distance[rows] = np.einsum("ij,ij->i", difference, difference)
        return distance

    @cached_property
    def entropy(self) -> np.ndarray:
        """Predictive entropy in nats."""
        return predictive_entropy(self.probabilities)

    @property
    def normalized_entropy(self) -> np.ndarray:
        """Predictive entropy divided by that of a uniform distribution."""
        normalized = self.entropy / np.log(self.num_classes)
        return np.clip(normalized, 0, 1, out=normalized)


def checked_answers(probabilities: Any, labels: Any = None) -> CheckedAnswers:
    """
    Probabilities and labels, checked. Every metric of a classifier takes the result in place of the two arrays and
    checks nothing again; [`classification_report`] does so for all of its metrics.

    The arrays are read once and not copied, unless they are not arrays of floating point numbers (float32, float64)
    and of integers. Do not write to them afterwards.

    Args:
        probabilities (`array` of shape `(n, classes)`):
            Probability of every class.
        labels (`array`):
            The right class of each example.

    Returns:
        [`CheckedAnswers`]

    Raises:
        `ValueError`: with the position of a row that is not a distribution or a label that is not a class.

    Example:

    ```python
    >>> from clue_hf.metrics import brier_score, checked_answers, expected_calibration_error

    >>> answers = checked_answers(probabilities, labels)
    >>> expected_calibration_error(answers), brier_score(answers)
    (0.043, 0.287)
    ```
    """
    if isinstance(probabilities, CheckedAnswers):
        if labels is not None:
            raise ValueError("Checked answers come with their labels: do not give `labels` too.")
        return probabilities
    if labels is None:
        raise ValueError("`labels` is missing.")
    table = _checked_table(probabilities)
    labels = checked_labels(labels, table.shape[1])
    if len(labels) != len(table):
        raise ValueError(f"There are {len(table)} rows of probabilities and {len(labels)} labels.")
    return CheckedAnswers(table, labels)


def checked_probabilities(probabilities: Any) -> np.ndarray:
    """The probabilities as a float64 table; raises with the position of a row that is not a distribution."""
    return _checked_table(probabilities).astype(np.float64, copy=False)


def checked_labels(labels: Any, num_classes: int) -> np.ndarray:
    """The labels as integers; raises with the position of one that is not a class."""
    array = np.asarray(labels).reshape(-1)
    if array.dtype.kind in "iu" and len(array) and array.min() >= 0 and array.max() < num_classes:
        return array.astype(np.intp, copy=False)
    [numbers] = checked_arrays(labels=array)
    bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= num_classes))
    if len(bad):
        raise ValueError(
            f"`labels` is {numbers[bad[0]]:g} at position {bad[0]}; it must be a class, 0 to {num_classes - 1}."
        )
    return numbers.astype(np.intp)


def predictive_entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy of each row, nats. Summed in order of size: rows with the same values in other places are exact ties."""
    entropy = np.empty(len(probabilities))
    for rows in row_blocks(probabilities):
        block = np.sort(np.ascontiguousarray(probabilities[rows]), axis=1).astype(np.float64, copy=False)
        # 0 ln 0 is 0: the least number that is not 0 has a logarithm
        logarithms = np.log(np.maximum(block, np.nextafter(0.0, 1.0)))
        entropy[rows] = np.einsum("ij,ij->i", block, logarithms)
    return np.maximum(np.negative(entropy, out=entropy), 0, out=entropy)


def row_blocks(table: np.ndarray) -> Iterator[slice]:
    """The rows of a table, in blocks that stay in the cache."""
    size = max(1, BLOCK // table.shape[1])
    return (slice(start, start + size) for start in range(0, len(table), size))


def _checked_table(probabilities: Any) -> np.ndarray:
    """The probabilities as a table of float32 or float64; raises with the position of what is no distribution."""
    table = np.asarray(probabilities)
    if table.dtype not in (np.float32, np.float64):
        table = table.astype(np.float64)
    if table.size == 0 and table.ndim < 2:
        table = table.reshape(0, 2)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(
            f"`probabilities` has shape {table.shape}; it must be (examples, classes), two or more classes."
        )
    if not _are_distributions(table):
        _locate_bad_row(table)
    return table


def _are_distributions(table: np.ndarray) -> bool:
    """Whether no number is negative and each row sums to 1, in one pass; a doubt is a no."""
    ones = np.ones(table.shape[1], table.dtype)
    with np.errstate(all="ignore"):
        for rows in row_blocks(table):
            block = table[rows]
            # nan is neither 0 or more nor close to 1; a tenth of the tolerance is for the rounding of these sums
            if not (block.min() >= 0 and np.abs(block @ ones - 1).max() <= 0.9 * SUM_TOLERANCE):
                return False
    return True


def _locate_bad_row(table: np.ndarray) -> None:
    """Raises with the position of the first number that is not finite or negative, or of the first sum that is off."""
    bad = np.argwhere(~np.isfinite(table) | (table < 0))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"`probabilities` is {table[row, column]} at position ({row}, {column}); it must be in [0, 1]."
        )
    sums = table.sum(axis=1, dtype=np.float64)
    off = np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)
    if len(off):
        raise ValueError(
            f"`probabilities` sums to {sums[off[0]]:.6g} at position {off[0]}; every row must sum to 1 (a softmax in "
            "single precision does, logits do not)."
        )
