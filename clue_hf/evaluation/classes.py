"""The class probabilities of a dataset by the model of a trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.utils.logging import tqdm


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


@torch.no_grad()
def class_log_probabilities(trainer: CLUETrainer, dataset: Any, description: str = "Predicting") -> ClassProbabilities:
    """Runs the trainer's model over a dataset, on all processes; every row once, in order."""
    loader = _make_loader(trainer, dataset)
    model = trainer.model
    was_training = model.training
    model.eval()
    parts = []
    quiet = not trainer.is_local_process_zero() or trainer.args.disable_tqdm
    with torch.random.fork_rng(devices=[]):  # a loader draws a number, which would change the masks that follow
        for inputs in tqdm(loader, desc=description, disable=quiet, leave=False):
            inputs = trainer._prepare_inputs(inputs)
            with trainer.accelerator.autocast():
                found = trainer.task.log_probabilities(model, inputs)
            rows = trainer.accelerator.gather_for_metrics((found.float().log_softmax(-1), inputs["labels"]))
            parts.append([part.cpu().numpy() for part in rows])
    model.train(was_training)
    log_probabilities, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ClassProbabilities(log_probabilities.astype(np.float64), labels)


def _make_loader(trainer: CLUETrainer, dataset: Any) -> Any:
    """A loader of its own: with persistent workers, the one for evaluation may be a kept one, of other data."""
    persistent, trainer.args.dataloader_persistent_workers = trainer.args.dataloader_persistent_workers, False
    try:
        return trainer.get_test_dataloader(dataset)
    finally:
        trainer.args.dataloader_persistent_workers = persistent
