"""What can follow the training of which kind of model: one rule for training, evaluation and comparison."""

from __future__ import annotations

from collections import ChainMap
from typing import Any

from ..errors import UserError
from .calibrators import CALIBRATORS
from .conformal import CONFORMAL, PredictionSets
from .error_predictor import ERROR_PREDICTORS
from .quantile import QuantileCalibrator


#: Calibrators by what a model predicts, and by name.
CALIBRATORS_BY_FAMILY: dict[str, dict[str, Any]] = {
    "text": {},
    "classes": CALIBRATORS,
    "numbers": {QuantileCalibrator.name: QuantileCalibrator},
}
EVERY_CALIBRATOR = ChainMap(*reversed(CALIBRATORS_BY_FAMILY.values()))  # which begins with the last of them
#: Methods of conformal prediction by what a model predicts, and by name.
CONFORMAL_BY_FAMILY: dict[str, dict[str, Any]] = {
    "text": {},
    "classes": {name: method for name, method in CONFORMAL.items() if issubclass(method, PredictionSets)},
    "numbers": {name: method for name, method in CONFORMAL.items() if not issubclass(method, PredictionSets)},
}


def check_posthoc(
    family: str,
    calibrator: str | None = None,
    error_predictor: str | None = None,
    ensemble: int = 1,
    has_validation: bool = True,
    token_calibrator: str = "none",
    conformal: str | None = None,
) -> None:
    """
    Raises where something cannot follow the training of a model that predicts texts, classes or numbers.

    Args:
        family (`str`):
            `"text"`, `"classes"` or `"numbers"`: see [`~clue_hf.models.kind.ModelKind`].
        calibrator, error_predictor (`str`, *optional*):
            What is to be fitted.
        ensemble (`int`, *optional*, defaults to 1):
            Number of members.
        has_validation (`bool`, *optional*, defaults to `True`):
            Whether there is validation data to fit them on.
        token_calibrator (`str`, *optional*, defaults to `"none"`):
            What is to calibrate the tokens of a language model.
        conformal (`str`, *optional*):
            A method of conformal prediction.
    """
    options = {
        "calibrator": calibrator,
        "error_predictor": error_predictor,
        "ensemble": ensemble > 1 or None,
        "conformal": conformal,
    }
    chosen = [name for name, value in options.items() if value is not None]
    if family == "text" and chosen:
        raise UserError(f"{chosen[0]} is not supported for language models.")
    known = {"calibrator": CALIBRATORS_BY_FAMILY[family], "conformal": CONFORMAL_BY_FAMILY[family]}
    for option, names in known.items():
        name = options[option]
        if name is not None and name not in names:
            what = "calibrator" if option == "calibrator" else "conformal method"
            raise UserError(
                f"The {what} {name!r} is not supported for models that predict {family}: use {', '.join(names)}."
            )
    if error_predictor is not None and error_predictor not in ERROR_PREDICTORS:
        raise UserError(f"error_predictor must be one of {', '.join(ERROR_PREDICTORS)}, not {error_predictor!r}.")
    if token_calibrator != "none" and family != "text":
        raise UserError(f"token_calibrator is for language models, not for models that predict {family}.")
    if (calibrator or error_predictor or token_calibrator != "none") and not has_validation:
        raise UserError(
            "calibrator, token_calibrator and error_predictor are fitted on validation data: give a split or file, or "
            "set validation_fraction."
        )
