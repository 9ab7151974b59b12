"""Metrics: arrays in, numbers out, no model in sight."""

from .bootstrap import Difference, Interval, bootstrap_interval, paired_bootstrap
from .calibration import alignment_error, calibration_intervals, confidence_calibration_error
from .clusters import cluster_mean_interval
from .definitions import REJECTION_DEFINITIONS, rejection_definition
from .modules import module_path
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
from .rejection_report import paired_rejection_differences, rejection_report, rejection_reports


__all__ = [
    "QUALITIES",
    "REJECTION_DEFINITIONS",
    "Difference",
    "Interval",
    "alignment_error",
    "augrc",
    "aurc",
    "bootstrap_interval",
    "calibration_intervals",
    "cluster_mean_interval",
    "confidence_calibration_error",
    "corpus_quality",
    "corpus_quality_interval",
    "coverage_at_risk",
    "e_aurc",
    "module_path",
    "paired_bootstrap",
    "paired_rejection_differences",
    "prediction_rejection_ratio",
    "quality_signature",
    "rejection_area",
    "rejection_area_minmax",
    "rejection_curve",
    "rejection_definition",
    "rejection_report",
    "rejection_reports",
    "risk_at_coverage",
    "sentence_quality",
    "split_of_area_gain",
]
