"""`evaluate.load(clue_hf.metrics.module_path("confidence_calibration_error"))`"""

from clue_hf.metrics import confidence_calibration_error
from clue_hf.metrics.modules import base


class ConfidenceCalibrationError(base.NumberMetric):
    """
    Expected calibration error of a confidence, over bins of equal width: 0 is calibrated.

    Args:
        predictions (`list[float]`): The confidence in each answer, from 0 to 1.
        references (`list[float]`): 1 where the answer is right, 0 where it is wrong.
        num_bins (`int`, *optional*, defaults to 15): Number of bins.

    Returns:
        `dict[str, float]`: `confidence_calibration_error`.
    """

    def _compute(self, predictions: list[float], references: list[float], num_bins: int = 15) -> dict[str, float]:
        return {self.name: confidence_calibration_error(confidence=predictions, correct=references, num_bins=num_bins)}
