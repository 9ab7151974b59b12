"""The metrics as modules of Hugging Face's `evaluate`: a folder with a script of the same name for each."""

from __future__ import annotations

from pathlib import Path

from ...settings import check_choice


MODULES = ("rejection", "prediction_rejection_ratio", "alignment_error", "confidence_calibration_error")


def module_path(name: str) -> str:
    """
    Where the module of a metric is, for `evaluate.load`. Nothing is downloaded: it works without a network.

    Args:
        name (`str`):
            `"rejection"` (every metric of [`rejection_report`]), `"prediction_rejection_ratio"`, `"alignment_error"`
            or `"confidence_calibration_error"`.

    Example:

    ```python
    >>> import evaluate
    >>> from clue_hf.metrics import module_path

    >>> metric = evaluate.load(module_path("prediction_rejection_ratio"))
    >>> metric.compute(predictions=[0.1, 0.9, 0.5], references=[1.0, 0.2, 0.6])  # uncertainty and quality
    {'prediction_rejection_ratio': 1.0}
    ```
    """
    check_choice("name", name, MODULES)
    return str(Path(__file__).parent / name)
