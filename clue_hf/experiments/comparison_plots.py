"""Pictures of a comparison (the extra `plots`): what calibration costs, and the rejection curves of each method."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..evaluation.text.plots import FAINT, INK, MUTED, panel_grid, save_figures
from ..evaluation.text.selection import LIGHT, curve_limits
from .compared_view import SHARES, ComparedView, pareto_front


#: Points and lines of methods beyond the colours repeat them with another marker and line style.
MARKERS, DASHES = "osD^v", ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (2.5, 1)))

#: Largest value over the smallest from which an axis is logarithmic.
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
    figure = Figure(figsize=(6.2 * len(view.tradeoffs), 4.7 + 0.21 * -(-len(methods) // 3)), layout="constrained")
    for axes, (x, y) in zip(figure.subplots(1, len(view.tradeoffs), squeeze=False)[0], view.tradeoffs, strict=True):
        _tradeoff(axes, view, methods, x, y)
    figure.suptitle(f"What calibration costs: {view.name}", x=0.01, ha="left", weight="bold", fontsize=12)
    handles: list[Any] = [
        Line2D([], [], ls="", label=name, **_marker(view, number, name)) for number, name in enumerate(methods)
    ]
    handles.append(Line2D([], [], color=MUTED, ls="--", lw=1.2, label="Pareto front"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=9)
    return figure


def _tradeoff(axes: Axes, view: ComparedView, methods: list[str], x: str, y: str) -> None:
    """
    Methods as points; the better corner is the one below, on the left or the right. Crosses are the intervals of the
    paired differences to the baseline, put around the points: what all methods share does not tell them apart.
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
    for scale, found in zip((axes.set_xscale, axes.set_yscale), np.array(list(points.values())).T, strict=True):
        if found.min() > 0 and found.max() > WIDE * found.min():
            scale("log")
    axes.grid()


def _point(view: ComparedView, method: str, x: str, y: str) -> np.ndarray:
    """Both metrics of a method."""
    return np.array([view.compared[method][name].value for name in (x, y)])


def _spread(view: ComparedView, method: str, metric: str) -> tuple[float, float]:
    """How far the interval of the difference to the baseline reaches below and above it; none of its own."""
    entry = view.compared[method][metric]
    below, above = entry.difference - entry.difference_low, entry.difference_high - entry.difference
    return (0.0, 0.0) if method == view.baseline else (max(below, 0.0), max(above, 0.0))  # a biased metric may lie out


def _rejection_curves(view: ComparedView) -> Figure:
    names = list(next(iter(view.curves.values())))
    if len(names) > 1:
        figure, panels = panel_grid(f"Rejecting the least certain: {view.name}", names, [],
                                    "Share of outputs rejected", view.kept)  # fmt: skip
    else:
        figure = Figure(figsize=(8.4, 4.8), layout="constrained")
        panels = {names[0]: figure.subplots()}
        panels[names[0]].set_title(f"Rejecting the least certain: {view.name}", weight="bold", pad=10)
        panels[names[0]].set(xlabel="Share of outputs rejected", ylabel=view.kept)
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
    """The point of a method; that of the baseline is a ring, so that others are seen within it."""
    style = _style(number)
    if method == view.baseline:
        return {"color": style["color"], "marker": "o", "ms": 11, "mfc": "none", "mew": 1.8}
    return {"color": style["color"], "marker": style["marker"], "ms": 6.5, "mec": "white"}


def _style(number: int) -> dict[str, Any]:
    turn = number // len(LIGHT) % len(MARKERS)
    return {"color": LIGHT[number % len(LIGHT)], "marker": MARKERS[turn], "ls": DASHES[turn]}
