"""From (classifier, data) to probabilities, from probabilities to metrics, from metrics to one report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from accelerate.utils import broadcast_object_list

from ...data.corruptions import CORRUPTIONS, SEVERITIES
from ...errors import UserError
from ...functional import check_choice
from ...inputs.class_data import class_names_of
from ...inputs.class_rows import Columns, ImageRows, Rows, make_rows
from ...metrics import best_threshold
from ...posthoc import CALIBRATORS, Calibrator, ErrorPredictor
from ...processes import process_state
from ...tasks import CLASSIFICATION_PASSES, ClassificationTask
from ...versions import package_versions
from ..prediction_evaluator import PredictionEvaluator
from .measures import ClassPredictions, definitions, measure, measure_detection
from .report import ClassificationReport


class ClassificationEvaluator(PredictionEvaluator):
    """
    Tells how often a classifier of images or texts is right, and how well its uncertainty knows when it is not.

    The probabilities are the mean over passes with dropout, if there are any; the uncertainty is their entropy,
    divided by its largest value.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            An image or text classifier, trained with CLUE or not.
        processing_class:
            Its image processor or tokenizer.
        mc_samples (`int`, *optional*):
            Passes with dropout, whose mean counts; 0 for one plain pass. By default 5, or 0 for a model without
            dropout. The masks follow from the seed, and are the same for all rows.
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
            Gives the uncertainty, instead of the entropy.
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

    needs = "image processor or tokenizer"
    calibrators = tuple(CALIBRATORS)
    usual_passes = CLASSIFICATION_PASSES

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
        **columns: Any,
    ) -> None:
        super().__init__(model, processing_class, mc_samples, calibrator, resamples, batch_size, seed, error_predictor)
        self.class_names = class_names
        self.columns = Columns(**columns)
        self.names = class_names_of(model)

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
        Classifies every row of a dataset and judges the answers. Started on several processes, each takes its share;
        the report is the same.

        Args:
            dataset (`datasets.Dataset` or [`~clue_hf.data.image_dataset.ImageDataset`]):
                Images or texts with labels.
            validation (*optional*):
                The same, for what must not be learned from the dataset itself: the threshold tau of the uncertainty,
                and the calibrator.
            corruptions (`Sequence[str]`, *optional*):
                Names in [`~clue_hf.data.corruptions.CORRUPTIONS`]: also judge the answers to the images so corrupted,
                and how well the uncertainty tells them from the original ones.
            severities (`Sequence[int]`, *optional*, defaults to 1 to 5):
                Of each corruption.
            ood (*optional*):
                Examples from out of the distribution, whose labels do not matter: adds how well the uncertainty tells
                them from those of the dataset.
            positive (`str` or `int`, *optional*, defaults to 1):
                With two classes: the positive one, for the metrics after a flip.
            description (`dict`, *optional*):
                What else the report should tell, such as the names of model and data.
        """
        self._check_validation(validation)
        for name in corruptions:
            check_choice("corruption", name, tuple(CORRUPTIONS))
        rows = self._rows(dataset, "evaluation")
        if corruptions and not isinstance(rows, ImageRows):
            raise UserError("Corruptions are for images, but this model classifies texts.")
        predicted = self._predict(rows, "Predicting")
        of_validation = None
        if validation is not None:
            of_validation = self._predict(self._rows(validation, "validation"), "Predicting validation data")
        shifted = {
            (name, severity): self._predict(rows.corrupted(name, severity, self.seed), f"{name} {severity}")
            for name in corruptions
            for severity in severities
            if isinstance(rows, ImageRows)
        }
        outside = None if ood is None else self._predict(self._rows(ood, "ood", labelled=False), "Predicting OOD data")
        number = positive if isinstance(positive, int) else self.names.index(positive)
        judge = _Judge(self.calibrator, of_validation, number, self.resamples)
        metrics = judge.metrics(predicted, shifted, outside) if process_state().is_main_process else None
        [metrics] = broadcast_object_list([metrics])
        told = {**(description or {}), **self._description(number, len(self.names) == 2 and validation is not None)}
        return ClassificationReport(
            self.names,
            predicted,
            judge.calibrated(predicted),
            metrics,
            {**told, "metrics": definitions(metrics)},
            judge.calibrator,
            rows,
        )

    def _rows(self, dataset: Any, split: str, labelled: bool = True) -> Rows:
        known, classes = (self.names, self.class_names) if labelled else (None, None)
        return make_rows(dataset, self.processing_class, known, self.columns, classes, split)

    def _predict(self, rows: Rows, words: str) -> ClassPredictions:
        """The probabilities of all rows, and their uncertainty where a second model gives it."""
        task, second = ClassificationTask(self.model, self.mc_samples), self.error_predictor

        def answer(inputs: dict[str, Any]) -> tuple[np.ndarray, ...]:
            probabilities = task.log_probabilities(self.model, inputs).double().softmax(-1).cpu().numpy()
            return (probabilities,) if second is None else (probabilities, second.uncertainty(inputs))

        probabilities, *own = self._run(rows, words, task, answer)
        bad = np.flatnonzero(~np.isfinite(probabilities).all(axis=1))
        if len(bad):
            raise UserError(
                f"The probabilities of row {bad[0]} (counted from 0) are not finite. Has the training diverged, or "
                "does the model overflow in this precision (use float32)?"
            )
        return ClassPredictions(probabilities, rows.labels, *own)

    def _description(self, positive: int, flips: bool) -> dict[str, Any]:
        """What it takes to read the numbers, or to make them again."""
        return {
            "classes": self.names,
            **({"positive_class": self.names[positive]} if flips else {}),
            "uncertainty": "entropy of the probabilities / ln(number of classes)"
            if self.error_predictor is None
            else "error predicted by a second model, between the bounds of the validation data",
            "interval": f"95 % percentile bootstrap over examples, {self.resamples} resamples, seed 0",
            "settings": self._settings(),
            "versions": package_versions(),
        }


class _Judge:
    """The metrics of predictions, with what validation data teaches: the calibrator and the thresholds."""

    def __init__(
        self, calibrator: str | Calibrator | None, validation: ClassPredictions | None, positive: int, resamples: int
    ) -> None:
        self.positive, self.resamples = positive, resamples
        self.calibrator: Calibrator | None = None
        if not isinstance(calibrator, str):
            self.calibrator = calibrator
        elif validation is not None:
            self.calibrator = CALIBRATORS[calibrator].fit(validation.probabilities, validation.labels)
        known = {} if validation is None else self._kinds(validation)
        self.tau = {kind: best_threshold(found.uncertainty, ~found.right) for kind, found in known.items()}

    def calibrated(self, predicted: ClassPredictions) -> ClassPredictions | None:
        """The same predictions by the calibrator, if there is one."""
        if self.calibrator is None:
            return None
        return replace(predicted, probabilities=self.calibrator(predicted.probabilities))

    def _kinds(self, predicted: ClassPredictions) -> dict[str, ClassPredictions]:
        calibrated = self.calibrated(predicted)
        return {"raw": predicted} | ({} if calibrated is None else {"calibrated": calibrated})

    def metrics(
        self,
        predicted: ClassPredictions,
        shifted: dict[tuple[str, int], ClassPredictions],
        outside: ClassPredictions | None,
    ) -> dict[str, Any]:
        """All that is reported: raw and calibrated, on the data, on each corrupted copy, and against other data."""
        inside = self._kinds(predicted)
        found: dict[str, Any] = {"n": len(predicted.labels), "tau": self.tau, **self._measured(inside)}
        corruptions: dict[str, dict[str, Any]] = {}
        for (name, severity), predictions in shifted.items():
            kinds = self._kinds(predictions)
            measured, detected = self._measured(kinds), self._detected(inside, kinds)
            both = {kind: {**measured[kind], **detected[kind]} for kind in kinds}
            corruptions.setdefault(name, {})[str(severity)] = both
        if corruptions:
            found["corruptions"] = corruptions
        if outside is not None:
            found["ood"] = self._detected(inside, self._kinds(outside))
        return found

    def _measured(self, kinds: dict[str, ClassPredictions]) -> dict[str, Any]:
        return {
            kind: measure(predicted, self.tau.get(kind), self.positive, self.resamples)
            for kind, predicted in kinds.items()
        }

    def _detected(self, inside: dict[str, ClassPredictions], outside: dict[str, ClassPredictions]) -> dict[str, Any]:
        return {kind: measure_detection(inside[kind], outside[kind], self.resamples) for kind in inside}
