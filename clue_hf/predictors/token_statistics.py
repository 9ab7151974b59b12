"""Error, entropy and confidence of every reference token: how well calibrated a model is before it generates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.utils.logging import tqdm

from ..metrics.calibration import alignment_error, confidence_calibration_error
from ..models.inference import inference
from ..training.collect import make_loader


if TYPE_CHECKING:
    from ..trainer import CLUETrainer


@dataclass
class TokenStatistics:
    """One value per reference token of a dataset: four numbers, never a distribution."""

    error: np.ndarray
    uncertainty: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray

    def summary(self) -> dict[str, float]:
        """Mean error and uncertainty (nats), their gap, and how well both and confidence and accuracy agree."""
        return {
            "error": float(self.error.mean()),
            "uncertainty": float(self.uncertainty.mean()),
            "gap": float((self.error - self.uncertainty).mean()),
            "alignment_error": alignment_error(self.error, self.uncertainty),
            "token_ece": confidence_calibration_error(self.confidence, self.correct),
            "token_accuracy": float(self.correct.mean()),
            "tokens": len(self.error),
        }


def token_statistics(trainer: CLUETrainer, dataset: Any, description: str = "Scoring references") -> TokenStatistics:
    """Runs the trainer's model over a tokenised dataset, on all processes; each token is counted once."""
    loader = make_loader(trainer, dataset)
    parts = []
    quiet = not trainer.is_local_process_zero() or trainer.args.disable_tqdm
    with inference(trainer.model):
        for inputs in tqdm(loader, desc=description, disable=quiet):
            inputs = trainer._prepare_inputs(inputs)
            with trainer.accelerator.autocast():
                columns = trainer.task.describe(trainer.model, inputs)
            columns = trainer.accelerator.pad_across_processes(columns, dim=1, pad_index=float("nan"))
            rows = trainer.accelerator.gather_for_metrics(columns)
            parts.append(rows.reshape(-1, 4)[~rows[..., 0].reshape(-1).isnan()].cpu().numpy())
    return TokenStatistics(*np.concatenate(parts).astype(np.float64).T)
