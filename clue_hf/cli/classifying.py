"""Experiments with classifiers of images and texts."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ..config import CLUEConfig
from ..data.columns import find_text_columns, has_images
from ..data.image_dataset import ImageDataset, class_names, image_dataset, label_numbers
from ..data.images import make_transform
from ..errors import UserError
from ..evaluation.classes import class_log_probabilities
from ..metrics import CLASSIFICATION_DEFINITIONS, classification_report, measured_classification
from ..metrics.resampled_rejection import Measured
from ..models.arguments import VISION, make_classifier
from ..models.loading import load_image_processor, load_tokenizer
from ..tables import markdown_table
from ..trainer import CLUETrainer
from .arguments import RunArguments
from .training import Experiment


#: Columns of the table: heading, metric, digits.
COLUMNS = (
    ("error", "error", 3), ("ECE", "ece", 3), ("uA", "uncertainty_accuracy", 3), ("uAUC", "uncertainty_auc", 3),
    ("corr", "residual_correlation", 3), ("W1", "wasserstein", 3), ("NLL", "nll", 3),
    ("alignment error", "alignment_error", 3),
)  # fmt: skip


class ClassificationExperiment(Experiment):
    """Classifiers: error, calibration, and how well the uncertainty tells right from wrong."""

    definitions: ClassVar = CLASSIFICATION_DEFINITIONS
    headings: ClassVar = {name: heading for heading, name, _ in COLUMNS}
    reading = (
        "error: share of wrong answers; ECE and alignment error are 0 for a perfectly calibrated model;\n"
        "uA, uAUC, corr, W1: how well the uncertainty tells wrong from right answers, higher is better."
    )

    def __init__(self, *arguments: Any, binary_task: str | None = None) -> None:
        super().__init__(*arguments)
        columns, config = self.splits["train"].column_names, self.config
        named = config.image_column is not None
        self.images = named or has_images(columns, config.source_column, config.target_column)
        self._check_settings(binary_task)
        if self.images:
            self._prepare_images(binary_task)
        else:
            self._prepare_texts()

    def _check_settings(self, binary_task: str | None) -> None:
        """Settings that have no meaning here are refused, not ignored."""
        for_texts = {
            "predict_with_generate": self.config.predict_with_generate,
            "eval_uncertainty": self.arguments.eval_uncertainty,
            "quality": self.arguments.quality not in (RunArguments.quality, "none"),
            "use_peft": self.lora.use_peft,
        }
        for name, is_set in for_texts.items():
            if is_set:
                raise UserError(f"{name} is for models that write texts, and this is a classifier: leave it out.")
        if binary_task and not self.images:
            raise UserError("binary_task is for images: select the rows of two classes in the file instead.")
        if self.model.model_type and not (self.images and self.model.model_type == VISION):
            kind = "images" if self.images else "texts"
            advice = f" or model_type: {VISION}" if self.images else ""
            raise UserError(
                f"model_type {self.model.model_type!r}: no classifier of {kind} is built from it; give "
                f"model_name_or_path{advice}."
            )

    def _prepare_texts(self) -> None:
        train = self.splits["train"]
        _, label = find_text_columns(train.column_names, self.config.source_column, self.config.label_column)
        self.names = class_names(train, label)
        _check_number_of_classes(label_numbers(train, label, self.names), self.names)
        self.processing_class = load_tokenizer(str(self.model.tokenizer_name or self.model.model_name_or_path))

    def _prepare_images(self, binary_task: str | None) -> None:
        """All splits as pixels with the same class numbers, and how they are normalised."""
        columns = (self.config.image_column, self.config.label_column)
        train = image_dataset(self.splits["train"], *columns, split="train")
        splits = {
            name: train if name == "train" else image_dataset(split, *columns, train.names, name)
            for name, split in self.splits.items()
        }
        if binary_task:
            splits = {name: split.binary(binary_task) for name, split in splits.items()}
        self.splits: dict[str, ImageDataset] = splits
        self.names, self.num_channels = splits["train"].names, splits["train"].num_channels
        _check_number_of_classes(splits["train"].labels, self.names)
        if self.model.model_type == VISION:
            self.processing_class = make_transform(splits["train"], self.config.image_size).processor()
        else:
            self.processing_class = load_image_processor(str(self.model.model_name_or_path))

    def make_model(self, config: CLUEConfig) -> Any:
        return make_classifier(self.model, self.names, self.num_channels if self.images else None)

    def report(self, trainer: CLUETrainer, split: str) -> dict[str, Any]:
        data = trainer.task.prepare(self.splits[split], trainer.args, split)
        found = class_log_probabilities(trainer, data, f"Predicting {split}")
        metrics = classification_report(found.probabilities, found.labels, resamples=0)
        return {name: entry["value"] for name, entry in metrics.items()}

    def outcome(self, trainer: CLUETrainer, split: str) -> dict[str, np.ndarray]:
        """What a trained model predicts for a split."""
        data = trainer.task.prepare(self.splits[split], trainer.args, split)
        found = class_log_probabilities(trainer, data, f"Predicting {split}")
        return {"log_probabilities": found.log_probabilities, "labels": found.labels}

    @staticmethod
    def measure(outcome: dict[str, np.ndarray], resamples: int) -> dict[str, Measured]:
        """Every metric of such an outcome, on all examples and on each resample."""
        return measured_classification(np.exp(outcome["log_probabilities"]), outcome["labels"], resamples=resamples)

    def table(self, rows: list[dict[str, Any]]) -> str:
        lines = [["objective", "split", *(heading for heading, _, _ in COLUMNS), "time/step"]]
        for row in rows:
            alpha = f" (alpha {row['alpha']:g})" if row["objective"] == "clue" else ""
            cells = ["-" if row[name] is None else f"{row[name]:.{digits}f}" for _, name, digits in COLUMNS]
            time = f"{1000 * row['seconds_per_step']:.0f} ms"
            lines.append([f"{row['objective']}{alpha}", row["split"], *cells, time])
        return markdown_table(lines)


def _check_number_of_classes(labels: np.ndarray, names: list[str]) -> None:
    found = np.unique(labels)
    if len(found) < 2:
        raise UserError(f"All training rows are of the class {names[found[0]]!r}: a classifier needs two or more.")
