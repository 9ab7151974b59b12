"""Experiments with models that predict numbers, from tables, images or texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ..config import CLUEConfig
from ..data.columns import find_image_columns, has_images
from ..data.image_dataset import ImageDataset, dataset_images
from ..data.targets import TargetScale, find_target_column, target_values
from ..inputs.base import InputSettings
from ..inputs.labels import Labelled, make_inputs, number_rows
from ..inputs.table_preprocessor import TablePreprocessor
from ..metrics import METRICS, Measured, metric_definitions, regression_report
from ..models.arguments import make_regressor, make_tabular_regressor, reads_table
from ..posthoc import QuantileCalibrator
from ..predictors.numbers import NumberPredictor, RegressionPredictions
from ..trainer import CLUETrainer
from .experiment import Outcome, needs_variance_head
from .predictions import PredictingExperiment


#: Metrics of the table.
COLUMNS = (
    "mse", "regression_ece", "corr_error_pe", "corr_error_var", "nll", "ence", "ause", "alignment_error",
)  # fmt: skip


class RegressionExperiment(PredictingExperiment):
    """
    Regressors: squared error, calibration of the intervals, and how well the variance knows the error. An outcome
    holds `mean`, `variance` and `labels` in the units of the target, and the `pit` of methods that recalibrate it.
    """

    definitions: ClassVar = metric_definitions(METRICS["numbers"], "numbers")
    task = "regression"
    family = "numbers"
    plain_objective = "mse"
    columns: Sequence[str] = COLUMNS
    tradeoffs: ClassVar = (("mse", "regression_ece"), ("nll", "ence"))
    curve_label = "Minus the mean squared error of the predictions kept"
    reading = (
        "MSE and alignment error in squared units of the target; ECE: mean gap of the coverage of central intervals;\n"
        "ENCE, NLL, AUSE: lower is better; corr: correlation of the squared error with\n"
        "the predictive entropy (PE) and the variance."
    )

    def __init__(self, *arguments: Any, table_columns: dict[str, Any] | None = None) -> None:
        super().__init__(*arguments)
        self.check_settings()
        train = self.splits["train"]
        self.is_table = reads_table(self.model)
        self.images = not self.is_table and (
            self.config.image_column is not None or has_images(train.column_names, self.config.source_column, None)
        )
        self.target = find_target_column(train.column_names, self.config.target_column or self.config.label_column)
        if self.is_table:
            self._prepare_table(table_columns or {})
        elif self.images:
            self._prepare_images()
        else:
            self.scale = TargetScale.fit(target_values(train, self.target))
            self.processing_class = self.load_processing_class()
        self.inputs = make_inputs(self.processing_class, InputSettings.from_config(self.config))

    def _prepare_table(self, columns: dict[str, Any]) -> None:
        """The preprocessing: that of a trained model, or one that the training rows decide."""
        if self.model.model_name_or_path:
            preprocessor = TablePreprocessor.from_pretrained(self.model.model_name_or_path)
        else:
            preprocessor = TablePreprocessor.fit(self.splits["train"], self.target, **columns)
        self.processing_class = preprocessor
        self.scale = TargetScale(preprocessor.target_mean, preprocessor.target_std)
        if self.config.process_index == 0:
            print("\n".join(["", *preprocessor.notes]), flush=True)
        for name, split in self.splits.items():
            _, notes = preprocessor.transform(split)  # mistakes in any split show before the training
            if notes and name != "train" and self.config.process_index == 0:
                print("\n".join(f"{name}: {note}" for note in notes), flush=True)

    def _prepare_images(self) -> None:
        """All splits as pixels with standardised targets, and how they are normalised."""
        image, _ = find_image_columns(self.splits["train"].column_names, self.config.image_column, self.target)
        values = {name: target_values(split, self.target, name) for name, split in self.splits.items()}
        self.scale, self.targets = TargetScale.fit(values["train"]), values
        self.splits = {
            name: ImageDataset(dataset_images(split, image, name), self.scale.standardize(values[name]), [])
            for name, split in self.splits.items()
        }
        self.num_channels = self.splits["train"].num_channels
        self.processing_class = self.load_processing_class()

    def make_model(self, config: CLUEConfig) -> Any:
        return self._make_model(needs_variance_head(config))

    def _make_model(self, variance_head: bool) -> Any:
        if self.is_table:
            return make_tabular_regressor(self.model, self.processing_class, variance_head)
        model = make_regressor(self.model, self.num_channels if self.images else None, variance_head)
        self.scale.store(model.config)
        return model

    def start_name(self, config: CLUEConfig) -> str:
        return f"{super().start_name(config)}{'+variance_head' if needs_variance_head(config) else ''}"

    def labelled(self, data: Any, name: str) -> Labelled:
        if self.images:  # whose labels are standardised
            return Labelled(self.inputs.rows(data), self.targets[name], np.arange(len(data)), self.target)
        return number_rows(data, self.inputs, name)

    def predict(self, trainer: CLUETrainer, labelled: Labelled, name: str) -> Outcome:
        floor = trainer.args.min_variance
        predictor = NumberPredictor(trainer.model, self.inputs, self.passes(trainer), min_variance=floor)
        size, labels = trainer.args.per_device_eval_batch_size, labelled.labels
        predictions = predictor.raw(labelled.rows, size, labels, description=name, distributed=True)
        return {"mean": predictions.mean, "variance": predictions.variance, "labels": labels}

    def measure(self, view: str, outcomes: Callable[[str], Outcome], resamples: int) -> dict[str, Measured]:
        outcome = outcomes(view)
        mean, std, labels = outcome["mean"], np.sqrt(outcome["variance"]), outcome["labels"]
        pit, floor = outcome.get("pit"), self._floor
        return regression_report(mean, std, labels, pit, resamples=resamples, min_variance=floor)

    def predictions(self, outcome: Outcome) -> RegressionPredictions:
        std = np.sqrt(np.maximum(outcome["variance"], self._floor))
        return RegressionPredictions(outcome["mean"], std, outcome["labels"])

    def judged(self, outcome: Outcome) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return {"variance": outcome["variance"]}, -((outcome["labels"] - outcome["mean"]) ** 2)

    @property
    def _floor(self) -> float:
        """The least variance in the units of the target, squared."""
        return self.config.min_variance * self.scale.std**2

    def fit(self, calibrator: str, validation: Outcome) -> Any:
        std = np.sqrt(validation["variance"])
        return QuantileCalibrator.fit(validation["mean"], std, validation["labels"], self._floor)

    def calibrated(self, calibrator: Any, outcome: Outcome) -> Outcome:
        mean, std, labels = outcome["mean"], np.sqrt(outcome["variance"]), outcome["labels"]
        return {
            "mean": calibrator.mean(mean, std),
            "variance": calibrator.std(mean, std) ** 2,
            "labels": labels,
            "pit": calibrator.pit(mean, std, labels, self._floor),
        }

    def ensembled(self, members: list[Outcome]) -> Outcome:
        means, variances = (np.stack([member[name] for member in members]) for name in ("mean", "variance"))
        mean = means.mean(0)
        variance = (variances + means**2).mean(0) - mean**2
        return {"mean": mean, "variance": np.maximum(variance, self._floor), "labels": members[0]["labels"]}

    # ---- a second model that predicts the errors of the first: its prediction is the variance ----

    def make_error_predictor(self) -> Any:
        return self._make_model(variance_head=False)

    def errors(self, outcome: Outcome) -> np.ndarray:
        return (outcome["labels"] - outcome["mean"]) ** 2 / self.scale.std**2

    def with_predicted_errors(
        self, outcome: Outcome, errors: np.ndarray, validation: np.ndarray
    ) -> tuple[Outcome, Any]:
        return {**outcome, "variance": np.maximum(errors, self.config.min_variance) * self.scale.std**2}, {}
