"""Scorers that need nothing but the tokens of the output."""

from __future__ import annotations

from .base import Scorer


class MaximumSequenceProbability(Scorer):
    """`msp`: `-sum_t l_t`, the negative log-probability of the whole text."""

    def score(self, collected):
        return float(-collected.output.log_probability.sum())


class Perplexity(Scorer):
    """`perplexity`: `-mean_t l_t`, the negative log-probability per token (its exponential is the perplexity)."""

    def score(self, collected):
        tokens = collected.output.log_probability
        return float(-tokens.mean()) if len(tokens) else 0.0


class MeanTokenEntropy(Scorer):
    """`mean_token_entropy`: `mean_t H_t`, the mean entropy of the next-token distributions."""

    def score(self, collected):
        tokens = collected.output.entropy
        return float(tokens.mean()) if len(tokens) else 0.0
