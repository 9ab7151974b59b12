"""Experiments with models that predict a class or a number: what follows the training, and what is kept of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..config import CLUEConfig
from ..errors import UserError
from ..models.uncertainty_file import write_uncertainty
from ..posthoc.error_predictor import unscaled
from ..trainer import CLUETrainer
from ..training.collect import predicted_numbers
from .afterwards import ERROR_PREDICTOR, settings_of, train_error_predictor, train_members
from .arguments import RunArguments
from .experiment import Experiment, Outcome


VALIDATION = "validation"
#: A method of a comparison: the baseline's seeds as one model.
ENSEMBLE = "ensemble"


class PredictingExperiment(Experiment):
    """Classifiers and regressors: judged by what they predict, in one pass over each split."""

    @property
    def follows(self) -> Sequence[str]:  # type: ignore[override]
        return (*self.calibrators, ENSEMBLE)

    @abstractmethod
    def datasets(self) -> Iterator[tuple[str, Any]]:
        """What to predict for, by name: the validation data, the splits to report on, and what is made of them."""

    @abstractmethod
    def predict(self, trainer: CLUETrainer, data: Any, name: str) -> Outcome:
        """What a model predicts for prepared data."""

    @abstractmethod
    def fit(self, calibrator: str, validation: Outcome) -> Any:
        """A calibrator, fitted on what a model predicts for the validation data."""

    @abstractmethod
    def calibrated(self, calibrator: Any, outcome: Outcome) -> Outcome:
        """A model's predictions after a calibrator."""

    @abstractmethod
    def make_error_predictor(self) -> Any:
        """A model like the main one with a single output."""

    @abstractmethod
    def with_errors(self, errors: np.ndarray) -> Any:
        """The validation data with (standardised) errors to predict, as a trainer takes it."""

    @abstractmethod
    def errors(self, outcome: Outcome) -> np.ndarray:
        """The error of each prediction, in training units."""

    @abstractmethod
    def with_predicted_errors(
        self, outcome: Outcome, errors: np.ndarray, validation: np.ndarray
    ) -> tuple[Outcome, Any]:
        """
        A model's predictions with the uncertainty that the errors predicted by another one give, with the bounds of
        those predicted for the validation data; and what it takes to do so again.
        """

    def check_settings(self) -> None:
        """Settings that have no meaning here are refused, not ignored."""
        for_texts = {
            "predict_with_generate": self.config.predict_with_generate,
            "eval_uncertainty": self.arguments.eval_uncertainty,
            "quality": self.arguments.quality not in (RunArguments.quality, "none"),
            "use_peft": self.lora.use_peft,
        }
        for name, is_set in for_texts.items():
            if is_set:
                raise UserError(f"{name} is for models that write texts, and this one does not: leave it out.")
        wanted = self.arguments.calibrator
        if wanted is not None and wanted not in self.calibrators:
            raise UserError(
                f"The calibrator {wanted!r} is not for models of this kind, which have {', '.join(self.calibrators)}."
            )
        if (wanted or self.arguments.error_predictor) and VALIDATION not in self.splits:
            raise UserError(
                "calibrator and error_predictor are fitted on validation data: give a split or file, or set "
                "validation_fraction."
            )

    # ---- training ----

    def reports(self, trainer: CLUETrainer, config: CLUEConfig) -> Iterator[tuple[str, str, dict[str, Any]]]:
        folder, name = Path(str(config.output_dir)), config.objective
        if trainer.is_world_process_zero():
            write_uncertainty(folder, **settings_of(trainer))
        if self.arguments.ensemble > 1:
            trainer = train_members(self, trainer, config, self.arguments.ensemble)
            name = f"{name} x {self.arguments.ensemble}"
        found = dict(self.views(trainer))
        yield from self._judged(name, found)
        if self.arguments.calibrator:
            calibrator = self.fit(self.arguments.calibrator, found[VALIDATION])
            if trainer.is_world_process_zero():
                write_uncertainty(folder, calibrator=calibrator.to_dict())
            calibrated = {view: self.calibrated(calibrator, outcome) for view, outcome in found.items()}
            yield from self._judged(f"{name} + {self.arguments.calibrator}", calibrated)
        if self.arguments.error_predictor:
            second, settings = self.predict_errors(found, config, folder / ERROR_PREDICTOR)
            if trainer.is_world_process_zero():
                write_uncertainty(folder, error_predictor={"folder": ERROR_PREDICTOR, **settings})
            yield from self._judged(f"{name} + {self.arguments.error_predictor}", second)

    def _judged(self, name: str, found: dict[str, Outcome]) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for split in self.report_splits:
            metrics = self.measure(split, found.__getitem__, 0)
            yield name, split, {key: None if entry.reason else entry.value for key, entry in metrics.items()}

    def predict_errors(
        self, found: dict[str, Outcome], config: CLUEConfig, folder: Path
    ) -> tuple[dict[str, Outcome], dict[str, Any]]:
        """Trains a predictor of the errors; all predictions with its uncertainty, and what it takes to do so again."""
        trainer = train_error_predictor(self, self.errors(found[VALIDATION]), config, folder)
        predicted = {
            name: unscaled(
                trainer.model.config, predicted_numbers(trainer, self._unlabelled(trainer, data, name)).mean
            )
            for name, data in self.datasets()
        }
        second = {}
        settings: dict[str, Any] = {}
        for name, outcome in found.items():
            second[name], settings = self.with_predicted_errors(outcome, predicted[name], predicted[VALIDATION])
        return second, settings

    @abstractmethod
    def _unlabelled(self, trainer: CLUETrainer, data: Any, name: str) -> Any:
        """Data as the error predictor takes it; its labels do not matter."""

    def tokenized(self, texts: list[str], labels: np.ndarray) -> Dataset:
        """Texts as the model takes them, with numbers to predict."""
        sources = [self.config.source_prefix + text for text in texts]
        encoded = self.processing_class(sources, truncation=True, max_length=self.config.max_source_length)
        return Dataset.from_dict({**encoded, "labels": labels.tolist()})

    # ---- comparisons ----

    def check_comparison(self, arguments: Any) -> None:
        super().check_comparison(arguments)
        if VALIDATION not in self.splits:
            raise UserError("A comparison needs validation data: give a split or file, or set validation_fraction.")

    def views(self, trainer: CLUETrainer) -> Iterator[tuple[str, Outcome]]:
        for view, data in self.datasets():
            yield view, self.predict(trainer, trainer.task.prepare(data, trainer.args, view), view)

    def compared_columns(self, view: str) -> dict[str, dict[str, str]]:
        return {"": self.headings(self.columns)}

    @abstractmethod
    def ensembled(self, members: list[Outcome]) -> Outcome:
        """The predictions of several models as one."""

    def after_training(self, name: str, validation: Outcome) -> Callable[[Outcome], Outcome]:
        """A calibrator, fitted on what a model predicts for the validation data: from predictions to predictions."""
        return partial(self.calibrated, self.fit(name, validation))
