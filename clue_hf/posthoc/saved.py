"""What was saved with a classifier or a regressor, by its `uncertainty.json`; a part that is damaged is named."""

from __future__ import annotations

import math
from typing import Any

from transformers.utils import logging

from ..models.loading import load_regressor
from ..models.uncertainty_file import damaged
from .error_predictor import ErrorNormalizer, ErrorPredictor
from .learned import LearnedScore
from .rules import CALIBRATORS_BY_FAMILY, CONFORMAL_BY_FAMILY
from .stored import reading_part
from .token_temperature import STORED_TOKEN_CALIBRATORS


logger = logging.get_logger(__name__)
FITTED_IN_TRAINING = "Take it again from where the model was trained, or delete this part"


def stored_passes(name: str, stored: dict[str, Any]) -> int | None:
    """The passes with dropout that a model was trained with."""
    passes = stored.get("mc_samples")
    if passes is not None and (not isinstance(passes, int) or passes < 0):
        raise damaged(name, "mc_samples", f"it must be a number from 0, not {passes!r}", FITTED_IN_TRAINING)
    return passes


def stored_min_variance(name: str, stored: dict[str, Any]) -> float:
    """The least variance that a regressor was trained with."""
    value = stored.get("min_variance", 1e-6)
    if not isinstance(value, float) or not 0 < value < math.inf:
        raise damaged(name, "min_variance", f"it must be a number above 0, not {value!r}", FITTED_IN_TRAINING)
    return value


def stored_calibrator(name: str, stored: dict[str, Any], numbers: bool) -> Any:
    """
    The calibrator that was saved with a model, of classes or (`numbers`) of numbers. One of numbers beside an error
    predictor must have been fitted to the variance which that predicts.
    """
    content = stored.get("calibrator")
    if content is None:
        return None
    if numbers and "error_predictor" in stored and stored.get("calibrated_variance") != "predicted":
        logger.warning(
            f"The calibrator of {name} was fitted to the model's own variance, not to that of its error predictor: it "
            "is not used. Train the model again with --calibrator and --error_predictor to have both."
        )
        return None
    calibrators = CALIBRATORS_BY_FAMILY["numbers" if numbers else "classes"]
    with reading_part(name, "calibrator", advice=FITTED_IN_TRAINING):
        return calibrators[content["name"]].from_checked_dict(content)


def stored_conformal(name: str, stored: dict[str, Any], numbers: bool) -> Any:
    """The prediction sets (or, of `numbers`, intervals) that a model was calibrated for."""
    content = stored.get("conformal")
    if content is None:
        return None
    with reading_part(name, "conformal"):
        return CONFORMAL_BY_FAMILY["numbers" if numbers else "classes"][content["name"]].from_checked_dict(content)


def stored_token_calibrator(name: str, stored: dict[str, Any], model: Any) -> Any:
    """The token calibrator that was saved with a language model; raises where it is that of another one."""
    content = stored.get("token_calibrator")
    if content is None:
        return None
    with reading_part(name, "token_calibrator"):
        calibrator = STORED_TOKEN_CALIBRATORS[content["name"]].from_checked_dict(content)
        calibrator.check_model(model)
        return calibrator


def stored_learned_score(name: str, stored: dict[str, Any]) -> LearnedScore | None:
    """The learned score that was saved with a language model."""
    content = stored.get("learned_score")
    if content is None:
        return None
    with reading_part(name, "learned_score", advice="Fit it again: clue-hf calibrate --scorer learned"):
        return LearnedScore.from_checked_dict(content)


def stored_error_predictor(
    name: str, stored: dict[str, Any], dtype: str, device: Any, numbers: bool
) -> ErrorPredictor | None:
    """The predictor of errors that was saved with a model."""
    content = stored.get("error_predictor")
    if content is None:
        return None
    with reading_part(name, "error_predictor", advice=FITTED_IN_TRAINING):
        folder = content["folder"]
        if not isinstance(folder, str):
            raise TypeError(f"its folder must be a name, not {folder!r}")
        normalizer = None if numbers else ErrorNormalizer.from_checked_dict(content["normalizer"])
    return ErrorPredictor(load_regressor(name, dtype, folder).to(device).eval(), normalizer)
