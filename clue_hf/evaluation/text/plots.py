"""Pictures (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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

from .report import EvaluationReport
from .selection import (
    LIGHT,
    Numbers,
    colour_index,
    curve_limits,
    good_examples,
    metric_value,
    read_numbers,
    reliability_bins,
    score_histogram,
    thinned_curves,
)


INK, MUTED, GREY, FAINT = "#1f2328", "#59636e", "#8c959f", "#d1d9e0"
#: Applied while a figure is made and saved, and only then. The salt makes the ids of an SVG the same in every run.
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
SIZE = (9.0, 4.6)
PANEL = (2.75, 2.45)
HEAD = 0.62


def plot_report(report: EvaluationReport, folder: str | Path) -> list[Path]:
    """
    Draws an evaluation: `rejection_curves`, `risk_coverage`, `score_histograms` and, where a scorer has a calibrated
    confidence, `reliability`. The same report gives the same bytes.

    Args:
        report ([`EvaluationReport`]):
            Its examples are read once.
        folder (`str` or `Path`):
            Where each picture goes as PNG and SVG; it is created if needed.

    Returns:
        `list[Path]`: The files that were written.

    Example:

    ```python
    plot_report(EvaluationReport.load("report"), "report/figures")
    ```
    """
    numbers = read_numbers(report)
    drawings: dict[str, Callable[[EvaluationReport, Numbers], Figure]] = {
        "rejection_curves": _rejection_curves,
        "risk_coverage": _risk_coverage,
        "score_histograms": _score_histograms,
    }
    if numbers.confidence:
        drawings["reliability"] = _reliability
    return save_figures({name: partial(draw, report, numbers) for name, draw in drawings.items()}, folder)


def save_figures(drawings: Mapping[str, Callable[[], Figure]], folder: str | Path) -> list[Path]:
    """Draws each figure in our style and saves it under its name as PNG and SVG; returns the files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with matplotlib.rc_context(STYLE):
        for name, draw in drawings.items():
            figure = draw()
            for ending, options in (("png", {"dpi": 160}), ("svg", {"metadata": {"Date": None}})):
                files.append(folder / f"{name}.{ending}")
                figure.savefig(files[-1], facecolor="white", **options)
    return files


def _rejection_curves(report: EvaluationReport, numbers: Numbers) -> Figure:
    curves = thinned_curves(numbers)
    share = curves.pop("share")
    figure, axes = curve_figure("Rejecting the least certain outputs", "Share of outputs rejected")
    axes.set_ylabel(f"Mean quality of the outputs kept{_quality_name(report)}")
    return _draw_curves(figure, axes, report, share, curves, "prr", "PRR", 1)


def _risk_coverage(report: EvaluationReport, numbers: Numbers) -> Figure:
    curves = thinned_curves(numbers)
    coverage = 1 - curves.pop("share")
    risks = {name: 1 - curve for name, curve in curves.items()}
    figure, axes = curve_figure("Risk of the outputs kept", "Coverage: share of outputs kept, most certain first")
    axes.set_ylabel(f"Risk: 1 − mean quality{_quality_name(report)}")
    return _draw_curves(figure, axes, report, coverage, risks, "aurc", "AURC", -1)


def curve_figure(title: str, xlabel: str) -> tuple[Figure, Axes]:
    """An empty figure of curves against a share."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, weight="bold", pad=10)
    axes.set(xlabel=xlabel, xlim=(0, 1))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid()
    return figure, axes


def _draw_curves(
    figure: Figure,
    axes: Axes,
    report: EvaluationReport,
    x: np.ndarray,
    curves: dict[str, np.ndarray],
    metric: str,
    heading: str,
    sign: int,
) -> Figure:
    """One line per scorer, beside it a legend from the best to the worst value of the metric."""
    marker = "o" if len(x) == 1 else None
    axes.set_ylim(*curve_limits(curves))
    order = sorted(report.scorers, key=lambda name: -sign * metric_value(report, name, metric, -sign * np.inf))
    handles = [axes.plot(x, curves["oracle"], color=INK, lw=1.3, marker=marker, label="oracle: best possible")[0]]
    for name in order:
        label = f"{_text(metric_value(report, name, metric))}  {name}"
        handles += axes.plot(x, curves[f"scorer:{name}"], lw=1.9, marker=marker, label=label, **_line(report, name))
    handles += axes.plot(x, curves["random"], color=MUTED, lw=1.3, ls=":", marker=marker, label="random: no skill")
    legend = figure.legend(
        handles=handles, loc="outside right center", title=f"{heading}, best first", alignment="left"
    )
    legend.get_title().set_color(MUTED)
    return figure


def _score_histograms(report: EvaluationReport, numbers: Numbers) -> Figure:
    good, median = good_examples(numbers.quality), f"{np.median(numbers.quality):.2f}"
    figure, panels = panel_grid(
        "Uncertainty of good and bad outputs",
        list(numbers.uncertainty),
        [
            Patch(
                color=LIGHT[0],
                label=f"in colour, up: {good.sum():,} outputs of quality {median} (the median) or better",
            ),
            Patch(color=GREY, label=f"grey, down: {len(good) - good.sum():,} below it"),
        ],
        xlabel="Uncertainty score (the outermost bars hold all beyond)",
        ylabel="Share of each kind",
    )
    for name, axes in panels.items():
        histogram = score_histogram(numbers.uncertainty[name], good)
        bars_up_and_down(axes, histogram, _line(report, name)["color"])
    return figure


def bars_up_and_down(axes: Any, histogram: dict[str, np.ndarray], color: str) -> None:
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


def _reliability(report: EvaluationReport, numbers: Numbers) -> Figure:
    figure, panels = panel_grid(
        "Is the confidence right?",
        list(numbers.confidence),
        [
            Line2D([], [], color=INK, marker="o", ms=4.5, lw=1.4, label="bins of equal mass with 95 % interval"),
            Line2D([], [], color=MUTED, ls=":", label="perfect"),
            Patch(color=FAINT, label="how often each confidence occurs"),
        ],
        xlabel="Confidence: the quality to expect",
        ylabel="Mean quality found",
    )
    for name, axes in panels.items():
        confidence = numbers.confidence[name]
        found = reliability_bins(confidence, numbers.quality)
        x, y, low, high = (
            np.array([entry[key] for entry in found]) for key in ("confidence", "quality", "low", "high")
        )
        counts, edges = np.histogram(confidence.clip(0, 1), np.linspace(0, 1, 21))
        axes.bar(
            edges[:-1], 0.22 * counts / counts.max(initial=1), 0.05, align="edge", color=FAINT, ec="white", lw=0.4
        )
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=":")
        color = _line(report, name)["color"]
        axes.errorbar(x, y, [y - low, high - y], color=color, lw=1.4, marker="o", ms=4.5, elinewidth=1, mec="white")
        error = metric_value(report, name, "confidence_ece")
        if error is not None:
            axes.text(0.04, 0.85, f"ECE {error:.3f}", transform=axes.transAxes, color=MUTED, fontsize=9)
        axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.04), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        axes.grid()
    return figure


def panel_grid(
    title: str, names: list[str], legend: list[Artist], xlabel: str, ylabel: str
) -> tuple[Figure, dict[str, Axes]]:
    """Small multiples, at most four in a row, one per scorer, below a title and a legend."""
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


def _line(report: EvaluationReport, scorer: str) -> dict[str, Any]:
    index = colour_index(report.scorers)[scorer]
    solid = index < len(LIGHT) // 2
    # dashes go on top: a line that is the same as a solid one is still seen
    return {"color": LIGHT[index], "ls": "-" if solid else (0, (4, 1.6)), "zorder": 2 if solid else 3}


def _text(value: float | None) -> str:
    return "  -  " if value is None else f"{value:.3f}".replace("-", "−")


def _quality_name(report: EvaluationReport) -> str:
    return f" ({next(iter(report.metrics['quality']))})" if report.metrics.get("quality") else ""


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
