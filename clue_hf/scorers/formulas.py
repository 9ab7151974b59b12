"""The scorers, a formula each, and their names: a new one is a class and a line in `SCORERS`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

import numpy as np

from ..errors import UserError
from ..posthoc.learned import LearnedScore, token_features
from .base import Scorer
from .by_similarity import (
    BySimilarity,
    DegreeMatrix,
    Eccentricity,
    LaplacianEigenvalues,
    LexicalSimilarity,
    SemanticEntropy,
)
from .collected import Collected
from .density import Density


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


class MaxTokenEntropy(Scorer):
    """`max_token_entropy`: `max_t H_t`, the largest entropy of a next-token distribution."""

    reads = frozenset({"entropy"})

    def score(self, collected: Collected) -> float:
        return float(collected.output.entropy.max(initial=0.0))


class SelfCertainty(Scorer):
    """`self_certainty` (Kang et al.): `-mean_t KL(uniform || p_t)`, over the tokens that are possible."""

    needs = frozenset({"flatness"})
    reads = frozenset()

    def score(self, collected: Collected) -> float:
        return _mean(_known(collected.output.uniform_log_ratio))


class RenyiDivergence(Scorer):
    """
    `renyi_divergence` (Darrin et al.): `-mean_t D_1/2(q_t || uniform)`, the Rényi divergence of order 1/2, with q_t
    the next-token distribution at temperature 2.
    """

    needs = frozenset({"flatness"})
    reads = frozenset()

    def score(self, collected: Collected) -> float:
        return _mean(2 * _known(collected.output.log_affinity))


class FisherRao(Scorer):
    """
    `fisher_rao` (Darrin et al.): `-mean_t 2/pi arccos(sum_v sqrt(q_t,v / V))`, the Fisher-Rao distance of q_t, the
    next-token distribution at temperature 2, from the uniform one.
    """

    needs = frozenset({"flatness"})
    reads = frozenset()

    def score(self, collected: Collected) -> float:
        affinity = np.exp(np.minimum(_known(collected.output.log_affinity), 0.0))
        return -_mean(2 / np.pi * np.arccos(affinity))


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


class PTrue(Scorer):
    """
    `p_true` (Kadavath et al.): `-ln p(True)`, where the model is asked whether its output is a true answer to the
    source. For causal models.
    """

    needs = frozenset({"p_true"})
    reads = frozenset()

    def score(self, collected: Collected) -> float:
        assert collected.true_log_probability is not None, "the collector was not asked for what this scorer needs"
        return -collected.true_log_probability


@dataclass(frozen=True)
class Cocoa(BySimilarity):
    """A score of the output times its mean dissimilarity to the samples (Vashurin et al.)."""

    scorer: ClassVar[type[Scorer]]
    similarity: str = "rougeL"

    def score(self, collected: Collected) -> float:
        alike = collected.likeness[self.similarity].similarity[0, 1:]
        return self.scorer().score(collected) * float(1 - alike.mean())


class CocoaMSP(Cocoa):
    """`cocoa_msp` (Vashurin et al.): `msp` times `mean_s (1 - similarity(y, s))` of the output y to the samples."""

    scorer = MaximumSequenceProbability
    reads = MaximumSequenceProbability.reads


class CocoaPerplexity(Cocoa):
    """`cocoa_perplexity`: `perplexity` times `mean_s (1 - similarity(y, s))` of the output y to the samples."""

    scorer = Perplexity
    reads = Perplexity.reads


class CocoaMeanTokenEntropy(Cocoa):
    """`cocoa_mean_token_entropy`: `mean_token_entropy` times `mean_s (1 - similarity(y, s))` of the output y."""

    scorer = MeanTokenEntropy
    reads = MeanTokenEntropy.reads


@dataclass(frozen=True)
class ByDensity(Scorer):
    """A score by how usual the hidden states of the output are; `clue-hf calibrate --density_split train` fits it."""

    needs = frozenset({"hidden"})
    reads = frozenset()
    density: Density

    def score(self, collected: Collected) -> float:
        return self._distance(_known(collected.hidden))

    @abstractmethod
    def _distance(self, hidden: np.ndarray) -> float:
        """How far the mean hidden state of an output is from training texts."""


class Mahalanobis(ByDensity):
    """`mahalanobis` (Lee et al.): the Mahalanobis distance of the output's mean hidden state from training texts."""

    def _distance(self, hidden: np.ndarray) -> float:
        return self.density.distance(hidden)


class RelativeMahalanobis(ByDensity):
    """
    `relative_mahalanobis` (Ren et al.): `mahalanobis` minus the distance from the same training texts without their
    sources.
    """

    def _distance(self, hidden: np.ndarray) -> float:
        return self.density.distance(hidden) - self.density.background_distance(hidden)


class RobustDensity(ByDensity):
    """
    `rde` (Yoo et al.): the squared Mahalanobis distance from most of the training texts, in the principal components
    of a Gaussian kernel between their mean hidden states.
    """

    def _distance(self, hidden: np.ndarray) -> float:
        return self.density.robust_distance(hidden)


@dataclass(frozen=True)
class Learned(Scorer):
    """
    `learned`: `1 - predicted quality`, or the best single scorer where that ranks as well: see
    [`~clue_hf.posthoc.learned.LearnedScore`]. `clue-hf calibrate` fits it.
    """

    fitted: LearnedScore
    similarity: str | None = None

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
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        of_tokens = frozenset() if self.fitted.is_single else Scorer.reads
        of_source = frozenset({"source_tokens"}) if self.fitted.reads_source_tokens else frozenset()
        return of_tokens.union(of_source, *(scorer.reads for scorer in self._parts))

    @property
    def similarities(self) -> frozenset[str]:
        return frozenset().union(*(scorer.similarities for scorer in self._parts))

    @property
    def definition(self) -> str:
        return self.fitted.explanation

    @property
    def _parts(self) -> list[Scorer]:
        return [make_scorer(name, self.similarity) for name in self.fitted.used_scores]

    def score(self, collected: Collected) -> float:
        scores = [scorer.score(collected) for scorer in self._parts]
        return self.fitted(output_features(collected), scores)


def output_features(collected: Collected) -> np.ndarray:
    """The [`~clue_hf.posthoc.learned.token_features`] of an output."""
    output = collected.output
    return token_features(output.log_probability, output.entropy, collected.source_tokens, output.ended)


def make_scorer(name: str, similarity: str | None = None, density: Density | None = None) -> Scorer:
    """
    A scorer by its name. Those that take any similarity take this one where it is not `None`; those of a density need
    it.
    """
    scorer = SCORERS[name]
    if issubclass(scorer, ByDensity):
        return scorer(density=density)  # type: ignore[arg-type]
    takes_any = issubclass(scorer, BySimilarity) and scorer is not LexicalSimilarity
    return scorer(similarity=similarity) if takes_any and similarity is not None else scorer()  # type: ignore[call-arg]


def _known(values: np.ndarray | None) -> np.ndarray:
    """What the collection has brought, since a scorer needs it."""
    assert values is not None, "the collector was not asked for what this scorer needs"
    return values


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
    "max_token_entropy": MaxTokenEntropy,
    "self_certainty": SelfCertainty,
    "renyi_divergence": RenyiDivergence,
    "fisher_rao": FisherRao,
    "lexical_similarity": LexicalSimilarity,
    "degree_matrix": DegreeMatrix,
    "eccentricity": Eccentricity,
    "laplacian_eigenvalues": LaplacianEigenvalues,
    "semantic_entropy": SemanticEntropy,
    "cocoa_msp": CocoaMSP,
    "cocoa_perplexity": CocoaPerplexity,
    "cocoa_mean_token_entropy": CocoaMeanTokenEntropy,
    "p_true": PTrue,
    "mahalanobis": Mahalanobis,
    "relative_mahalanobis": RelativeMahalanobis,
    "rde": RobustDensity,
    "learned": Learned,
}
#: The scorers that are used where none are named.
DEFAULT_SCORERS = (
    "msp", "perplexity", "mean_token_entropy", "mc_sequence_entropy", "mc_normalized_sequence_entropy", "pmi", "cpmi",
)  # fmt: skip
#: What scorers need, beside the output itself, and what those that need it are called.
GROUPS = {
    "unconditional": "A pass without the source",
    "samples": "Samples",
    "p_true": "A question to the model",
    "hidden": "Hidden states, fitted to training data",
    "": "The output alone",
}


def scorer_group(name: str) -> str:
    """What a scorer needs, in words."""
    scorer = SCORERS.get(name)
    if scorer is None or issubclass(scorer, Learned):
        return "Fitted to judged outputs" if scorer else "Others"
    return next(group for need, group in GROUPS.items() if need in scorer.needs or not need)
