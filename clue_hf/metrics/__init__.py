"""Metrics: arrays in, numbers out, no model in sight."""

from .bootstrap import Difference, Interval, bootstrap_interval, paired_bootstrap
from .calibration import alignment_error, confidence_calibration_error
from .quality import QUALITIES, corpus_quality, quality_signature, sentence_quality
from .rejection import (
    augrc,
    aurc,
    coverage_at_risk,
    e_aurc,
    prediction_rejection_ratio,
    rejection_area,
    rejection_area_minmax,
    rejection_curve,
    rejection_report,
    risk_at_coverage,
    split_of_area_gain,
)


__all__ = [
    "QUALITIES",
    "Difference",
    "Interval",
    "alignment_error",
    "augrc",
    "aurc",
    "bootstrap_interval",
    "confidence_calibration_error",
    "corpus_quality",
    "coverage_at_risk",
    "e_aurc",
    "paired_bootstrap",
    "prediction_rejection_ratio",
    "quality_signature",
    "rejection_area",
    "rejection_area_minmax",
    "rejection_curve",
    "rejection_report",
    "risk_at_coverage",
    "sentence_quality",
    "split_of_area_gain",
]
