"""A figure of the training (the extra `plots`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


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
