"""Numbers to predict: read from a column, standardised by the training data, and brought back to their own units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np

from ..errors import UserError
from .columns import find_column


KNOWN_TARGETS = ("target", "label", "labels", "score", "value", "y")


@dataclass(frozen=True)
class TargetScale:
    """
    Mean and standard deviation of the training targets: losses run on `(target - mean) / std`, reports in the target's
    own units.
    """

    mean: float = 0.0
    std: float = 1.0

    @classmethod
    def fit(cls, targets: np.ndarray, column: str | None = None) -> TargetScale:
        """From the training targets; raises where they do not vary, or too much."""
        mean, std = mean_and_std(targets)
        if not 0 < std < np.inf:
            name = "The target" if column is None else f"target_column {column!r}"
            problem = "is the same in every training row" if std == 0 else "is too large"
            raise UserError(f"{name} {problem} ({targets[0]:g}): there is nothing to learn.")
        return cls(mean, std)

    @classmethod
    def of_config(cls, config: Any) -> TargetScale | None:
        """The scale that a model was trained with, if it was with one."""
        mean, std = getattr(config, "target_mean", None), getattr(config, "target_std", None)
        return None if mean is None or std is None else cls(mean, std)

    def store(self, config: Any) -> None:
        """Keeps the scale in a model's config, with which it is saved."""
        config.target_mean, config.target_std = self.mean, self.std

    def standardize(self, targets: np.ndarray) -> np.ndarray:
        return ((targets - self.mean) / self.std).astype(np.float32)


def mean_and_std(values: np.ndarray) -> tuple[float, float]:
    """
    Mean and standard deviation, which is 0 exactly where all values are the same. Values of any size will do: the
    squares of 1e200 and of 1e-200 are never taken.
    """
    if values.min() == values.max():
        return float(values[0]), 0.0
    largest = np.abs(values).max()
    mean = float((values / largest).mean() * largest)
    apart = values - mean
    scale = np.abs(apart).max()
    return mean, float(scale * np.sqrt(np.mean((apart / scale) ** 2)))


def find_target_column(columns: list[str], target: str | None) -> str:
    """The column of the number to predict: the one named, or the first known name that is there."""
    return find_column(columns, target, KNOWN_TARGETS, "target_column", "number to predict")


def target_values(dataset: datasets.Dataset, column: str, split: str = "train") -> np.ndarray:
    """The numbers of a column as float64; raises with the row where one is missing, infinite or no number."""
    values = dataset.select_columns([column]).with_format("arrow")[:][column].to_pylist()
    for row, value in enumerate(values):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not np.isfinite(value):
            raise UserError(
                f"target_column {column!r} must hold finite numbers, but row {row} (counted from 0) of the {split} "
                f"data is {'missing' if value is None else repr(value)}."
            )
    return np.array(values, dtype=np.float64)
