"""Uncertainty scores of generated texts, fed by one shared collection pass. Higher means less certain."""

from .base import Scorer
from .collection import Collected, CollectionSettings, Collector, ScoredText
from .mutual_information import ConditionalPointwiseMutualInformation, PointwiseMutualInformation
from .sampled import MonteCarloNormalizedSequenceEntropy, MonteCarloSequenceEntropy
from .single_pass import MaximumSequenceProbability, MeanTokenEntropy, Perplexity


SCORERS: dict[str, type[Scorer]] = {
    "msp": MaximumSequenceProbability,
    "perplexity": Perplexity,
    "mean_token_entropy": MeanTokenEntropy,
    "mc_sequence_entropy": MonteCarloSequenceEntropy,
    "mc_normalized_sequence_entropy": MonteCarloNormalizedSequenceEntropy,
    "pmi": PointwiseMutualInformation,
    "cpmi": ConditionalPointwiseMutualInformation,
}

__all__ = ["SCORERS", "Collected", "CollectionSettings", "Collector", "ScoredText", "Scorer"]
