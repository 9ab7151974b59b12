"""Training objectives, one file each. `OBJECTIVES` maps the name users give to the class."""

from ..errors import UserError
from .base import Objective
from .beta_nll import BetaNLL
from .brier import Brier
from .cals import CALS
from .ce_pe import CrossEntropyPlusEntropy
from .clue import CLUE
from .crps import CRPS
from .dft import DFT
from .eaft import EAFT
from .euat import EUAT
from .focal import Focal
from .gaussian import ErrorPlusGaussianEntropy, GaussianNLL
from .label_smoothing import LabelSmoothing
from .maxsup import MaxSup
from .plain import Plain


OBJECTIVES: dict[str, type[Objective]] = {
    "clue": CLUE,
    "ce": Plain,
    "ce_pe": CrossEntropyPlusEntropy,
    "euat": EUAT,
    "cals": CALS,
    "focal": Focal,
    "label_smoothing": LabelSmoothing,
    "maxsup": MaxSup,
    "brier": Brier,
    "eaft": EAFT,
    "dft": DFT,
    "mse": Plain,
    "mse_pe": ErrorPlusGaussianEntropy,
    "nll": GaussianNLL,
    "beta_nll": BetaNLL,
    "crps": CRPS,
}
#: What tasks can be trained with, besides `clue` and what users register: tokens and examples with the first.
CLASS_OBJECTIVES = ("ce", "ce_pe", "focal", "label_smoothing", "maxsup", "brier")
TOKEN_OBJECTIVES = ("eaft", "dft")
EXAMPLE_OBJECTIVES = ("euat", "cals")
NUMBER_OBJECTIVES = ("mse", "mse_pe", "nll", "beta_nll", "crps")


def check_suits(objective: str, task: str) -> None:
    """Raises where an objective is for other tasks: the error of a number is no cross-entropy."""
    tokens, examples = (*CLASS_OBJECTIVES, *TOKEN_OBJECTIVES), (*CLASS_OBJECTIVES, *EXAMPLE_OBJECTIVES)
    suitable = {"classification": examples, "regression": NUMBER_OBJECTIVES}.get(task, tokens)
    if objective in (*tokens, *examples, *NUMBER_OBJECTIVES) and objective not in suitable:
        raise UserError(f"The objective {objective!r} is not for {task}: use clue, {', '.join(suitable)}.")


__all__ = [
    "CALS",
    "CLUE",
    "CRPS",
    "DFT",
    "EAFT",
    "EUAT",
    "OBJECTIVES",
    "BetaNLL",
    "Brier",
    "CrossEntropyPlusEntropy",
    "ErrorPlusGaussianEntropy",
    "Focal",
    "GaussianNLL",
    "LabelSmoothing",
    "MaxSup",
    "Objective",
    "Plain",
    "check_suits",
]
