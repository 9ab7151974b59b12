"""Scorers that compare the output's probability with and without the source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import Scorer


class PointwiseMutualInformation(Scorer):
    """`pmi`: `-mean_t [l_t - m_t]`, with `m_t = ln p(y_t | y_<t)` under an empty source."""

    needs = frozenset({"unconditional"})

    def score(self, collected):
        gain = collected.output.log_probability - collected.unconditional
        return float(-gain.mean()) if len(gain) else 0.0


@dataclass(frozen=True)
class ConditionalPointwiseMutualInformation(Scorer):
    """
    `cpmi` (van der Poel et al.): `-mean_t [l_t - cpmi_lambda 1{H_t >= cpmi_tau} m_t]`, the values its authors found.
    """

    needs = frozenset({"unconditional"})

    cpmi_lambda: float = 0.0656
    cpmi_tau: float = 3.599

    def score(self, collected):
        unsure = collected.output.entropy >= self.cpmi_tau
        gain = collected.output.log_probability - self.cpmi_lambda * np.where(unsure, collected.unconditional, 0.0)
        return float(-gain.mean()) if len(gain) else 0.0
