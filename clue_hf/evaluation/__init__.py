"""Evaluating trained models."""

from .evaluator import UncertaintyEvaluator
from .generate import UncertainText, generate_with_uncertainty, score_with_uncertainty
from .report import EvaluationReport
from .teacher_forced import TokenStatistics, token_statistics


__all__ = [
    "EvaluationReport",
    "TokenStatistics",
    "UncertainText",
    "UncertaintyEvaluator",
    "generate_with_uncertainty",
    "score_with_uncertainty",
    "token_statistics",
]
