"""What turns raw examples into inputs, loaded with a model: a tokenizer, an image processor, a table preprocessor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..models.kind import TEXT_TASKS, config_kind, unwrap
from ..models.loading import (
    load_classifier,
    load_config,
    load_image_processor,
    load_regressor,
    load_text_model,
    load_tokenizer,
)
from ..models.mc_dropout import add_classifier_dropout
from .table_preprocessor import TablePreprocessor


if TYPE_CHECKING:
    from ..config import CLUEConfig

#: Settings of `from_pretrained` that are not values of a model's config.
LOADING = ("attn_implementation", "device_map", "low_cpu_mem_usage", "max_memory", "use_kernels")
TEMPLATE_FILES = (".jinja", ".j2")


def load_processing_class(name: str, config: Any) -> Any:
    """What reads the inputs of a saved model."""
    load = {"table": TablePreprocessor.from_pretrained, "image": load_image_processor, "text": load_tokenizer}
    return load[config_kind(config).modality](name)


def load_for_training(name: str, task: str = "auto", settings: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """
    A model of any kind from the Hub or a folder, with its dropout, and what reads its inputs. `settings` are those of
    `from_pretrained` for a language model: `dtype`, `revision`, `attn_implementation` ..., and values of its config.
    """
    settings = dict(settings or {})
    revision = settings.pop("revision", None) or "main"
    config = load_config(name, revision=revision)
    kind = config_kind(config)
    task = kind.task if task == "auto" else task
    if task in (*TEXT_TASKS, "token"):
        if settings.pop("trust_remote_code", False):
            raise UserError(
                "model_init_kwargs: trust_remote_code is not supported; code of a repository is never run."
            )
        dtype = str(settings.pop("dtype", "float32")).removeprefix("torch.")
        options = {key: settings.pop(key) for key in LOADING if key in settings}
        model = load_text_model(name, task, dtype, revision, options, **settings)
        return model, load_tokenizer(name, revision)
    if settings or revision != "main":
        raise UserError(f"model_init_kwargs is for language models, but {name} is {kind}: give the loaded model.")
    model = load_regressor(name) if kind.family == "numbers" else load_classifier(name)
    return add_classifier_dropout(model), load_processing_class(name, config)


def settle_tokenizer(tokenizer: Any, model: Any, config: CLUEConfig) -> None:
    """Gives a tokenizer, and its model, the template and the special tokens that a config names."""
    names = ("chat_template_path", "eos_token", "pad_token")
    chosen = {name: value for name in names if (value := getattr(config, name)) is not None}
    if not chosen:
        return
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise UserError(f"{next(iter(chosen))} needs a tokenizer: give processing_class.")
    for name in [name for name in chosen if name != "chat_template_path"]:
        if chosen[name] not in tokenizer.get_vocab():
            raise UserError(f"{name} {chosen[name]!r} is not in the vocabulary of the tokenizer.")
        setattr(tokenizer, name, chosen[name])
        _tell_model(model, f"{name}_id", getattr(tokenizer, f"{name}_id"))
    if config.chat_template_path:
        tokenizer.chat_template = _read_template(config.chat_template_path, tokenizer)


def _tell_model(model: Any, name: str, token: int) -> None:
    """The model ends and pads with the tokenizer's tokens; it goes on to end with those it ended with before."""
    base = unwrap(model)
    setattr(base.config.get_text_config(), name, token)
    generation = getattr(base, "generation_config", None)
    if generation is None:
        return
    before = getattr(generation, name)
    if name == "eos_token_id" and before is not None:
        before = before if isinstance(before, list) else [before]
        token = before if token in before else [token, *before]  # type: ignore[assignment]
    setattr(generation, name, token)


def _read_template(path: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """A chat template, from its file or from another tokenizer."""
    if path.endswith(TEMPLATE_FILES):
        if not Path(path).is_file():
            raise UserError(f"chat_template_path {path!r} does not exist.")
        return Path(path).read_text(encoding="utf-8")
    other = load_tokenizer(path)
    if not isinstance(other.chat_template, str):
        raise UserError(f"chat_template_path: the tokenizer {path!r} has no chat template.")
    new = [token for token in other.get_added_vocab() if token in other.chat_template]
    missing = [token for token in new if token not in tokenizer.get_vocab()]
    if missing:
        raise UserError(
            f"The chat template of {path!r} writes {missing[0]!r}, which is not in the vocabulary. Add it first: "
            "tokenizer.add_special_tokens(...), model.resize_token_embeddings(len(tokenizer))."
        )
    return other.chat_template
