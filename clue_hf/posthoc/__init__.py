"""What is fitted after training, on held-out data."""

from .confidence import IsotonicConfidence, cross_fitted_confidence


__all__ = ["IsotonicConfidence", "cross_fitted_confidence"]
