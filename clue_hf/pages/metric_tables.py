"""The metrics of a report about predictions as tables of its web page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from ..evaluation.prediction_report import PredictionReport
from ..evaluation.report import Differences
from .parts import comparison_section, html_table, leaves_out_zero, metric_td, number_text


def _same(name: str, entry: dict[str, Any]) -> Callable[..., str]:
    return number_text


@dataclass(frozen=True)
class MetricTables:
    """
    How the metrics of one kind of report are shown.

    Args:
        headings (`dict[str, str]`):
            The main metrics with their headings.
        lower, higher (`set[str]`):
            Metrics of which lower, or higher, is better.
        definition (`Callable`):
            What a metric says, by its name.
        writer (`Callable`, *optional*):
            From a metric's name and entry to what writes its numbers; by default all are written alike.
    """

    headings: dict[str, str]
    lower: set[str]
    higher: set[str]
    definition: Callable[[str], str]
    writer: Callable[[str, dict[str, Any]], Callable[..., str]] = _same

    def metrics(self, report: PredictionReport) -> str:
        """The main metrics, and all of them in a table to unfold."""
        names = report.metrics["raw"]
        return (
            self._table(report, [name for name in self.headings if name in names], "Main metrics")
            + "<details><summary>All other metrics</summary>"
            + self._table(report, [name for name in names if name not in self.headings], "All other metrics")
            + "</details>"
        )

    def comparison(self, differences: Differences | None, other: str) -> str:
        """The differences to another report; nothing where there are none."""
        if not differences:
            return ""
        heads = ["Metric", *(word for kind in differences for word in (f"Difference, {kind}", "p"))]
        rows = []
        for name in (name for name in self.headings if name in differences["raw"]):
            cells = ""
            for found in differences.values():
                entry = found.get(name) or {}
                cells += self._cell(name, entry, leaves_out_zero(entry), signed=True)
                cells += metric_td({"value": entry.get("p_value")})
            rows.append(f'<tr><th scope="row">{escape(self._heading(name))}</th>{cells}</tr>')
        return comparison_section(other, "", heads, rows)

    def arrow(self, name: str) -> str:
        """Which way is better."""
        return " ↓" if name in self.lower else " ↑" if name in self.higher else ""

    def _table(self, report: PredictionReport, names: list[str], caption: str) -> str:
        head = '<th scope="col">Metric</th>' + "".join(f'<th scope="col">{kind}</th>' for kind in report.kinds)
        rows = []
        for name in names:
            entries = [report.metrics[kind][name] for kind in report.kinds]
            best = self._best([entry["value"] for entry in entries], name)
            cells = "".join(self._cell(name, entry, best is not None and entry["value"] == best) for entry in entries)
            words = f'<span class="about">{escape(self.definition(name))}</span>'
            rows.append(f'<tr><th scope="row">{escape(self._heading(name))}{words}</th>{cells}</tr>')
        return html_table(caption, head, rows)

    def _cell(self, name: str, entry: dict[str, Any], best: bool, signed: bool = False) -> str:
        return metric_td(entry, best, signed, self.writer(name, entry))

    def _heading(self, name: str) -> str:
        return self.headings.get(name, name.replace("_", " ")) + self.arrow(name)

    def _best(self, values: list[float | None], name: str) -> float | None:
        """The better of several values; `None` where there is no choice."""
        known = [value for value in values if value is not None]
        if len(set(known)) < 2 or not self.arrow(name):
            return None
        return min(known) if name in self.lower else max(known)
