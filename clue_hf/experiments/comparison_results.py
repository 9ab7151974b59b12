"""Several methods over several seeds: means, intervals over seeds and examples, differences to a baseline, tables."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..metrics import Measured, format_metric, rejection_curve
from ..metrics.measured import NAN, difference_p_value
from ..tables import markdown_table


#: What a metric of a method is: one measurement per seed.
Runs = Sequence[Mapping[str, Measured]]


@dataclass(frozen=True)
class Compared:
    """
    A metric of a method: its mean over the seeds and that of its difference to the baseline on the same examples, both
    with 95 % intervals, and the two-sided p-value of no difference, corrected for the number of methods (Holm).
    """

    value: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    p_value: float


def compare_methods(
    methods: Mapping[str, Runs], baseline: str, metrics: Sequence[str], level: float = 0.95, seed: int = 0
) -> dict[str, dict[str, Compared]]:
    """
    For each method and metric: the mean over its seeds, with an interval over seeds and examples, and the difference
    to the baseline.

    A resample draws seeds with replacement, the same for methods that have the same number of them, and of every seed
    the same examples: the measurements hold the metric on each draw of examples, which all methods share (see
    [`~clue_hf.metrics.Measured`]).
    """
    compared: dict[str, dict[str, Compared]] = {name: {} for name in methods}
    for metric in metrics:
        means = {}
        for name, runs in methods.items():
            resampled = np.stack([run[metric].resampled for run in runs])
            drawn = np.take_along_axis(resampled, _seed_draws(*resampled.shape, seed), axis=0).mean(0)
            value = float(np.mean([run[metric].value for run in runs]))
            means[name] = Measured.from_resamples(value, drawn, runs[0][metric].n, level=level)
        differences = {name: mean.minus(means[baseline], level) for name, mean in means.items()}
        others = {name: apart for name, apart in differences.items() if name != baseline}
        p_values = {baseline: NAN} | holm(
            {name: difference_p_value(apart.resampled) for name, apart in others.items()}
        )
        for name, mean in means.items():
            apart = differences[name]
            compared[name][metric] = Compared(
                mean.value, mean.low, mean.high, apart.value, apart.low, apart.high, p_values.get(name, NAN)
            )
    return compared


@lru_cache(maxsize=32)
def _seed_draws(seeds: int, resamples: int, seed: int) -> np.ndarray:
    """The seeds of each resample as (seeds, resamples): the same for all methods with the same number of seeds."""
    return np.random.default_rng([seed, seeds]).integers(seeds, size=(seeds, resamples))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's correction: the k-th smallest of m p-values times m - k + 1, never falling, at most 1; without nan."""
    p_values = {name: p_value for name, p_value in p_values.items() if not np.isnan(p_value)}
    corrected, largest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        corrected[name] = largest
    return corrected


Table = Mapping[str, Mapping[str, Compared]]
#: For each trained method, by heading, what it costs relative to the baseline.
Costs = Mapping[str, Mapping[str, float]]


def as_markdown(compared: Table, headings: Mapping[str, str], costs: Costs | None = None) -> str:
    """A row per method; a star where the corrected difference to the baseline is below 0.05."""
    return markdown_table(_lines(compared, headings, costs or {}))


def as_latex(compared: Table, headings: Mapping[str, str], costs: Costs | None = None) -> str:
    """The same with booktabs."""
    lines = _lines(compared, headings, costs or {})
    body = [" & ".join(re.sub("([_%&#])", r"\\\1", cell) for cell in line) + r" \\" for line in lines]
    columns = "l" + "r" * (len(lines[0]) - 1)
    head = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", body[0], r"\midrule"]
    return "\n".join([*head, *body[1:], r"\bottomrule", r"\end{tabular}"])


def as_csv(compared: Table) -> str:
    """A line per method and metric, with every number."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["method", "metric", *Compared.__dataclass_fields__])
    for name, metrics in compared.items():
        for metric, entry in metrics.items():
            writer.writerow([name, metric, *vars(entry).values()])
    return text.getvalue()


def _lines(compared: Table, headings: Mapping[str, str], costs: Costs) -> list[list[str]]:
    columns = cost_columns(compared, costs)
    lines = [["method", *headings.values(), *columns]]
    for name, metrics in compared.items():
        cells = [_cell(metrics[metric]) if metric in metrics else "-" for metric in headings]
        lines.append([name, *cells, *(column[name] for column in columns.values())])
    return lines


def cost_columns(compared: Table, costs: Costs) -> dict[str, dict[str, str]]:
    """By heading, what each method costs; a dash for methods of which it is not known."""
    headings = dict.fromkeys(heading for cost in costs.values() for heading in cost)
    known = {method: {heading: f"{ratio:.2f}x" for heading, ratio in cost.items()} for method, cost in costs.items()}
    return {heading: {name: known.get(name, {}).get(heading, "-") for name in compared} for heading in headings}


def _cell(compared: Compared) -> str:
    star = "*" if compared.p_value < 0.05 else ""
    return format_metric(vars(compared), interval=star + " [{}, {}]")


def as_dict(compared: Table) -> dict[str, Any]:
    """Everything as plain numbers; `None` for those that are undefined."""
    return {
        name: {
            metric: {part: None if np.isnan(number) else number for part, number in vars(entry).items()}
            for metric, entry in metrics.items()
        }
        for name, metrics in compared.items()
    }


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
    #: The rejection curves of each method, and the label of their axis.
    curves: Mapping[str, Curves]
    curve_label: str
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
            f"{self.baseline} (paired bootstrap, Holm, p < 0.05). Time (CPU time without an accelerator) and peak "
            f"memory are relative to {self.baseline}."
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
