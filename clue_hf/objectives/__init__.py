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
#: What tasks can be trained with, besides `clue` and what users register: texts with the first.
CLASS_OBJECTIVES = ("ce", "ce_pe", "focal", "label_smoothing")
EXAMPLE_OBJECTIVES = ("euat", "cals")
NUMBER_OBJECTIVES = ("mse", "mse_pe", "nll")


def check_suits(objective: str, task: str) -> None:
    """Raises where an objective is for other tasks: the error of a number is no cross-entropy."""
    classes = (*CLASS_OBJECTIVES, *EXAMPLE_OBJECTIVES)
    suitable = {"classification": classes, "regression": NUMBER_OBJECTIVES}.get(task, CLASS_OBJECTIVES)
    if objective in (*classes, *NUMBER_OBJECTIVES) and objective not in suitable:
        raise UserError(f"The objective {objective!r} is not for {task}: use clue, {', '.join(suitable)}.")


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
