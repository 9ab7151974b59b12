"""Experiments with classifiers of images and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np

from ..config import CLUEConfig
from ..data.columns import find_image_columns, find_text_columns, has_images
from ..data.corruptions import corrupt
from ..data.image_dataset import ImageDataset, image_dataset
from ..data.labels import class_names, label_numbers
from ..errors import UserError
from ..inputs.base import InputSettings
from ..inputs.labels import Labelled, class_rows, make_inputs
from ..metrics import (
    METRICS,
    Measured,
    best_threshold,
    classification_report,
    metric_definitions,
    normalized_entropy,
    ood_report,
)
from ..models.arguments import VISION, make_classifier, make_regressor
from ..models.loading import load_config
from ..posthoc import CALIBRATORS, ErrorNormalizer, ensemble_probabilities
from ..predictors.classes import ClassPredictions, ClassPredictor
from ..trainer import CLUETrainer
from .predictions import VALIDATION, Outcome, PredictingExperiment


#: Metrics of the tables: of all, of two classes, and of corrupted copies.
COLUMNS = (
    "error", "ece", "uncertainty_accuracy", "uncertainty_auc", "residual_correlation", "wasserstein", "nll",
    "alignment_error",
)  # fmt: skip
FLIP_COLUMNS = ("flip_error", "flip_f1", "flip_precision", "flip_tpr", "flip_tnr")
OOD_COLUMNS = ("ood_auroc", "ood_aupr", "ood_fpr95")


def corrupted_name(split: str, corruption: str, severity: int) -> str:
    return f"{split}-{corruption}-{severity}"


class ClassificationExperiment(PredictingExperiment):
    """
    Classifiers: error, calibration, and how well the uncertainty tells right from wrong. An outcome holds
    `log_probabilities`, `labels`, and the `uncertainty` of methods that have their own.
    """

    definitions: ClassVar = metric_definitions(METRICS["classes"], "classes")
    task = "classification"
    family = "classes"
    columns: Sequence[str] = COLUMNS
    tradeoffs: ClassVar = (("error", "ece"), ("nll", "alignment_error"))
    curve_label = "Accuracy of the answers kept"
    corruptions: Sequence[str] = ()
    severities: Sequence[int] = ()
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
        self.processing_class = self.load_processing_class()
        self.inputs = make_inputs(self.processing_class, InputSettings.from_config(config))

    def _check_settings(self, binary_task: str | None) -> None:
        self.check_settings()
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
        self.names = self._in_order_of_model(class_names(train, label))
        _check_number_of_classes(label_numbers(train, label, self.names), self.names)

    def _prepare_images(self, binary_task: str | None) -> None:
        """All splits as pixels with the same class numbers, and how they are normalised."""
        columns = (self.config.image_column, self.config.label_column)
        _, label = find_image_columns(self.splits["train"].column_names, *columns)
        names = self._in_order_of_model(class_names(self.splits["train"], label))
        train = image_dataset(self.splits["train"], *columns, names, "train")
        splits = {
            name: train if name == "train" else image_dataset(split, *columns, train.names, name)
            for name, split in self.splits.items()
        }
        if binary_task:
            splits = {name: split.binary(binary_task) for name, split in splits.items()}
        self.splits: dict[str, ImageDataset] = splits
        self.names, self.num_channels = splits["train"].names, splits["train"].num_channels
        _check_number_of_classes(splits["train"].labels, self.names)

    def _in_order_of_model(self, names: list[str]) -> list[str]:
        """The classes of the data in the order of a trained model that has the same ones: its outputs are theirs."""
        if self.model.model_name_or_path:
            known = load_config(self.model.model_name_or_path).id2label
            order = [known[number] for number in sorted(known)]
            if sorted(order) == sorted(names):
                return order
        return names

    def make_model(self, config: CLUEConfig) -> Any:
        return make_classifier(self.model, self.names, self.num_channels if self.images else None)

    def datasets(self) -> Iterator[tuple[str, Any]]:
        yield from super().datasets()
        for split in self.report_splits:
            for name, severity in product(self.corruptions, self.severities):
                data = self.splits[split]
                pixels = corrupt(data.pixels(), name, severity, self.config.seed)
                yield corrupted_name(split, name, severity), ImageDataset(pixels, data.labels, data.names)

    def labelled(self, data: Any, name: str) -> Labelled:
        return class_rows(data, self.inputs, self.names, self.names, name)

    def predict(self, trainer: CLUETrainer, labelled: Labelled, name: str) -> Outcome:
        predictor = ClassPredictor(trainer.model, self.inputs, self.passes(trainer))
        size = trainer.args.per_device_eval_batch_size
        predictions = predictor.raw(labelled.rows, size, labelled.labels, description=name, distributed=True)
        with np.errstate(divide="ignore"):
            return {"log_probabilities": np.log(predictions.probabilities), "labels": predictions.labels}

    def fit(self, calibrator: str, validation: Outcome) -> Any:
        return CALIBRATORS[calibrator].fit(np.exp(validation["log_probabilities"]), validation["labels"])

    def calibrated(self, calibrator: Any, outcome: Outcome) -> Outcome:
        with np.errstate(divide="ignore"):
            return {**outcome, "log_probabilities": np.log(calibrator(np.exp(outcome["log_probabilities"])))}

    def ensembled(self, members: list[Outcome]) -> Outcome:
        mean = ensemble_probabilities([np.exp(member["log_probabilities"]) for member in members])
        return {"log_probabilities": np.log(mean), "labels": members[0]["labels"]}

    # ---- a second model that predicts the errors of the first ----

    def make_error_predictor(self) -> Any:
        return make_regressor(self.model, self.num_channels if self.images else None)

    def errors(self, outcome: Outcome) -> np.ndarray:
        return -outcome["log_probabilities"][np.arange(len(outcome["labels"])), outcome["labels"]]

    def with_predicted_errors(
        self, outcome: Outcome, errors: np.ndarray, validation: np.ndarray
    ) -> tuple[Outcome, Any]:
        normalizer = ErrorNormalizer.fit(validation)
        return {**outcome, "uncertainty": normalizer(errors)}, {"normalizer": normalizer.to_dict()}

    # ---- comparisons ----

    def check_comparison(self, arguments: Any) -> None:
        super().check_comparison(arguments)
        self.corruptions, self.severities = arguments.corruptions, arguments.severities

    def compared_views(self) -> list[str]:
        every = list(product(self.corruptions, self.severities))
        return [view for split in self.report_splits for view in (split, *(corrupted_name(split, *c) for c in every))]

    def compared_columns(self, view: str) -> dict[str, dict[str, str]]:
        flipped = ("error", *FLIP_COLUMNS) if len(self.names) == 2 else ()
        shifted = () if view in self.report_splits else OOD_COLUMNS
        return {"": self.headings([*flipped, *COLUMNS, *self.conformal_columns, *shifted])}

    def measure(self, view: str, outcomes: Callable[[str], Outcome], resamples: int) -> dict[str, Measured]:
        outcome, tau = outcomes(view), None
        probabilities, uncertainty = np.exp(outcome["log_probabilities"]), _uncertainty(outcome)
        if VALIDATION in self.splits:
            tau = best_threshold(_uncertainty(outcomes(VALIDATION)), _wrong(outcomes(VALIDATION)))
        measured = classification_report(
            probabilities, outcome["labels"], uncertainty, resamples, tau, rejection=False
        )
        if view in self.report_splits:
            return measured
        inside = outcomes(next(split for split in self.report_splits if view.startswith(f"{split}-")))
        return {**measured, **ood_report(_uncertainty(inside), uncertainty, resamples)}

    def predictions(self, outcome: Outcome) -> ClassPredictions:
        return ClassPredictions(np.exp(outcome["log_probabilities"]), outcome["labels"])

    def judged(self, outcome: Outcome) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return {"uncertainty": _uncertainty(outcome)}, 1.0 - _wrong(outcome)


def _check_number_of_classes(labels: np.ndarray, names: list[str]) -> None:
    present = np.unique(labels)
    if len(present) < 2:
        raise UserError(f"All training rows are of the class {names[present[0]]!r}: a classifier needs two or more.")


def _uncertainty(outcome: Outcome) -> np.ndarray:
    if "uncertainty" in outcome:
        return outcome["uncertainty"]
    return normalized_entropy(np.exp(outcome["log_probabilities"]))


def _wrong(outcome: Outcome) -> np.ndarray:
    return outcome["log_probabilities"].argmax(-1) != outcome["labels"]
