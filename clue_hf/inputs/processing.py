"""What turns raw examples into inputs, loaded with a model: a tokenizer, an image processor, a table preprocessor."""

from __future__ import annotations

from typing import Any

from ..models.kind import TEXT_TASKS, config_kind
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


def load_processing_class(name: str, config: Any) -> Any:
    """What reads the inputs of a saved model."""
    load = {"table": TablePreprocessor.from_pretrained, "image": load_image_processor, "text": load_tokenizer}
    return load[config_kind(config).modality](name)


def load_for_training(name: str, task: str = "auto") -> tuple[Any, Any]:
    """A model of any kind from the Hub or a folder, with its dropout, and what reads its inputs."""
    config = load_config(name)
    kind = config_kind(config)
    if task in TEXT_TASKS or kind.family == "text":
        return load_text_model(name, task), load_tokenizer(name)
    model = load_regressor(name) if kind.family == "numbers" else load_classifier(name)
    return add_classifier_dropout(model), load_processing_class(name, config)
