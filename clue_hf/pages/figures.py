"""What the figures of all reports share: style, layout and files (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from .palette import FAINT, GREY, INK, LIGHT, MUTED


#: Applied only while a figure is drawn and saved. The salt makes the ids of an SVG reproducible.
STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "xtick.labelcolor": MUTED,
    "ytick.color": FAINT,
    "ytick.labelcolor": MUTED,
    "grid.color": FAINT,
    "grid.alpha": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.title_fontsize": 9.5,
    "lines.solid_capstyle": "round",
    "svg.hashsalt": "clue_hf",
}
#: Line style of the second half of the palette, and of calibrated predictions.
DASHED = (0, (4, 1.6))
PANEL, HEAD = (2.75, 2.45), 0.62


def save_figures(drawings: Mapping[str, Callable[..., Figure]], folder: str | Path, *drawn: Any) -> list[Path]:
    """Draws each figure of what is `drawn` and saves it under its name as PNG and SVG; returns the files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with matplotlib.rc_context(STYLE):
        for name, draw in drawings.items():
            figure = draw(*drawn)
            if layout := figure.get_layout_engine():  # once: `savefig` would do it for each file, and draw twice
                layout.execute(figure)
                figure.set_layout_engine(None)
            for ending, options in (("png", {"dpi": 160}), ("svg", {"metadata": {"Date": None}})):
                files.append(folder / f"{name}.{ending}")
                figure.savefig(files[-1], facecolor="white", **options)
    return files


def curve_figure(title: str, xlabel: str, ylabel: str, size: tuple[float, float] = (9.0, 4.6)) -> tuple[Figure, Axes]:
    """An empty figure for curves against a share."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, weight="bold", pad=10)
    axes.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, 1))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid()
    return figure, axes


def titled_figure(title: str, size: tuple[float, float]) -> Figure:
    """An empty figure with a title at its left."""
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, weight="bold", x=0.01, ha="left")
    return figure


def rejection_axes(
    axes: Axes, x: np.ndarray, curves: Mapping[str, np.ndarray], styles: Mapping[str, Mapping[str, Any]]
) -> list[Line2D]:
    """Draws the curves of the oracle, of each entry of `styles`, and of random rejection; returns the lines."""
    marker = "o" if len(x) == 1 else None
    lines = axes.plot(x, curves["oracle"], color=INK, lw=1.3, marker=marker, label="oracle: best possible")
    for name, style in styles.items():
        lines += axes.plot(x, curves[name], **{"lw": 1.9, "marker": marker, **style})
    return lines + axes.plot(x, curves["random"], color=MUTED, lw=1.3, ls=":", marker=marker, label="random: no skill")


def reliability_line(axes: Axes, bins: list[dict[str, float]], color: str, **style: Any) -> None:
    """Quality against confidence in bins with their intervals, and the diagonal of perfect calibration."""
    x, y, low, high = (np.array([entry[key] for entry in bins]) for key in ("confidence", "quality", "low", "high"))
    axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=":")
    spread = [np.maximum(y - low, 0), np.maximum(high - y, 0)]
    axes.errorbar(x, y, spread, color=color, marker="o", elinewidth=1, mec="white", **style)
    axes.grid()


def bars_up_and_down(axes: Axes, histogram: Mapping[str, np.ndarray], color: str) -> None:
    """Shares of the good in colour above the line, of the bad in grey below it (see `score_histogram`)."""
    for part, direction, shade in (("good", 1, color), ("bad", -1, GREY)):
        share = direction * histogram[part] / max(1, histogram[part].sum())
        widths = np.diff(histogram["edges"])
        axes.bar(histogram["edges"][:-1], share, widths, align="edge", color=shade, edgecolor="white", lw=0.4)
    axes.axhline(0, color=INK, lw=0.8)
    limit = 1.08 * np.abs(axes.dataLim.intervaly).max()
    axes.set_ylim(-limit, limit)
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0%}")
    axes.locator_params(nbins=4)
    axes.grid(axis="y")


def panel_grid(
    title: str, names: list[str], legend: list[Artist], xlabel: str, ylabel: str
) -> tuple[Figure, dict[str, Axes]]:
    """Small multiples, at most four in a row, below a title and a legend."""
    columns = min(4, max(1, len(names)))
    rows = max(1, -(-len(names) // columns))
    size = (max(7.6, PANEL[0] * columns), HEAD + PANEL[1] * rows)
    figure = Figure(figsize=size, layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[HEAD, size[1] - HEAD])
    head, body = parts
    head.text(0.01, 0.98, title, weight="bold", fontsize=12, va="top")
    head.legend(handles=legend, loc="lower left", ncols=len(legend), borderaxespad=0, borderpad=0.6)
    grid = body.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    for axes, name in zip(grid, names, strict=False):
        axes.set_title(name, fontsize=8.5 if len(name) > 24 else 10.5)
    body.supxlabel(xlabel, fontsize=10, color=MUTED)
    body.supylabel(ylabel, fontsize=10, color=MUTED)
    return figure, dict(zip(names, grid, strict=False))


def histogram_figure(
    title: str, legend: tuple[str, str], xlabel: str, histograms: Mapping[str, Mapping[str, np.ndarray]], colors: Any
) -> Figure:
    """A panel per histogram of `score_histogram`; the legend says what is coloured and what is grey."""
    above, below = legend
    patches: list[Artist] = [
        Patch(color=LIGHT[0], label=f"coloured, up: {above}"),
        Patch(color=GREY, label=f"grey, down: {below}"),
    ]
    xlabel = f"{xlabel} (the outermost bars include everything beyond)"
    figure, panels = panel_grid(title, list(histograms), patches, xlabel, "Share of each kind")
    for name, axes in panels.items():
        bars_up_and_down(axes, histograms[name], LIGHT[colors[name]])
    return figure


def short_name(name: str, limit: int) -> str:
    """A name that fits into a figure."""
    return name if len(name) <= limit else name[: limit - 1] + "…"


def line_style(place: int) -> dict[str, Any]:
    """Colour and dashes of a place in the palette; dashes go on top, so that a line below them is still seen."""
    solid = place < len(LIGHT) // 2
    return {"color": LIGHT[place], "ls": "-" if solid else DASHED, "zorder": 2 if solid else 3}
