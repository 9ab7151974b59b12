"""Evaluating trained models."""

from ..predictors.generate import UncertainText, generate_with_uncertainty, score_with_uncertainty
from ..predictors.numbers import RegressionPredictions
from ..predictors.streaming import StreamedToken, UncertainTextStream, stream_with_uncertainty
from ..predictors.token_statistics import TokenStatistics, token_statistics
from .classes.evaluator import ClassificationEvaluator
from .classes.report import ClassificationReport
from .numbers.evaluator import RegressionEvaluator
from .numbers.report import RegressionReport
from .text.evaluator import UncertaintyEvaluator
from .text.report import EvaluationReport


__all__ = [
    "ClassificationEvaluator",
    "ClassificationReport",
    "EvaluationReport",
    "RegressionEvaluator",
    "RegressionPredictions",
    "RegressionReport",
    "StreamedToken",
    "TokenStatistics",
    "UncertainText",
    "UncertainTextStream",
    "UncertaintyEvaluator",
    "generate_with_uncertainty",
    "score_with_uncertainty",
    "stream_with_uncertainty",
    "token_statistics",
]
