"""`evaluate.load(clue_hf.metrics.module_path("prediction_rejection_ratio"))`"""

from typing import Any

from clue_hf.metrics import prediction_rejection_ratio
from clue_hf.metrics.modules import base


class PredictionRejectionRatio(base.NumberMetric):
    """
    How much of the possible gain from rejecting outputs the uncertainty achieves: 1 is the best possible order, 0 a
    useless one.

    Args:
        predictions (`list[float]`): The uncertainty of each output, higher where less certain.
        references (`list[float]`): The quality of each output, higher where better.
        max_rejection (`float`, *optional*, defaults to 1.0): Largest share of outputs to reject, in (0, 1].
        nan_policy (`str`, *optional*, defaults to `"error"`): What to do where an uncertainty is not finite:
            `"error"`, `"reject_last"` or `"drop"`.

    Returns:
        `dict[str, float]`: `prediction_rejection_ratio`, nan where all qualities are equal.
    """

    def _compute(self, predictions: list[float], references: list[float], **options: Any) -> dict[str, float]:
        return {self.name: prediction_rejection_ratio(predictions, references, **options)}
