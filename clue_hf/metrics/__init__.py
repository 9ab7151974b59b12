"""Metrics: arrays in, numbers out, no model in sight."""

from .bootstrap import Difference, Interval, bootstrap_interval, paired_bootstrap
from .calibration import alignment_error, calibration_intervals, confidence_calibration_error
from .classification import (
    adaptive_calibration_error,
    brier_score,
    classification_error,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    negative_log_likelihood,
    normalized_entropy,
)
from .clusters import cluster_mean_interval
from .definitions import REJECTION_DEFINITIONS, rejection_definition
from .flip import binary_flip
from .modules import module_path
from .ood import OOD_DEFINITIONS, ood_detection, ood_report
from .quality import QUALITIES, corpus_quality, corpus_quality_interval, quality_signature, sentence_quality
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
from .resampled_classification import (
    CLASSIFICATION_DEFINITIONS,
    classification_definition,
    classification_report,
    measured_classification,
    paired_classification_differences,
)
from .resampled_rejection import paired_rejection_differences, rejection_report, rejection_reports
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
    "CLASSIFICATION_DEFINITIONS",
    "OOD_DEFINITIONS",
    "QUALITIES",
    "REJECTION_DEFINITIONS",
    "Difference",
    "Interval",
    "adaptive_calibration_error",
    "alignment_error",
    "augrc",
    "aurc",
    "best_threshold",
    "binary_flip",
    "bootstrap_interval",
    "brier_score",
    "calibration_intervals",
    "classification_definition",
    "classification_error",
    "classification_report",
    "classwise_calibration_error",
    "cluster_mean_interval",
    "confidence_calibration_error",
    "corpus_quality",
    "corpus_quality_interval",
    "coverage_at_risk",
    "debiased_calibration_error",
    "e_aurc",
    "expected_calibration_error",
    "measured_classification",
    "module_path",
    "negative_log_likelihood",
    "normalized_entropy",
    "ood_detection",
    "ood_report",
    "paired_bootstrap",
    "paired_classification_differences",
    "paired_rejection_differences",
    "prediction_rejection_ratio",
    "quality_signature",
    "rejection_area",
    "rejection_area_minmax",
    "rejection_curve",
    "rejection_definition",
    "rejection_report",
    "rejection_reports",
    "residual_correlation",
    "risk_at_coverage",
    "sentence_quality",
    "split_of_area_gain",
    "uncertainty_accuracy",
    "uncertainty_accuracy_at",
    "uncertainty_auc",
    "uncertainty_calibration_error",
    "uncertainty_gap",
    "wasserstein_separation",
]
