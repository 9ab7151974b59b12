"""What the model of a trainer predicts for a dataset: class probabilities, or numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.utils.logging import tqdm

from ..models.inference import inference


if TYPE_CHECKING:
    from ..trainer import CLUETrainer


@dataclass
class ClassProbabilities:
    """ln p of every class for each example, and its label."""

    log_probabilities: np.ndarray
    labels: np.ndarray

    @property
    def probabilities(self) -> np.ndarray:
        return np.exp(self.log_probabilities)


@dataclass
class Numbers:
    """Mean and variance of the prediction of each example, and its label, all in the units of the labels."""

    mean: np.ndarray
    variance: np.ndarray
    labels: np.ndarray


def class_log_probabilities(trainer: CLUETrainer, dataset: Any, description: str = "Predicting") -> ClassProbabilities:
    """Runs the trainer's model over a dataset, on all processes; every row once, in order."""

    def predict(inputs: dict[str, Any]) -> torch.Tensor:
        return trainer.task.log_probabilities(trainer.model, inputs).float().log_softmax(-1)

    return ClassProbabilities(*_collect(trainer, dataset, predict, description))


def predicted_numbers(trainer: CLUETrainer, dataset: Any, description: str = "Predicting") -> Numbers:
    """The same for a model that predicts numbers."""

    def predict(inputs: dict[str, Any]) -> torch.Tensor:
        return torch.stack(trainer.task.moments(trainer.model, inputs), -1)

    moments, labels = _collect(trainer, dataset, predict, description)
    return Numbers(moments[:, 0], moments[:, 1], labels)


def _collect(
    trainer: CLUETrainer,
    dataset: Any,
    predict: Callable[[dict[str, Any]], torch.Tensor],
    description: str,
) -> tuple[np.ndarray, np.ndarray]:
    """What is predicted for every row, and its label."""
    loader = make_loader(trainer, dataset)
    parts = []
    quiet = not trainer.is_local_process_zero() or trainer.args.disable_tqdm
    # a loader draws a number, which would change the masks that follow
    with inference(trainer.model), torch.random.fork_rng(devices=[]):
        for inputs in tqdm(loader, desc=description, disable=quiet, leave=False):
            inputs = trainer._prepare_inputs(inputs)
            with trainer.accelerator.autocast():
                predicted = predict(inputs)
            rows = trainer.accelerator.gather_for_metrics((predicted.float(), inputs["labels"]))
            parts.append([part.cpu().numpy() for part in rows])
    predictions, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    return predictions.astype(np.float64), labels


def make_loader(trainer: CLUETrainer, dataset: Any) -> Any:
    """A loader of its own: with persistent workers, the one for evaluation may be a kept one, of other data."""
    persistent, trainer.args.dataloader_persistent_workers = trainer.args.dataloader_persistent_workers, False
    try:
        return trainer.get_test_dataloader(dataset)
    finally:
        trainer.args.dataloader_persistent_workers = persistent
