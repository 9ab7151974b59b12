"""What the evaluators of classifiers and regressors share: their settings, and a model that runs over all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers.utils.logging import tqdm

from ..errors import UserError
from ..functional import check_choice
from ..models.ensemble import Ensemble
from ..models.mc_dropout import has_dropout
from ..posthoc import ErrorPredictor
from ..processes import process_state


class PredictionEvaluator:
    """
    Base of the evaluators of models that answer with a class or a number.

    Args:
        model, processing_class:
            The model, and what prepares its inputs.
        mc_samples (`int`, *optional*):
            Passes with dropout; by default the usual ones of the task, or 0 for a model without dropout.
        calibrator (*optional*):
            The name of one to fit, or one that was fitted before.
        resamples (`int`):
            Bootstrap resamples of the intervals.
        batch_size (`int`):
            Rows per batch.
        seed (`int`):
            Seed of the masks.
        error_predictor ([`~clue_hf.posthoc.ErrorPredictor`], *optional*):
            Gives the uncertainty.
    """

    #: What prepares the inputs, in words.
    needs: ClassVar[str]
    #: Names of the calibrators that can be fitted.
    calibrators: ClassVar[tuple[str, ...]]
    #: Passes of a model with dropout, where none are given.
    usual_passes: ClassVar[int]

    columns: Any

    def __init__(
        self,
        model: Any,
        processing_class: Any,
        mc_samples: int | None,
        calibrator: Any,
        resamples: int,
        batch_size: int,
        seed: int,
        error_predictor: ErrorPredictor | None,
    ) -> None:
        if processing_class is None:
            raise ValueError(f"The evaluator needs the model's {self.needs}: give `processing_class`.")
        if isinstance(calibrator, str):
            check_choice("calibrator", calibrator, self.calibrators)
        if mc_samples is None:
            mc_samples = self.usual_passes if has_dropout(model) else 0
        for name, value in (("mc_samples", mc_samples), ("resamples", resamples)):
            if value < 0:
                raise ValueError(f"`{name}` must not be negative, but is {value}.")
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, but is {batch_size}.")
        if mc_samples and not has_dropout(model):
            raise UserError("The model has no dropout, so that all its passes are the same: leave mc_samples at 0.")
        self.model, self.processing_class = model, processing_class
        self.mc_samples, self.calibrator, self.resamples = mc_samples, calibrator, resamples
        self.batch_size, self.seed, self.error_predictor = batch_size, seed, error_predictor

    @property
    def members(self) -> int:
        """How many models answer together."""
        return len(self.model.members) if isinstance(self.model, Ensemble) else 1

    def _check_validation(self, validation: Any) -> None:
        if isinstance(self.calibrator, str) and validation is None:
            raise ValueError("A calibrator is fitted on validation data: give some.")

    @torch.no_grad()
    def _run(
        self, rows: Any, words: str, task: Any, answer: Callable[[dict[str, Any]], tuple[np.ndarray, ...]]
    ) -> list[np.ndarray]:
        """
        What is answered to all rows, in order, on every process: each takes every so-manieth batch.

        Args:
            rows:
                What gives the batches.
            words (`str`):
                What the progress bar says.
            task ([`~clue_hf.tasks.Task`]):
                Its seed is set for each batch.
            answer (`Callable`):
                From the inputs of a batch to some arrays of one row per example.
        """
        state = process_state()
        device = next(self.model.parameters()).device
        starts = range(0, len(rows), self.batch_size)
        mine = range(state.process_index, len(starts), state.num_processes)
        was_training = self.model.training
        self.model.eval()
        found = []
        for number in tqdm(mine, desc=words, leave=False, disable=not state.is_main_process):
            batch = rows.batch(range(starts[number], min(starts[number] + self.batch_size, len(rows))))
            task.seed = batch_seed(self.seed, number)
            found.append((number, answer({name: value.to(device) for name, value in batch.items()})))
        self.model.train(was_training)
        parts = [part for _, part in sorted(gather_object(found), key=lambda entry: entry[0])]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _settings(self, **own: Any) -> dict[str, Any]:
        """The settings that a report tells."""
        return {
            "mc_samples": self.mc_samples,
            "calibrator": self.calibrator if isinstance(self.calibrator, str | None) else self.calibrator.name,
            "members": self.members,
            "error_predictor": None if self.error_predictor is None else "deup",
            **own,
            "batch_size": self.batch_size,
            "seed": self.seed,
            **vars(self.columns),
        }


def batch_seed(seed: int, number: int) -> int:
    """Seed of the masks of a batch."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
