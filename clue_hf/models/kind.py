"""What kind of model something is: what it predicts, and from what. The only place that answers this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelerate.utils import extract_model_from_parallel
from transformers import AutoModelForImageClassification

from ..errors import UserError
from . import vision as vision  # known to the Auto classes, as what follows
from .tabular import CLUETabularResNetConfig


#: Tasks of models that write texts.
TEXT_TASKS = ("seq2seq", "causal")
#: What a modality is called in messages.
MODALITIES = {"text": "texts", "image": "images", "table": "tables"}
#: Parts of the names of models that predict a class or number of an example, a class of each token, or texts.
EXAMPLE_HEADS = ("ForImageClassification", "ForSequenceClassification", "ForRegression")
TOKEN_HEADS = ("ForTokenClassification", "ForMaskedLM")
TEXT_HEADS = (
    "ForCausalLM", "LMHead", "ForConditionalGeneration", "MTModel", "EncoderDecoder", "ForTextToText",
    "BertGenerationDecoder",
)  # fmt: skip


@dataclass(frozen=True)
class ModelKind:
    """
    What a model does.

    Args:
        task (`str`):
            `"seq2seq"`, `"causal"`, `"classification"`, `"regression"` or `"token"`.
        modality (`str`):
            What it reads: `"text"`, `"image"` or `"table"`.
    """

    task: str
    modality: str

    @property
    def family(self) -> str:
        """What it predicts: `"text"`, `"classes"`, `"numbers"` or `"tokens"` (a class of each token)."""
        return {"classification": "classes", "regression": "numbers", "token": "tokens"}.get(self.task, "text")

    def __str__(self) -> str:
        if self.family == "text":
            return "a language model"
        if self.family == "tokens":
            return "a token classifier or masked language model"
        return f"a {'classifier' if self.family == 'classes' else 'regressor'} of {MODALITIES[self.modality]}"


def unwrap(model: Any) -> Any:
    """The transformers model inside DDP, torch.compile and PEFT wrappers."""
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def model_kind(model: Any) -> ModelKind:
    """The kind of a model, wrapped or not; an ensemble is of the kind of its members. Raises on unknown heads."""
    base = unwrap(model.members[0] if hasattr(model, "members") else model)
    names = _class_names(base)
    if not _has_head(names, (*EXAMPLE_HEADS, *TOKEN_HEADS, *TEXT_HEADS)):
        raise UserError(
            f"{type(base).__name__} is not supported: it is no language model (causal, sequence-to-sequence, masked), "
            "no classifier of texts, images or tokens, and no regressor. If it is one, say which with `task`; "
            "otherwise use transformers' Trainer."
        )
    return _kind(base.config, names)


def has_token_head(model: Any) -> bool:
    """Whether a model predicts a class of each of its input tokens."""
    return _has_head(_class_names(unwrap(model)), TOKEN_HEADS)


def config_kind(config: Any) -> ModelKind:
    """The kind of a saved model, by the architecture that its config names."""
    return _kind(config, config.architectures or [])


def is_image_model(config: Any) -> bool:
    """Whether the model of a config reads images."""
    return type(config) in AutoModelForImageClassification._model_mapping


def is_regressor(config: Any) -> bool:
    """Whether the model of a config predicts numbers: by its type, or by its single output, as transformers has it."""
    return config.problem_type == "regression" or config.num_labels == 1


def has_variance_head(config: Any) -> bool:
    """Whether the model of a config predicts a log variance beside the number."""
    return is_regressor(config) and bool(getattr(config, "variance_head", False))


def text_task(config: Any) -> str:
    """`"seq2seq"` or `"causal"`."""
    return "seq2seq" if getattr(config, "is_encoder_decoder", False) else "causal"


def _kind(config: Any, architectures: list[str]) -> ModelKind:
    if isinstance(config, CLUETabularResNetConfig):
        return ModelKind("regression", "table")
    if not _has_head(architectures, EXAMPLE_HEADS):
        return ModelKind("token" if _has_head(architectures, TOKEN_HEADS) else text_task(config), "text")
    numbers = is_regressor(config) or any("ForRegression" in name for name in architectures)
    return ModelKind("regression" if numbers else "classification", "image" if is_image_model(config) else "text")


def _class_names(model: Any) -> list[str]:
    return [ancestor.__name__ for ancestor in type(model).__mro__]


def _has_head(names: list[str], heads: tuple[str, ...]) -> bool:
    return any(head in name for name in names for head in heads)
