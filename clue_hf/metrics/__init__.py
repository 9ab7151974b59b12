"""Metrics: arrays in, numbers out, no model in sight."""

from .bootstrap import bootstrap_interval, cluster_mean_interval, paired_bootstrap
from .calibration import alignment_error, calibration_intervals, confidence_calibration_error
from .classification import (
    adaptive_calibration_error,
    binary_flip,
    brier_score,
    classification_error,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    negative_log_likelihood,
    normalized_entropy,
)
from .measured import Measured, interval_description, read_metrics
from .modules import module_path
from .ood import ood_detection, ood_report
from .quality import QUALITIES, corpus_quality, corpus_quality_interval, quality_signature, sentence_quality
from .registry import METRICS, MetricInfo, format_interval, format_metric, metric_definitions, metric_info
from .regression import (
    ause,
    calibration_error_of_pit,
    corr_error_pe,
    corr_error_var,
    coverage_gap,
    ence,
    gaussian_nll,
    interval_coverage,
    kuleshov_error,
    mean_squared_error,
    mean_std,
    probability_integral_transform,
    regression_alignment_error,
    regression_calibration_error,
    root_mean_squared_calibration_error,
    sharpness,
)
from .rejection import (
    augrc,
    aurc,
    coverage_at_risk,
    e_aurc,
    prediction_rejection_ratio,
    rejection_area,
    rejection_area_minmax,
    rejection_curve,
    risk_at_coverage,
    split_of_area_gain,
)
from .resampled.classification import classification_report, paired_classification_differences
from .resampled.regression import paired_regression_differences, regression_report
from .resampled.rejection import paired_rejection_differences, rejection_report, rejection_reports
from .separation import (
    best_threshold,
    residual_correlation,
    uncertainty_accuracy,
    uncertainty_accuracy_at,
    uncertainty_auc,
    uncertainty_calibration_error,
    uncertainty_gap,
    wasserstein_separation,
)


__all__ = [
    "METRICS", "QUALITIES", "Measured", "MetricInfo", "adaptive_calibration_error", "alignment_error", "augrc", "aurc",
    "ause", "best_threshold", "binary_flip", "bootstrap_interval", "brier_score", "calibration_error_of_pit",
    "calibration_intervals", "classification_error", "classification_report", "classwise_calibration_error",
    "cluster_mean_interval", "confidence_calibration_error", "corpus_quality", "corpus_quality_interval",
    "corr_error_pe", "corr_error_var", "coverage_at_risk", "coverage_gap", "debiased_calibration_error", "e_aurc",
    "ence", "expected_calibration_error", "format_interval", "format_metric", "gaussian_nll", "interval_coverage",
    "interval_description", "kuleshov_error", "mean_squared_error", "mean_std", "metric_definitions", "metric_info",
    "module_path", "negative_log_likelihood", "normalized_entropy", "ood_detection", "ood_report", "paired_bootstrap",
    "paired_classification_differences", "paired_regression_differences", "paired_rejection_differences",
    "prediction_rejection_ratio", "probability_integral_transform", "quality_signature", "read_metrics",
    "regression_alignment_error", "regression_calibration_error", "regression_report", "rejection_area",
    "rejection_area_minmax", "rejection_curve", "rejection_report", "rejection_reports", "residual_correlation",
    "risk_at_coverage", "root_mean_squared_calibration_error", "sentence_quality", "sharpness", "split_of_area_gain",
    "uncertainty_accuracy", "uncertainty_accuracy_at", "uncertainty_auc", "uncertainty_calibration_error",
    "uncertainty_gap", "wasserstein_separation",
]  # fmt: skip
