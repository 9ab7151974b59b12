"""Tasks: what an item is, what its error and its uncertainty are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..models.mc_dropout import has_dropout
from .base import STATISTICS, Prediction, Task, summarize
from .classification import ClassificationTask
from .head import unwrap
from .text import TextTask, text_kind


if TYPE_CHECKING:
    from ..config import CLUEConfig

logger = logging.get_logger(__name__)

#: Passes with dropout of a classifier that has some, unless `mc_samples` says otherwise.
CLASSIFICATION_PASSES = 5

__all__ = [
    "STATISTICS",
    "ClassificationTask",
    "Prediction",
    "Task",
    "TextTask",
    "make_task",
    "model_task",
    "summarize",
    "text_kind",
]


def model_task(model: Any) -> str:
    """What a model does: `"classification"`, `"seq2seq"` or `"causal"`."""
    base = unwrap(model)
    classifies = type(base).__name__.endswith(("ForImageClassification", "ForSequenceClassification"))
    return "classification" if classifies else text_kind(base.config)


def make_task(model: Any, config: CLUEConfig, processing_class: Any = None) -> Task:
    """The task that a model and a config ask for."""
    kind = model_task(model) if config.task == "auto" else config.task
    if kind == "classification":
        from .class_data import make_class_data

        passes = config.mc_samples
        if passes is None:
            passes = CLASSIFICATION_PASSES if has_dropout(model) else 0
            if not passes:
                logger.info("The model has no dropout: error and uncertainty come from one pass (mc_samples=0).")
        return ClassificationTask(model, passes, config.seed, make_class_data(model, processing_class))
    tokenizer = processing_class if isinstance(processing_class, PreTrainedTokenizerBase) else None
    return TextTask(model, kind, config.fused_head, tokenizer)
