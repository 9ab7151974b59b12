"""Tasks: what an item is, what its error and its uncertainty are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..errors import UserError
from ..models.loading import has_variance_head, is_regressor
from ..models.mc_dropout import has_dropout
from ..objectives import check_suits
from .base import STATISTICS, Prediction, Task, summarize
from .classification import ClassificationTask
from .head import unwrap
from .regression import RegressionTask
from .text import TextTask, text_kind


if TYPE_CHECKING:
    from ..config import CLUEConfig

logger = logging.get_logger(__name__)

#: Passes with dropout of a classifier and of a regressor that have some, unless `mc_samples` says otherwise.
CLASSIFICATION_PASSES = 5
REGRESSION_PASSES = 20

__all__ = [
    "STATISTICS",
    "ClassificationTask",
    "Prediction",
    "RegressionTask",
    "Task",
    "TextTask",
    "make_task",
    "model_task",
    "summarize",
    "text_kind",
]


def model_task(model: Any) -> str:
    """What a model does: `"classification"`, `"regression"`, `"seq2seq"` or `"causal"`."""
    base = unwrap(model)
    name = type(base).__name__
    if name.endswith("ForRegression"):
        return "regression"
    if name.endswith(("ForImageClassification", "ForSequenceClassification")):
        return "regression" if is_regressor(base.config) else "classification"
    return text_kind(base.config)


def make_task(model: Any, config: CLUEConfig, processing_class: Any = None) -> Task:
    """The task that a model and a config ask for."""
    kind = model_task(model) if config.task == "auto" else config.task
    check_suits(config.objective, kind)
    if kind == "classification":
        from ..inputs.class_data import make_class_data

        passes = _passes(model, config, CLASSIFICATION_PASSES)
        data = make_class_data(model, processing_class)
        return ClassificationTask(model, passes, config.seed, data, config.plain_mc_samples)
    if kind == "regression":
        from ..inputs.number_data import make_number_data

        passes = _passes(model, config, REGRESSION_PASSES)
        if passes < 2 and config.objective != "mse" and not has_variance_head(unwrap(model).config):
            raise UserError(
                f"The objective {config.objective!r} needs a variance, and one pass has none: set mc_samples to 2 or "
                "more (the model needs dropout), or variance_head."
            )
        rows = make_number_data(model, processing_class)
        return RegressionTask(model, passes, config.seed, rows, config.plain_mc_samples, config.min_variance)
    tokenizer = processing_class if isinstance(processing_class, PreTrainedTokenizerBase) else None
    return TextTask(model, kind, config.fused_head, tokenizer)


def _passes(model: Any, config: CLUEConfig, usual: int) -> int:
    """`mc_samples`, or what is usual for the task where the model has dropout."""
    if config.mc_samples is not None:
        return config.mc_samples
    if has_dropout(model):
        return usual
    logger.info("The model has no dropout: error and uncertainty come from one pass (mc_samples=0).")
    return 0
