"""What follows a training: further members of an ensemble, a predictor of its errors."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import set_seed

from ..config import CLUEConfig
from ..data.targets import TargetScale
from ..models.ensemble import Ensemble
from ..models.uncertainty_file import write_uncertainty
from ..trainer import CLUETrainer


if TYPE_CHECKING:
    from .predictions import PredictingExperiment


#: Folders inside that of a model.
MEMBERS, ERROR_PREDICTOR = "members", "error_predictor"


def train_members(experiment: PredictingExperiment, first: CLUETrainer, config: CLUEConfig, count: int) -> CLUETrainer:
    """Trains the other members of an ensemble, saved inside the folder of the first; a trainer of all of them."""
    members, folders = [first.model], []
    for number in range(1, count):
        own = copy.copy(config)
        own.seed, own.push_to_hub, folder = config.seed + number, False, f"{MEMBERS}/{number}"
        own.output_dir = str(Path(str(config.output_dir)) / folder)
        trainer, _ = experiment.train(own)
        members.append(trainer.model)
        folders.append(folder)
        del trainer
    if first.is_world_process_zero():
        write_uncertainty(str(config.output_dir), members=folders)
    first.model = first.model_wrapped = Ensemble(members)
    return first


def train_error_predictor(
    experiment: PredictingExperiment,
    rows: Any,
    errors: np.ndarray,
    chosen: np.ndarray,
    config: CLUEConfig,
    folder: Path,
) -> Any:
    """
    Regresses (squared error) a model like the main one on the main one's errors on chosen validation rows, as long as
    the main one was trained. Its config keeps the scale of the errors.
    """
    own = copy.copy(config)
    own.task, own.objective, own.label_smoothing_factor = "regression", "mse", 0.0
    own.plain_steps, own.plain_epochs, own.mc_samples, own.plain_mc_samples = 0, 0, 0, 0
    own.eval_strategy, own.save_strategy, own.load_best_model_at_end = "no", "no", False  # type: ignore[assignment]
    own.output_dir, own.resume_from_checkpoint, own.push_to_hub = str(folder), None, False
    set_seed(own.seed)
    model = experiment.make_error_predictor()
    scale = TargetScale.fit(errors[chosen])
    scale.store(model.config)
    data = rows.labelled(scale.standardize(errors[chosen]), chosen)
    trainer = CLUETrainer(model, own, train_dataset=data, processing_class=experiment.processing_class)
    if trainer.is_world_process_zero():
        print(f"\nerror predictor: {len(data):,} validation rows", flush=True)
    trainer.train()
    trainer.save_model()
    return trainer.model
