"""
Sets of classes and intervals of numbers that hold the truth with a given probability: split conformal prediction.

A score says how badly a class or a number fits a prediction. Of n calibration rows, the quantile is the
`ceil((n + 1) coverage)`-th smallest score of the truth, and a prediction set holds whatever scores no higher. Where
the calibration rows and a new one are exchangeable (independent draws of the same law are), and none of them served to
fit the model or its calibrator, the set holds the truth of the new row with a probability of at least `coverage`, over
the draw of both; where scores have no ties, of at most `coverage + 1 / (n + 1)`. It is a probability over all rows:
groups of rows may have more or less. A new method is a class here and an entry of `CONFORMAL`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ..errors import UserError
from ..metrics.answers import checked_answers, checked_probabilities
from ..metrics.arrays import checked_arrays
from ..metrics.regression import checked_forecasts, floored_std
from .stored import Stored


#: The coverage unless another is asked for.
COVERAGE = 0.9
#: Decimals of summed probabilities: sums that differ by rounding alone are ties.
DECIMALS = 12
#: What `(n + 1) coverage` may be off by.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Conformal(Stored, ABC):
    """
    Base of the methods.

    Args:
        coverage (`float`):
            The probability, between 0 and 1.
        quantile (`float`):
            The largest score of what a prediction set holds.
        n (`int`):
            The number of calibration rows.
    """

    #: What the score is, in words.
    definition: ClassVar[str]
    coverage: float
    quantile: float
    n: int

    @classmethod
    def from_scores(cls, scores: np.ndarray, coverage: float) -> Self:
        """From the score of the truth of each calibration row; raises where there are too few rows."""
        check_coverage(coverage)
        n = len(scores)
        rank = math.ceil((n + 1) * coverage - ROUNDING)
        if rank > n:
            least = math.ceil(coverage / (1 - coverage) - ROUNDING)
            raise UserError(
                f"Too few rows for a coverage of {coverage:g}: at least {least} are needed to calibrate it, and there "
                f"are {n}. Use more rows, or a lower coverage."
            )
        return cls(float(coverage), float(np.sort(scores)[rank - 1]), n)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """The object that `to_dict` described; for the base class, of any method."""
        if cls is Conformal:
            return CONFORMAL[content["name"]].from_dict(content)  # type: ignore[return-value]
        return super().from_dict(content)

    def check(self) -> None:
        super().check()
        check_coverage(self.coverage)
        if self.quantile < 0:
            raise ValueError(f"the quantile is {self.quantile}")


class PredictionSets(Conformal):
    """
    Sets of classes. The most probable class is always one of them: where the score excludes it the set would be empty,
    and with it the coverage only grows.

    Example:

    ```python
    >>> from clue_hf.posthoc import LeastAmbiguousSets

    >>> sets = LeastAmbiguousSets.fit(validation_probabilities, validation_labels, coverage=0.9)
    >>> sets(probabilities)  # a row per example, a column per class: whether the set holds it
    ```
    """

    @staticmethod
    @abstractmethod
    def scores(probabilities: np.ndarray) -> np.ndarray:
        """The score of every class, which does not fall with its rank among the probabilities."""

    @classmethod
    def fit(cls, probabilities: Any, labels: Any, coverage: float = COVERAGE) -> Self:
        """From the probabilities and labels of calibration rows; raises where there are too few."""
        answers = checked_answers(np.asarray(probabilities, dtype=np.float64), labels)
        return cls.from_scores(cls.scores(answers.probabilities)[np.arange(answers.n), answers.labels], coverage)

    def __call__(self, probabilities: Any) -> np.ndarray:
        """Whether each class is in the set of each row, of shape `(n, classes)`."""
        probabilities = checked_probabilities(probabilities)
        held = self.scores(probabilities) <= self.quantile
        held[np.arange(len(held)), probabilities.argmax(axis=1)] = True
        return held


class LeastAmbiguousSets(PredictionSets):
    """LAC (Sadinle et al. 2019): the classes with a probability of at least `1 - quantile`; small sets on average."""

    name = "lac"
    definition = "1 - p of the class"

    @staticmethod
    def scores(probabilities: np.ndarray) -> np.ndarray:
        return 1 - probabilities


class AdaptiveSets(PredictionSets):
    """
    APS (Romano et al. 2020): the most probable classes up to a total probability of `quantile`; larger sets where the
    model is less certain. Without their randomisation: a row always has the same set.
    """

    name = "aps"
    definition = "sum of the probabilities from the most probable class down to the class, itself included"

    @staticmethod
    def scores(probabilities: np.ndarray) -> np.ndarray:
        order = np.argsort(-probabilities, axis=1, kind="stable")
        sums = np.cumsum(np.take_along_axis(probabilities, order, axis=1), axis=1).round(DECIMALS)
        scores = np.empty_like(sums)
        np.put_along_axis(scores, order, sums, axis=1)
        return scores


class ScaledIntervals(Conformal):
    """
    Intervals `mean +- quantile * std` (Lei et al. 2018): the more uncertain the model, the wider.

    Example:

    ```python
    >>> from clue_hf.posthoc import ScaledIntervals

    >>> intervals = ScaledIntervals.fit(validation_mean, validation_std, validation_target, coverage=0.9)
    >>> low, high = intervals(mean, std)
    ```
    """

    name = "scaled"
    definition = "|target - mean| / std"

    @classmethod
    def fit(cls, mean: Any, std: Any, target: Any, coverage: float = COVERAGE) -> Self:
        """From the predictions and targets of calibration rows; raises where there are too few."""
        forecasts = checked_forecasts(mean, std, target)
        [scores] = checked_arrays(**{"|target - mean| / std": np.abs(forecasts.score)})
        return cls.from_scores(scores, coverage)

    def __call__(self, mean: Any, std: Any) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper ends."""
        mean, std = checked_arrays(mean=mean, std=std)
        half = floored_std(std, 0.0)[0] * self.quantile
        return mean - half, mean + half


#: The methods by name.
CONFORMAL: dict[str, type[Conformal]] = {
    method.name: method for method in (LeastAmbiguousSets, AdaptiveSets, ScaledIntervals)
}


def check_coverage(coverage: float) -> None:
    """Raises where a coverage is not between 0 and 1."""
    if not 0 < coverage < 1:
        raise UserError(f"`coverage` must lie between 0 and 1, but is {coverage!r}.")
