"""`evaluate.load(clue_hf.metrics.module_path("alignment_error"))`"""

from clue_hf.metrics import alignment_error
from clue_hf.metrics.modules import base


class AlignmentError(base.NumberMetric):
    """
    CLUE's own criterion, `E[error | uncertainty] = uncertainty`, measured over bins of equal mass: 0 is calibrated.

    Args:
        predictions (`list[float]`): The uncertainty of each item.
        references (`list[float]`): The error of each item, in the same units (for tokens: nats).
        num_bins (`int`, *optional*, defaults to 15): Number of bins.

    Returns:
        `dict[str, float]`: `alignment_error`.
    """

    def _compute(self, predictions: list[float], references: list[float], num_bins: int = 15) -> dict[str, float]:
        return {self.name: alignment_error(error=references, uncertainty=predictions, num_bins=num_bins)}
