"""The scorers, a formula each, and their names: a new one is a class and a line in `SCORERS`."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np

from ..errors import UserError
from ..posthoc.learned import LearnedScore, token_features
from .base import Scorer
from .collected import Collected


class MaximumSequenceProbability(Scorer):
    """`msp`: `-sum_t l_t`, the negative log-probability of the whole text."""

    reads = frozenset({"log_probability"})

    def score(self, collected: Collected) -> float:
        return float(-collected.output.log_probability.sum())


class Perplexity(Scorer):
    """`perplexity`: `-mean_t l_t`, the negative log-probability per token (its exponential is the perplexity)."""

    reads = frozenset({"log_probability"})

    def score(self, collected: Collected) -> float:
        return _mean(-collected.output.log_probability)


class MeanTokenEntropy(Scorer):
    """`mean_token_entropy`: `mean_t H_t`, the mean entropy of the next-token distributions."""

    reads = frozenset({"entropy"})

    def score(self, collected: Collected) -> float:
        return _mean(collected.output.entropy)


class MonteCarloSequenceEntropy(Scorer):
    """`mc_sequence_entropy`: `-mean_s L_s`, with `L_s` the log-probability of sample s, end token included."""

    needs = frozenset({"samples"})
    reads = frozenset({"sample_log_probability"})

    def score(self, collected: Collected) -> float:
        return fmean(float(-sample.log_probability.sum()) for sample in collected.samples)


class MonteCarloNormalizedSequenceEntropy(Scorer):
    """`mc_normalized_sequence_entropy`: `-mean_s L_s / N_s`, with `N_s` the tokens without the end (at least 1)."""

    needs = frozenset({"samples"})
    reads = frozenset({"sample_log_probability"})

    def score(self, collected: Collected) -> float:
        return fmean(
            float(-sample.log_probability.sum()) / max(sample.length_without_end, 1) for sample in collected.samples
        )


class PointwiseMutualInformation(Scorer):
    """`pmi`: `-mean_t [l_t - m_t]`, with `m_t = ln p(y_t | y_<t)` under an empty source."""

    needs = frozenset({"unconditional"})
    reads = frozenset({"log_probability"})

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


@dataclass(frozen=True)
class Learned(Scorer):
    """
    `learned`: `1 - predicted quality`, or the best single scorer where that ranks as well: see
    [`~clue_hf.posthoc.learned.LearnedScore`]. `clue-hf calibrate` fits it.
    """

    fitted: LearnedScore

    def __post_init__(self) -> None:
        for name in self.fitted.used_scores:
            if name not in SCORERS or name == "learned":
                raise UserError(
                    f"The scorer 'learned' of this model needs the scorer {name!r}, which there is not: fit it again "
                    "with clue-hf calibrate."
                )

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset().union(*(scorer.needs for scorer in self._parts))

    @property
    def definition(self) -> str:
        return self.fitted.explanation

    @property
    def _parts(self) -> list[Scorer]:
        return [SCORERS[name]() for name in self.fitted.used_scores]

    def score(self, collected: Collected) -> float:
        scores = [scorer.score(collected) for scorer in self._parts]
        return self.fitted(output_features(collected), scores)


def output_features(collected: Collected) -> np.ndarray:
    """The [`~clue_hf.posthoc.learned.token_features`] of an output."""
    output = collected.output
    return token_features(output.log_probability, output.entropy, collected.source_tokens, output.ended)


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
    "learned": Learned,
}
#: The scorers that are used where none are named: all that need no fitting.
DEFAULT_SCORERS = tuple(name for name in SCORERS if name != "learned")
