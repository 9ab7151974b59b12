"""The report about a classifier: its numbers, every prediction, and files that others can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...metrics import paired_classification_differences
from ...metrics.content import ReportContent
from ...posthoc import Calibrator, load_calibrator
from ...predictors.classes import ClassPredictions
from ..prediction_report import CALIBRATOR, PredictionReport, read_predictions
from ..report import Differences
from .page import write_class_page


#: Digits of the probabilities in the file.
DIGITS = 6
#: With more classes than this, the file holds only the probabilities that are not 0 after rounding.
MANY_CLASSES = 100
#: Metrics of the printed table; the others are in the JSON file.
MAIN_METRICS = (
    "error", "ece", "nll", "brier", "alignment_error", "mean_uncertainty", "uncertainty_accuracy",
    "uncertainty_accuracy_val", "uncertainty_auc", "residual_correlation", "wasserstein", "prr", "aurc", "flip_error",
    "flip_f1", "flip_precision", "flip_tpr", "flip_tnr",
)  # fmt: skip
#: Metrics of each corruption, and of the detection of out-of-distribution data.
SHIFTED = ("error", "ece", "mean_uncertainty", "uncertainty_auc", "ood_auroc")
DETECTION = ("ood_auroc", "ood_aupr", "ood_fpr95")


@dataclass
class ClassificationReport(PredictionReport[ClassPredictions]):
    """
    What [`ClassificationEvaluator`] found.

    Args:
        names (`list[str]`):
            The classes.
        raw ([`ClassPredictions`]):
            Probabilities and labels, one row per example.
        calibrated ([`ClassPredictions`], *optional*):
            The same by the calibrator.
        metrics (`dict`):
            `raw` and `calibrated`: every metric with value, interval and n; `tau`; `corruptions` by name and severity;
            `ood`. An undefined metric is `None` with a reason.
        description (`dict`):
            Definitions, settings and versions.
        calibrator ([`~clue_hf.posthoc.Calibrator`], *optional*):
            Fitted on the validation data.
        rows (*optional*):
            The images or texts, for those to look at.
    """

    kind: ClassVar = "classes"
    main_metrics: ClassVar = MAIN_METRICS
    shifted_metrics: ClassVar = SHIFTED
    detection_metrics: ClassVar = DETECTION

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
        return self._metric_table(("corruption", "severity"), self.corruptions(), SHIFTED)

    def summary(self) -> str:
        """The report in words and tables, as markdown."""
        description, n = self.description, self.metrics["n"]
        lines = [
            "# Uncertainty report",
            f"{self._subject()}{n:,} examples of {len(self.names)} classes. Probabilities from {self._passes()}.",
            self.table(),
            f"Uncertainty: {description['uncertainty']}. Intervals: {description['interval']}. error, ECE, NLL, "
            "Brier, alignment error and AURC: lower is better. uA, uAUC, corr, W1 and PRR tell how well the "
            "uncertainty knows the wrong answers: higher is better.",
            *self._remarks(),
        ]
        if "corruptions" in self.metrics:
            lines += ["## Corrupted images", self.corruption_table()]
            lines += ["OOD AUROC: the chance that a corrupted image is more uncertain than an original one."]
        if "ood" in self.metrics:
            lines += ["## Other data", self._detection()]
        return "\n\n".join(lines) + "\n"

    def _remarks(self) -> list[str]:
        remarks = []
        if self.calibrator is not None:
            remarks.append(f"Calibrated: {self.calibrator.name}, fitted on the validation data.")
        if self.metrics["tau"]:
            thresholds = ", ".join(f"{tau:.4f} ({kind})" for kind, tau in self.metrics["tau"].items())
            remarks.append(f"Threshold tau of the uncertainty, from the validation data: {thresholds}.")
        return remarks

    def _detection(self) -> str:
        table = self._metric_table(("uncertainty",), self.metrics["ood"], DETECTION)
        return f"How well the uncertainty tells the examples from out of the distribution (the positives):\n\n{table}"

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

    def _lines(self) -> Iterator[dict[str, Any]]:
        texts = getattr(self.rows, "texts", None)
        for row, label in enumerate(self.raw.labels.tolist()):
            line: dict[str, Any] = {"row": row, "label": label, "label_name": self.names[label]}
            line.update(self._line(self.raw, row))
            if self.calibrated is not None:
                line["calibrated"] = self._line(self.calibrated, row)
            yield line if texts is None else {**line, "text": texts[row]}

    def _line(self, predicted: ClassPredictions, row: int) -> dict[str, Any]:
        rounded: Any = predicted.probabilities[row].round(DIGITS).tolist()
        if len(rounded) > MANY_CLASSES:
            rounded = {str(number): value for number, value in enumerate(rounded) if value}
        return {
            "prediction": int(predicted.answers[row]),
            "prediction_name": self.names[predicted.answers[row]],
            "probabilities": rounded,
            "uncertainty": round(float(predicted.uncertainty[row]), DIGITS),
            "confidence": round(float(predicted.confidence[row]), DIGITS),
            "right": bool(predicted.right[row]),
        }

    def _write_page(self, path: Path, comparison: Differences | None, other: str) -> None:
        write_class_page(self, path, comparison, other)

    def _plotter(self) -> Callable[[ClassificationReport, Path], list[Path]]:
        from .plots import plot_class_report

        return plot_class_report

    @classmethod
    def load(cls, folder: str | Path) -> ClassificationReport:
        """Reads what `save` wrote; the probabilities are rounded, and the images are not there."""
        folder = Path(folder)
        content = ReportContent.read(folder)
        metrics, description = content.metrics, content.description
        lines, names = read_predictions(folder), description["classes"]
        calibrator = load_calibrator(folder / CALIBRATOR) if (folder / CALIBRATOR).exists() else None
        labels = np.array([line["label"] for line in lines])
        own_uncertainty = description.get("settings", {}).get("error_predictor") is not None

        def predictions(lines: list[dict[str, Any]]) -> ClassPredictions:
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
            calibrator,
        )


def _dense(probabilities: Any, num_classes: int) -> np.ndarray:
    """Probabilities as the file holds them, all or only those that are not 0."""
    if isinstance(probabilities, list):
        return np.array(probabilities)
    dense = np.zeros(num_classes)
    for number, value in probabilities.items():
        dense[int(number)] = value
    return dense
