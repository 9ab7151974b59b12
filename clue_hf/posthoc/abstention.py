"""
When not to answer: thresholds on the uncertainty below which the risk is bounded, with a guarantee.

The risk of a threshold t is `R(t) = E[loss | uncertainty < t]`, with a loss in [0, 1]: 1 - quality of a text, 0 or 1
for a class. Learn then Test (Angelopoulos et al. 2021), in a fixed sequence: the candidates are the uncertainties of
the calibration rows in ascending order, and at last infinity. Each is tested with the rows strictly below it, the
hypothesis being that its risk is above `max_risk`; the first test that does not refute it ends the sequence. The rows
must be independent draws of what the model will meet, and none may have served to fit the model or the score.

Why the chance of certifying a threshold of too high a risk is at most delta, although the candidates are data: to
certify any such threshold the sequence must pass the first of them, T. So it is enough that the test at T refutes with
a chance of at most delta. That the rows below a given candidate are independent draws from below it does not yet say
so, since T depends on where the other rows are. But let `G(t) = E[loss - max_risk; uncertainty < t]`: the risk is too
high where G > 0, and G = 0 where such a stretch of t begins or ends. Which candidate is T depends only on how many
rows each stretch holds, and on T. Given these the rows are independent, and their mean loss is `max_risk` in each
whole stretch and more in the last one, which ends at T: the test meets losses no lower than those for which it keeps
to delta. With ties G jumps, and the proof asks in addition that the risk does not fall as the threshold rises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import bdtr, rel_entr

from ..metrics.arrays import check_unit_range, check_values, checked_arrays
from .stored import Stored


#: The risks for which thresholds are kept unless others are named.
MAX_RISKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
#: The tests: exact for losses of 0 and 1, and one for any losses in [0, 1].
TESTS = ("binomial", "hoeffding-bentkus")
#: The mean loss, as a share of the risk asked for, that the first test must be able to pass. Losses of 0 and 1 may all
#: be 0 where the model is most certain; others hardly ever are, and a first test that asks for it would end all.
FIRST_LOSS = {"binomial": 0.0, "hoeffding-bentkus": 0.2}
#: JSON has no infinity.
INFINITY = "Infinity"
#: What sums of losses and shares of rows may be off by.
ROUNDING = 1e-9


@dataclass(frozen=True)
class AbstentionThreshold(Stored):
    """
    Answer where the uncertainty is strictly below `threshold`: then the risk of what is answered is at most
    `max_risk`, with probability 1 - `delta` over the draw of the calibration rows.

    Args:
        max_risk (`float`):
            The risk asked for.
        delta (`float`):
            The chance that the risk is higher all the same.
        threshold (`float` or `None`):
            Infinity where everything may be answered, `None` where nothing could be certified.
        coverage (`float`):
            The share of calibration rows that is answered.
        empirical_risk (`float` or `None`):
            Their mean loss; `None` where none is answered.
        n (`int`):
            The number of calibration rows.
        test (`str`):
            `"binomial"` or `"hoeffding-bentkus"`.
        reason (`str` or `None`):
            Why nothing could be certified.
    """

    name = "abstention_threshold"
    max_risk: float
    delta: float
    threshold: float | None
    coverage: float
    empirical_risk: float | None
    n: int
    test: str
    reason: str | None = None

    @property
    def min_quality(self) -> float:
        """The mean quality of what is answered that goes with `max_risk`: 1 - `max_risk`."""
        return 1 - self.max_risk

    def abstains(self, uncertainty: Any) -> np.ndarray:
        """Whether to abstain, for each uncertainty."""
        [uncertainty] = checked_arrays(uncertainty=uncertainty)
        return ~(uncertainty < (-math.inf if self.threshold is None else self.threshold))

    def to_dict(self) -> dict[str, Any]:
        """As of every stored object; an infinite threshold is the text `"Infinity"`."""
        content = super().to_dict()
        return {**content, "threshold": INFINITY} if self.threshold == math.inf else content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """The object that `to_dict` described; raises where the name, the version or a key is another."""
        infinite = content.get("threshold") == INFINITY
        return super().from_dict({**content, "threshold": math.inf} if infinite else content)


@dataclass(frozen=True)
class AbstentionThresholds(Stored):
    """
    Thresholds for several risks, each with a guarantee of its own: the chance that one of them, chosen without a look
    at the calibration rows, fails is at most delta; the chance that any of them fails may be higher.

    Args:
        thresholds (`tuple[AbstentionThreshold, ...]`):
            In order of their risk.
    """

    name = "abstention_thresholds"
    thresholds: tuple[AbstentionThreshold, ...]

    @classmethod
    def fit(
        cls,
        uncertainty: Any,
        loss: Any,
        max_risks: Iterable[float] = MAX_RISKS,
        delta: float = 0.1,
        min_coverage: float = 0.2,
        test: str | None = None,
    ) -> Self:
        """An [`abstention_threshold`] for each of the risks; the other arguments are those of it."""
        risks = sorted(set(max_risks))
        if not risks:
            raise ValueError("There is nothing to fit: `max_risks` is empty.")
        return cls(tuple(abstention_threshold(uncertainty, loss, risk, delta, min_coverage, test) for risk in risks))

    def at(self, max_risk: float | None = None, *, min_quality: float | None = None) -> AbstentionThreshold:
        """The threshold for a risk, or for a quality (1 - risk); raises where none is stored for it."""
        if (max_risk is None) == (min_quality is None):
            raise ValueError("Give either `max_risk` or `min_quality`.")
        risk = 1 - min_quality if max_risk is None else max_risk  # type: ignore[operator]
        for threshold in self.thresholds:
            if math.isclose(threshold.max_risk, risk, rel_tol=0, abs_tol=ROUNDING):
                return threshold
        asked = f"`max_risk` {max_risk:g}" if min_quality is None else f"`min_quality` {min_quality:g}"
        stored = [entry.max_risk if min_quality is None else entry.min_quality for entry in self.thresholds]
        raise ValueError(
            f"There is no threshold for {asked}; those stored are {', '.join(f'{value:g}' for value in stored)}."
        )

    def check(self) -> None:
        for entry in self.thresholds:
            numbers = [entry.max_risk, entry.delta, 0.0 if entry.threshold is None else entry.threshold]
            if not all(isinstance(number, (int, float)) for number in numbers):
                raise ValueError(f"not numbers: {numbers}")

    def abstains(
        self, uncertainty: Any, max_risk: float | None = None, *, min_quality: float | None = None
    ) -> np.ndarray:
        """Whether to abstain at a stored risk (or quality), for each uncertainty."""
        return self.at(max_risk, min_quality=min_quality).abstains(uncertainty)

    def to_dict(self) -> dict[str, Any]:
        """Name, version and the thresholds, as plain data."""
        return {**super().to_dict(), "thresholds": [threshold.to_dict() for threshold in self.thresholds]}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """The object that `to_dict` described; raises where the name, the version or a key is another."""
        entries = super().from_dict(content).thresholds
        return cls(tuple(AbstentionThreshold.from_dict(entry) for entry in entries))  # type: ignore[arg-type]


def abstention_threshold(
    uncertainty: Any,
    loss: Any,
    max_risk: float,
    delta: float = 0.1,
    min_coverage: float = 0.2,
    test: str | None = None,
) -> AbstentionThreshold:
    """
    The largest threshold that can be certified: below it the risk is at most `max_risk`, with probability 1 - `delta`
    over the draw of the calibration rows.

    The sequence begins at the first uncertainty with `min_coverage` of the rows below it, and with as many as can
    certify the risk: 45 rows without any loss for a risk of 0.05; 94 for losses between 0 and 1, so that their mean
    need not be 0. All arguments but the first two must be chosen without a look at the rows.

    Args:
        uncertainty (`array`):
            One number per calibration row, higher where less certain. Only its order matters.
        loss (`array`):
            One number in [0, 1] per row: 1 - quality, or 1 where the answer is wrong.
        max_risk (`float`):
            The risk not to exceed, in (0, 1).
        delta (`float`, *optional*, defaults to 0.1):
            The chance that it is exceeded all the same, in (0, 1).
        min_coverage (`float`, *optional*, defaults to 0.2):
            The share of rows, in [0, 1], at which the sequence begins. Where it is small the first test has few rows;
            where it is large, a safe threshold below it is not found.
        test (`str`, *optional*):
            `"binomial"`, exact for losses of 0 and 1, or `"hoeffding-bentkus"`, for any. By default the former where
            all losses are 0 or 1: name the latter where others are possible and just do not occur in these rows.

    Returns:
        [`AbstentionThreshold`]: Its `threshold` is `None` where nothing can be certified; `reason` says why.

    Example:

    ```python
    >>> threshold = abstention_threshold(uncertainty, wrong, max_risk=0.05)
    >>> threshold.abstains(new_uncertainty)
    ```
    """
    uncertainty, loss = checked_arrays(uncertainty=uncertainty, loss=loss)
    test = _checked_test(loss, test)
    _check_settings(max_risk, delta, min_coverage)
    n = len(loss)
    least = _rows_needed(0.0, max_risk, delta)
    if least > n:
        reason = (
            f"Too few rows: at least {least} without any loss are needed to certify a risk of {max_risk:g} with "
            f"probability {1 - delta:g}; there are {n}."
        )
        return AbstentionThreshold(max_risk, delta, None, 0.0, None, n, test, reason)

    order = np.argsort(uncertainty, kind="stable")
    # for each candidate, the number of rows strictly below it and the sum of their losses
    candidates, rows = np.unique(uncertainty[order], return_index=True)
    candidates, rows = np.append(candidates, math.inf), np.append(rows, n)
    total = np.append(0.0, np.cumsum(loss[order]))[rows]
    first = max(_rows_needed(FIRST_LOSS[test], max_risk, delta), math.ceil(min_coverage * n - ROUNDING))
    begun = rows >= min(first, n)
    candidates, rows, total = candidates[begun], rows[begun], total[begun]

    p = _p_values(total, rows, max_risk, test)
    passed = int(np.argmax(np.append(p > delta, True)))
    if passed == 0:
        reason = _failure(rows[0], n, total[0] / rows[0], p[0], max_risk, delta)
        return AbstentionThreshold(max_risk, delta, None, 0.0, None, n, test, reason)
    threshold, answered, lost = (float(column[passed - 1]) for column in (candidates, rows, total))
    return AbstentionThreshold(max_risk, delta, threshold, answered / n, lost / answered, n, test)


def _rows_needed(share: float, max_risk: float, delta: float) -> int:
    """The fewest rows that certify `max_risk` by Hoeffding's bound where their mean loss is that share of it."""
    return math.ceil(-math.log(delta) / _divergence(np.array(share * max_risk), max_risk) - ROUNDING)


def _divergence(mean: np.ndarray, max_risk: float) -> np.ndarray:
    """Of Kullback and Leibler, between coins."""
    return rel_entr(mean, max_risk) + rel_entr(1 - mean, 1 - max_risk)


def _p_values(total: np.ndarray, rows: np.ndarray, max_risk: float, test: str) -> np.ndarray:
    """How likely so small a sum of losses is at most, in that many independent rows of a risk above `max_risk`."""
    # a sum that is whole but for rounding counts as whole, in whatever order it was added up
    binomial = bdtr(np.clip(np.ceil(total - ROUNDING), 0, rows), rows, max_risk)
    if test == "binomial":
        return binomial
    mean = np.clip(total / rows, 0, max_risk)
    hoeffding = np.exp(-rows * _divergence(mean, max_risk))
    return np.minimum(hoeffding, math.e * binomial)


def _failure(rows: int, n: int, risk: float, p: float, max_risk: float, delta: float) -> str:
    """Why the first test was not passed."""
    subject = f"The risk of the {rows} most certain rows ({rows / n:.0%} of {n})"
    if risk > max_risk:
        return f"{subject} is already {risk:.3g}, above {max_risk:g}."
    return (
        f"{subject} is {risk:.3g}, too close to {max_risk:g} for so few rows to certify it (p = {p:.2g}, above "
        f"delta = {delta:g})."
    )


def _checked_test(loss: np.ndarray, test: str | None) -> str:
    """The test to make of these losses; raises where it does not suit them, or they are not losses."""
    if len(loss) == 0:
        raise ValueError("There is nothing to fit: no rows.")
    if test not in (None, *TESTS):
        raise ValueError(f"`test` is {test!r}; it must be {' or '.join(map(repr, TESTS))}.")
    check_unit_range("loss", loss)
    binary = (loss == 0) | (loss == 1)
    if test == "binomial":
        advice = "the binomial test needs losses of 0 and 1. Use `test='hoeffding-bentkus'`"
        check_values("loss", loss, binary, advice)
    return test or ("binomial" if binary.all() else "hoeffding-bentkus")


def _check_settings(max_risk: float, delta: float, min_coverage: float) -> None:
    for name, value in (("max_risk", max_risk), ("delta", delta)):
        if not 0 < value < 1:
            raise ValueError(f"`{name}` is {value}; it must lie between 0 and 1.")
    if not 0 <= min_coverage <= 1:
        raise ValueError(f"`min_coverage` is {min_coverage}; it must lie in [0, 1].")
