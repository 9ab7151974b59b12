"""From (classifier, data) to probabilities, from probabilities to metrics, from metrics to one report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers.utils import logging

from ...data.corruptions import CORRUPTIONS, SEVERITIES
from ...errors import UserError
from ...functional import check_choice
from ...inputs.base import Rows
from ...inputs.image_rows import ImageRows
from ...inputs.labels import Labelled, class_rows
from ...metrics import best_threshold, interval_description
from ...posthoc import CALIBRATORS, Calibrator, ErrorPredictor
from ...predictors.classes import ClassPredictions, ClassPredictor
from ...processes import process_state
from ...versions import package_versions
from ..prediction_evaluator import PredictionEvaluator
from .measures import definitions, measure, measure_detection
from .report import ClassificationReport


logger = logging.get_logger(__name__)


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
        inputs = self._inputs(processing_class, columns)
        predictor = ClassPredictor(model, inputs, mc_samples, error_predictor=error_predictor, seed=seed)
        super().__init__(predictor, calibrator, resamples, batch_size)
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
        labelled = self._rows(dataset, "evaluation")
        rows = labelled.rows
        if corruptions and not isinstance(rows, ImageRows):
            raise UserError("Corruptions are for images, but this model classifies texts.")
        predictions = self._predict(rows, labelled.labels, "Predicting")
        held_out = None
        if validation is not None:
            known = self._rows(validation, "validation")
            held_out = self._predict(known.rows, known.labels, "Predicting validation data")
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
        number = positive if isinstance(positive, int) else self.names.index(positive)
        judge = _Judge(self.calibrator, held_out, number, self.resamples)
        metrics = judge.metrics(predictions, shifted, outside) if process_state().is_main_process else None
        [metrics] = broadcast_object_list([metrics])
        flips = len(self.names) == 2 and validation is not None
        return ClassificationReport(
            self.names,
            predictions,
            judge.calibrated(predictions),
            metrics,
            {**(description or {}), **self._description(number, flips), "metrics": definitions(metrics)},
            judge.calibrator,
            rows,
        )

    def _rows(self, dataset: Any, split: str) -> Labelled:
        labelled = class_rows(dataset, self.predictor.inputs, self.names, self.class_names, split)
        for note in labelled.rows.notes:
            logger.warning(note)
        return labelled

    def _predict(self, rows: Rows, labels: Any, description: str) -> ClassPredictions:
        return self.predictor.raw(rows, self.batch_size, labels, description=description, distributed=True)

    def _description(self, positive: int, flips: bool) -> dict[str, Any]:
        """What it takes to read the numbers, or to make them again."""
        return {
            "classes": self.names,
            **({"positive_class": self.names[positive]} if flips else {}),
            "uncertainty": self.predictor.definition,
            "interval": interval_description(self.resamples, "examples"),
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
        return predicted.calibrated(self.calibrator)

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
