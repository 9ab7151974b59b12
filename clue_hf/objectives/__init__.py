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
CLASS_OBJECTIVES = ("ce", "ce_pe", "focal", "label_smoothing")
EXAMPLE_OBJECTIVES = ("euat", "cals")
NUMBER_OBJECTIVES = ("mse", "mse_pe", "nll")


def check_suits(objective: str, task: str) -> None:
    """Raises where an objective is for other tasks: the error of a number is no cross-entropy."""
    refused: tuple[str, ...]
    instead: tuple[str, ...]
    if task == "regression":
        refused, instead = (*CLASS_OBJECTIVES, *EXAMPLE_OBJECTIVES), NUMBER_OBJECTIVES
    elif task == "classification":
        refused, instead = NUMBER_OBJECTIVES, (*CLASS_OBJECTIVES, *EXAMPLE_OBJECTIVES)
    else:
        refused, instead = (*NUMBER_OBJECTIVES, *EXAMPLE_OBJECTIVES), CLASS_OBJECTIVES
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
