"""Every metric of a model at once, with bootstrap intervals, and the paired differences of two models."""

from .classification import classification_report, paired_classification_differences
from .regression import paired_regression_differences, regression_report
from .rejection import paired_rejection_differences, rejection_report, rejection_reports


__all__ = [
    "classification_report",
    "paired_classification_differences",
    "paired_regression_differences",
    "paired_rejection_differences",
    "regression_report",
    "rejection_report",
    "rejection_reports",
]
