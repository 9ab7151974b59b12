"""Tasks: what an item is, what its error and its uncertainty are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from ..errors import UserError
from ..inputs.labels import make_training_data
from ..inputs.packing import check_packable
from ..inputs.text import check_causal_settings
from ..models.kind import has_token_head, has_variance_head, model_kind, unwrap
from ..models.mc_dropout import has_dropout
from ..objectives import check_suits
from .base import STATISTICS, Prediction, Task, summarize
from .classification import ClassificationTask
from .regression import RegressionTask
from .text import TextTask


if TYPE_CHECKING:
    from ..config import CLUEConfig

logger = logging.get_logger(__name__)

#: Number of MC-dropout passes of models with dropout, unless `mc_samples` is set.
DEFAULT_PASSES = {"classification": 5, "regression": 20}

__all__ = [
    "STATISTICS",
    "ClassificationTask",
    "Prediction",
    "RegressionTask",
    "Task",
    "TextTask",
    "default_passes",
    "make_task",
    "summarize",
]


def make_task(
    model: Any,
    config: CLUEConfig,
    processing_class: Any = None,
    formatting_func: Callable[[dict[str, Any]], str] | None = None,
) -> Task:
    """The task that a model and a config ask for. `formatting_func` makes a text of each row of a raw dataset."""
    kind = _task_name(model, config)
    check_suits(config.objective, kind)
    if kind != "causal":
        check_causal_settings(config, formatting_func)
    if kind in ("classification", "regression"):
        passes = config.mc_samples if config.mc_samples is not None else default_passes(model, kind)
        data = make_training_data(model, processing_class, config, kind == "classification")
        if kind == "classification":
            return ClassificationTask(model, passes, config.seed, data, config.plain_mc_samples)
        if passes < 2 and config.objective != "mse" and not has_variance_head(unwrap(model).config):
            raise UserError(
                f"The objective {config.objective!r} needs a variance, and one pass has none: set mc_samples to 2 or "
                "more (the model needs dropout), or variance_head."
            )
        return RegressionTask(model, passes, config.seed, data, config.plain_mc_samples, config.min_variance)
    tokenizer = processing_class if isinstance(processing_class, PreTrainedTokenizerBase) else None
    if config.packing or config.eval_packing:
        if tokenizer is None:
            raise UserError("packing needs a tokenizer, which knows the token for padding: give processing_class.")
        check_packable(model)
    return TextTask(model, kind, config.fused_head, tokenizer, formatting_func)


def _task_name(model: Any, config: CLUEConfig) -> str:
    """What `config.task` says, or the model; raises where a model is of none of our kinds."""
    base = unwrap(model)
    if not isinstance(getattr(base, "config", None), PreTrainedConfig):
        raise UserError(
            f"CLUETrainer needs a transformers model: {type(base).__name__} has no config, which says what it "
            "predicts. Make it a PreTrainedModel, or use transformers' Trainer."
        )
    if getattr(base.config, "problem_type", None) == "multi_label_classification":
        raise UserError("Classification with several labels per row is not supported: use transformers' Trainer.")
    if config.task == "auto":
        return model_kind(model).task
    if config.task != "token" and has_token_head(model):
        raise UserError(f"{type(base).__name__} predicts a class of each token: set task='token', or leave it out.")
    return config.task


def default_passes(model: Any, task: str) -> int:
    """Default number of MC-dropout passes of a classifier or regressor; 0 without dropout."""
    if has_dropout(model):
        return DEFAULT_PASSES[task]
    logger.info("The model has no dropout: error and uncertainty come from one pass (mc_samples=0).")
    return 0
