"""What to do with a model: how much of its answers to give, and how good they then are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tables import format_number


#: Shares of the answers, the most certain first, whose quality a page shows.
SHARES = (1.0, 0.9, 0.8, 0.6, 0.4, 0.2)
#: Qualities that people ask for.
TARGETS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Answering:
    """
    How good the answers are that a model gives, if it gives the most certain ones only.

    Args:
        counts, at_most, means (`np.ndarray`):
            For every threshold of the uncertainty, from the lowest up: the number of answers at or below it, the
            threshold, and the mean quality of these answers. Tied answers are given together.
        score (`str`):
            What the uncertainty is called.
        noun (`str`, *optional*, defaults to `"outputs"`):
            What the answers are called.
        measure (`str`, *optional*, defaults to `"mean quality"`):
            What the mean of the quality is called.
    """

    counts: np.ndarray
    at_most: np.ndarray
    means: np.ndarray
    score: str
    noun: str = "outputs"
    measure: str = "mean quality"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """For each of some shares of the answers: the share, their number, the threshold, and their mean quality."""
        n = int(self.counts[-1])
        places = dict.fromkeys(int(np.searchsorted(self.counts, math.ceil(share * n))) for share in SHARES)
        columns = ("count", "at_most", "quality")
        values = [(int(self.counts[k]), float(self.at_most[k]), float(self.means[k])) for k in places]
        return [{"share": row[0] / n, **dict(zip(columns, row, strict=True))} for row in values]

    def sentences(self) -> list[str]:
        """What can be answered at which quality, for two qualities above that of all answers."""
        n, mean = int(self.counts[-1]), float(self.means[-1])
        said = [f"The {self.measure} of all {n:,} {self.noun} is {mean:.3f}."]
        for target in [target for target in TARGETS if target > mean][:2]:
            reached = np.flatnonzero(self.means >= target)
            if not len(reached):
                said.append(f"No share of the most certain ones reaches {target:g}.")
                continue
            share, threshold = 100 * self.counts[reached[-1]] / n, float(self.at_most[reached[-1]])
            said.append(
                f"For {target:g}, answer the most certain {share:.0f} %: {self.score} at most "
                f"{format_number(threshold, minus='−')}."
            )
        return said


def answering(uncertainty: np.ndarray, quality: np.ndarray, score: str, **words: str) -> Answering | None:
    """How good the most certain answers are; `None` where there are fewer than two, or a number is not finite."""
    if len(quality) < 2 or not np.isfinite(uncertainty).all() or not np.isfinite(quality).all():
        return None
    order = np.argsort(uncertainty, kind="stable")
    ordered = np.asarray(uncertainty, float)[order]
    counts = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)) + 1
    means = np.cumsum(np.asarray(quality, float)[order])[counts - 1] / counts
    return Answering(counts, ordered[counts - 1], means, score, **words)
