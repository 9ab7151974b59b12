"""Several methods on the same data: the result of a comparison, as tables and as what its figures show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..metrics import rejection_curve
from .comparison_table import Costs, Table, as_dict, as_latex, as_markdown, cost_columns


#: Shares of outputs rejected at which the curves of seeds are averaged.
SHARES = np.linspace(0, 1, 101)
#: Rejection curves of a method by the name of the uncertainty, each with a value per share of [`SHARES`].
Curves = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class ComparedView:
    """The methods on one split, or on a corrupted copy of it, whose name is `name`."""

    name: str
    #: The method that the others are compared with.
    baseline: str
    #: The result of [`compare_methods`].
    compared: Table
    #: Titles of the tables, the main one's empty, and the metrics of each with their headings.
    tables: Mapping[str, Mapping[str, str]]
    #: Time and memory of the trained methods relative to the baseline.
    costs: Costs
    #: The rejection curves of each method, and what they show of the outputs that are kept.
    curves: Mapping[str, Curves]
    kept: str
    #: Pairs of metrics to draw against each other, and those of them of which higher is better.
    tradeoffs: Sequence[tuple[str, str]]
    higher: Sequence[str]
    #: How to read the numbers, and their definitions.
    reading: str
    definitions: Mapping[str, str]
    #: Number of trainings of each method.
    seeds: int
    #: The command, and the time, place and versions of its run.
    command: str
    surroundings: str
    #: Sentences on rows of the data that were left out.
    left_out: Sequence[str] = ()

    @property
    def caption(self) -> str:
        """How to read the tables."""
        seeds = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
        return (
            f"Means over {seeds} with 95 % intervals over seeds and examples; *: differs from "
            f"{self.baseline} (paired bootstrap, Holm, p < 0.05). Time (the processor's, where it does the work) and "
            f"peak memory relative to {self.baseline}'s."
        )

    @property
    def cost_columns(self) -> dict[str, dict[str, str]]:
        """By heading, what each method costs."""
        return cost_columns(self.compared, self.costs)

    def heading(self, metric: str) -> str:
        """What a metric is called in the tables."""
        return next(columns[metric] for columns in self.tables.values() if metric in columns)

    def markdown(self) -> str:
        """All tables, with what made them and how to read them."""
        parts = [f"# {self.name}", f"Made by `{self.command}` ({self.surroundings}).", *self.left_out]
        for title, columns in self.tables.items():
            parts += [f"**{title}**"] if title else []
            parts.append(as_markdown(self.compared, columns, None if title else self.costs))
            parts += [] if title else [f"{self.reading}\n{self.caption}"]
        return "\n\n".join(parts) + "\n"

    def latex(self) -> str:
        """All tables with booktabs."""
        return "\n\n".join(
            (f"% {title}\n" if title else "") + as_latex(self.compared, columns, None if title else self.costs)
            for title, columns in self.tables.items()
        )

    def content(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "command": self.command,
            "surroundings": self.surroundings,
            "baseline": self.baseline,
            "seeds": self.seeds,
            "left_out": list(self.left_out),
            "costs": self.costs,
            "methods": as_dict(self.compared),
            "rejection_curves": {
                method: {name: [round(float(value), 6) for value in curve] for name, curve in curves.items()}
                for method, curves in self.curves.items()
            },
        }


def mean_curves(judged: Sequence[tuple[Mapping[str, np.ndarray], np.ndarray]]) -> Curves:
    """The rejection curves of several seeds as one: means at each share rejected, from none to all but one output."""
    curves: dict[str, list[np.ndarray]] = {}
    for uncertainties, quality in judged:
        places = np.linspace(0, len(quality) - 1, len(SHARES)).round().astype(int)
        for name, uncertainty in uncertainties.items():
            curves.setdefault(name, []).append(rejection_curve(uncertainty, quality)[places])
    return {name: np.mean(seeds, axis=0) for name, seeds in curves.items()}


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names of the points to which no other is at least as good in both numbers, lower being better, in order."""
    front = [
        name
        for name, (x, y) in points.items()
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in points.values())
    ]
    return sorted(front, key=lambda name: points[name])
