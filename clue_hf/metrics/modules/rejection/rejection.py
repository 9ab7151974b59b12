"""`evaluate.load(clue_hf.metrics.module_path("rejection"))`"""

from typing import Any

from clue_hf.metrics import rejection_report
from clue_hf.metrics.modules import base


class Rejection(base.NumberMetric):
    """
    Every rejection metric: how well the uncertainty of each output tells its quality.

    Args:
        predictions (`list[float]`): The uncertainty of each output, higher where less certain.
        references (`list[float]`): The quality of each output, higher where better.
        options: Those of `clue_hf.metrics.rejection_report`: `max_rejections`, `coverages`, `risks`, `nan_policy`,
            `resamples`, `level`, `seed`.

    Returns:
        `dict[str, float]`: The metrics by name, `None` where one is undefined; with `resamples`, also the ends of
        each interval as `NAME_low` and `NAME_high`.
    """

    def _compute(self, predictions: list[float], references: list[float], **options: Any) -> dict[str, float | None]:
        values = {}
        for name, entry in rejection_report(predictions, references, **options).items():
            values[name] = entry["value"]
            values.update({f"{name}_{end}": entry[end] for end in ("low", "high") if end in entry})
        return values
