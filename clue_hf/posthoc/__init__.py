"""What is fitted after training, on held-out data."""

from .calibrators import (
    CALIBRATORS,
    BetaCalibrator,
    Calibrator,
    IsotonicCalibrator,
    PlattCalibrator,
    TemperatureCalibrator,
    load_calibrator,
)
from .confidence import IsotonicConfidence, cross_fitted_confidence
from .ensembles import ensemble_probabilities
from .normalizer import ErrorNormalizer


__all__ = [
    "CALIBRATORS",
    "BetaCalibrator",
    "Calibrator",
    "ErrorNormalizer",
    "IsotonicCalibrator",
    "IsotonicConfidence",
    "PlattCalibrator",
    "TemperatureCalibrator",
    "cross_fitted_confidence",
    "ensemble_probabilities",
    "load_calibrator",
]
