"""Figures (the extra `plots`): the curves of a training, the trade-offs and rejection curves of a comparison."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..pages.figures import DASHED, curve_figure, panel_grid, save_figures, titled_figure
from ..pages.palette import FAINT, INK, LIGHT, MUTED
from ..pages.selection import curve_limits
from .comparison_results import SHARES, ComparedView, pareto_front


#: Methods beyond the number of colours reuse them with another marker and line style.
MARKERS, DASHES = "osD^v", ("-", DASHED, (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (2.5, 1)))

#: Ratio of the largest to the smallest value from which an axis is logarithmic.
WIDE = 20


def plot_comparison(view: ComparedView, folder: str | Path) -> dict[str, list[Path]]:
    """
    Draws `VIEW_tradeoff` (metrics of error against metrics of calibration, with the Pareto front) and
    `VIEW_rejection_curves` (a panel per uncertainty, a line per method); returns the files of each.
    """
    drawings = {"tradeoff": _tradeoffs, "rejection_curves": _rejection_curves}
    return {
        name: save_figures({f"{view.name}_{name}": partial(draw, view)}, folder) for name, draw in drawings.items()
    }


def _tradeoffs(view: ComparedView) -> Figure:
    methods = [name for name in view.compared if not np.isnan(_point(view, name, *view.tradeoffs[0])).any()]
    size = (6.2 * len(view.tradeoffs), 4.7 + 0.21 * -(-len(methods) // 3))
    figure = titled_figure(f"What calibration costs: {view.name}", size)
    for axes, (x, y) in zip(figure.subplots(1, len(view.tradeoffs), squeeze=False)[0], view.tradeoffs, strict=True):
        _tradeoff(axes, view, methods, x, y)
    handles: list[Any] = [
        Line2D([], [], ls="", label=name, **_marker(view, number, name)) for number, name in enumerate(methods)
    ]
    handles.append(Line2D([], [], color=MUTED, ls="--", lw=1.2, label="Pareto front"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=9)
    return figure


def _tradeoff(axes: Axes, view: ComparedView, methods: list[str], x: str, y: str) -> None:
    """
    Methods as points, and the Pareto front. Crosses are the intervals of the paired differences to the baseline, drawn
    around the points: variation that all methods share is left out.
    """
    signs = np.array([-1 if name in view.higher else 1 for name in (x, y)])
    points = {}
    for number, name in enumerate(methods):
        points[name] = value = _point(view, name, x, y)
        marker = _marker(view, number, name)
        spread = np.array([_spread(view, name, metric) for metric in (x, y)])[:, :, None]
        x_value, y_value = value
        axes.errorbar(x_value, y_value, xerr=spread[0], yerr=spread[1], elinewidth=0.9, ls="", zorder=3, **marker)
    front = pareto_front({name: tuple(signs * value) for name, value in points.items()})
    axes.plot(*np.array([points[name] for name in front]).T, color=MUTED, ls="--", lw=1.2, zorder=2)
    arrows = ["→ better" if name in view.higher else "← better" for name in (x, y)]
    axes.set_xlabel(f"{view.heading(x)}  ({arrows[0]})")
    axes.set_ylabel(f"{view.heading(y)}  ({arrows[1].replace('←', '↓').replace('→', '↑')})")
    for scale, values in zip((axes.set_xscale, axes.set_yscale), np.array(list(points.values())).T, strict=True):
        if values.min() > 0 and values.max() > WIDE * values.min():
            scale("log")
    axes.grid()


def _point(view: ComparedView, method: str, x: str, y: str) -> np.ndarray:
    return np.array([view.compared[method][name].value for name in (x, y)])


def _spread(view: ComparedView, method: str, metric: str) -> tuple[float, float]:
    """How far the interval of the difference to the baseline reaches below and above it; 0 for the baseline itself."""
    entry = view.compared[method][metric]
    below, above = entry.difference - entry.difference_low, entry.difference_high - entry.difference
    # the value of a biased metric may be outside its interval
    return (0.0, 0.0) if method == view.baseline else (max(below, 0.0), max(above, 0.0))


def _rejection_curves(view: ComparedView) -> Figure:
    names = list(next(iter(view.curves.values())))
    title, xlabel = f"Rejecting the least certain: {view.name}", "Share of outputs rejected"
    if len(names) > 1:
        figure, panels = panel_grid(title, names, [], xlabel, view.curve_label)
    else:
        figure, axes = curve_figure(title, xlabel, view.curve_label)
        panels = {names[0]: axes}
    for name, axes in panels.items():
        for number, (method, curves) in enumerate(view.curves.items()):
            style = _style(number)
            axes.plot(SHARES, curves[name], color=style["color"], ls=style["ls"], lw=1.5, label=method)
        axes.set_xlim(0, 1)
        axes.set_ylim(*curve_limits({method: curves[name] for method, curves in view.curves.items()}))
        axes.grid(color=FAINT)
    handles, labels = next(iter(panels.values())).get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3, fontsize=9, labelcolor=INK)
    return figure


def _marker(view: ComparedView, number: int, method: str) -> dict[str, Any]:
    """The point of a method; that of the baseline is a ring, so that others inside it are visible."""
    style = _style(number)
    if method == view.baseline:
        return {"color": style["color"], "marker": "o", "ms": 11, "mfc": "none", "mew": 1.8}
    return {"color": style["color"], "marker": style["marker"], "ms": 6.5, "mec": "white"}


def _style(number: int) -> dict[str, Any]:
    turn = number // len(LIGHT) % len(MARKERS)
    return {"color": LIGHT[number % len(LIGHT)], "marker": MARKERS[turn], "ls": DASHES[turn]}


def plot_training_curves(histories: dict[str, list[dict[str, Any]]], path: str | Path) -> None:
    """Error, uncertainty and their gap along each objective's training; solid: validation data, dotted: training."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    panels = {
        "Error": lambda line, prefix: line[f"{prefix}error"],
        "Uncertainty": lambda line, prefix: line[f"{prefix}uncertainty"],
        "Gap: error - uncertainty": lambda line, prefix: line[f"{prefix}error"] - line[f"{prefix}uncertainty"],
    }
    for axes, (title, value) in zip(figure.subplots(1, len(panels), sharex=True), panels.items(), strict=True):
        for color, (objective, history) in enumerate(histories.items()):
            for prefix, style, label in (("eval_", "-", objective), ("", ":", f"{objective}, training")):
                points = [(line["step"], value(line, prefix)) for line in history if f"{prefix}error" in line]
                if points:
                    axes.plot(*zip(*points, strict=True), style, color=f"C{color}", label=label)
        axes.set(title=title, xlabel="optimizer step", ylabel="nats per token")
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    figure.savefig(path, dpi=110)
