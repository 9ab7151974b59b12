"""What the reports of all kinds share: their files, their tables, and the paired differences of two of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from transformers.utils import logging

from ..files import write_json, write_text
from ..metrics import Measured, format_metric, metric_info
from ..tables import format_number, markdown_table


logger = logging.get_logger(__name__)

#: The differences of every metric, by scorer or by kind of prediction.
Differences = dict[str, dict[str, Any]]


class SavedReport(ABC):
    """Base of the reports."""

    #: Kind of the report in the registry of metrics.
    kind: ClassVar[str]
    #: Metrics of the printed table; the others are in the JSON file.
    main_metrics: ClassVar[tuple[str, ...]]

    metrics: dict[str, Any]
    description: dict[str, Any]

    @abstractmethod
    def table(self) -> str:
        """The main metrics as a markdown table, each with its interval."""

    @abstractmethod
    def headline(self) -> str:
        """What the report found, in a sentence or two."""

    def summary(self) -> str:
        """The report in words and tables, as markdown."""
        return "\n\n".join(["# Uncertainty report", *self._paragraphs()]) + "\n"

    @abstractmethod
    def _paragraphs(self) -> Iterable[str]:
        """The paragraphs and tables of the summary."""

    @abstractmethod
    def difference_table(self, differences: Differences) -> str:
        """The result of `compare` as a markdown table."""

    def comparison(self, differences: Differences, other: str) -> str:
        """The differences to another report as a sentence and a markdown table."""
        name = self.description.get("model", "This model")
        return f"{name} minus {other}, on the same rows:\n\n{self.difference_table(differences)}\n"

    def save(self, folder: str | Path, comparison: Differences | None = None, other: str = "the other model") -> None:
        """
        Writes `report.json`, a file with every row, `summary.md`, `report.html` and, with the extra `plots`, the
        pictures.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._save_rows(folder)
        # first, so that whatever happens to pages and pictures, nothing has to be computed again
        write_json(folder / "report.json", {"metrics": self.metrics, "description": self.description})
        summary = self.summary() + ("" if comparison is None else "\n" + self.comparison(comparison, other))
        write_text(folder / "summary.md", summary)
        self.write_page(folder / "report.html", comparison, other)
        try:
            plots = import_module(f".{self.kind}.plots", __package__)
        except ImportError:
            logger.warning("Install the extra `plots` (pip install 'clue-hf[plots]') for pictures of the curves.")
        else:
            plots.plot_report(self, folder)
        if comparison is not None:
            write_json(folder / "comparison.json", comparison)

    @abstractmethod
    def _save_rows(self, folder: Path) -> None:
        """Writes the files that hold the rows, and whatever else is not of all reports."""

    @abstractmethod
    def write_page(
        self, path: str | Path, comparison: Differences | None = None, other: str = "the other model"
    ) -> None:
        """Writes the web page."""

    def _subject(self) -> str:
        """Which model on which data, where it is known: the beginning of a sentence."""
        description = self.description
        return f"{description['model']} on {description['data']}: " if "model" in description else ""

    def _headings(self, names: Sequence[str]) -> list[str]:
        return [metric_info(name, self.kind).heading for name in names]

    def _cells(self, metrics: Mapping[str, Measured], names: Sequence[str], sign: str = "") -> list[str]:
        """Metrics with their intervals; a dash for those that are not there."""
        return [format_metric(metrics.get(name), name, self.kind, sign) for name in names]

    def _metric_table(self, first: Sequence[str], rows: Mapping[Any, Mapping[str, Measured]], names: Any) -> str:
        """A line per row: its label or labels, then its metrics."""
        lines = [[*first, *self._headings(names)]]
        for label, metrics in rows.items():
            labels = [label] if isinstance(label, str) else [*label]
            lines.append([*labels, *self._cells(metrics, names)])
        return markdown_table(lines)


def p_value_cell(measured: Measured | None) -> str:
    """The p-value of a difference, with three digits."""
    return format_number(None if measured is None else measured.p_value)
