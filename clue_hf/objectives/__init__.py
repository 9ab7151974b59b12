"""Training objectives, one file each. `OBJECTIVES` maps the name users give to the class."""

from .base import Objective
from .ce import CrossEntropy
from .ce_pe import CrossEntropyPlusEntropy
from .clue import CLUE
from .focal import Focal
from .label_smoothing import LabelSmoothing


OBJECTIVES: dict[str, type[Objective]] = {
    "clue": CLUE,
    "ce": CrossEntropy,
    "ce_pe": CrossEntropyPlusEntropy,
    "focal": Focal,
    "label_smoothing": LabelSmoothing,
}

__all__ = ["CLUE", "OBJECTIVES", "CrossEntropy", "CrossEntropyPlusEntropy", "Focal", "LabelSmoothing", "Objective"]
