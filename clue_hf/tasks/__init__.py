"""Tasks: what an item is, what its error and its uncertainty are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from .base import STATISTICS, Prediction, Task, summarize
from .text import TextTask, text_kind


if TYPE_CHECKING:
    from ..config import CLUEConfig

__all__ = ["STATISTICS", "Prediction", "Task", "TextTask", "make_task", "summarize", "text_kind"]


def make_task(model: Any, config: CLUEConfig, processing_class: Any = None) -> Task:
    """The task that a model and a config ask for."""
    tokenizer = processing_class if isinstance(processing_class, PreTrainedTokenizerBase) else None
    return TextTask(model, config.task, config.fused_head, tokenizer)
