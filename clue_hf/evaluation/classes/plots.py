"""Pictures of a report about a classifier (the extra `plots`)."""

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

from ..text.plots import FAINT, GREY, INK, MUTED, bars_up_and_down, curve_figure, panel_grid, save_figures
from ..text.selection import LIGHT, curve_limits, score_histogram
from .report import ClassificationReport
from .selection import BINS, bin_counts, confidence_bins, kept_accuracy, severity_lines, wrongly_sure


#: Images in the picture of wrongly sure answers, and how many in a row.
SHOWN, ACROSS = 24, 8
SEVERITY_PANELS = {
    "error": "Error", "ece": "ECE", "mean_uncertainty": "Mean uncertainty", "ood_auroc": "OOD AUROC"
}  # fmt: skip


def plot_class_report(report: ClassificationReport, folder: str | Path) -> list[Path]:
    """
    Draws an evaluation: `reliability`, `uncertainty_histograms`, `rejection_curve`, `severity` where images were
    corrupted, and `wrongly_sure` where there are images and wrong answers. The same report gives the same bytes.

    Args:
        report ([`ClassificationReport`]):
            What to draw.
        folder (`str` or `Path`):
            Where each picture goes as PNG and SVG; it is created if needed.

    Returns:
        `list[Path]`: The files that were written.
    """
    drawings: dict[str, Callable[[ClassificationReport], Figure]] = {
        "reliability": _reliability,
        "uncertainty_histograms": _histograms,
        "rejection_curve": _rejection_curve,
    }
    if "corruptions" in report.metrics:
        drawings["severity"] = _severity
    if hasattr(report.rows, "pixels") and not report.raw.right.all():
        drawings["wrongly_sure"] = _wrongly_sure
    return save_figures({name: partial(draw, report) for name, draw in drawings.items()}, folder)


def _reliability(report: ClassificationReport) -> Figure:
    """Accuracy against confidence for each kind, and below it how many examples are in each bin."""
    kinds = report.kinds
    figure = Figure(figsize=(max(5.2, 4.2 * len(kinds)), 5.6), layout="constrained")
    figure.suptitle("Is the confidence right?", weight="bold", x=0.01, ha="left")
    grid: Any = figure.subplots(2, len(kinds), squeeze=False, sharex=True, sharey="row", height_ratios=[3, 1])
    for place, (kind, predicted) in enumerate(kinds.items()):
        axes, below = grid[:, place]
        found = confidence_bins(predicted)
        x, y, low, high = (
            np.array([entry[key] for entry in found]) for key in ("confidence", "quality", "low", "high")
        )
        axes.plot([0, 1], [0, 1], color=MUTED, lw=1, ls=":")
        axes.errorbar(
            x, y, [np.maximum(y - low, 0), np.maximum(high - y, 0)], color=LIGHT[place], lw=1.2, marker="o", ms=5,
            elinewidth=1, mec="white",
        )  # fmt: skip
        error = report.metrics[kind]["ece"]["value"]
        axes.set_title(f"{kind}   ECE {error:.3f}")
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.04))
        axes.grid()
        _counts(below, np.array(bin_counts(predicted)), LIGHT[place])
    grid[0, 0].set_ylabel("Share of right answers")
    grid[1, 0].set_ylabel("Examples")
    for below in grid[1]:
        below.set_xlabel("Confidence: probability of the answer")
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
    kinds = report.kinds
    right, wrong = int(report.raw.right.sum()), int((~report.raw.right).sum())
    figure, panels = panel_grid(
        "Uncertainty of right and wrong answers",
        list(kinds),
        [
            Patch(color=LIGHT[0], label=f"in colour, up: {right:,} right answers"),
            Patch(color=GREY, label=f"grey, down: {wrong:,} wrong ones (raw)"),
        ],
        xlabel="Uncertainty (the outermost bars hold all beyond)",
        ylabel="Share of each",
    )
    for place, (kind, axes) in enumerate(panels.items()):
        histogram = score_histogram(kinds[kind].uncertainty, kinds[kind].right)
        bars_up_and_down(axes, histogram, LIGHT[place])
    return figure


def _rejection_curve(report: ClassificationReport) -> Figure:
    curves = kept_accuracy(report, 500)
    share = curves.pop("share")
    figure, axes = curve_figure("Rejecting the least certain answers", "Share of answers rejected")
    axes.set_ylabel("Share of right answers among those kept")
    axes.set_ylim(*curve_limits(curves))
    marker = "o" if len(share) == 1 else None
    axes.plot(share, curves["oracle"], color=INK, lw=1.3, marker=marker, label="oracle: best possible")
    for place, kind in enumerate(report.kinds):
        ratio = report.metrics[kind]["prr"]["value"]
        told = "" if ratio is None else f"  PRR {ratio:.3f}".replace("-", "−")
        axes.plot(share, curves[kind], color=LIGHT[place], lw=1.9, marker=marker, label=f"{kind}{told}")
    axes.plot(share, curves["random"], color=MUTED, lw=1.3, ls=":", marker=marker, label="random: no skill")
    figure.legend(loc="outside right center", alignment="left")
    return figure


def _severity(report: ClassificationReport) -> Figure:
    """Each metric against the severity, a line per corruption; solid: raw, dashed: calibrated."""
    names = list(report.metrics["corruptions"])
    colours = {name: LIGHT[place % len(LIGHT)] for place, name in enumerate(names)}
    figure = Figure(figsize=(12.6, 3.4 + 0.22 * (1 + len(names) // 5)), layout="constrained")
    figure.suptitle("Answers to corrupted images", weight="bold", x=0.01, ha="left")
    grid: Any = figure.subplots(1, len(SEVERITY_PANELS))
    for axes, (metric, title) in zip(grid, SEVERITY_PANELS.items(), strict=True):
        for kind, style in zip(report.kinds, ("-", (0, (4, 1.6))), strict=False):
            for name, points in severity_lines(report, metric, kind).items():
                known = [(severity, entry) for severity, entry in points if entry["value"] is not None]
                x, y = [severity for severity, _ in known], [entry["value"] for _, entry in known]
                axes.plot(x, y, color=colours[name], ls=style, lw=1.6, marker="o", ms=4, mec="white")
                if kind == "raw" and len(names) <= 3 and all(entry.get("low") is not None for _, entry in known):
                    low, high = ([entry[end] for _, entry in known] for end in ("low", "high"))
                    axes.fill_between(x, low, high, color=colours[name], alpha=0.13, lw=0)
        axes.set_title(title)
        axes.set(xlabel="Severity (0: as they are)", xticks=range(6), xlim=(-0.2, 5.2))
        axes.grid()
    handles: list[Any] = [Line2D([], [], color=colours[name], marker="o", ms=4, label=name) for name in names]
    if len(report.kinds) > 1:
        handles.append(Line2D([], [], color=INK, ls=(0, (4, 1.6)), label="dashed: calibrated"))
    figure.legend(handles=handles, loc="outside lower left", ncols=6)
    return figure


def _wrongly_sure(report: ClassificationReport) -> Figure:
    """The images of the wrong answers of the highest probability."""
    rows = wrongly_sure(report.raw, SHOWN)
    images = report.rows.pixels(rows.tolist())
    lines = -(-len(rows) // ACROSS)
    figure = Figure(figsize=(1.62 * ACROSS, 0.5 + 2.05 * lines), layout="constrained")
    figure.suptitle("Most wrongly sure: answer, its probability, and the truth", weight="bold", x=0.01, ha="left")
    grid: Any = figure.subplots(lines, ACROSS, squeeze=False).reshape(-1)
    for axes in grid:
        axes.set_axis_off()
    for axes, row, image in zip(grid, rows, images, strict=False):
        grey = image.shape[-1] == 1
        axes.imshow(image[..., 0] if grey else image, cmap="gray" if grey else None, vmin=0, vmax=255)
        answer, truth = (_short_name(report.names[found[row]]) for found in (report.raw.answers, report.raw.labels))
        words = f"{answer}  {report.raw.confidence[row]:.0%}\nis {truth}"
        axes.set_title(words, fontsize=9, loc="center", color=INK, parse_math=False)
        axes.add_patch(_frame(image))
    return figure


def _frame(image: np.ndarray) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((-0.5, -0.5), image.shape[1], image.shape[0], fill=False, edgecolor=FAINT, lw=0.8)


def _short_name(name: str) -> str:
    name = name.split(",")[0]
    return name if len(name) <= 18 else name[:17] + "…"
