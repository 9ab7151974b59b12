"""What is fitted after training, on held-out data."""

from .abstention import AbstentionThreshold, AbstentionThresholds, abstention_threshold
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
from .conformal import (
    CONFORMAL,
    AdaptiveSets,
    Conformal,
    LeastAmbiguousSets,
    PredictionSets,
    ScaledIntervals,
)
from .ensembles import ensemble_probabilities
from .error_predictor import ERROR_PREDICTORS, ErrorNormalizer, ErrorPredictor
from .quantile import QuantileCalibrator
from .reference import ReferenceQuantiles, reference_quantiles


__all__ = [
    "CALIBRATORS",
    "CONFORMAL",
    "ERROR_PREDICTORS",
    "AbstentionThreshold",
    "AbstentionThresholds",
    "AdaptiveSets",
    "BetaCalibrator",
    "Calibrator",
    "Conformal",
    "ErrorNormalizer",
    "ErrorPredictor",
    "IsotonicCalibrator",
    "IsotonicConfidence",
    "LeastAmbiguousSets",
    "PlattCalibrator",
    "PredictionSets",
    "QuantileCalibrator",
    "ReferenceQuantiles",
    "ScaledIntervals",
    "TemperatureCalibrator",
    "abstention_threshold",
    "cross_fitted_confidence",
    "ensemble_probabilities",
    "load_calibrator",
    "reference_quantiles",
]
