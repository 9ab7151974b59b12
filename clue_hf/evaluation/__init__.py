"""Evaluating trained models."""

from .class_evaluator import ClassificationEvaluator
from .class_report import ClassificationReport
from .evaluator import UncertaintyEvaluator
from .generate import UncertainText, generate_with_uncertainty, score_with_uncertainty
from .number_evaluator import RegressionEvaluator
from .number_measures import RegressionPredictions
from .number_report import RegressionReport
from .report import EvaluationReport
from .teacher_forced import TokenStatistics, token_statistics


__all__ = [
    "ClassificationEvaluator",
    "ClassificationReport",
    "EvaluationReport",
    "RegressionEvaluator",
    "RegressionPredictions",
    "RegressionReport",
    "TokenStatistics",
    "UncertainText",
    "UncertaintyEvaluator",
    "generate_with_uncertainty",
    "score_with_uncertainty",
    "token_statistics",
]
