"""Figures of a report on a classifier (the extra `plots`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from ...metrics.registry import format_metric
from ...pages.figures import (
    DASHED,
    curve_figure,
    histogram_figure,
    rejection_axes,
    reliability_line,
    save_figures,
    short_name,
    titled_figure,
)
from ...pages.palette import FAINT, INK, LIGHT, MUTED
from ...pages.selection import curve_limits, score_histogram
from .selection import BINS, bin_counts, confidence_bins, confident_errors, kept_accuracy, severity_lines


if TYPE_CHECKING:
    from .report import ClassificationReport

#: Number of images in the figure of confident errors, and in one row of it.
SHOWN, ACROSS = 24, 8
SEVERITY_PANELS = {
    "error": "Error", "ece": "ECE", "mean_uncertainty": "Mean uncertainty", "ood_auroc": "OOD AUROC"
}  # fmt: skip


def plot_report(report: ClassificationReport, folder: str | Path) -> list[Path]:
    """
    Draws `reliability`, `uncertainty_histograms`, `rejection_curve`, `severity` if images were corrupted, and
    `wrongly_sure` if there are images and wrong answers. See [`~clue_hf.evaluation.text.plots.plot_report`].
    """
    drawings = {
        "reliability": _reliability,
        "uncertainty_histograms": _histograms,
        "rejection_curve": _rejection_curve,
    }
    if "corruptions" in report.metrics:
        drawings["severity"] = _severity
    if hasattr(report.rows, "pixels") and not report.raw.right.all():
        drawings["wrongly_sure"] = _confident_errors
    return save_figures(drawings, folder, report)


def _reliability(report: ClassificationReport) -> Figure:
    """Accuracy against confidence for each kind, above the number of examples in each bin."""
    kinds = report.kinds
    figure = titled_figure("Is the confidence calibrated?", (max(5.2, 4.2 * len(kinds)), 5.6))
    grid: Any = figure.subplots(2, len(kinds), squeeze=False, sharex=True, sharey="row", height_ratios=[3, 1])
    for place, (kind, predicted) in enumerate(kinds.items()):
        axes, below = grid[:, place]
        reliability_line(axes, confidence_bins(predicted), LIGHT[place], lw=1.2, ms=5)
        axes.set_title(f"{kind}   ECE {_number(report, kind, 'ece')}")
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.04))
        _counts(below, bin_counts(predicted), LIGHT[place])
        below.set_xlabel("Confidence: probability of the answer")
    grid[0, 0].set_ylabel("Accuracy")
    grid[1, 0].set_ylabel("Examples")
    handles: list[Any] = [
        Line2D([], [], color=INK, marker="o", ms=5, mec="white", lw=1.2, label="bins of the ECE with 95 % interval"),
        Line2D([], [], color=MUTED, ls=":", label="perfect"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=2)
    return figure


def _counts(axes: Axes, counts: np.ndarray, color: str) -> None:
    edges = np.linspace(0, 1, BINS + 1)
    bars = axes.bar(edges[:-1], counts, 1 / BINS, align="edge", color=color, alpha=0.55, edgecolor="white", lw=0.4)
    labels = [f"{count:,}" if count else "" for count in counts]
    axes.bar_label(bars, labels, fontsize=6.5, color=MUTED, rotation=90 if counts.max() > 999 else 0, padding=1)
    axes.margins(y=0.3)
    axes.grid(axis="y")


def _histograms(report: ClassificationReport) -> Figure:
    right, wrong = int(report.raw.right.sum()), int((~report.raw.right).sum())
    return histogram_figure(
        "Uncertainty of right and wrong answers",
        (f"{right:,} right answers", f"{wrong:,} wrong answers (raw)"),
        "Uncertainty",
        {kind: score_histogram(predicted.uncertainty, predicted.right) for kind, predicted in report.kinds.items()},
        {kind: place for place, kind in enumerate(report.kinds)},
    )


def _rejection_curve(report: ClassificationReport) -> Figure:
    curves = kept_accuracy(report, 500)
    share = curves.pop("share")
    figure, axes = curve_figure(
        "Rejecting the least certain answers", "Share of answers rejected", "Accuracy of the answers kept"
    )
    axes.set_ylim(*curve_limits(curves))
    styles = {
        kind: {"color": LIGHT[place], "label": f"{kind}  PRR {_number(report, kind, 'prr')}"}
        for place, kind in enumerate(report.kinds)
    }
    rejection_axes(axes, share, curves, styles)
    figure.legend(loc="outside right center", alignment="left")
    return figure


def _severity(report: ClassificationReport) -> Figure:
    """Each metric against the severity, a line per corruption; solid: raw, dashed: calibrated."""
    names = list(report.metrics["corruptions"])
    colours = {name: LIGHT[place % len(LIGHT)] for place, name in enumerate(names)}
    figure = titled_figure("Answers to corrupted images", (12.6, 3.4 + 0.22 * (1 + len(names) // 5)))
    grid: Any = figure.subplots(1, len(SEVERITY_PANELS))
    for axes, (metric, title) in zip(grid, SEVERITY_PANELS.items(), strict=True):
        for kind, style in zip(report.kinds, ("-", DASHED), strict=False):
            for name, points in severity_lines(report, metric, kind).items():
                with_interval = kind == "raw" and len(names) <= 3
                _severity_line(axes, points, colours[name], style, with_interval)
        axes.set_title(title)
        axes.set(xlabel="Severity (0: original)", xticks=range(6), xlim=(-0.2, 5.2))
        axes.grid()
    handles: list[Any] = [Line2D([], [], color=colours[name], marker="o", ms=4, label=name) for name in names]
    if len(report.kinds) > 1:
        handles.append(Line2D([], [], color=INK, ls=DASHED, label="dashed: calibrated"))
    figure.legend(handles=handles, loc="outside lower left", ncols=6)
    return figure


def _severity_line(axes: Axes, points: list[dict[str, Any]], color: str, style: Any, with_interval: bool) -> None:
    x, y, low, high = (
        [point[key] for point in points if point["value"] is not None] for key in ("severity", "value", "low", "high")
    )
    axes.plot(x, y, color=color, ls=style, lw=1.6, marker="o", ms=4, mec="white")
    if with_interval and None not in low:
        axes.fill_between(x, low, high, color=color, alpha=0.13, lw=0)


def _confident_errors(report: ClassificationReport) -> Figure:
    """The images of the wrong answers of the highest probability."""
    raw = report.raw
    rows = confident_errors(raw, SHOWN)
    images = report.rows.pixels(rows.tolist())
    lines = -(-len(rows) // ACROSS)
    title = "Most confident errors: answer, its probability, and the true class"
    figure = titled_figure(title, (1.62 * ACROSS, 0.5 + 2.05 * lines))
    grid: Any = figure.subplots(lines, ACROSS, squeeze=False).reshape(-1)
    for axes in grid:
        axes.set_axis_off()
    for axes, row, image in zip(grid, rows, images, strict=False):
        grey = image.shape[-1] == 1
        axes.imshow(image[..., 0] if grey else image, cmap="gray" if grey else None, vmin=0, vmax=255)
        answer, truth = (short_name(report.names[names[row]].split(",")[0], 18) for names in (raw.answers, raw.labels))
        text = f"{answer}  {raw.confidence[row]:.0%}\nis {truth}"
        axes.set_title(text, fontsize=9, loc="center", color=INK, parse_math=False)
        size = image.shape[1], image.shape[0]
        axes.add_patch(Rectangle((-0.5, -0.5), *size, fill=False, edgecolor=FAINT, lw=0.8))
    return figure


def _number(report: ClassificationReport, kind: str, name: str) -> str:
    return format_metric(report.metrics[kind][name], name, "classes", minus="−", interval=None)
