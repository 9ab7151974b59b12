"""Which model to train, and with which adapter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import UserError
from ..settings import setting
from .kind import config_kind
from .loading import (
    add_adapter,
    build_text_model,
    check_overrides,
    load_classifier,
    load_config,
    load_regressor,
    load_text_model,
    load_tokenizer,
    parse_overrides,
)
from .mc_dropout import add_classifier_dropout
from .tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression
from .vision import CLUEResNetConfig, CLUEResNetForImageClassification


#: Our own residual networks for images and for tables.
VISION, TABULAR = "clue_resnet", "clue_tabular_resnet"


@dataclass
class ModelArguments:
    """The model: one from the Hub or a folder, or one built from scratch."""

    model_name_or_path: str | None = setting(None, "Hub id or folder of the model.")
    tokenizer_name: str | None = setting(None, "Hub id or folder of the tokenizer (default: the model's).")
    model_type: str | None = setting(
        None, "Build a model of this type from scratch: t5, bart, gpt2, clue_resnet, clue_tabular_resnet ..."
    )
    model_preset: str | None = setting(None, "clue_resnet: resnet8, resnet18, resnet50, wide_resnet28_10 ...")
    dropout: float | None = setting(
        None, "Classes and numbers: dropout rate (of a pretrained model: before its last layer)."
    )
    config_overrides: str | None = setting(
        None, "Settings of the model's config: dropout_rate=0.3,num_layers=2 or JSON (a map in YAML)."
    )
    tokenizer_vocab_size: int | None = setting(
        None, "Train a tokenizer with this vocabulary size on the training data."
    )
    dtype: str = setting("float32", "Type to load the weights in: float32, bfloat16, float16.")

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "bfloat16", "float16"):
            raise ValueError(f"`dtype` must be one of float32, bfloat16, float16, not {self.dtype!r}.")
        if bool(self.model_name_or_path) == bool(self.model_type):
            raise ValueError(
                "Set `model_name_or_path` (to fine-tune) or `model_type` (to build a model), one of the two."
            )
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"`dropout` must lie in [0, 1), but is {self.dropout!r}.")
        if self.model_preset and self.model_type != VISION:
            raise ValueError(f"`model_preset` goes with `model_type: {VISION}`.")
        if self.model_type == VISION:
            if not self.model_preset:
                raise ValueError(f"`model_type: {VISION}` needs a `model_preset`, such as resnet18.")
            return
        if self.model_type == TABULAR:
            return
        if self.model_type and bool(self.tokenizer_name) == bool(self.tokenizer_vocab_size):
            raise ValueError("A model from scratch needs `tokenizer_name`, or `tokenizer_vocab_size` to train one.")
        if self.tokenizer_vocab_size and not self.model_type:
            raise ValueError("`tokenizer_vocab_size` goes with `model_type`: a pretrained model has its tokenizer.")


@dataclass
class LoraArguments:
    """LoRA: train a small adapter instead of the whole model."""

    use_peft: bool = setting(False, "Train a LoRA adapter instead of the whole model.")
    lora_r: int = setting(16, "Rank of the adapter.")
    lora_alpha: int = setting(32, "Scale of the adapter.")
    lora_dropout: float = setting(0.05, "Dropout before the adapter.")
    lora_target_modules: list[str] | None = setting(
        None, "Modules that get an adapter (default: the usual ones of the architecture)."
    )
    lora_modules_to_save: list[str] | None = setting(None, "Modules to train in full.")
    use_rslora: bool = setting(False, "Rank-stabilised LoRA.")
    use_dora: bool = setting(False, "Weight-decomposed LoRA.")


def check_model(arguments: ModelArguments) -> None:
    """Raises an error if the model's config or tokenizer cannot be loaded; does not load weights."""
    if arguments.model_name_or_path:
        load_config(arguments.model_name_or_path, **parse_overrides(arguments.config_overrides))
    if not arguments.tokenizer_vocab_size and arguments.model_type not in (VISION, TABULAR):
        load_tokenizer(str(arguments.tokenizer_name or arguments.model_name_or_path))


def reads_table(arguments: ModelArguments) -> bool:
    """Whether the model reads rows of a table."""
    if not arguments.model_name_or_path:
        return arguments.model_type == TABULAR
    return config_kind(load_config(arguments.model_name_or_path)).modality == "table"


def make_classifier(arguments: ModelArguments, names: list[str], num_channels: int | None = None) -> Any:
    """A classifier for these classes, of images if they have channels, else of texts: ours, or a pretrained one."""
    classes = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    return _model_with_head(arguments, classes, num_channels)


def make_regressor(arguments: ModelArguments, num_channels: int | None = None, variance_head: bool = False) -> Any:
    """
    A model of images (if they have channels) or of texts that predicts a number, and its log variance with a
    `variance_head`: ours, or a pretrained one with a new last layer.
    """
    head = {"num_labels": 2 if variance_head else 1, "problem_type": "regression", "variance_head": variance_head}
    return _model_with_head(arguments, head, num_channels)


def _model_with_head(arguments: ModelArguments, head: dict[str, Any], num_channels: int | None) -> Any:
    overrides = parse_overrides(arguments.config_overrides)
    if arguments.model_type == VISION:
        settings = {"num_channels": num_channels, **_dropout(arguments), **head, **overrides}
        return CLUEResNetForImageClassification(CLUEResNetConfig.preset(str(arguments.model_preset), **settings))
    model = load_classifier(
        str(arguments.model_name_or_path), num_channels is not None, arguments.dtype, head, **overrides
    )
    return add_classifier_dropout(model, arguments.dropout)


def _dropout(arguments: ModelArguments) -> dict[str, float]:
    return {} if arguments.dropout is None else {"dropout": arguments.dropout}


def make_tabular_regressor(arguments: ModelArguments, preprocessor: Any, variance_head: bool = False) -> Any:
    """A model for the columns of a table: a new one, or one that was trained before."""
    if arguments.model_name_or_path:
        model = load_regressor(arguments.model_name_or_path, arguments.dtype)
        if variance_head and not model.config.variance_head:
            raise UserError(f"{arguments.model_name_or_path} predicts no variance: train it with variance_head.")
        return model
    sizes = {"num_numeric": preprocessor.num_numeric, "category_sizes": preprocessor.category_sizes}
    overrides = parse_overrides(arguments.config_overrides)
    check_overrides(CLUETabularResNetConfig(), overrides, TABULAR)
    settings = {**sizes, **_dropout(arguments), "variance_head": variance_head, **overrides}
    return CLUETabularResNetForRegression(CLUETabularResNetConfig(**settings))


def make_model(arguments: ModelArguments, lora: LoraArguments, tokenizer: Any, config: Any) -> Any:
    """The model that the arguments describe, with an adapter if `use_peft` is set."""
    overrides = parse_overrides(arguments.config_overrides)
    if arguments.model_type:
        model = build_text_model(arguments.model_type, tokenizer, config.task, **overrides)
    else:
        model = load_text_model(str(arguments.model_name_or_path), config.task, arguments.dtype, **overrides)
    if not lora.use_peft:
        return model
    from peft import LoraConfig

    adapter = LoraConfig(
        task_type="SEQ_2_SEQ_LM" if model.config.is_encoder_decoder else "CAUSAL_LM",
        r=lora.lora_r,
        lora_alpha=lora.lora_alpha,
        lora_dropout=lora.lora_dropout,
        target_modules=lora.lora_target_modules,
        modules_to_save=lora.lora_modules_to_save,
        use_rslora=lora.use_rslora,
        use_dora=lora.use_dora,
    )
    try:
        return add_adapter(model, adapter, config.gradient_checkpointing)
    except ValueError as error:
        raise UserError(f"LoRA cannot be added: {error}") from error
