"""What the reports of all evaluations share: the files that they write, and how they tell of a comparison."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers.utils import logging

from ..files import write_json, write_text


logger = logging.get_logger(__name__)

#: The differences of every metric, by scorer or by kind of prediction.
Differences = dict[str, dict[str, Any]]


class SavedReport(ABC):
    """Base of the reports."""

    metrics: dict[str, Any]
    description: dict[str, Any]

    @abstractmethod
    def summary(self) -> str:
        """The report in words and tables, as markdown."""

    @abstractmethod
    def difference_table(self, differences: Differences) -> str:
        """What `compare` found as a markdown table."""

    def comparison(self, differences: Differences, other: str) -> str:
        """The differences to another report as a sentence and a markdown table."""
        name = self.description.get("model", "This model")
        return f"{name} minus {other}, on the same rows:\n\n{self.difference_table(differences)}\n"

    def save(self, folder: str | Path, comparison: Differences | None = None, other: str = "the other model") -> None:
        """
        Writes `report.json`, a file with every row, `summary.md`, `report.html` and, with the extra `plots`, the
        pictures.

        Args:
            folder (`str`):
                Where to.
            comparison (`dict`, *optional*):
                What `compare` found: it goes into the summary, the page and `comparison.json`.
            other (`str`, *optional*):
                Name of the model that this one was compared with.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._save_rows(folder)
        summary = self.summary() + ("" if comparison is None else "\n" + self.comparison(comparison, other))
        write_text(folder / "summary.md", summary)
        self._write_page(folder / "report.html", comparison, other)
        self._save_plots(folder)
        if comparison is not None:
            write_json(folder / "comparison.json", comparison)
        write_json(folder / "report.json", {"metrics": self.metrics, "description": self.description})

    def _save_plots(self, folder: Path) -> None:
        try:
            plot = self._plotter()
        except ImportError:
            logger.warning("Install the extra `plots` (pip install 'clue-hf[plots]') for pictures of the curves.")
        else:
            plot(self, folder)

    @abstractmethod
    def _save_rows(self, folder: Path) -> None:
        """Writes the files that hold the rows, and whatever else is not of all reports."""

    @abstractmethod
    def _write_page(self, path: Path, comparison: Differences | None, other: str) -> None:
        """Writes the web page."""

    @abstractmethod
    def _plotter(self) -> Callable[[Any, Path], Any]:
        """What draws the pictures into a folder; raises an `ImportError` without the extra `plots`."""

    def _subject(self) -> str:
        """Which model on which data, where it is known: the beginning of a sentence."""
        told = self.description
        return f"{told['model']} on {told['data']}: " if "model" in told else ""
