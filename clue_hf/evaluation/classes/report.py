"""The report about a classifier: its numbers, every prediction, and files that others can read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...metrics import paired_classification_differences
from ...metrics.content import ReportContent
from ...posthoc import Calibrator, load_calibrator
from ...predictors.classes import ClassPredictions
from ..answering import answering
from ..prediction_report import Line, PredictionReport
from ..report import Differences
from .selection import page_data


#: Digits of the probabilities in the file.
DIGITS = 6
#: With more classes than this, the file holds only the probabilities that are not 0 after rounding.
MANY_CLASSES = 100


@dataclass
class ClassificationReport(PredictionReport[ClassPredictions]):
    """
    The result of [`ClassificationEvaluator`].

    Args:
        names (`list[str]`):
            The classes.
        raw ([`ClassPredictions`]):
            Probabilities and labels, one row per example.
        calibrated ([`ClassPredictions`], *optional*):
            The same after the calibrator.
        metrics (`dict`):
            `raw` and `calibrated`: every metric with value, interval and n; `tau`; `corruptions` by name and severity;
            `ood`; `conformal` by kind and size of the set. An undefined metric is `None` with a reason.
        description (`dict`):
            Definitions, settings and versions.
        calibrator ([`~clue_hf.posthoc.Calibrator`], *optional*):
            Fitted on the validation data.
        rows (*optional*):
            The images or texts, shown on the page.
    """

    kind: ClassVar = "classes"
    main_metrics: ClassVar = (
        "error", "ece", "nll", "brier", "alignment_error", "mean_uncertainty", "uncertainty_accuracy",
        "uncertainty_accuracy_val", "uncertainty_auc", "residual_correlation", "wasserstein", "prr", "aurc",
        "flip_error", "flip_f1", "flip_precision", "flip_tpr", "flip_tnr",
    )  # fmt: skip
    tile_metrics: ClassVar = ("error", "ece", "uncertainty_auc", "prr")
    calibration_metric: ClassVar = "ece"
    #: Metrics of each corruption, and of the detection of out-of-distribution data.
    shifted_metrics: ClassVar = ("error", "ece", "mean_uncertainty", "uncertainty_auc", "ood_auroc")
    detection_metrics: ClassVar = ("ood_auroc", "ood_aupr", "ood_fpr95")
    reading: ClassVar = (
        "error, ECE, NLL, Brier, alignment error and AURC: lower is better. uA, uAUC, corr, W1 and PRR measure "
        "how well the uncertainty detects wrong answers: higher is better."
    )
    conformal_title: ClassVar = "Prediction sets"
    conformal_groups: ClassVar = "classes in the set"

    names: list[str]
    raw: ClassPredictions
    calibrated: ClassPredictions | None
    metrics: dict[str, Any]
    description: dict[str, Any]
    calibrator: Calibrator | None = None
    rows: Any = None

    def corruptions(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The metrics of each corruption and severity; severity 0 is the data itself."""
        copies = self.metrics.get("corruptions", {})
        return ({("none", "0"): self.metrics["raw"]} if copies else {}) | {
            (corruption, severity): kinds["raw"]
            for corruption, by_severity in copies.items()
            for severity, kinds in by_severity.items()
        }

    def corruption_table(self) -> str:
        """The corrupted copies as a markdown table."""
        return self._metric_table(("corruption", "severity"), self.corruptions(), self.shifted_metrics)

    def _opening(self) -> str:
        n, classes = self.metrics["n"], len(self.names)
        return f"{n:,} examples of {classes} classes. Probabilities from {self._passes()}."

    def _paragraphs(self) -> Iterator[str]:
        yield from super()._paragraphs()
        if "corruptions" in self.metrics:
            yield "## Corrupted images"
            yield self.corruption_table()
            yield "OOD AUROC: the chance that a corrupted image is more uncertain than an original one."
        if "ood" in self.metrics:
            yield "## Other data"
            yield "How well the uncertainty separates out-of-distribution examples (the positives) from the others:"
            yield self._metric_table(("uncertainty",), self.metrics["ood"], self.detection_metrics)

    def _notes(self) -> list[str]:
        thresholds = ", ".join(f"{tau:.4f} ({kind})" for kind, tau in self.metrics["tau"].items())
        return [f"Threshold tau of the uncertainty, from the validation data: {thresholds}."] if thresholds else []

    def compare(self, other: ClassificationReport, resamples: int = 2000) -> Differences:
        """
        This report minus another on the same rows: for `raw`, and `calibrated` where both are, the difference of every
        metric with interval and p-value (paired bootstrap). Classes of the same names may stand in another order;
        with other names they are the same by their number.
        """
        if len(self.names) != len(other.names):
            raise ValueError(f"The reports are about different classes: {len(self.names)} and {len(other.names)}.")
        order = list(range(len(self.names)))
        if sorted(self.names) == sorted(other.names):
            order = [other.names.index(name) for name in self.names]
        place = np.argsort(order)
        if not np.array_equal(self.raw.labels, place[other.raw.labels]):
            raise ValueError("The reports are about different data: their labels differ.")
        positive = self.description.get("positive_class")
        return {
            kind: paired_classification_differences(
                mine.probabilities,
                np.ascontiguousarray(other.kinds[kind].probabilities[:, order]),
                mine.labels,
                mine.uncertainty,
                other.kinds[kind].uncertainty,
                tau_a=self.metrics["tau"].get(kind),
                tau_b=other.metrics["tau"].get(kind),
                positive=1 if positive is None else self.names.index(positive),
                resamples=resamples,
            )
            for kind, mine in self.kinds.items()
            if kind in other.kinds
        }

    def _page_content(self, limit: int) -> dict[str, Any]:
        first = (f"{self.metrics['n']:,}", "examples", f"{len(self.names):,} classes")
        known = self.raw if self.calibrated is None else self.calibrated
        advice = answering(known.uncertainty, known.right, "uncertainty", noun="answers", measure="accuracy")
        content = {"tiles": self.tiles(first), "summary": self.sentences(), "data": page_data(self, limit)}
        return {**content, "advice": advice}

    def sentences(self) -> list[str]:
        raw, metrics, n = self.raw, self.metrics["raw"], self.metrics["n"]
        wrong, confidence = int((~raw.right).sum()), float(raw.confidence.mean())
        gap = confidence - float(raw.right.mean())
        side = "overconfident" if gap > 0 else "underconfident"
        sentences = [
            f"{wrong:,} of {n:,} answers {'is' if wrong == 1 else 'are'} wrong. The mean probability of the answers "
            f"is {confidence:.3f}: on average the model is {side} by {abs(gap):.3f}."
        ]
        area = metrics["uncertainty_auc"]["value"]
        if area is not None:
            sentences.append(
                f"In {100 * area:.0f} % of all pairs of a wrong and a right answer the wrong one is more uncertain."
            )
        sentences += self.calibration_sentence()
        flip = metrics.get("flip_error")
        if flip and flip["value"] is not None:
            sentences.append(
                f"Predicting the other class where the uncertainty is above {self.metrics['tau']['raw']:.3f} (from "
                f"the validation data) changes the error from {metrics['error']['value']:.3f} to {flip['value']:.3f}."
            )
        return sentences

    def _labels(self) -> Iterator[Line]:
        for row, label in enumerate(self.raw.labels.tolist()):
            yield {"row": row, "label": label, "label_name": self.names[label]}

    def _predicted(self, predictions: ClassPredictions) -> Iterator[Line]:
        sets = None if predictions.conformal is None else predictions.prediction_sets()
        for row, answer in enumerate(predictions.answers.tolist()):
            probabilities: Any = predictions.probabilities[row].round(DIGITS).tolist()
            if len(probabilities) > MANY_CLASSES:
                probabilities = {str(number): value for number, value in enumerate(probabilities) if value}
            yield {
                "prediction": answer,
                "prediction_name": self.names[answer],
                "probabilities": probabilities,
                "uncertainty": round(float(predictions.uncertainty[row]), DIGITS),
                "confidence": round(float(predictions.confidence[row]), DIGITS),
                "right": bool(predictions.right[row]),
                **({} if sets is None else {"prediction_set": [self.names[number] for number in sets[row]]}),
            }

    @classmethod
    def _read(cls, content: ReportContent, lines: list[Line], calibrator: Path | None) -> ClassificationReport:
        metrics, description = content.metrics, content.description
        names = description["classes"]
        labels = np.array([line["label"] for line in lines])
        own_uncertainty = description.get("settings", {}).get("error_predictor") is not None

        def predictions(lines: list[Line]) -> ClassPredictions:
            probabilities = np.array([_dense(line["probabilities"], len(names)) for line in lines])
            uncertainty = np.array([line["uncertainty"] for line in lines]) if own_uncertainty else None
            return ClassPredictions(probabilities, labels, uncertainty)

        calibrated = [line["calibrated"] for line in lines if "calibrated" in line]
        return cls(
            names,
            predictions(lines),
            predictions(calibrated) if calibrated else None,
            metrics,
            description,
            None if calibrator is None else load_calibrator(calibrator),
        )


def _dense(probabilities: Any, num_classes: int) -> np.ndarray:
    """Probabilities as the file holds them, all or only those that are not 0."""
    if isinstance(probabilities, list):
        return np.array(probabilities)
    dense = np.zeros(num_classes)
    for number, value in probabilities.items():
        dense[int(number)] = value
    return dense
