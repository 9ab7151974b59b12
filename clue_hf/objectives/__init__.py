"""Training objectives, one file each. `OBJECTIVES` maps the name users give to the class."""

from ..errors import UserError
from .base import Objective
from .cals import CALS
from .ce_pe import CrossEntropyPlusEntropy
from .clue import CLUE
from .euat import EUAT
from .focal import Focal
from .gaussian import ErrorPlusGaussianEntropy, GaussianNLL
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
    "mse": Plain,
    "mse_pe": ErrorPlusGaussianEntropy,
    "nll": GaussianNLL,
}
#: What each kind of task can be trained with, besides what users register: `clue`, and these.
OF_CLASSES = ("ce", "ce_pe", "focal", "label_smoothing")
OF_EXAMPLES = ("euat", "cals")
OF_NUMBERS = ("mse", "mse_pe", "nll")


def check_suits(objective: str, task: str) -> None:
    """Raises where an objective is for other tasks: the error of a number is no cross-entropy."""
    refused: tuple[str, ...]
    instead: tuple[str, ...]
    if task == "regression":
        refused, instead = (*OF_CLASSES, *OF_EXAMPLES), OF_NUMBERS
    elif task == "classification":
        refused, instead = OF_NUMBERS, (*OF_CLASSES, *OF_EXAMPLES)
    else:
        refused, instead = (*OF_NUMBERS, *OF_EXAMPLES), OF_CLASSES
    if objective in refused:
        raise UserError(f"The objective {objective!r} is not for {task}: use clue, {', '.join(instead)}.")


__all__ = [
    "CALS",
    "CLUE",
    "EUAT",
    "OBJECTIVES",
    "CrossEntropyPlusEntropy",
    "ErrorPlusGaussianEntropy",
    "Focal",
    "GaussianNLL",
    "LabelSmoothing",
    "Objective",
    "Plain",
    "check_suits",
]
