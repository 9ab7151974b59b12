"""Figures of a report on a regressor (the extra `plots`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from ...pages.figures import curve_figure, rejection_axes, save_figures, short_name, titled_figure
from ...pages.palette import INK, LIGHT, MUTED, OUTSIDE
from .selection import bands, coverage_curve, error_bins, error_points, sparsification_curves


if TYPE_CHECKING:
    from ...predictors.numbers import RegressionPredictions
    from .report import RegressionReport


def plot_report(report: RegressionReport, folder: str | Path) -> list[Path]:
    """
    Draws `interval_calibration`, `std_against_error`, `sparsification` and `prediction_intervals`. See
    [`~clue_hf.evaluation.text.plots.plot_report`].
    """
    drawings = {
        "interval_calibration": _interval_calibration,
        "std_against_error": _std_against_error,
        "sparsification": _sparsification,
        "prediction_intervals": _prediction_intervals,
    }
    return save_figures(drawings, folder, report)


def _interval_calibration(report: RegressionReport) -> Figure:
    """The share of targets within central intervals against their probability."""
    figure, axes = curve_figure(
        "Do the intervals have the right coverage?",
        "Probability of the central interval",
        "Share of targets within it",
        (7.0, 4.6),
    )
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1.3, ls=":", label="perfect")
    for place, (kind, predicted) in enumerate(report.kinds.items()):
        curve = coverage_curve(predicted)
        error = report.metrics[kind]["regression_ece"]["value"]
        axes.plot(curve["level"], curve["coverage"], color=LIGHT[place], lw=1.9, label=f"{kind}  ECE {error:.3f}")
        axes.fill_between(curve["level"], curve["level"], curve["coverage"], color=LIGHT[place], alpha=0.1, lw=0)
    axes.set_ylim(0, 1.01)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    figure.legend(loc="outside right center", alignment="left")
    return figure


def _std_against_error(report: RegressionReport) -> Figure:
    """The predicted against the observed error: the bins of the ENCE over single rows."""
    kinds = report.kinds
    figure = titled_figure("Does the predicted error match the observed one?", (max(5.6, 4.4 * len(kinds)), 4.9))
    panels: Any = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for place, (axes, (kind, predicted)) in enumerate(zip(panels, kinds.items(), strict=True)):
        _error_panel(axes, predicted, LIGHT[place])
        error = report.metrics[kind]["ence"]["value"]
        axes.set_title(kind if error is None else f"{kind}   ENCE {error:.3{'f' if error < 1000 else 'g'}}")
        axes.set_xlabel(f"Standard deviation (of {short_name(report.target_name, 28)})", parse_math=False)
    panels[0].set_ylabel("Error: target − mean, absolute")
    panels[0].set_ylim(0, 1.05 * max(map(_highest, kinds.values())))
    handles: list[Any] = [
        Line2D([], [], color=INK, marker="o", ms=5.5, mec="white", lw=1.4, label="root means in 10 bins"),
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
    """Upper limit of the axis: every bin, the whole diagonal, and all but a few single rows."""
    bins = error_bins(predicted)
    single = float(np.quantile(error_points(predicted)["error"], 0.98))
    return max(single, *(max(entry["rmv"], entry["rmse"]) for entry in bins))


def _sparsification(report: RegressionReport) -> Figure:
    curves = sparsification_curves(report.kinds, 500)
    share = curves.pop("share")
    figure, axes = curve_figure(
        "Removing the least certain rows", "Share of rows removed", "Mean squared error of the rest, relative to all"
    )
    styles = {}
    for place, kind in enumerate(report.kinds):
        area = report.metrics[kind]["ause"]["value"]
        styles[kind] = {"color": LIGHT[place], "label": kind if area is None else f"{kind}  AUSE {area:.3f}"}
    rejection_axes(axes, share, {**curves, "oracle": curves["raw oracle"], "random": np.ones(len(share))}, styles)
    between = (curves["raw oracle"], curves["raw"])
    axes.fill_between(share, *between, color=LIGHT[0], alpha=0.12, lw=0, label="area: AUSE of raw")
    # the ends of the curves, where few rows remain, are noise
    stable = [curve[: max(1, int(0.97 * len(curve)))] for curve in curves.values()]
    axes.set_ylim(0, 1.06 * max(1.0, *(float(curve.max()) for curve in stable)))
    figure.legend(loc="outside right center", alignment="left")
    return figure


def _prediction_intervals(report: RegressionReport) -> Figure:
    """Rows ordered by their mean: the 95 % interval and the target, marked if it is outside."""
    kinds = report.kinds
    figure = titled_figure("Predictions with their 95 % intervals", (9.0, 0.9 + 3.3 * len(kinds)))
    panels: Any = figure.subplots(len(kinds), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    for place, (axes, (kind, predicted)) in enumerate(zip(panels, kinds.items(), strict=True)):
        rows, color = bands(predicted), LIGHT[place]
        x = np.arange(1, len(rows["mean"]) + 1)
        outside = (rows["target"] < rows["low"]) | (rows["target"] > rows["high"])
        axes.vlines(x, rows["low"], rows["high"], color=color, alpha=0.3, lw=max(1.5, min(8, 420 / len(x))))
        axes.plot(x, rows["mean"], color=color, lw=1.9, marker="o" if len(x) == 1 else None)
        axes.plot(x[~outside], rows["target"][~outside], "o", color=INK, ms=3.6, mec="white", mew=0.5)
        axes.plot(x[outside], rows["target"][outside], "D", color=OUTSIDE, ms=5, mec="white", mew=0.6)
        coverage = report.metrics[kind]["coverage_95"]["value"]
        axes.set_title(f"{kind}   {coverage:.1%} of all {len(predicted):,} targets within")
        axes.set_ylabel(short_name(report.target_name, 28), parse_math=False)
        axes.set_xlim(0, len(x) + 1)
        axes.grid(axis="y")
    selected = f"{len(x)} of the rows" if len(x) < len(report.raw) else "All rows"
    panels[-1].set_xlabel(f"{selected}, ordered by their mean")
    handles: list[Any] = [
        Line2D([], [], color=LIGHT[0], lw=1.9, label="mean"),
        Patch(color=LIGHT[0], alpha=0.3, label="95 % interval"),
        Line2D([], [], color=INK, marker="o", ms=4, mec="white", ls="", label="target within"),
        Line2D([], [], color=OUTSIDE, marker="D", ms=5, mec="white", ls="", label="target outside"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=4)
    return figure
