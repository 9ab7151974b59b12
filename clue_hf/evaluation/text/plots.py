"""Figures of a report on texts (the extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...metrics.registry import format_metric, metric_info
from ...pages.figures import (
    curve_figure,
    histogram_figure,
    line_style,
    panel_grid,
    rejection_axes,
    reliability_line,
    save_figures,
)
from ...pages.palette import FAINT, INK, LIGHT, MUTED
from ...pages.selection import curve_limits, score_histogram
from .selection import (
    colour_index,
    confidence_counts,
    good_examples,
    metric_value,
    ordered_scorers,
    reliability_bins,
    thinned_curves,
)


if TYPE_CHECKING:
    from .report import EvaluationReport


def plot_report(report: EvaluationReport, folder: str | Path) -> list[Path]:
    """
    Draws `rejection_curves`, `risk_coverage`, `score_histograms` and, if a scorer has a calibrated confidence,
    `reliability` as PNG and SVG into a folder, which is created if needed; returns the files. The examples are read
    once, and the same report gives the same bytes.
    """
    drawings: dict[str, Callable[..., Figure]] = {
        "rejection_curves": _rejection_curves,
        "risk_coverage": _risk_coverage,
        "score_histograms": _score_histograms,
    }
    confidences = {name: values for name, values in report.confidences().items() if name in _drawn(report)}
    if confidences:
        drawings["reliability"] = partial(_reliability, confidences=confidences)
    return save_figures(drawings, folder, report)


def _rejection_curves(report: EvaluationReport) -> Figure:
    curves = thinned_curves(report)
    labels = ("Share of outputs rejected", f"Mean quality of the outputs kept{_quality_name(report)}")
    return _draw_curves(report, "Rejecting the least certain outputs", labels, curves.pop("share"), curves, "prr")


def _risk_coverage(report: EvaluationReport) -> Figure:
    risks = {name: 1 - curve for name, curve in thinned_curves(report).items()}
    labels = ("Coverage: share of outputs kept, most certain first", f"Risk: 1 − mean quality{_quality_name(report)}")
    return _draw_curves(report, "Risk of the outputs kept", labels, risks.pop("share"), risks, "aurc")


def _draw_curves(
    report: EvaluationReport,
    title: str,
    labels: tuple[str, str],
    x: np.ndarray,
    curves: dict[str, np.ndarray],
    metric: str,
) -> Figure:
    """One line per scorer, and a legend from the best to the worst value of the metric."""
    figure, axes = curve_figure(title, *labels)
    info = metric_info(metric, "text")
    axes.set_ylim(*curve_limits(curves))
    order = sorted(
        _drawn(report), key=lambda name: -info.direction * metric_value(report, name, metric, -info.direction * np.inf)
    )
    places = colour_index(ordered_scorers(report))
    styles = {}
    for name in order:
        entry = report.metrics["scorers"][name].get(metric)
        value = format_metric(entry, metric, "text", minus="−", interval=None).center(5)
        styles[f"scorer:{name}"] = {"label": f"{value}  {name}", **line_style(places[name])}
    handles = rejection_axes(axes, x, curves, styles)
    heading = f"{info.heading}, best first"
    legend = figure.legend(handles=handles, loc="outside right center", title=heading, alignment="left")
    legend.get_title().set_color(MUTED)
    return figure


def _score_histograms(report: EvaluationReport) -> Figure:
    good, median = good_examples(report.quality()), f"{np.median(report.quality()):.2f}"
    return histogram_figure(
        "Uncertainty of good and bad outputs",
        (f"{good.sum():,} outputs of quality {median} (the median) or better", f"{(~good).sum():,} below it"),
        "Uncertainty score",
        {name: score_histogram(report.uncertainty(name), good) for name in _drawn(report)},
        colour_index(ordered_scorers(report)),
    )


def _reliability(report: EvaluationReport, confidences: dict[str, np.ndarray]) -> Figure:
    legend: list[Any] = [
        Line2D([], [], color=INK, marker="o", ms=4.5, lw=1.4, label="bins of equal mass with 95 % interval"),
        Line2D([], [], color=MUTED, ls=":", label="perfect"),
        Patch(color=FAINT, label="distribution of the confidence"),
    ]
    figure, panels = panel_grid(
        "Is the confidence calibrated?",
        list(confidences),
        legend,
        xlabel="Confidence: the expected quality",
        ylabel="Mean quality",
    )
    places = colour_index(ordered_scorers(report))
    for name, axes in panels.items():
        confidence = confidences[name]
        counts = confidence_counts(confidence)
        heights = 0.22 * counts / counts.max(initial=1)
        axes.bar(np.arange(20) / 20, heights, 0.05, align="edge", color=FAINT, ec="white", lw=0.4)
        bins = reliability_bins(confidence, report.quality())
        reliability_line(axes, bins, LIGHT[places[name]], lw=1.4, ms=4.5)
        error = metric_value(report, name, "confidence_ece")
        if error is not None:
            axes.text(0.04, 0.85, f"ECE {error:.3f}", transform=axes.transAxes, color=MUTED, fontsize=9)
        axes.set(xlim=(-0.02, 1.02), ylim=(0, 1.04), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    return figure


def _drawn(report: EvaluationReport) -> list[str]:
    """The scorers that are drawn: the best ones, where there are more of them than colours."""
    return ordered_scorers(report)[: len(LIGHT)]


def _quality_name(report: EvaluationReport) -> str:
    return f" ({next(iter(report.metrics['quality']))})" if report.metrics.get("quality") else ""
