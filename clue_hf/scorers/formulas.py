"""The scorers, a formula each, and their names: a new one is a class and a line in `SCORERS`."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np

from .base import Scorer
from .collection import Collected


class MaximumSequenceProbability(Scorer):
    """`msp`: `-sum_t l_t`, the negative log-probability of the whole text."""

    def score(self, collected: Collected) -> float:
        return float(-collected.output.log_probability.sum())


class Perplexity(Scorer):
    """`perplexity`: `-mean_t l_t`, the negative log-probability per token (its exponential is the perplexity)."""

    def score(self, collected: Collected) -> float:
        return _mean(-collected.output.log_probability)


class MeanTokenEntropy(Scorer):
    """`mean_token_entropy`: `mean_t H_t`, the mean entropy of the next-token distributions."""

    def score(self, collected: Collected) -> float:
        return _mean(collected.output.entropy)


class MonteCarloSequenceEntropy(Scorer):
    """`mc_sequence_entropy`: `-mean_s L_s`, with `L_s` the log-probability of sample s, end token included."""

    needs = frozenset({"samples"})

    def score(self, collected: Collected) -> float:
        return fmean(float(-sample.log_probability.sum()) for sample in collected.samples)


class MonteCarloNormalizedSequenceEntropy(Scorer):
    """`mc_normalized_sequence_entropy`: `-mean_s L_s / N_s`, with `N_s` the tokens without the end (at least 1)."""

    needs = frozenset({"samples"})

    def score(self, collected: Collected) -> float:
        return fmean(
            float(-sample.log_probability.sum()) / max(sample.length_without_end, 1) for sample in collected.samples
        )


class PointwiseMutualInformation(Scorer):
    """`pmi`: `-mean_t [l_t - m_t]`, with `m_t = ln p(y_t | y_<t)` under an empty source."""

    needs = frozenset({"unconditional"})

    def score(self, collected: Collected) -> float:
        return _mean(collected.unconditional - collected.output.log_probability)


@dataclass(frozen=True)
class ConditionalPointwiseMutualInformation(Scorer):
    """
    `cpmi` (van der Poel et al.): `-mean_t [l_t - cpmi_lambda 1{H_t >= cpmi_tau} m_t]`, the values its authors found.
    """

    needs = frozenset({"unconditional"})

    cpmi_lambda: float = 0.0656
    cpmi_tau: float = 3.599

    def score(self, collected: Collected) -> float:
        uncertain = collected.output.entropy >= self.cpmi_tau
        unconditional = self.cpmi_lambda * np.where(uncertain, collected.unconditional, 0.0)  # type: ignore[arg-type]
        return _mean(unconditional - collected.output.log_probability)


def _mean(tokens: np.ndarray) -> float:
    return float(tokens.mean()) if len(tokens) else 0.0


SCORERS: dict[str, type[Scorer]] = {
    "msp": MaximumSequenceProbability,
    "perplexity": Perplexity,
    "mean_token_entropy": MeanTokenEntropy,
    "mc_sequence_entropy": MonteCarloSequenceEntropy,
    "mc_normalized_sequence_entropy": MonteCarloNormalizedSequenceEntropy,
    "pmi": PointwiseMutualInformation,
    "cpmi": ConditionalPointwiseMutualInformation,
}
