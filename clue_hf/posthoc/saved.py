"""What was saved with a classifier or a regressor, by its `uncertainty.json`; a part that is damaged is named."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers.utils import logging

from ..models.loading import load_regressor
from ..models.uncertainty_file import damaged
from .calibrators import CALIBRATORS
from .error_predictor import ErrorPredictor
from .normalizer import ErrorNormalizer
from .quantile import QuantileCalibrator
from .stored import Stored


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
    kinds: dict[str, Any] = {QuantileCalibrator.name: QuantileCalibrator} if numbers else dict(CALIBRATORS)
    with _named(name, "calibrator"):
        return _read(kinds[content["name"]], content)


def stored_error_predictor(
    name: str, stored: dict[str, Any], dtype: str, device: Any, numbers: bool
) -> ErrorPredictor | None:
    """The predictor of errors that was saved with a model."""
    content = stored.get("error_predictor")
    if content is None:
        return None
    with _named(name, "error_predictor"):
        folder = content["folder"]
        if not isinstance(folder, str):
            raise TypeError(f"its folder must be a name, not {folder!r}")
        normalizer = None if numbers else _read(ErrorNormalizer, content["normalizer"])
    return ErrorPredictor(load_regressor(name, dtype, folder).to(device).eval(), normalizer)


def _read(kind: type[Stored], content: dict[str, Any]) -> Any:
    """One fitted part, whose numbers are such as can be used."""
    part = kind.from_dict(content)
    first, *others = (_structure(value) for key, value in content.items() if key not in ("name", "version"))
    if any(other != first for other in others):
        raise ValueError("its lists differ in length")
    return part


def _structure(value: Any) -> list[Any] | None:
    """The lengths of nested lists; raises where they hold anything but finite numbers."""
    if isinstance(value, list):
        return [_structure(entry) for entry in value]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return None


@contextmanager
def _named(name: str, part: str) -> Iterator[None]:
    """Names the part of a model's file that cannot be read."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(name, part, f"{type(error).__name__}: {error}", FITTED_IN_TRAINING) from error
