"""Pictures (the extra `plots`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def plot_training_curves(histories: dict[str, list[dict[str, Any]]], path: str | Path) -> None:
    """Error and uncertainty along the training of each objective; solid on validation data, dotted in training."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    for axes, name in zip(panels, ("error", "uncertainty"), strict=True):
        for color, (objective, history) in enumerate(histories.items()):
            for key, style, label in ((f"eval_{name}", "-", objective), (name, ":", f"{objective}, training")):
                points = [(line["step"], line[key]) for line in history if key in line]
                if points:
                    axes.plot(*zip(*points, strict=True), style, color=f"C{color}", label=label)
        axes.set(title=name.capitalize(), xlabel="optimizer step", ylabel="nats per token", ylim=(0, None))
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    figure.savefig(path, dpi=120)
