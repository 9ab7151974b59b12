"""Pictures of a report about a regressor (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from ...predictors.numbers import RegressionPredictions
from ..text.plots import INK, MUTED, curve_figure, save_figures
from ..text.selection import LIGHT
from .report import RegressionReport
from .selection import bands, coverage_curve, error_bins, error_points, sparsification_curves


#: Colour of targets that no band holds.
OUTSIDE = "#b3261e"


def plot_number_report(report: RegressionReport, folder: str | Path) -> list[Path]:
    """
    Draws an evaluation: `interval_calibration`, `std_against_error`, `sparsification` and `prediction_intervals`. The
    same report gives the same bytes.

    Args:
        report ([`RegressionReport`]):
            What to draw.
        folder (`str` or `Path`):
            Where each picture goes as PNG and SVG; it is created if needed.

    Returns:
        `list[Path]`: The files that were written.
    """
    drawings: dict[str, Callable[[RegressionReport], Figure]] = {
        "interval_calibration": _interval_calibration,
        "std_against_error": _std_against_error,
        "sparsification": _sparsification,
        "prediction_intervals": _prediction_intervals,
    }
    return save_figures({name: partial(draw, report) for name, draw in drawings.items()}, folder)


def _interval_calibration(report: RegressionReport) -> Figure:
    """The share of targets that central intervals hold against the share that they should hold."""
    figure = Figure(figsize=(7.0, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set_title("Do the intervals hold what they should?", weight="bold", pad=10)
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1.3, ls=":", label="perfect")
    for place, (kind, predicted) in enumerate(report.kinds.items()):
        curve = coverage_curve(predicted)
        error = report.metrics[kind]["regression_ece"]["value"]
        axes.plot(curve["level"], curve["coverage"], color=LIGHT[place], lw=1.9, label=f"{kind}  ECE {error:.3f}")
        axes.fill_between(curve["level"], curve["level"], curve["coverage"], color=LIGHT[place], alpha=0.1, lw=0)
    axes.set(xlabel="Probability of the central interval", ylabel="Share of targets within it")
    axes.set(xlim=(0, 1), ylim=(0, 1.01))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid()
    figure.legend(loc="outside right center", alignment="left")
    return figure


def _std_against_error(report: RegressionReport) -> Figure:
    """The bins of the ENCE over single rows: the error that is predicted against the one that is found."""
    kinds = report.kinds
    figure = Figure(figsize=(max(5.6, 4.4 * len(kinds)), 4.9), layout="constrained")
    figure.suptitle("Is the predicted error the one that is found?", weight="bold", x=0.01, ha="left")
    panels: Any = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for place, (axes, (kind, predicted)) in enumerate(zip(panels, kinds.items(), strict=True)):
        _error_panel(axes, predicted, LIGHT[place])
        error = report.metrics[kind]["ence"]["value"]
        told = "" if error is None else f"   ENCE {error:.3{'f' if error < 1000 else 'g'}}"
        axes.set_title(kind + told)
        axes.set_xlabel(f"Standard deviation (of {_short_name(report)})", parse_math=False)
    panels[0].set_ylabel("Error: target − mean, absolute")
    panels[0].set_ylim(0, 1.05 * max(map(_highest, kinds.values())))
    handles: list[Any] = [
        Line2D([], [], color=INK, marker="o", ms=5.5, mec="white", lw=1.4, label="roots of the means in 10 bins"),
        Line2D([], [], color=INK, marker="o", ms=3, mec="none", alpha=0.3, ls="", label="single rows"),
        Line2D([], [], color=MUTED, ls=":", label="perfect"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=3)
    return figure


def _error_panel(axes: Axes, predicted: RegressionPredictions, color: str) -> None:
    points, bins = error_points(predicted), error_bins(predicted)
    rmv, rmse = (np.array([entry[name] for entry in bins]) for name in ("rmv", "rmse"))
    size = 12 if len(points["std"]) <= 300 else 6
    axes.scatter(points["std"], points["error"], s=size, color=color, alpha=0.22, lw=0)
    least, most = rmv.min(), rmv.max()
    room = 0.12 * (most - least) or 0.1 * most
    ends = np.array([max(0, least - room), most + room])
    axes.plot(ends, ends, color=MUTED, lw=1.3, ls=":")
    axes.plot(rmv, rmse, color=color, lw=1.4, marker="o", ms=5.5, mec="white")
    axes.set_xlim(*ends)
    axes.locator_params(axis="x", nbins=6)
    axes.grid()


def _highest(predicted: RegressionPredictions) -> float:
    """What is to be seen: every bin, the whole diagonal, and all but a few single rows."""
    bins = error_bins(predicted)
    single = float(np.quantile(error_points(predicted)["error"], 0.98))
    return max(single, *(max(entry["rmv"], entry["rmse"]) for entry in bins))


def _sparsification(report: RegressionReport) -> Figure:
    curves = sparsification_curves(report.kinds, 500)
    share = curves["share"]
    figure, axes = curve_figure("Leaving out the least certain rows", "Share of rows left out")
    axes.set_ylabel("Mean squared error of the rest, relative to all")
    marker = "o" if len(share) == 1 else None
    axes.plot(share, curves["raw oracle"], color=INK, lw=1.3, marker=marker, label="oracle: best possible")
    for place, kind in enumerate(report.kinds):
        area = report.metrics[kind]["ause"]["value"]
        told = "" if area is None else f"  AUSE {area:.3f}"
        axes.plot(share, curves[kind], color=LIGHT[place], lw=1.9, marker=marker, label=f"{kind}{told}")
    between = (curves["raw oracle"], curves["raw"])
    axes.fill_between(share, *between, color=LIGHT[0], alpha=0.12, lw=0, label="area: AUSE of raw")
    axes.axhline(1, color=MUTED, lw=1.3, ls=":", label="random: no skill")
    # what the last few rows do is chance
    seen = [curve[: max(1, int(0.97 * len(curve)))] for name, curve in curves.items() if name != "share"]
    axes.set_ylim(0, 1.06 * max(1.0, *(float(curve.max()) for curve in seen)))
    figure.legend(loc="outside right center", alignment="left")
    return figure


def _prediction_intervals(report: RegressionReport) -> Figure:
    """Rows in the order of their mean: the band of 95 % and the target, marked where it lies outside."""
    kinds = report.kinds
    figure = Figure(figsize=(9.0, 0.9 + 3.3 * len(kinds)), layout="constrained")
    figure.suptitle("Predictions with their intervals of 95 %", weight="bold", x=0.01, ha="left")
    panels: Any = figure.subplots(len(kinds), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for place, (axes, (kind, predicted)) in enumerate(zip(panels, kinds.items(), strict=True)):
        found, color = bands(predicted), LIGHT[place]
        x = np.arange(1, len(found["mean"]) + 1)
        outside = (found["target"] < found["low"]) | (found["target"] > found["high"])
        axes.vlines(x, found["low"], found["high"], color=color, alpha=0.3, lw=max(1.5, min(8, 420 / len(x))))
        axes.plot(x, found["mean"], color=color, lw=1.9, marker="o" if len(x) == 1 else None)
        axes.plot(x[~outside], found["target"][~outside], "o", color=INK, ms=3.6, mec="white", mew=0.5)
        axes.plot(x[outside], found["target"][outside], "D", color=OUTSIDE, ms=5, mec="white", mew=0.6)
        coverage = report.metrics[kind]["coverage_95"]["value"]
        axes.set_title(f"{kind}   {coverage:.1%} of all {len(predicted):,} targets within")
        axes.set_ylabel(_short_name(report), parse_math=False)
        axes.set_xlim(0, len(x) + 1)
        axes.grid(axis="y")
    which = f"{len(x)} of the rows" if len(x) < len(report.raw) else "All rows"
    panels[-1].set_xlabel(f"{which}, in the order of their mean")
    handles: list[Any] = [
        Line2D([], [], color=LIGHT[0], lw=1.9, label="mean"),
        Patch(color=LIGHT[0], alpha=0.3, label="interval of 95 %"),
        Line2D([], [], color=INK, marker="o", ms=4, mec="white", ls="", label="target within"),
        Line2D([], [], color=OUTSIDE, marker="D", ms=5, mec="white", ls="", label="target outside"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=4)
    return figure


def _short_name(report: RegressionReport) -> str:
    name = report.target_name
    return name if len(name) <= 28 else name[:27] + "…"
