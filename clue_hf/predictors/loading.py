"""A model from a folder or the Hub, with all that its `uncertainty.json` says it needs, ready to answer."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from transformers.utils import CONFIG_NAME, cached_file, logging

from ..errors import UserError
from ..inputs.given import ImageInputs, Inputs, TableInputs, TextInputs
from ..inputs.number_rows import target_scale
from ..inputs.table_preprocessor import TablePreprocessor
from ..models.ensemble import Ensemble
from ..models.loading import (
    explained,
    has_variance_head,
    is_classifier,
    is_image_model,
    is_regressor,
    load_classifier,
    load_config,
    load_processing_class,
    load_regressor,
    load_text_model,
    load_tokenizer,
    load_with_members,
)
from ..models.mc_dropout import has_dropout
from ..models.safety import check_folder
from ..models.tabular import CLUETabularResNetConfig
from ..models.uncertainty_file import UNCERTAINTY_FILE, read_uncertainty
from ..offline import notice_missing_network
from ..posthoc.calibration_file import UncertaintyCalibration
from ..posthoc.saved import stored_calibrator, stored_error_predictor, stored_passes
from ..scorers import CollectionSettings
from ..tasks import CLASSIFICATION_PASSES, REGRESSION_PASSES
from .base import ClassPredictor, NumberPredictor, Predictor, TextPredictor


logger = logging.get_logger(__name__)
ADAPTER_FILE = "adapter_config.json"
#: Settings of classifiers and regressors of texts.
OF_TEXTS = ("source_prefix", "max_source_length")


def load_predictor(
    name: str,
    device: Any,
    dtype: str = "float32",
    scorer: str | None = None,
    mc_samples: int | None = None,
    deployed: UncertaintyCalibration | None = None,
    **settings: Any,
) -> Predictor:
    """
    What answers with a model of any kind; see [`UncertaintyPipeline.from_pretrained`]. What is not given is as in
    `deployed`. An adapter comes with the model that it was trained for.
    """
    config = read_config(name)
    if mc_samples is not None:
        settings["mc_samples"] = mc_samples
    if model_kind(config) == "text":
        model, tokenizer = language_model(name, dtype)
        return text_predictor(model.to(device), tokenizer, scorer, deployed, **settings)
    check_whole(name)
    if scorer is not None:
        raise UserError(f"`scorer` is for models that write texts, and {name!r} does not.")
    return _predictor(name, config, device, dtype, {**(deployed.settings if deployed else {}), **settings})


def text_predictor(
    model: Any, tokenizer: Any, scorer: str | None, deployed: UncertaintyCalibration | None, **settings: Any
) -> TextPredictor:
    """What answers with a language model; what is not given is as in `deployed`."""
    if deployed is not None:
        _check_stored(deployed.settings)
        scorer, settings = scorer or deployed.scorer, {**deployed.settings, **settings}
    try:
        return TextPredictor(model, tokenizer, scorer or "perplexity", **settings)
    except ValueError as error:
        raise UserError(str(error)) from error


def _check_stored(settings: dict[str, Any]) -> None:
    """Raises where settings that were saved with a model are not those of a collector."""
    defaults = vars(CollectionSettings())
    for name, value in settings.items():
        kinds = (str, type(None)) if name == "compat" else type(defaults.get(name))
        if name not in defaults or not isinstance(value, kinds) or isinstance(value, bool):
            raise UserError(
                f"'settings' in {UNCERTAINTY_FILE} is damaged ({name!r}: {value!r}). Write it anew: clue-hf calibrate."
            )


def read_config(name: str) -> Any:
    """The config of a model, or of the one that an adapter was trained for; raises where there is no such model."""
    return load_config(base_of_adapter(name) or name)


def model_kind(config: Any) -> str:
    """`"text"` (that is generated), `"classification"` or `"regression"`, by what a saved model's config says."""
    if isinstance(config, CLUETabularResNetConfig):
        return "regression"
    if not is_classifier(config):
        return "text"
    return "regression" if is_regressor(config) else "classification"


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
        whole, path = Path(name) / CONFIG_NAME, Path(name) / ADAPTER_FILE
        found = None if whole.exists() or not path.exists() else str(path)
    elif name.startswith((".", "/", "~")):
        return None  # there is no such folder, as loading it will say
    else:
        notice_missing_network()
        try:
            found = cached_file(
                name,
                ADAPTER_FILE,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_gated_repo=False,
                _raise_exceptions_for_connection_errors=False,
            )
        except OSError:
            return None  # there is no such repository, as loading it will say
    if found is None:
        return None
    try:
        return str(json.loads(Path(found).read_text(encoding="utf-8"))["base_model_name_or_path"])
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
    from peft.utils import SAFETENSORS_WEIGHTS_NAME

    check_folder(name)
    model = load_text_model(base, dtype=dtype)
    with explained(name, "adapter"):
        cached_file(name, SAFETENSORS_WEIGHTS_NAME)  # raises where there are none: PEFT would look for pickles
        model = PeftModel.from_pretrained(model, name)
    own = not Path(name).is_dir() or (Path(name) / "tokenizer_config.json").exists()
    return model, load_tokenizer(name if own else base)


def _predictor(
    name: str, config: Any, device: Any, dtype: str, settings: dict[str, Any]
) -> ClassPredictor | NumberPredictor:
    """A classifier or a regressor."""
    stored, numbers = read_uncertainty(name), model_kind(config) == "regression"
    load = partial(load_regressor if numbers else load_classifier, name, dtype=dtype)
    model = load_with_members(name, load).to(device)
    processing = load_processing_class(name, config)
    passes = settings.pop("mc_samples") if "mc_samples" in settings else stored_passes(name, stored)
    inputs, settings = _inputs(processing, config, settings, name)
    calibrator = stored_calibrator(name, stored, numbers)
    errors = stored_error_predictor(name, stored, dtype, device, numbers)
    if passes is None:
        usual = REGRESSION_PASSES if numbers else CLASSIFICATION_PASSES
        passes = usual if has_dropout(model) else 0
    if numbers:
        if not (passes or errors or isinstance(model, Ensemble) or has_variance_head(model.config)):
            logger.warning(
                f"{name} has no uncertainty of its own (no passes with dropout, variance head, ensemble or error "
                "predictor): its standard deviations mean nothing."
            )
        scale = target_scale(model.config, processing)
        return NumberPredictor(model, inputs, scale, passes, calibrator, errors, **settings)
    return ClassPredictor(model, inputs, passes, calibrator, errors, **settings)


def _inputs(processing: Any, config: Any, settings: dict[str, Any], name: str) -> tuple[Inputs, dict[str, Any]]:
    """What reads the inputs of a model, and its settings."""
    texts = not isinstance(processing, TablePreprocessor) and not is_image_model(config)
    known = OF_TEXTS if texts else ()
    if unknown := [key for key in settings if key not in known]:
        raise UserError(f"`{unknown[0]}` is no setting of {name!r}, which writes no texts.")
    if texts:
        inputs = TextInputs(processing, **settings)
        return inputs, {"source_prefix": inputs.prefix, "max_source_length": inputs.limit}
    return (TableInputs if isinstance(processing, TablePreprocessor) else ImageInputs)(processing), {}
