"""Evaluating trained models."""

from .generate import UncertainText, generate_with_uncertainty, score_with_uncertainty
from .teacher_forced import TokenStatistics, token_statistics


__all__ = [
    "TokenStatistics",
    "UncertainText",
    "generate_with_uncertainty",
    "score_with_uncertainty",
    "token_statistics",
]
