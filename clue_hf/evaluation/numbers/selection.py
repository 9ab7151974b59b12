"""What the page and the figures of a report on a regressor show: curves, bins, intervals, and selected rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...metrics.regression import LEVELS, Ranked, central_level
from ...metrics.resampled.regression import ENCE_BINS
from ...pages.selection import evenly_spaced, shown_row


if TYPE_CHECKING:
    from ...predictors.numbers import RegressionPredictions
    from .report import RegressionReport

#: Maximum number of rows in the figure of intervals, and of points in that of errors.
BANDS, POINTS = 100, 1000
#: Probability of the intervals that are drawn.
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
    """`std` and `error` (absolute) of some rows, evenly spaced along the standard deviation."""
    order = np.argsort(predicted.std, kind="stable")
    chosen = order[evenly_spaced(len(order), POINTS)]
    return {"std": predicted.std[chosen], "error": np.sqrt(predicted.error[chosen])}


def sparsification_curves(kinds: dict[str, RegressionPredictions], points: int = 250) -> dict[str, np.ndarray]:
    """
    Mean squared error of the remaining rows, divided by that of all rows, by share removed: `share`, and for each kind
    the curve by its variance and, as `KIND oracle`, the one by the error itself; 1 everywhere if all errors are 0.
    """
    n = len(next(iter(kinds.values())))
    places = evenly_spaced(n, points)
    curves = {"share": places / n}
    for kind, predicted in kinds.items():
        drawn = Ranked(predicted.forecasts).draw()
        for name, errors in ((kind, drawn.error), (f"{kind} oracle", drawn.best_error)):
            kept = (np.cumsum(errors) / np.arange(1, n + 1))[::-1]
            curves[name] = kept[places] / kept[0] if kept[0] else np.ones(len(places))
    return curves


def bands(predicted: RegressionPredictions) -> dict[str, np.ndarray]:
    """Some rows, evenly spaced along the mean: `row` (their place), `mean`, `target`, and `low` and `high` of 95 %."""
    assert predicted.target is not None
    order = np.argsort(predicted.mean, kind="stable")
    chosen = order[evenly_spaced(len(order), BANDS)]
    low, high = predicted.interval(BAND_LEVEL)
    columns = {"mean": predicted.mean, "target": predicted.target, "low": low, "high": high}
    return {"row": chosen, **{name: values[chosen] for name, values in columns.items()}}


def most_overconfident(predicted: RegressionPredictions, limit: int) -> np.ndarray:
    """Rows with the largest error in standard deviations, the largest first."""
    return np.argsort(-np.abs(predicted.forecasts.score), kind="stable")[:limit]


def page_data(report: RegressionReport, limit: int) -> dict[str, Any]:
    """What the script of the page reads."""
    kinds = report.kinds
    rows = {kind: bands(predicted) for kind, predicted in kinds.items()}
    return {
        "n": len(report.raw),
        "target": report.target_name,
        "kinds": [{"name": kind, "colour": place} for place, kind in enumerate(kinds)],
        "coverage": {kind: coverage_curve(predicted)["coverage"] for kind, predicted in kinds.items()},
        "levels": LEVELS,
        "sparsification": sparsification_curves(kinds),
        "errors": {
            kind: {"bins": error_bins(predicted), **error_points(predicted)} for kind, predicted in kinds.items()
        },
        "bands": {kind: {**columns, "number": report.numbers[columns["row"]]} for kind, columns in rows.items()},
        "examples": _examples(report, most_overconfident(report.raw, limit)),
    }


def _examples(report: RegressionReport, rows: np.ndarray) -> list[dict[str, Any]]:
    target = report.raw.forecasts.target
    columns = {}
    for kind, predicted in report.kinds.items():
        low, high = predicted.interval(BAND_LEVEL)
        columns[kind] = {"mean": predicted.mean, "std": predicted.std, "low": low, "high": high}
    return [
        {
            "row": report.numbers[row],
            "target": target[row],
            "error": target[row] - report.raw.mean[row],
            "score": report.raw.forecasts.score[row],
            "kinds": {kind: {key: values[row] for key, values in table.items()} for kind, table in columns.items()},
            **shown_row(report.rows, row),
        }
        for row in rows.tolist()
    ]
