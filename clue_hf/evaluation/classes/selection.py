"""What the page and the figures of a report on a classifier show: curves, bins, and selected examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...metrics.classification import equal_width_bins
from ...pages.selection import curve_limits, kept_quality, quality_bins, rows_in_groups, score_histogram, shown_row


if TYPE_CHECKING:
    from ...predictors.classes import ClassPredictions
    from .report import ClassificationReport

#: Number of bins of the reliability diagram: those of the ECE.
BINS = 15
#: Metrics that are drawn against the severity of a corruption.
SEVERITY_METRICS = ("error", "ece", "mean_uncertainty", "ood_auroc")
#: Groups of examples and their meaning.
GROUPS = {
    "most confident errors": "wrong answers of the highest probability",
    "least certain": "highest uncertainty",
    "most certain": "lowest uncertainty",
    "random": "a uniform sample of all examples",
}


def confident_errors(predicted: ClassPredictions, limit: int) -> np.ndarray:
    """Rows of the wrong answers of the highest probability, the highest first."""
    wrong = np.flatnonzero(~predicted.right)
    return wrong[np.argsort(-predicted.confidence[wrong], kind="stable")][:limit]


def confidence_bins(predicted: ClassPredictions) -> list[dict[str, float]]:
    """Mean confidence and accuracy (`quality`, with its 95 % Wilson interval) in the non-empty bins of the ECE."""

    def interval(share: float, right: np.ndarray) -> tuple[float, float]:
        count = len(right)
        middle = (share + 1.96**2 / (2 * count)) / (1 + 1.96**2 / count)
        half = 1.96 * (share * (1 - share) / count + 1.96**2 / (4 * count**2)) ** 0.5 / (1 + 1.96**2 / count)
        return middle - half, middle + half

    place = equal_width_bins(predicted.confidence, BINS)
    return quality_bins(place, predicted.confidence, predicted.right, interval)


def bin_counts(predicted: ClassPredictions) -> np.ndarray:
    """Number of examples in each bin of the ECE."""
    return np.bincount(equal_width_bins(predicted.confidence, BINS), minlength=BINS)


def kept_accuracy(report: ClassificationReport, points: int = 250) -> dict[str, np.ndarray]:
    """
    Accuracy of the answers kept, by share rejected: `share`, `random`, `oracle` (both of the raw answers), and one
    curve for each kind of predictions.
    """
    ranked = {kind: (predicted.uncertainty, predicted.right.astype(float)) for kind, predicted in report.kinds.items()}
    return kept_quality(report.raw.right.astype(float), ranked, points)


def severity_lines(report: ClassificationReport, metric: str, kind: str = "raw") -> dict[str, list[dict[str, Any]]]:
    """For each corruption, `value`, `low` and `high` of a metric by `severity`; severity 0 is the data itself."""
    clean = {"0": report.metrics} if metric in report.metrics[kind] else {}
    return {
        name: [
            {"severity": int(severity), **{key: metrics[kind][metric].get(key) for key in ("value", "low", "high")}}
            for severity, metrics in {**clean, **by_severity}.items()
        ]
        for name, by_severity in report.metrics.get("corruptions", {}).items()
    }


def choose_rows(predicted: ClassPredictions, limit: int, seed: int = 0) -> dict[int, list[str]]:
    """Rows worth a look, with the [`GROUPS`] they are in; all rows if there are no more than the limit."""
    n, size = len(predicted.labels), max(1, limit // 4)
    certain = np.argsort(predicted.uncertainty, kind="stable")
    groups = {
        "most confident errors": confident_errors(predicted, size),
        "least certain": certain[::-1][: min(size, max(1, n // 10))],
        "most certain": certain[: min(size, max(1, n // 10))],
        "random": np.random.default_rng(seed).permutation(n)[:size],
    }
    return rows_in_groups(groups, n, limit)


def page_data(report: ClassificationReport, limit: int) -> dict[str, Any]:
    """What the script of the page reads."""
    curves, corrupted = kept_accuracy(report), "corruptions" in report.metrics
    return {
        "n": len(report.raw.labels),
        "kinds": [
            {"name": kind, "colour": place} | {name: report.metrics[kind][name]["value"] for name in ("error", "ece")}
            for place, kind in enumerate(report.kinds)
        ],
        "curves": curves,
        "limits": curve_limits(curves),
        "reliability": {
            kind: {"bins": confidence_bins(predicted), "counts": bin_counts(predicted)}
            for kind, predicted in report.kinds.items()
        },
        "histograms": {
            kind: score_histogram(predicted.uncertainty, predicted.right) for kind, predicted in report.kinds.items()
        },
        "severity": {metric: severity_lines(report, metric) for metric in SEVERITY_METRICS if corrupted},
        "groups": GROUPS,
        "examples": [_example(report, row, groups) for row, groups in choose_rows(report.raw, limit).items()],
    }


def _example(report: ClassificationReport, row: int, groups: list[str]) -> dict[str, Any]:
    """An example for the script: the answer, the label and the largest probabilities."""
    raw = report.raw
    top = np.argsort(-raw.probabilities[row], kind="stable")[:5]
    example: dict[str, Any] = {
        "row": row,
        "label": report.names[raw.labels[row]],
        "answer": report.names[raw.answers[row]],
        "right": bool(raw.right[row]),
        "confidence": raw.confidence[row],
        "uncertainty": raw.uncertainty[row],
        "of_label": raw.probabilities[row, raw.labels[row]],
        "top": [[report.names[number], raw.probabilities[row, number]] for number in top],
        "groups": groups,
        **shown_row(report.rows, row),
    }
    if report.calibrated is not None:
        example["calibrated"] = report.calibrated.confidence[row]
        example["calibrated_answer"] = report.names[report.calibrated.answers[row]]
    return example
