"""Evaluating trained models."""

from .class_evaluator import ClassificationEvaluator
from .class_report import ClassificationReport
from .evaluator import UncertaintyEvaluator
from .generate import UncertainText, generate_with_uncertainty, score_with_uncertainty
from .report import EvaluationReport
from .teacher_forced import TokenStatistics, token_statistics


__all__ = [
    "ClassificationEvaluator",
    "ClassificationReport",
    "EvaluationReport",
    "TokenStatistics",
    "UncertainText",
    "UncertaintyEvaluator",
    "generate_with_uncertainty",
    "score_with_uncertainty",
    "token_statistics",
]
