"""Scorers that estimate the entropy of the distribution over whole texts from samples."""

from __future__ import annotations

from statistics import fmean

from .base import Scorer


class MonteCarloSequenceEntropy(Scorer):
    """`mc_sequence_entropy`: `-mean_s L_s`, with `L_s` the log-probability of sample s, end token included."""

    needs = frozenset({"samples"})

    def score(self, collected):
        return fmean(float(-sample.log_probability.sum()) for sample in collected.samples)


class MonteCarloNormalizedSequenceEntropy(Scorer):
    """`mc_normalized_sequence_entropy`: `-mean_s L_s / N_s`, with `N_s` the tokens without the end (at least 1)."""

    needs = frozenset({"samples"})

    def score(self, collected):
        return fmean(
            float(-sample.log_probability.sum()) / max(sample.length_without_end, 1) for sample in collected.samples
        )
