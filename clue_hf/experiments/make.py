"""The experiment that model, config and data ask for, and its data."""

from __future__ import annotations

from typing import Any

from ..config import CLUEConfig
from ..data.columns import has_images
from ..data.loading import DataArguments, load_splits
from ..errors import UserError
from ..models.arguments import TABULAR, VISION, LoraArguments, ModelArguments, reads_table
from ..models.kind import config_kind
from ..models.loading import load_config
from .arguments import RunArguments
from .classes import ClassificationExperiment
from .experiment import Experiment
from .numbers import RegressionExperiment
from .text import TextExperiment


def make_experiment(
    model: ModelArguments,
    lora: LoraArguments,
    config: CLUEConfig,
    splits: Any,
    run: RunArguments,
    data: DataArguments,
    command_line: str,
) -> Experiment:
    """The kind of experiment that model, config and data ask for."""
    arguments = (model, lora, config, splits, run, data.report_splits, command_line)
    experiment: Experiment
    if predicts_numbers(model, config):
        experiment = RegressionExperiment(*arguments, table_columns=data.table_columns)
    elif _classifies(model, config, splits["train"].column_names):
        experiment = ClassificationExperiment(*arguments, binary_task=data.binary_task)
    else:
        _check_writes_texts(model, config)
        experiment = TextExperiment(*arguments)
    experiment.bad_rows = data.bad_rows
    return experiment


def load_data(model: ModelArguments, data: DataArguments, config: CLUEConfig) -> Any:
    """The splits of the data that the arguments name."""
    columns = (config.source_column, config.target_column, config.image_column, config.label_column)
    task = "regression" if predicts_numbers(model, config) else config.task
    if config.model_init_kwargs:
        raise UserError("model_init_kwargs is for models that CLUETrainer loads: use dtype and config_overrides.")
    texts: dict[str, Any] = {"text": config.dataset_text_field, "answers": config.assistant_only_loss is not False}
    return load_splits(data, *columns, task, task == "regression" and reads_table(model), **texts)


def predicts_numbers(model: ModelArguments, config: CLUEConfig) -> bool:
    """Whether this is an experiment with a regressor: the task says so, or the model."""
    if config.task != "auto":
        return config.task == "regression"
    if model.model_type:
        return model.model_type == TABULAR
    return config_kind(load_config(str(model.model_name_or_path))).family == "numbers"


def _check_writes_texts(model: ModelArguments, config: CLUEConfig) -> None:
    """Raises on token classifiers and masked language models, which would get a new head for texts."""
    labels_tokens = config.task == "token"
    if config.task == "auto" and model.model_name_or_path:
        labels_tokens = config_kind(load_config(model.model_name_or_path)).family == "tokens"
    if labels_tokens:
        raise UserError(
            "This command does not train token classifiers and masked language models: use CLUETrainer in Python. To "
            "train a classifier or a language model from one, set `task` (or a label_column)."
        )


def _classifies(model: ModelArguments, config: CLUEConfig, columns: list[str]) -> bool:
    """Whether this is an experiment with a classifier: the task says so, the model, or a column of classes."""
    if config.task != "auto":
        return config.task == "classification"
    named = bool(config.label_column or config.image_column)
    return named or model.model_type == VISION or has_images(columns, config.source_column, config.target_column)
