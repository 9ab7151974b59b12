"""Experiments with classifiers of images and texts."""

from __future__ import annotations

from typing import Any, ClassVar

from ..config import CLUEConfig
from ..data.columns import find_text_columns, has_images
from ..data.image_dataset import ImageDataset, class_names, image_dataset
from ..data.images import make_transform
from ..evaluation.classes import class_log_probabilities
from ..metrics import CLASSIFICATION_DEFINITIONS, classification_report
from ..models.arguments import VISION, make_classifier
from ..models.loading import load_image_processor, load_tokenizer
from ..tables import markdown_table
from ..trainer import CLUETrainer
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
    reading = (
        "error: share of wrong answers; ECE and alignment error are 0 for a perfectly calibrated model;\n"
        "uA, uAUC, corr, W1: how well the uncertainty tells wrong from right answers, higher is better."
    )

    def __init__(self, *arguments: Any, binary_task: str | None = None) -> None:
        super().__init__(*arguments)
        train = self.splits["train"]
        self.images = has_images(train.column_names, None, None) or self.config.image_column is not None
        if self.images:
            self._prepare_images(binary_task)
        else:
            _, label = find_text_columns(train.column_names, self.config.source_column, self.config.label_column)
            self.names = class_names(train, label)
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

    def table(self, rows: list[dict[str, Any]]) -> str:
        lines = [["objective", "split", *(heading for heading, _, _ in COLUMNS), "time/step"]]
        for row in rows:
            alpha = f" (alpha {row['alpha']:g})" if row["objective"] == "clue" else ""
            cells = ["-" if row[name] is None else f"{row[name]:.{digits}f}" for _, name, digits in COLUMNS]
            time = f"{1000 * row['seconds_per_step']:.0f} ms"
            lines.append([f"{row['objective']}{alpha}", row["split"], *cells, time])
        return markdown_table(lines)
