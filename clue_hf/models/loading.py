"""Models and tokenizers from the Hub, from a folder, or built from scratch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)

from ..errors import UserError
from ..offline import notice_missing_network
from ..settings import parse_settings
from .ensemble import Ensemble
from .kind import is_image_model, text_task
from .mc_dropout import add_classifier_dropout
from .safety import check_folder, refusing_pickles
from .tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression
from .tokenizer import with_padding
from .uncertainty_file import damaged, read_uncertainty


def load_text_model(
    name: str,
    task: str = "auto",
    dtype: str = "float32",
    revision: str = "main",
    options: dict[str, Any] | None = None,
    **overrides: Any,
) -> Any:
    """
    A language model from the Hub or a folder, with some config values replaced. `options` are further ones of
    `from_pretrained`, such as `attn_implementation`.

    `dtype` is float32 by default: transformers would train a bfloat16 checkpoint in pure bfloat16.
    """
    config = load_config(name, revision=revision, **overrides)
    return load_weights(_auto_class(config, task), name, dtype, config=config, revision=revision, **(options or {}))


def load_classifier(
    name: str,
    images: bool | None = None,
    dtype: str = "float32",
    head: dict[str, Any] | None = None,
    subfolder: str = "",
    **overrides: Any,
) -> Any:
    """
    A classifier from the Hub or a folder, of images or of texts (`None`: as its config says). With another `head`
    (`id2label` and `label2id`, or `num_labels`) than its own, its last layer is a new one.
    """
    config = load_config(name, subfolder, **overrides)
    if images is None:
        images = is_image_model(config)
    for key, value in (head or {}).items():
        setattr(config, key, value)
    auto_class = AutoModelForImageClassification if images else AutoModelForSequenceClassification
    if type(config) not in auto_class._model_mapping:
        raise UserError(f"A {config.model_type} model cannot classify {'images' if images else 'texts'}.")
    return load_weights(auto_class, name, dtype, config=config, subfolder=subfolder, ignore_mismatched_sizes=True)


def load_regressor(name: str, dtype: str = "float32", subfolder: str = "") -> Any:
    """A model that predicts numbers, of tables, images or texts, from the Hub or a folder."""
    config = load_config(name, subfolder)
    if not isinstance(config, CLUETabularResNetConfig):
        return load_classifier(name, dtype=dtype, subfolder=subfolder)
    return load_weights(CLUETabularResNetForRegression, name, dtype, config=config, subfolder=subfolder)


def load_with_members(name: str, load: Callable[..., Any]) -> Any:
    """
    A model with its dropout, or the [`Ensemble`] whose first member it is.

    Args:
        name (`str`):
            Hub id or folder.
        load (`Callable`):
            Loads the model of a `subfolder`.
    """
    folders = read_uncertainty(name).get("members", [])
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        raise damaged(name, "members", f"it must be a list of folders, not {folders!r}", "Train the ensemble again")
    members = [load(subfolder=folder) for folder in ("", *folders)]
    members = [add_classifier_dropout(member) for member in members]
    return members[0] if len(members) == 1 else Ensemble(members)


def build_text_model(model_type: str, tokenizer: PreTrainedTokenizerBase, task: str = "auto", **settings: Any) -> Any:
    """A language model with random weights: `model_type` (such as t5 or gpt2) and its config values."""
    try:
        config = AutoConfig.for_model(model_type)
    except ValueError as error:
        raise UserError(f"model_type {model_type!r} is not known to transformers.") from error
    check_overrides(config, settings, model_type)
    ids = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if config.is_encoder_decoder:
        ids["decoder_start_token_id"] = tokenizer.pad_token_id
    config = AutoConfig.for_model(model_type, **{**ids, **settings})
    return _auto_class(config, task).from_config(config)


def load_config(name: str, subfolder: str = "", revision: str = "main", **overrides: Any) -> Any:
    """A model's config, with some values replaced. All loading begins here, so the folder is checked here."""
    check_folder(name, subfolder)
    with explained(name, "model"):
        config = AutoConfig.from_pretrained(name, subfolder=subfolder, revision=revision, trust_remote_code=False)
    check_overrides(config, overrides, name)
    for key, value in overrides.items():
        setattr(config, key, value)
    return config


def load_tokenizer(name: str, revision: str = "main") -> PreTrainedTokenizerBase:
    """A tokenizer from the Hub or a folder, able to pad."""
    with explained(name, "tokenizer"):
        return with_padding(AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False))


def load_image_processor(name: str) -> Any:
    """An image processor from the Hub or a folder; transformers' version that needs Pillow only."""
    from transformers import AutoImageProcessor

    with explained(name, "image processor"):
        return AutoImageProcessor.from_pretrained(name, trust_remote_code=False)


def add_adapter(model: Any, peft_config: Any, gradient_checkpointing: bool = False) -> Any:
    """The model with an adapter of PEFT, which is then the only part that is trained."""
    from peft import get_peft_model

    if gradient_checkpointing:
        model.enable_input_require_grads()  # else nothing before the first adapter needs a gradient
    return get_peft_model(model, peft_config)


def parse_overrides(text: str | None) -> dict[str, Any]:
    """Config values as JSON (`{"d_model": 192}`) or as `d_model=192,num_layers=2`."""
    if not text:
        return {}
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"config_overrides is not valid JSON: {error}") from error
    return parse_settings("config_overrides", text)


def load_weights(model_class: Any, name: str, dtype: str, **settings: Any) -> Any:
    """A model of a class of transformers, from the Hub or a folder; nothing but tensors is read."""
    with explained(name, "model"), refusing_pickles(name):
        return model_class.from_pretrained(
            name,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            weights_only=True,
            trust_remote_code=False,
            **settings,
        )


def _auto_class(config: Any, task: str) -> Any:
    if task == "auto":
        task = text_task(config)
    auto_class: Any = AutoModelForSeq2SeqLM if task == "seq2seq" else AutoModelForCausalLM
    if task == "token":
        is_masked = any("ForMaskedLM" in name for name in config.architectures or [])
        auto_class = AutoModelForMaskedLM if is_masked else AutoModelForTokenClassification
    if type(config) not in auto_class._model_mapping:
        raise UserError(f"A {config.model_type} model cannot do the task {task!r}: it has no head for it.")
    return auto_class


def check_overrides(config: Any, overrides: dict[str, Any], name: str) -> None:
    """Raises where a value is to be replaced that the config does not have."""
    unknown = [key for key in overrides if not hasattr(config, key)]
    if unknown:
        raise UserError(f"config_overrides: {unknown[0]!r} is not a setting of {name} ({type(config).__name__}).")


@contextmanager
def explained(name: str, what: str) -> Iterator[None]:
    """
    Turns the many ways in which transformers fails to find something into one message. Damaged files of a folder make
    it fail with an exception of any kind.
    """
    is_folder = Path(name).is_dir()
    if Path(name).is_file():
        raise UserError(f"The {what} {name!r} is a file; give the folder that holds it.")
    if name.startswith((".", "/", "~")) and not Path(name).expanduser().is_dir():
        raise UserError(f"The {what} folder {name!r} does not exist.")
    if not is_folder:
        notice_missing_network()
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not (is_folder or isinstance(error, (OSError, ValueError))):
            raise
        reason = str(error).strip().splitlines()[0] if str(error).strip() else ""
        if not isinstance(error, (OSError, ValueError)) or not reason:
            reason = f"{type(error).__name__}: {reason}".removesuffix(": ")
        advice = (
            "Check the files in this folder."
            if is_folder
            else "It is not a local folder, and the Hub has no such id or cannot be reached. Offline: download it on "
            f"a connected machine with `hf download {name}`, or give a local folder."
        )
        raise UserError(f"The {what} {name!r} cannot be loaded. {advice} ({reason})") from error
