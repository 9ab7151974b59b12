"""Error and entropy of large-vocabulary heads without holding the logits."""

from .fused_linear import fused_linear_objective
from .statistics import (
    LinearStatistics,
    linear_statistics,
    logit_statistics,
    mixture_statistics,
    statistics_by_temperature,
)


__all__ = [
    "LinearStatistics",
    "fused_linear_objective",
    "linear_statistics",
    "logit_statistics",
    "mixture_statistics",
    "statistics_by_temperature",
]
