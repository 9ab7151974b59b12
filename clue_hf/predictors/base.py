"""What the predictors of all kinds share: one loop over batches, and answers whose uncertainty is a number."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers.utils import logging
from transformers.utils.logging import tqdm

from ..errors import UserError
from ..inputs.base import Inputs, Rows
from ..models.ensemble import Ensemble
from ..models.inference import inference
from ..models.mc_dropout import has_dropout
from ..posthoc import ErrorPredictor
from ..processes import process_state
from ..settings import check_minimum
from ..tasks import default_passes
from ..tasks.passes import PassTask


logger = logging.get_logger(__name__)
#: Default seed of the dropout masks: the same in training's report, evaluation and use.
SEED = 42
NOT_FINITE = "Has the training diverged, or does the model overflow in this precision (use float32)?"

Answer = dict[str, Any]


class NoDropoutError(UserError):
    """Passes with dropout were asked of a model that has none."""


class Predictor(ABC):
    """
    A model that answers with an `uncertainty`.

    Attributes:
        model, processing_class:
            The model, and what is saved with it to read its inputs.
        scorer (`str`):
            The name of the uncertainty.
        settings (`dict`):
            What else it depends on.
        definition (`str`):
            The uncertainty in words.
    """

    model: Any
    processing_class: Any
    scorer: str
    settings: dict[str, Any]
    definition: str

    @abstractmethod
    def predict(self, inputs: Any, batch_size: int, first_row: int = 0, **options: Any) -> tuple[list[Answer], bool]:
        """An answer for each input, and whether the input was a single one, not a list."""

    def fingerprint(self) -> str:
        """A short text that changes when the model is trained further, or loaded in another precision."""
        checksum = 0
        for weight in self.model.parameters():
            checksum = zlib.crc32(weight.detach().flatten()[:16].float().cpu().numpy().tobytes(), checksum)
        return f"{checksum:08x}"


class RowPredictor(Predictor):
    """A classifier or regressor: one pass, or several at once, over each batch."""

    def __init__(
        self,
        model: Any,
        inputs: Inputs,
        task: PassTask,
        calibrator: Any = None,
        error_predictor: ErrorPredictor | None = None,
        conformal: Any = None,
    ) -> None:
        self.model, self.inputs, self.task = model, inputs, task
        self.calibrator, self.error_predictor, self.conformal = calibrator, error_predictor, conformal
        self.processing_class = inputs.processing_class
        used = {name: getattr(inputs.settings, name) for name in inputs.used_settings}
        self.settings = {"mc_samples": task.mc_samples, **used}

    @property
    def members(self) -> int:
        """Number of models that answer together."""
        return len(self.model.members) if isinstance(self.model, Ensemble) else 1

    @abstractmethod
    def batch_arrays(self, inputs: dict[str, torch.Tensor]) -> tuple[np.ndarray, ...]:
        """What the model says of a batch: arrays of one row per example."""

    def run(self, rows: Rows, batch_size: int, numbers: np.ndarray | None = None, **options: Any) -> list[np.ndarray]:
        """
        The [`batch_arrays`] of all rows, in order; raises with the number of the first row for which they are not
        finite. `options` are those of [`predict_rows`].
        """
        arrays = predict_rows(self.model, rows, batch_size, self.batch_arrays, **options)
        bad = np.flatnonzero(~np.isfinite(np.column_stack(arrays)).all(axis=1))
        if len(bad):
            number = bad[0] if numbers is None else numbers[bad[0]]
            raise UserError(f"The prediction for row {number} (counted from 0) is not finite. {NOT_FINITE}")
        return arrays

    @abstractmethod
    def raw(self, rows: Rows, batch_size: int, *args: Any, **options: Any) -> Any:
        """What the model says of some rows, before its calibrator; `options` are those of [`run`]."""

    def calibrated(self, rows: Rows, batch_size: int, first_row: int, description: str | None = None) -> Any:
        """What the model says of some rows, after its calibrator, with its prediction sets or intervals."""
        numbers = np.arange(first_row, first_row + len(rows))
        predictions = self.raw(rows, batch_size, numbers=numbers, description=description)
        predictions = predictions if self.calibrator is None else predictions.calibrated(self.calibrator)
        return replace(predictions, conformal=self.conformal)

    def predict(self, inputs: Any, batch_size: int, first_row: int = 0, **options: Any) -> tuple[list[Answer], bool]:
        single = self.inputs.is_single(inputs)
        rows = self.inputs.rows(inputs, first_row)
        for note in rows.notes:
            logger.warning_once(note)
        return self.answers(rows, batch_size, first_row, **options) if len(rows) else [], single

    def answers(self, rows: Rows, batch_size: int, first_row: int, **options: Any) -> list[Answer]:
        """What the pipeline answers to some rows."""
        return self.answered(self.calibrated(rows, batch_size, first_row), **options)

    @abstractmethod
    def answered(self, predictions: Any, **options: Any) -> list[Answer]:
        """What the pipeline answers, from what [`calibrated`] gave."""


def predict_rows(
    model: Any,
    rows: Rows,
    batch_size: int,
    batch_arrays: Callable[[dict[str, torch.Tensor]], tuple[np.ndarray, ...]],
    description: str | None = None,
    distributed: bool = False,
) -> list[np.ndarray]:
    """Runs a model over rows; the arrays of all batches, in order."""
    state = process_state()
    first, step = (state.process_index, state.num_processes) if distributed else (0, 1)
    device = next(model.parameters()).device
    starts = range(0, len(rows), batch_size)
    parts = []
    quiet = description is None or not state.is_main_process
    with inference(model):
        for number in tqdm(range(first, len(starts), step), desc=description, leave=False, disable=quiet):
            batch = rows.batch(range(starts[number], min(starts[number] + batch_size, len(rows))))
            parts.append((number, batch_arrays({name: value.to(device) for name, value in batch.items()})))
    if distributed:
        parts = sorted(gather_object(parts), key=lambda part: part[0])
    return [np.concatenate(column) for column in zip(*(arrays for _, arrays in parts), strict=True)]


def chosen_passes(model: Any, mc_samples: int | None, task: str) -> int:
    """The number of passes with dropout, by default that of the task; raises where the model has no dropout."""
    if mc_samples is None:
        return default_passes(model, task)
    check_minimum(0, mc_samples=mc_samples)
    if mc_samples and not has_dropout(model):
        raise NoDropoutError("The model has no dropout, so that all its passes are the same: leave mc_samples at 0.")
    return mc_samples
