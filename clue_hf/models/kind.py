"""What kind of model something is: what it predicts, and from what. The only place that answers this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelerate.utils import extract_model_from_parallel
from transformers import AutoModelForImageClassification

from .tabular import CLUETabularResNetConfig


#: Tasks of models that write texts.
TEXT_TASKS = ("seq2seq", "causal")
#: What a modality is called in messages.
MODALITIES = {"text": "texts", "image": "images", "table": "tables"}


@dataclass(frozen=True)
class ModelKind:
    """
    What a model does.

    Args:
        task (`str`):
            `"seq2seq"`, `"causal"`, `"classification"` or `"regression"`.
        modality (`str`):
            What it reads: `"text"`, `"image"` or `"table"`.
    """

    task: str
    modality: str

    @property
    def family(self) -> str:
        """What it predicts: `"text"`, `"classes"` or `"numbers"`."""
        return {"classification": "classes", "regression": "numbers"}.get(self.task, "text")

    def __str__(self) -> str:
        if self.family == "text":
            return "a language model"
        return f"a {'classifier' if self.family == 'classes' else 'regressor'} of {MODALITIES[self.modality]}"


def unwrap(model: Any) -> Any:
    """The transformers model inside DDP, torch.compile and PEFT wrappers."""
    model = extract_model_from_parallel(model, keep_torch_compile=False)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def model_kind(model: Any) -> ModelKind:
    """The kind of a model, wrapped or not; an ensemble is of the kind of its members."""
    base = unwrap(model.members[0] if hasattr(model, "members") else model)
    return _kind(base.config, [type(base).__name__])


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
    heads = ("ForImageClassification", "ForSequenceClassification", "ForRegression")
    if not any(head in name for name in architectures for head in heads):
        return ModelKind(text_task(config), "text")
    numbers = is_regressor(config) or any("ForRegression" in name for name in architectures)
    return ModelKind("regression" if numbers else "classification", "image" if is_image_model(config) else "text")
