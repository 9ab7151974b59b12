"""Tasks: what an item is, what its error and its uncertainty are."""

from .base import STATISTICS, Prediction, Task, summarize
from .text import TextTask, text_kind


__all__ = ["STATISTICS", "Prediction", "Task", "TextTask", "summarize", "text_kind"]
