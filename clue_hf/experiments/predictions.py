"""Experiments with models that predict a class or a number: what follows the training, and what is kept of it."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import set_seed

from ..config import CLUEConfig
from ..data.targets import TargetScale
from ..errors import UserError
from ..inputs.base import Inputs
from ..inputs.images import make_transform
from ..inputs.labels import Labelled
from ..metrics import CONFORMAL_METRICS, Measured
from ..metrics.conformal import ALL
from ..models.arguments import VISION
from ..models.ensemble import Ensemble
from ..models.loading import load_image_processor, load_tokenizer
from ..models.uncertainty_file import write_uncertainty
from ..posthoc import ErrorPredictor
from ..posthoc.conformal import COVERAGE
from ..posthoc.error_predictor import halves
from ..posthoc.rules import check_posthoc
from ..predictors.base import predict_rows
from ..predictors.classes import ClassPredictions
from ..predictors.numbers import RegressionPredictions
from ..tasks.passes import PassTask
from ..trainer import CLUETrainer
from .arguments import RunArguments
from .experiment import VALIDATION, Experiment, Outcome


#: Folders inside that of a model.
MEMBERS, ERROR_PREDICTOR = "members", "error_predictor"


class PredictingExperiment(Experiment):
    """Classifiers and regressors: judged by what they predict, in one pass over each split."""

    #: Reads the rows of the splits, as it does in use.
    inputs: Inputs
    #: A comparison's method of conformal prediction, and its coverage.
    conformal: str | None = None
    coverage: float = COVERAGE

    def datasets(self) -> Iterator[tuple[str, Any]]:
        """What to predict for, by name: the validation data, the splits to report on, and what is made of them."""
        for split in dict.fromkeys((VALIDATION, *self.report_splits)):
            if split in self.splits:
                yield split, self.splits[split]

    def load_processing_class(self) -> Any:
        """The tokenizer or image processor: of the model, or one fitted to the training images."""
        if not self.images:
            return load_tokenizer(str(self.model.tokenizer_name or self.model.model_name_or_path))
        if self.model.model_type == VISION:
            return make_transform(self.splits["train"], self.config.image_size).processor()
        return load_image_processor(str(self.model.model_name_or_path))

    @staticmethod
    def passes(trainer: CLUETrainer) -> int:
        """Number of MC-dropout forward passes of a training, and so of its report."""
        task = trainer.task
        assert isinstance(task, PassTask)
        return task.mc_samples

    @abstractmethod
    def labelled(self, data: Any, name: str) -> Labelled:
        """The rows of a dataset with their labels."""

    @abstractmethod
    def predict(self, trainer: CLUETrainer, labelled: Labelled, name: str) -> Outcome:
        """What a model predicts."""

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
        arguments = self.arguments
        check_posthoc(
            self.family,
            arguments.calibrator,
            arguments.error_predictor,
            arguments.ensemble,
            VALIDATION in self.splits,
            arguments.token_calibrator,
        )

    # ---- training ----

    def reports(self, trainer: CLUETrainer, config: CLUEConfig) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """The model itself, then with its error predictor, then with its calibrator: each on top of the one before."""
        folder, name, arguments = Path(str(config.output_dir)), config.objective, self.arguments
        if arguments.ensemble > 1:
            self._train_members(trainer, config)
            name = f"{name} x {arguments.ensemble}"
        outcomes = dict(self.views(trainer))
        yield from self._judged(name, outcomes)
        held_out = outcomes[VALIDATION] if arguments.calibrator else {}
        stored: dict[str, Any] = {}
        if arguments.error_predictor:
            # a calibrator of numbers is fitted to the predicted variance, on rows that did not fit its predictor
            both = bool(arguments.calibrator) and self.family == "numbers"
            count = len(outcomes[VALIDATION]["labels"])
            chosen, rest = halves(count) if both else (np.arange(count), np.arange(count))
            outcomes, settings = self.predict_errors(outcomes, config, folder / ERROR_PREDICTOR, chosen)
            held_out = {name: values[rest] for name, values in outcomes[VALIDATION].items()}
            stored["error_predictor"] = {"folder": ERROR_PREDICTOR, **settings}
            stored["calibrated_variance"] = "predicted" if both else None
            name = f"{name} + {arguments.error_predictor}"
            yield from self._judged(name, outcomes)
        if arguments.calibrator:
            calibrator = self.fit(arguments.calibrator, held_out)
            stored["calibrator"] = calibrator.to_dict()
            outcomes = {view: self.calibrated(calibrator, outcome) for view, outcome in outcomes.items()}
            yield from self._judged(f"{name} + {arguments.calibrator}", outcomes)
        if trainer.is_world_process_zero() and stored:
            write_uncertainty(folder, **stored)

    def _judged(self, name: str, outcomes: dict[str, Outcome]) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for split in self.report_splits:
            metrics = self.measure(split, outcomes.__getitem__, 0)
            yield name, split, {key: None if entry.reason else entry.value for key, entry in metrics.items()}

    def predict_errors(
        self, outcomes: dict[str, Outcome], config: CLUEConfig, folder: Path, chosen: np.ndarray | None = None
    ) -> tuple[dict[str, Outcome], dict[str, Any]]:
        """Trains a predictor of the errors; all predictions with its uncertainty, and what it takes to do so again."""
        views = {name: self.labelled(data, name).rows for name, data in self.datasets()}
        errors = self.errors(outcomes[VALIDATION])
        chosen = np.arange(len(errors)) if chosen is None else chosen
        second = ErrorPredictor(self._train_error_predictor(views[VALIDATION], errors, chosen, config, folder))
        size = config.per_device_eval_batch_size

        def batch_errors(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
            return (second.errors(inputs),)

        predicted = {
            name: predict_rows(second.model, rows, size, batch_errors, distributed=True)[0]
            for name, rows in views.items()
        }
        bounds = predicted[VALIDATION][chosen]
        with_errors, settings = {}, {}  # type: ignore[var-annotated]
        for name, outcome in outcomes.items():
            with_errors[name], settings = self.with_predicted_errors(outcome, predicted[name], bounds)
        return with_errors, settings

    def _train_members(self, first: CLUETrainer, config: CLUEConfig) -> None:
        """Trains the other members of an ensemble, saved inside the folder of the first, whose trainer gets them."""
        members, folders = [first.model], []
        for number in range(1, self.arguments.ensemble):
            own = copy.copy(config)
            own.seed, own.push_to_hub, folder = config.seed + number, False, f"{MEMBERS}/{number}"
            own.output_dir = str(Path(str(config.output_dir)) / folder)
            members.append(self.train(own)[0].model)
            folders.append(folder)
        if first.is_world_process_zero():
            write_uncertainty(str(config.output_dir), members=folders)
        first.model = first.model_wrapped = Ensemble(members)

    def _train_error_predictor(
        self, rows: Any, errors: np.ndarray, chosen: np.ndarray, config: CLUEConfig, folder: Path
    ) -> Any:
        """
        Regresses (squared error) a model like the main one on the main one's errors on chosen validation rows, as long
        as the main one was trained. Its config keeps the scale of the errors.
        """
        own = copy.copy(config)
        own.task, own.objective, own.label_smoothing_factor = "regression", "mse", 0.0
        own.plain_steps, own.plain_epochs, own.mc_samples, own.plain_mc_samples = 0, 0, 0, 0
        own.eval_strategy, own.save_strategy, own.load_best_model_at_end = "no", "no", False  # type: ignore[assignment]
        own.output_dir, own.resume_from_checkpoint, own.push_to_hub = str(folder), None, False
        set_seed(own.seed)
        model = self.make_error_predictor()
        scale = TargetScale.fit(errors[chosen])
        scale.store(model.config)
        data = rows.labelled(scale.standardize(errors[chosen]), chosen)
        trainer = CLUETrainer(model, own, train_dataset=data, processing_class=self.processing_class)
        if trainer.is_world_process_zero():
            print(f"\nerror predictor: {len(data):,} validation rows", flush=True)
        trainer.train()
        trainer.save_model()
        return trainer.model

    # ---- comparisons ----

    def check_comparison(self, arguments: Any) -> None:
        super().check_comparison(arguments)
        if VALIDATION not in self.splits:
            raise UserError("A comparison needs validation data: give a split or file, or set validation_fraction.")
        self.conformal, self.coverage = arguments.conformal, arguments.chosen_coverage

    def views(self, trainer: CLUETrainer) -> Iterator[tuple[str, Outcome]]:
        for view, data in self.datasets():
            yield view, self.predict(trainer, self.labelled(data, view), f"Predicting {view}")

    def compared_columns(self, view: str) -> dict[str, dict[str, str]]:
        return {"": self.headings([*self.columns, *self.conformal_columns])}

    @property
    def conformal_columns(self) -> Sequence[str]:
        """Coverage and size of prediction sets or intervals, if they are asked for."""
        return CONFORMAL_METRICS[self.family][:2] if self.conformal else ()

    @abstractmethod
    def predictions(self, outcome: Outcome) -> ClassPredictions | RegressionPredictions:
        """The predictions that an outcome holds."""

    def fitting_rows(self, validation: Outcome) -> Outcome:
        """The validation rows that calibrators are fitted on: all, or the half that certifies no prediction sets."""
        if self.conformal is None:
            return validation
        rows, _ = halves(len(validation["labels"]))
        return {name: values[rows] for name, values in validation.items()}

    def measure_conformal(
        self, view: str, outcomes: Callable[[str], Outcome], resamples: int, predicts_errors: bool
    ) -> dict[str, Measured]:
        """
        Coverage and size of the prediction sets or intervals, fitted on the validation rows that no calibrator was
        fitted on; undefined for a variance that was fitted on all of them.
        """
        outcome = outcomes(view)
        if predicts_errors and self.family == "numbers":
            reason, nothing = "its variance was fitted on all validation rows", np.full(resamples, np.nan)
            none = Measured.from_resamples(np.nan, nothing, len(outcome["labels"]), reason)
            return dict.fromkeys(self.conformal_columns, none)
        validation = outcomes(VALIDATION)
        known, labels = self.predictions(validation), validation["labels"]
        fitted = known.fit_conformal(str(self.conformal), labels, self.coverage, halves(len(labels))[1])
        report = replace(self.predictions(outcome), conformal=fitted).conformal_report(resamples)  # type: ignore[arg-type]
        return {name: report[ALL][name] for name in self.conformal_columns}

    @abstractmethod
    def ensembled(self, members: list[Outcome]) -> Outcome:
        """The predictions of several models as one."""
