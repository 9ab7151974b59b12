"""A model from a folder or the Hub, with all that its `uncertainty.json` says it needs, ready to answer."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers.utils import CONFIG_NAME, logging

from ..errors import UserError
from ..inputs.base import InputSettings
from ..inputs.labels import make_inputs
from ..inputs.processing import load_processing_class
from ..models.ensemble import Ensemble
from ..models.kind import config_kind
from ..models.loading import (
    explained,
    load_classifier,
    load_config,
    load_regressor,
    load_text_model,
    load_tokenizer,
    load_with_members,
)
from ..models.safety import check_folder, refusing_pickles
from ..models.uncertainty_file import UNCERTAINTY_FILE, optional_file, read_uncertainty
from ..offline import notice_missing_network
from ..posthoc.calibration_file import UncertaintyCalibration
from ..posthoc.saved import (
    stored_calibrator,
    stored_conformal,
    stored_error_predictor,
    stored_learned_score,
    stored_min_variance,
    stored_passes,
    stored_token_calibrator,
)
from ..scorers import ALL, SCORERS, CollectionSettings, needs_density
from ..scorers.density import Density
from .base import SEED, Predictor
from .classes import ClassPredictor
from .numbers import NumberPredictor
from .text import TextPredictor


logger = logging.get_logger(__name__)
ADAPTER_FILE = "adapter_config.json"


def load_predictor(
    name: str,
    device: Any,
    dtype: str = "float32",
    scorers: Any = None,
    mc_samples: int | None = None,
    calibration: UncertaintyCalibration | None = None,
    columns: dict[str, Any] | None = None,
    min_variance: float | None = None,
    seed: int | None = None,
    **settings: Any,
) -> Any:
    """
    The predictor of a model of any kind, as it was trained, calibrated and saved; every command and the pipeline use
    it. An adapter comes with the model that it was trained for.
    """
    settings = {key: value for key, value in settings.items() if value is not None}
    config, stored = read_config(name), read_uncertainty(name)
    inputs = replace(InputSettings.from_file(name, stored), **(columns or {}))
    if config_kind(config).family == "text":
        model, tokenizer = language_model(name, dtype)
        chosen = {"mc_samples": mc_samples, "seed": seed}
        settings |= {key: value for key, value in chosen.items() if value is not None}
        return text_predictor(model.to(device), tokenizer, scorers, calibration, name, stored, inputs, **settings)
    check_whole(name)
    if scorers is not None:
        raise UserError(f"`scorer` is for models that write texts, and {name!r} does not.")
    overrides = {**({} if calibration is None else calibration.settings), **settings}
    passes = overrides.pop("mc_samples", None)
    passes = passes if mc_samples is None else mc_samples
    return _row_predictor(name, config, stored, device, dtype, inputs, overrides, passes, min_variance, seed)


def text_predictor(
    model: Any,
    tokenizer: Any,
    scorers: Any,
    calibration: UncertaintyCalibration | None,
    name: str,
    stored: dict[str, Any],
    inputs: InputSettings,
    **settings: Any,
) -> TextPredictor:
    """
    The predictor of a language model, with what its `uncertainty.json` holds (`stored`). Settings default to those of
    its calibration, or else of its training.
    """
    trained = {
        "source_prefix": inputs.source_prefix,
        "max_source_length": inputs.max_source_length,
        "max_new_tokens": inputs.max_target_length,
    }
    if calibration is not None:
        _check_stored(calibration.settings)
        scorers, settings = scorers or calibration.scorer, {**calibration.settings, **settings}
    scorers = scorers or "perplexity"
    names = [scorers] if isinstance(scorers, str) else scorers
    if {"learned", ALL} & set(names):
        settings["learned_score"] = stored_learned_score(name, stored)
    if any(scorer == ALL or (scorer in SCORERS and needs_density(scorer)) for scorer in names):
        settings.setdefault("density", Density.load(name, model))
    try:
        predictor = TextPredictor(model, tokenizer, scorers, inputs, **{**trained, **settings})
    except ValueError as error:
        raise UserError(str(error)) from error
    if not predictor.collection.compat:  # which is about another library, where nothing is calibrated
        predictor.token_calibrator = stored_token_calibrator(name, stored, model)
    fitted_to = stored.get("token_calibration", {}).get("weights")
    if predictor.token_calibrator is not None and fitted_to not in (None, predictor.fingerprint()):
        logger.warning(
            f"The token calibrator of {name} was fitted to other weights, or in another precision, so its "
            "probabilities may be off. Fit it again: clue-hf calibrate."
        )
    return predictor


def _check_stored(settings: dict[str, Any]) -> None:
    """Raises where settings that were saved with a model are not those of a collector."""
    defaults = vars(CollectionSettings())
    for name, value in settings.items():
        types = (str, type(None)) if defaults.get(name) is None else type(defaults.get(name))
        if name not in defaults or not isinstance(value, types) or isinstance(value, bool):
            raise UserError(
                f"'settings' in {UNCERTAINTY_FILE} is damaged ({name!r}: {value!r}). Write it anew: clue-hf calibrate."
            )


def read_config(name: str) -> Any:
    """The config of a model, or of the one that an adapter was trained for; raises where there is no such model."""
    config = load_config(base_of_adapter(name) or name)
    kind = config_kind(config)
    if kind.family == "tokens":
        raise UserError(f"{name} is {kind}, which can be trained with CLUETrainer, but is not supported here.")
    return config


def save_model(predictor: Predictor, folder: Path, stored: dict[str, Any]) -> None:
    """Saves the model of a predictor with its other parts, so that the folder can be loaded like the original."""
    model = predictor.model
    members: list[Any] = [*model.members] if isinstance(model, Ensemble) else [model]
    for member, place in zip(members, ("", *stored.get("members", [])), strict=True):
        member.save_pretrained(_inside(folder, place))
    error_predictor = getattr(predictor, "error_predictor", None)
    if error_predictor is not None:
        error_predictor.model.save_pretrained(_inside(folder, stored["error_predictor"]["folder"]))
    predictor.processing_class.save_pretrained(folder)


def _inside(folder: Path, place: str) -> Path:
    """A folder in another one; what somebody's file names must not lead elsewhere."""
    path = (folder / place).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UserError(f"{UNCERTAINTY_FILE} names the folder {place!r}, which is outside of the model's.")
    return path


def base_of_adapter(name: str) -> str | None:
    """The model that a PEFT adapter was trained for, where a folder or repository holds one instead of a model."""
    if Path(name).is_dir():
        adapter = Path(name) / ADAPTER_FILE
        path = None if (Path(name) / CONFIG_NAME).exists() or not adapter.exists() else str(adapter)
    elif name.startswith((".", "/", "~")):
        return None  # there is no such folder: loading it raises
    else:
        notice_missing_network()
        try:
            path = optional_file(name, ADAPTER_FILE)
        except OSError:
            return None  # there is no such repository: loading it raises
    if path is None:
        return None
    try:
        return str(json.loads(Path(path).read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{ADAPTER_FILE} of {name!r} is damaged ({type(error).__name__}: {error}).") from error


def check_whole(name: str) -> None:
    """Raises where a classifier or regressor is an adapter: only language models are loaded with one."""
    if base_of_adapter(name) is not None:
        raise UserError(f"{name!r} is an adapter of a model that writes no texts: merge the two, and save the result.")


def language_model(name: str, dtype: str = "float32") -> tuple[Any, Any]:
    """A language model and its tokenizer. An adapter comes with the model that it was trained for."""
    base = base_of_adapter(name)
    if base is None:
        return load_text_model(name, dtype=dtype), load_tokenizer(name)
    from peft import PeftModel
    from peft.utils import SAFETENSORS_WEIGHTS_NAME, WEIGHTS_NAME

    check_folder(name)
    model = load_text_model(base, dtype=dtype)
    with explained(name, "adapter"), refusing_pickles(name):
        weights = [Path(name) / file for file in (SAFETENSORS_WEIGHTS_NAME, WEIGHTS_NAME)]
        if Path(name).is_dir() and not any(path.is_file() for path in weights):  # PEFT would ask the Hub for them
            raise FileNotFoundError(f"there is no {SAFETENSORS_WEIGHTS_NAME}")
        model = PeftModel.from_pretrained(model, name)
    own = not Path(name).is_dir() or (Path(name) / "tokenizer_config.json").exists()
    return model, load_tokenizer(name if own else base)


def _row_predictor(
    name: str,
    config: Any,
    stored: dict[str, Any],
    device: Any,
    dtype: str,
    settings: InputSettings,
    overrides: dict[str, Any],
    mc_samples: int | None,
    min_variance: float | None,
    seed: int | None,
) -> ClassPredictor | NumberPredictor:
    """A classifier or a regressor."""
    numbers = config_kind(config).family == "numbers"
    load = partial(load_regressor if numbers else load_classifier, name, dtype=dtype)
    model = load_with_members(name, load).to(device)
    inputs = make_inputs(load_processing_class(name, config), settings)
    if unknown := [key for key in overrides if key not in inputs.used_settings]:
        raise UserError(f"`{unknown[0]}` is not a setting of {name!r}, which writes no texts.")
    inputs.settings = settings.overridden(**overrides)
    options: dict[str, Any] = {
        "mc_samples": stored_passes(name, stored) if mc_samples is None else mc_samples,
        "calibrator": stored_calibrator(name, stored, numbers),
        "error_predictor": stored_error_predictor(name, stored, dtype, device, numbers),
        "seed": SEED if seed is None else seed,
        "conformal": stored_conformal(name, stored, numbers),
    }
    if not numbers:
        return ClassPredictor(model, inputs, **options)
    least = stored_min_variance(name, stored) if min_variance is None else min_variance
    predictor = NumberPredictor(model, inputs, min_variance=least, **options)
    if not predictor.has_variance:
        logger.warning(
            f"{name} has no uncertainty of its own (no passes with dropout, variance head, ensemble or error "
            "predictor): its standard deviations mean nothing."
        )
    return predictor
