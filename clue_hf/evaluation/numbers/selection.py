"""What of a report about a regressor is shown: points of curves, bins, bands, and its most telling rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...inputs.image_rows import ImageRows
from ...metrics.regression import LEVELS, Ranked, central_level
from ...metrics.resampled_regression import ENCE_BINS
from ...predictors.numbers import RegressionPredictions
from ..classes.selection import data_uri
from .report import RegressionReport


#: Most rows in the picture of intervals, and points in that of errors.
BANDS, POINTS = 100, 1000
#: Probability of the bands.
BAND_LEVEL = 0.95


def coverage_curve(predicted: RegressionPredictions) -> dict[str, np.ndarray]:
    """`level`, the probabilities of the ECE, and `coverage`: the share of targets within each central interval."""
    level = np.sort(central_level(predicted.forecasts.pit))
    return {"level": LEVELS, "coverage": np.searchsorted(level, LEVELS, side="right") / len(predicted)}


def error_bins(predicted: RegressionPredictions) -> list[dict[str, float]]:
    """The bins of the ENCE, of equally many rows along the variance: `rmv`, `rmse` and `count`."""
    drawn = Ranked(predicted.forecasts).draw()
    bins = min(ENCE_BINS, len(predicted))
    parts = zip(np.array_split(drawn.variance, bins), np.array_split(drawn.error, bins), strict=True)
    return [
        {"rmv": float(np.sqrt(variance.mean())), "rmse": float(np.sqrt(error.mean())), "count": len(error)}
        for variance, error in parts
    ]


def error_points(predicted: RegressionPredictions) -> dict[str, np.ndarray]:
    """`std` and `error` (absolute) of some rows, chosen evenly along the standard deviation."""
    order = np.argsort(predicted.std, kind="stable")
    chosen = order[_evenly(len(order), POINTS)]
    return {"std": predicted.std[chosen], "error": np.sqrt(predicted.error[chosen])}


def sparsification_curves(kinds: dict[str, RegressionPredictions], points: int = 250) -> dict[str, np.ndarray]:
    """
    Mean squared error of what is left at some shares removed, divided by that of all: `share`, and for each kind the
    curve by its variance and, as `KIND oracle`, the one by the error itself. Where all errors are 0, all curves are 1.
    """
    n = len(next(iter(kinds.values())))
    at = _evenly(n, points)
    curves = {"share": at / n}
    for kind, predicted in kinds.items():
        drawn = Ranked(predicted.forecasts).draw()
        for name, errors in ((kind, drawn.error), (f"{kind} oracle", drawn.best_error)):
            kept = (np.cumsum(errors) / np.arange(1, n + 1))[::-1]
            curves[name] = kept[at] / kept[0] if kept[0] else np.ones(len(at))
    return curves


def bands(predicted: RegressionPredictions) -> dict[str, np.ndarray]:
    """Some rows, chosen evenly along the mean: `row` (their place), `mean`, `target`, `low` and `high` of 95 %."""
    assert predicted.target is not None
    order = np.argsort(predicted.mean, kind="stable")
    chosen = order[_evenly(len(order), BANDS)]
    low, high = predicted.interval(BAND_LEVEL)
    return {
        "row": chosen,
        "mean": predicted.mean[chosen],
        "target": predicted.target[chosen],
        "low": low[chosen],
        "high": high[chosen],
    }


def wrongly_sure(predicted: RegressionPredictions, limit: int) -> np.ndarray:
    """Rows whose error is the most standard deviations, the most first."""
    return np.argsort(-np.abs(predicted.forecasts.score), kind="stable")[:limit]


def number_page_data(report: RegressionReport, limit: int) -> dict[str, Any]:
    """What the script of the page draws, as plain lists and dicts."""
    kinds = report.kinds
    return {
        "n": len(report.raw),
        "target": report.target_name,
        "kinds": [{"name": kind, "colour": place} for place, kind in enumerate(kinds)],
        "coverage": {kind: _shorts(coverage_curve(found)["coverage"]) for kind, found in kinds.items()},
        "levels": _shorts(LEVELS),
        "sparsification": {name: _shorts(curve) for name, curve in sparsification_curves(kinds).items()},
        "errors": {
            kind: {"bins": [{key: _short(value) for key, value in entry.items()} for entry in error_bins(found)]}
            | {key: _shorts(values) for key, values in error_points(found).items()}
            for kind, found in kinds.items()
        },
        "bands": {
            kind: {key: _shorts(values) for key, values in bands(found).items()}
            | {"number": report.numbers[bands(found)["row"]].tolist()}
            for kind, found in kinds.items()
        },
        "examples": _examples(report, wrongly_sure(report.raw, limit)),
    }


def _examples(report: RegressionReport, rows: np.ndarray) -> list[dict[str, Any]]:
    """Rows as the script wants them."""
    target = report.raw.forecasts.target
    ends = {kind: predicted.interval(BAND_LEVEL) for kind, predicted in report.kinds.items()}
    examples = []
    for row in rows.tolist():
        example: dict[str, Any] = {
            "row": int(report.numbers[row]),
            "target": _short(target[row]),
            "error": _short(target[row] - report.raw.mean[row]),
            "score": _short(report.raw.forecasts.score[row]),
            "kinds": {
                kind: {
                    "mean": _short(predicted.mean[row]),
                    "std": _short(predicted.std[row]),
                    "low": _short(ends[kind][0][row]),
                    "high": _short(ends[kind][1][row]),
                }
                for kind, predicted in report.kinds.items()
            },
        }
        if report.rows is not None:
            images = isinstance(report.rows, ImageRows)
            example["image"] = data_uri(report.rows.pixels([row])[0]) if images else None
            example["text"] = (report.rows.text(row) or "")[:2000]
        examples.append(example)
    return examples


def _evenly(n: int, limit: int) -> np.ndarray:
    """At most `limit` places among n, evenly apart, the first and the last among them."""
    return np.unique(np.linspace(0, n - 1, min(n, limit)).round().astype(int))


def _shorts(values: Any) -> list[float]:
    return [_short(value) for value in values]


def _short(value: Any) -> float:
    """Six digits are enough to look at."""
    return float(f"{value:.6g}")
