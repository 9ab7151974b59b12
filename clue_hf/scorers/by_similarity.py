"""The scorers that compare the samples of a source with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from .base import Scorer
from .collected import Collected, ScoredText
from .similarity import Similarity


@dataclass(frozen=True)
class BySimilarity(Scorer):
    """A score by how alike texts are: see `clue_hf/scorers/similarity.py`."""

    needs = frozenset({"samples"})
    reads = frozenset()
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

    reads = frozenset({"sample_log_probability"})
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


def compare_texts(collected: Sequence[Collected], similarities: Mapping[str, Similarity]) -> None:
    """Compares the output and the samples of each source, by each similarity."""
    groups = [[entry.output.text, *(sample.text for sample in entry.samples)] for entry in collected]
    for name, similarity in similarities.items():
        for entry, likeness in zip(collected, similarity.compare(groups), strict=True):
            entry.likeness[name] = likeness
