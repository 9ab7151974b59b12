"""Metrics: arrays in, numbers out, no model in sight."""

from .calibration import alignment_error, confidence_calibration_error
from .quality import QUALITIES, corpus_quality


__all__ = ["QUALITIES", "alignment_error", "confidence_calibration_error", "corpus_quality"]
