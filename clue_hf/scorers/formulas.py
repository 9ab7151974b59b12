"""The scorers, a formula each, and their names: a new one is a class and a line in `SCORERS`."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, ClassVar

import numpy as np

from ..errors import UserError
from ..posthoc.learned import LearnedScore, token_features
from .base import Scorer
from .collected import Collected, ScoredText


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


class MaxTokenEntropy(Scorer):
    """`max_token_entropy`: `max_t H_t`, the largest entropy of a next-token distribution."""

    def score(self, collected: Collected) -> float:
        return float(collected.output.entropy.max(initial=0.0))


class SelfCertainty(Scorer):
    """`self_certainty` (Kang et al.): `-mean_t KL(uniform || p_t)`, over the tokens that are possible."""

    needs = frozenset({"flatness"})

    def score(self, collected: Collected) -> float:
        return _mean(_known(collected.output.uniform_log_ratio))


class RenyiDivergence(Scorer):
    """
    `renyi_divergence` (Darrin et al.): `-mean_t D_1/2(q_t || uniform)`, the Rényi divergence of order 1/2, with q_t
    the next-token distribution at temperature 2.
    """

    needs = frozenset({"flatness"})

    def score(self, collected: Collected) -> float:
        return _mean(2 * _known(collected.output.log_affinity))


class FisherRao(Scorer):
    """
    `fisher_rao` (Darrin et al.): `-mean_t 2/pi arccos(sum_v sqrt(q_t,v / V))`, the Fisher-Rao distance of q_t, the
    next-token distribution at temperature 2, from the uniform one.
    """

    needs = frozenset({"flatness"})

    def score(self, collected: Collected) -> float:
        affinity = np.exp(np.minimum(_known(collected.output.log_affinity), 0.0))
        return -_mean(2 / np.pi * np.arccos(affinity))


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


class PTrue(Scorer):
    """
    `p_true` (Kadavath et al.): `-ln p(True)`, where the model is asked whether its output is a true answer to the
    source. For causal models.
    """

    needs = frozenset({"p_true"})

    def score(self, collected: Collected) -> float:
        assert collected.true_log_probability is not None, "the collector was not asked for what this scorer needs"
        return -collected.true_log_probability


@dataclass(frozen=True)
class BySimilarity(Scorer):
    """A score by how alike texts are: see `clue_hf/scorers/similarity.py`."""

    needs = frozenset({"samples"})
    similarity: str = "jaccard"

    @property
    def similarities(self) -> frozenset[str]:
        return frozenset({self.similarity})

    @property
    def definition(self) -> str:
        return f"{super().definition} Similarity: {self.similarity}."

    def samples_alike(self, collected: Collected) -> np.ndarray:
        """How similar the samples are to each other, (samples, samples)."""
        return collected.likeness[self.similarity].similarity[1:, 1:]


@dataclass(frozen=True)
class LexicalSimilarity(BySimilarity):
    """`lexical_similarity` (Fomicheva et al.): `-mean_{i<j} rougeL(s_i, s_j)` over pairs of samples."""

    similarity: str = field(default="rougeL", init=False)

    def score(self, collected: Collected) -> float:
        alike = self.samples_alike(collected)
        pairs = alike[np.triu_indices(len(alike), 1)]
        return -float(pairs.mean()) if len(pairs) else -1.0


class DegreeMatrix(BySimilarity):
    """`degree_matrix` (Lin et al.): `1 - mean_{ij} w_ij`, with `w_ij` the similarity of the samples i and j."""

    def score(self, collected: Collected) -> float:
        return float(1 - self.samples_alike(collected).mean())


class Eccentricity(BySimilarity):
    """
    `eccentricity` (Lin et al.): the distance of the samples from their centre, in the eigenvectors of the graph
    Laplacian of their similarities whose eigenvalue is below 0.9.
    """

    def score(self, collected: Collected) -> float:
        values, vectors = np.linalg.eigh(_laplacian(self.samples_alike(collected)))
        kept = vectors[:, values < 0.9]
        return float(np.linalg.norm(kept - kept.mean(0)))


class LaplacianEigenvalues(BySimilarity):
    """
    `laplacian_eigenvalues` (Lin et al.): `sum_k max(0, 1 - lambda_k)` over the eigenvalues of the graph Laplacian of
    the samples' similarities, which is the number of groups of samples where similarities are 0 or 1.
    """

    def score(self, collected: Collected) -> float:
        return float((1 - np.linalg.eigvalsh(_laplacian(self.samples_alike(collected)))).clip(min=0).sum())


@dataclass(frozen=True)
class SemanticEntropy(BySimilarity):
    """
    `semantic_entropy` (Kuhn et al.): `-mean_s ln p(c_s)`, with `p(c_s)` the summed probability of the distinct samples
    that are equivalent to sample s.
    """

    similarity: str = "exact"

    def score(self, collected: Collected) -> float:
        groups = equivalent_groups(collected.likeness[self.similarity].equivalent[1:, 1:])
        logs: dict[int, dict[Any, float]] = {}
        for number, (group, sample) in enumerate(zip(groups, collected.samples, strict=True)):
            logs.setdefault(group, {})[self._identity(number, sample)] = float(sample.log_probability.sum())
        by_group = {group: np.logaddexp.reduce(list(values.values())) for group, values in logs.items()}
        return -fmean(float(by_group[group]) for group in groups)

    def _identity(self, number: int, sample: ScoredText) -> Any:
        """What tells a sample from others: drawn twice, it does not become more probable."""
        return (sample.text, *sample.tokens)


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


class CocoaPerplexity(Cocoa):
    """`cocoa_perplexity`: `perplexity` times `mean_s (1 - similarity(y, s))` of the output y to the samples."""

    scorer = Perplexity


class CocoaMeanTokenEntropy(Cocoa):
    """`cocoa_mean_token_entropy`: `mean_token_entropy` times `mean_s (1 - similarity(y, s))` of the output y."""

    scorer = MeanTokenEntropy


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


def make_scorer(name: str, similarity: str | None = None) -> Scorer:
    """A scorer by its name; those that take any similarity take this one where it is not `None`."""
    scorer = SCORERS[name]
    takes_any = issubclass(scorer, BySimilarity) and scorer is not LexicalSimilarity
    return scorer(similarity=similarity) if takes_any and similarity is not None else scorer()  # type: ignore[call-arg]


def equivalent_groups(equivalent: np.ndarray) -> list[int]:
    """The group of each text: the first group whose first text is equivalent to it, or a new one."""
    firsts: list[int] = []
    groups = []
    for text in range(len(equivalent)):
        group = next((group for group, first in enumerate(firsts) if equivalent[first, text]), len(firsts))
        if group == len(firsts):
            firsts.append(text)
        groups.append(group)
    return groups


def _laplacian(similarity: np.ndarray) -> np.ndarray:
    """The normalised graph Laplacian `I - D^-1/2 W D^-1/2` of similarities W, with D their row sums."""
    scale = similarity.sum(1) ** -0.5
    return np.eye(len(similarity)) - scale[:, None] * similarity * scale


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
    "": "The output alone",
}


def scorer_group(name: str) -> str:
    """What a scorer needs, in words."""
    scorer = SCORERS.get(name)
    if scorer is None or issubclass(scorer, Learned):
        return "Fitted to judged outputs" if scorer else "Others"
    return next(group for need, group in GROUPS.items() if need in scorer.needs or not need)
