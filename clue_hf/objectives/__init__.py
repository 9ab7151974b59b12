"""Training objectives, one file each. `OBJECTIVES` maps the name users give to the class."""

from .base import Objective
from .cals import CALS
from .ce_pe import CrossEntropyPlusEntropy
from .clue import CLUE
from .euat import EUAT
from .focal import Focal
from .label_smoothing import LabelSmoothing
from .plain import Plain


OBJECTIVES: dict[str, type[Objective]] = {
    "clue": CLUE,
    "ce": Plain,
    "ce_pe": CrossEntropyPlusEntropy,
    "euat": EUAT,
    "cals": CALS,
    "focal": Focal,
    "label_smoothing": LabelSmoothing,
}

__all__ = [
    "CALS",
    "CLUE",
    "EUAT",
    "OBJECTIVES",
    "CrossEntropyPlusEntropy",
    "Focal",
    "LabelSmoothing",
    "Objective",
    "Plain",
]
