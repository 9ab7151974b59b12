"""What of a report about a classifier is shown: points of curves, bars, and its most telling examples."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from ...metrics import rejection_curve
from ...metrics.classification import equal_width_bins
from ...predictors.classes import ClassPredictions
from ..text.selection import curve_limits, score_histogram
from .report import ClassificationReport


#: Bins of the reliability diagram: those of the ECE.
BINS = 15
#: Longest side of the images on a page, in pixels.
THUMBNAIL = 128
#: Groups of examples, each with what it holds.
GROUPS = {
    "most wrongly sure": "wrong answers of the highest probability",
    "least certain": "highest uncertainty",
    "most certain": "lowest uncertainty",
    "random": "a uniform sample of all examples",
}


def wrongly_sure(predicted: ClassPredictions, limit: int) -> np.ndarray:
    """Rows of the wrong answers of the highest probability, the highest first."""
    wrong = np.flatnonzero(~predicted.right)
    return wrong[np.argsort(-predicted.confidence[wrong], kind="stable")][:limit]


def confidence_bins(predicted: ClassPredictions) -> list[dict[str, float]]:
    """
    Mean confidence (`confidence`) and share of right answers (`quality`, with its 95 % Wilson interval) in the bins of
    the ECE that hold any examples.
    """
    place = equal_width_bins(predicted.confidence, BINS)
    found = []
    for number in np.unique(place):
        inside = place == number
        count, share = int(inside.sum()), float(predicted.right[inside].mean())
        middle = (share + 1.96**2 / (2 * count)) / (1 + 1.96**2 / count)
        half = 1.96 * (share * (1 - share) / count + 1.96**2 / (4 * count**2)) ** 0.5 / (1 + 1.96**2 / count)
        found.append(
            {
                "bin": int(number),
                "confidence": float(predicted.confidence[inside].mean()),
                "quality": share,
                "low": max(0.0, middle - half),
                "high": min(1.0, middle + half),
                "count": count,
            }
        )
    return found


def bin_counts(predicted: ClassPredictions) -> list[int]:
    """How many examples each bin of the ECE holds."""
    return np.bincount(equal_width_bins(predicted.confidence, BINS), minlength=BINS).tolist()


def kept_accuracy(report: ClassificationReport, points: int = 250) -> dict[str, np.ndarray]:
    """
    Share of right answers among those kept, at some shares rejected: `share`, `random`, `oracle` (both of the raw
    answers), and one for each kind of predictions.
    """
    right, n = report.raw.right.astype(float), len(report.raw.labels)
    at = np.unique(np.linspace(0, n - 1, min(n, points)).round().astype(int))
    curves = {
        "share": at / n,
        "random": np.full(len(at), right.mean()),
        "oracle": rejection_curve(-right, right)[at],
    }
    for kind, predicted in report.kinds.items():
        curves[kind] = rejection_curve(predicted.uncertainty, predicted.right.astype(float))[at]
    return curves


def severity_lines(report: ClassificationReport, metric: str, kind: str = "raw") -> dict[str, list[Any]]:
    """Of each corruption: severity and entry of a metric, severity 0 being the data itself."""
    clean = [(0, report.metrics[kind][metric])] if metric in report.metrics[kind] else []
    return {
        name: clean + [(int(severity), found[kind][metric]) for severity, found in by_severity.items()]
        for name, by_severity in report.metrics.get("corruptions", {}).items()
    }


def data_uri(pixels: np.ndarray) -> str:
    """An image as a PNG inside its own address; larger ones are made smaller."""
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    file = BytesIO()
    picture.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def choose_rows(predicted: ClassPredictions, limit: int, seed: int = 0) -> dict[int, list[str]]:
    """Rows worth a look, with the [`GROUPS`] they are in; all rows where there are no more than the limit."""
    n, size = len(predicted.labels), max(1, limit // 4)
    certain = np.argsort(predicted.uncertainty, kind="stable")
    groups = {
        "most wrongly sure": wrongly_sure(predicted, size),
        "least certain": certain[::-1][: min(size, max(1, n // 10))],
        "most certain": certain[: min(size, max(1, n // 10))],
        "random": np.random.default_rng(seed).permutation(n)[:size],
    }
    chosen: dict[int, list[str]] = {row: [] for row in range(n if n <= limit else 0)}
    for group, rows in groups.items():
        for row in rows.tolist():
            chosen.setdefault(row, []).append(group)
    return dict(sorted(chosen.items()))


def class_page_data(report: ClassificationReport, limit: int) -> dict[str, Any]:
    """What the script of the page draws, as plain lists and dicts."""
    curves = kept_accuracy(report)
    shown = ("error", "ece")
    return {
        "n": len(report.raw.labels),
        "kinds": [
            {"name": kind, "colour": place} | {name: report.metrics[kind][name]["value"] for name in shown}
            for place, kind in enumerate(report.kinds)
        ],
        "curves": {name: _shorts(curve) for name, curve in curves.items()},
        "limits": curve_limits(curves),
        "reliability": {
            kind: {"bins": confidence_bins(predicted), "counts": bin_counts(predicted)}
            for kind, predicted in report.kinds.items()
        },
        "histograms": {
            kind: {key: _shorts(part) for key, part in score_histogram(found.uncertainty, found.right).items()}
            for kind, found in report.kinds.items()
        },
        "severity": {
            metric: {
                name: [{"severity": severity, **_ends(entry)} for severity, entry in points]
                for name, points in severity_lines(report, metric).items()
            }
            for metric in ("error", "ece", "mean_uncertainty", "ood_auroc")
        }
        if "corruptions" in report.metrics
        else {},
        "groups": GROUPS,
        "examples": [_example(report, row, groups) for row, groups in choose_rows(report.raw, limit).items()],
    }


def _ends(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: entry.get(key) for key in ("value", "low", "high")}


def _example(report: ClassificationReport, row: int, groups: list[str]) -> dict[str, Any]:
    """An example as the script wants it: the answer, the label and the largest probabilities."""
    raw = report.raw
    top = np.argsort(-raw.probabilities[row], kind="stable")[:5]
    found: dict[str, Any] = {
        "row": row,
        "label": report.names[raw.labels[row]],
        "answer": report.names[raw.answers[row]],
        "right": bool(raw.right[row]),
        "confidence": _short(raw.confidence[row]),
        "uncertainty": _short(raw.uncertainty[row]),
        "of_label": _short(raw.probabilities[row, raw.labels[row]]),
        "top": [[report.names[number], _short(raw.probabilities[row, number])] for number in top],
        "groups": groups,
    }
    if report.calibrated is not None:
        found["calibrated"] = _short(report.calibrated.confidence[row])
        found["calibrated_answer"] = report.names[report.calibrated.answers[row]]
    if hasattr(report.rows, "pixels"):
        found["image"] = data_uri(report.rows.pixels([row])[0])
    elif hasattr(report.rows, "texts"):
        found["text"] = report.rows.texts[row][:2000]
    return found


def _shorts(values: Any) -> list[float]:
    return [_short(value) for value in values]


def _short(value: Any) -> float:
    """Six digits are enough to look at."""
    return float(f"{value:.6g}")
