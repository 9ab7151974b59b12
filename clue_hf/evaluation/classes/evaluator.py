"""From (classifier, data) to probabilities, from probabilities to metrics, from metrics to one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers.utils import logging

from ...data.corruptions import CORRUPTIONS, SEVERITIES
from ...errors import UserError
from ...inputs.base import Rows
from ...inputs.image_rows import ImageRows
from ...inputs.labels import Labelled, class_rows
from ...metrics import Measured, best_threshold, bootstrap_interval, classification_report, ood_report
from ...posthoc import CALIBRATORS, Calibrator, ErrorPredictor, PredictionSets
from ...posthoc.conformal import COVERAGE
from ...predictors.classes import ClassPredictions, ClassPredictor
from ...processes import on_main_process
from ...settings import check_choice
from ..prediction_evaluator import PredictionEvaluator, by_kind
from .report import ClassificationReport


logger = logging.get_logger(__name__)


class ClassificationEvaluator(PredictionEvaluator):
    """
    Evaluates a classifier of images or texts: its error and calibration, and how well its uncertainty detects wrong
    answers.

    The probabilities are the mean over the MC-dropout passes, if there are any; the uncertainty is their entropy,
    divided by its largest value.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            An image or text classifier, trained with CLUE or not.
        processing_class:
            Its image processor or tokenizer.
        mc_samples (`int`, *optional*):
            Number of MC-dropout forward passes to average; 0 for one pass without dropout. By default 5, or 0 for a
            model without dropout. The masks follow from the seed, and are the same for all rows.
        calibrator (`str` or [`~clue_hf.posthoc.Calibrator`], *optional*):
            A name in [`~clue_hf.posthoc.CALIBRATORS`]: fitted on the validation data, reported beside the raw numbers.
            Or one that was fitted before.
        resamples (`int`, *optional*, defaults to 2000):
            Bootstrap resamples of the 95 % intervals; 0 for none.
        batch_size (`int`, *optional*, defaults to 64):
            Examples per batch.
        seed (`int`, *optional*, defaults to 42):
            Seed of the masks and of the corruptions.
        error_predictor ([`~clue_hf.posthoc.ErrorPredictor`], *optional*):
            Predicts the uncertainty, which replaces the entropy.
        conformal (`str` or [`~clue_hf.posthoc.PredictionSets`], *optional*):
            Prediction sets, `"lac"` or `"aps"`: fitted on the validation data, on top of the raw and of the calibrated
            predictions. With a calibrator to fit as well, each takes half of the validation data. Or sets that were
            fitted before.
        coverage (`float`, *optional*, defaults to 0.9):
            The coverage of `conformal`.
        class_names (`list[str]`, *optional*):
            The classes of the training data, where its labels are texts that the model's config does not know.
        columns:
            `image_column`, `label_column`, `source_column`, `source_prefix` and `max_source_length`, as in
            [`CLUEConfig`].

    Example:

    ```python
    report = ClassificationEvaluator(model, processor, calibrator="temperature").evaluate(test_data, validation_data)
    print(report.table())
    report.save("report")
    ```
    """

    kind = "classes"
    rows_name = "examples"
    needs = "image processor or tokenizer"
    calibrators = CALIBRATORS

    def __init__(
        self,
        model: Any,
        processing_class: Any,
        mc_samples: int | None = None,
        calibrator: str | Calibrator | None = None,
        resamples: int = 2000,
        batch_size: int = 64,
        seed: int = 42,
        class_names: list[str] | None = None,
        error_predictor: ErrorPredictor | None = None,
        conformal: str | PredictionSets | None = None,
        coverage: float = COVERAGE,
        **columns: Any,
    ) -> None:
        inputs = self._inputs(processing_class, columns)
        predictor = ClassPredictor(model, inputs, mc_samples, error_predictor=error_predictor, seed=seed)
        super().__init__(predictor, calibrator, resamples, batch_size, conformal, coverage)
        self.class_names = class_names

    @property
    def names(self) -> list[str]:
        """The classes of the model."""
        return self.predictor.names

    def evaluate(
        self,
        dataset: Any,
        validation: Any = None,
        corruptions: Sequence[str] = (),
        severities: Sequence[int] = SEVERITIES,
        ood: Any = None,
        positive: str | int = 1,
        description: dict[str, Any] | None = None,
    ) -> ClassificationReport:
        """
        Classifies every row of a dataset and evaluates the answers. Started on several processes, each takes its
        share; the report is the same.

        Args:
            dataset (`datasets.Dataset` or [`~clue_hf.data.image_dataset.ImageDataset`]):
                Images or texts with labels.
            validation (*optional*):
                The same, for what must not be learned from the dataset itself: the threshold tau of the uncertainty,
                and the calibrator.
            corruptions (`Sequence[str]`, *optional*):
                Names in [`~clue_hf.data.corruptions.CORRUPTIONS`]: also evaluate the answers to corrupted images, and
                how well the uncertainty separates these from the original ones.
            severities (`Sequence[int]`, *optional*, defaults to 1 to 5):
                Severities of each corruption.
            ood (*optional*):
                Out-of-distribution examples, whose labels are not used: adds how well the uncertainty separates them
                from those of the dataset.
            positive (`str` or `int`, *optional*, defaults to 1):
                With two classes: the positive class of the metrics after a flip.
            description (`dict`, *optional*):
                More entries of the report's description, such as the names of model and data.
        """
        self._check_validation(validation)
        for name in corruptions:
            check_choice("corruption", name, CORRUPTIONS)
        labelled = self._rows(dataset, "evaluation")
        rows = labelled.rows
        if corruptions and not isinstance(rows, ImageRows):
            raise UserError("Corruptions are for images, but this model classifies texts.")
        predictions = self._predict(rows, labelled.labels, "Predicting")
        calibrator, known, held_out, certify = self.calibrator, None, None, None
        tau: dict[str, float] = {}
        if validation is not None:
            known = self._rows(validation, "validation")
            held_out = self._predict(known.rows, known.labels, "Predicting validation data")
            fit, certify = self._parts(len(known.labels))
            if isinstance(calibrator, str):
                calibrator = self.calibrators[calibrator].fit(held_out.probabilities[fit], known.labels[fit])
            for kind, predicted in by_kind(held_out, calibrator).items():
                tau[kind] = best_threshold(predicted.uncertainty, ~predicted.right)
        shifted = {
            (name, severity): self._predict(
                rows.corrupted(name, severity, self.predictor.task.seed), labelled.labels, f"{name} {severity}"
            )
            for name in corruptions
            for severity in severities
            if isinstance(rows, ImageRows)
        }
        outside = None
        if ood is not None:
            unlabelled = class_rows(ood, self.predictor.inputs, None, None, "ood").rows
            outside = self._predict(unlabelled, None, "Predicting OOD data")
        conformal = self._conformal(calibrator, held_out, known, certify)
        kinds = by_kind(predictions, calibrator, conformal)
        number = positive if isinstance(positive, int) else self.names.index(positive)
        measures = _Measures(calibrator, tau, number, self.resamples)
        metrics = on_main_process(
            lambda: {**measures.metrics(predictions, shifted, outside), **self._measured_conformal(kinds)}
        )
        flips = {"positive_class": self.names[number]} if len(self.names) == 2 and validation is not None else {}
        description = self._description(
            description, metrics, {}, conformal, classes=self.names, **flips, uncertainty=self.predictor.definition
        )
        judged = (kinds["raw"], kinds.get("calibrated"))
        return ClassificationReport(self.names, *judged, metrics, description, calibrator, rows)

    def _rows(self, dataset: Any, split: str) -> Labelled:
        labelled = class_rows(dataset, self.predictor.inputs, self.names, self.class_names, split)
        for note in labelled.rows.notes:
            logger.warning(note)
        return labelled

    def _predict(self, rows: Rows, labels: Any, description: str) -> ClassPredictions:
        return self.predictor.raw(rows, self.batch_size, labels, description=description, distributed=True)


@dataclass
class _Measures:
    """What the metrics depend on besides the predictions: the calibrator and thresholds from the validation data."""

    calibrator: Calibrator | None
    tau: dict[str, float]
    positive: int
    resamples: int

    def metrics(
        self,
        predictions: ClassPredictions,
        shifted: dict[tuple[str, int], ClassPredictions],
        outside: ClassPredictions | None,
    ) -> dict[str, Any]:
        """All that is reported: raw and calibrated, on the data, on each corrupted copy, and against other data."""
        inside = by_kind(predictions, self.calibrator)
        metrics: dict[str, Any] = {"n": len(predictions.labels), "tau": self.tau, **self._measured(inside)}
        for (name, severity), corrupted in shifted.items():
            kinds = by_kind(corrupted, self.calibrator)
            measured, detected = self._measured(kinds), self._detected(inside, kinds)
            both = {kind: {**measured[kind], **detected[kind]} for kind in kinds}
            metrics.setdefault("corruptions", {}).setdefault(name, {})[str(severity)] = both
        if outside is not None:
            metrics["ood"] = self._detected(inside, by_kind(outside, self.calibrator))
        return metrics

    def _measured(self, kinds: dict[str, ClassPredictions]) -> dict[str, Any]:
        return {
            kind: measure(predictions, self.tau.get(kind), self.positive, self.resamples)
            for kind, predictions in kinds.items()
        }

    def _detected(self, inside: dict[str, ClassPredictions], outside: dict[str, ClassPredictions]) -> dict[str, Any]:
        return {
            kind: ood_report(inside[kind].uncertainty, outside[kind].uncertainty, resamples=self.resamples)
            for kind in inside
        }


def measure(predictions: ClassPredictions, tau: float | None, positive: int, resamples: int) -> dict[str, Measured]:
    """Every metric of [`~clue_hf.metrics.classification_report`], and the mean uncertainty."""
    metrics = classification_report(
        predictions.probabilities, predictions.labels, predictions.uncertainty, resamples, tau, positive
    )
    return {**metrics, "mean_uncertainty": bootstrap_interval(np.mean, predictions.uncertainty, resamples=resamples)}
