"""What the reports about classifiers and regressors share: raw and calibrated predictions, their tables and files."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from ..files import write_lines
from ..posthoc.stored import Stored
from ..tables import markdown_table, metric_cell
from .report import Differences, SavedReport


PREDICTIONS, CALIBRATOR = "predictions.jsonl", "calibrator.json"

Predictions = TypeVar("Predictions")


class PredictionReport(SavedReport, Generic[Predictions]):
    """Base of the reports about models that answer with a class or a number."""

    #: Metrics of the printed table with their headings; the rest is in the JSON file.
    headings: ClassVar[dict[str, str]]

    raw: Predictions
    calibrated: Predictions | None
    calibrator: Stored | None

    @property
    def kinds(self) -> dict[str, Predictions]:
        """The predictions by name: `raw` and, with a calibrator, `calibrated`."""
        return {"raw": self.raw} | ({} if self.calibrated is None else {"calibrated": self.calibrated})

    def table(self) -> str:
        """The main metrics as a markdown table, each with its interval."""
        lines = [["metric", *self.kinds]]
        for name, heading in self._shown(self.metrics):
            lines.append([heading, *(self.cell(name, self.metrics[kind][name]) for kind in self.kinds)])
        return markdown_table(lines)

    def cell(self, name: str, entry: dict[str, Any], sign: str = "") -> str:
        """A metric with its interval, as a table shows it."""
        return metric_cell(entry, sign=sign)

    @abstractmethod
    def compare(self, other: Self, resamples: int = 2000) -> Differences:
        """
        This report minus another on the same rows: for `raw`, and `calibrated` where both are, the difference of every
        metric with interval and p-value (paired bootstrap).
        """

    def difference_table(self, differences: Differences) -> str:
        lines = [["metric", *(word for kind in differences for word in (kind, "p"))]]
        for name, heading in self._shown(differences):
            cells = [heading]
            for found in differences.values():
                entry = found.get(name) or {"value": None}
                p_value = entry.get("p_value")
                cells += [self.cell(name, entry, "+"), "-" if p_value is None else f"{p_value:.3f}"]
            lines.append(cells)
        return markdown_table(lines)

    def _shown(self, metrics: dict[str, Any]) -> list[tuple[str, str]]:
        return [(name, heading) for name, heading in self.headings.items() if name in metrics["raw"]]

    def _passes(self) -> str:
        """How a prediction was had."""
        passes = self.description["settings"]["mc_samples"]
        return f"the mean of {passes} passes with dropout" if passes else "one pass"

    @abstractmethod
    def _lines(self) -> Iterator[dict[str, Any]]:
        """The rows of the file of predictions."""

    def _save_rows(self, folder: Path) -> None:
        (folder / "report.json").unlink(missing_ok=True)  # whoever finds it finds a finished report
        write_lines(folder / PREDICTIONS, self._lines())
        (folder / CALIBRATOR).unlink(missing_ok=True)
        if self.calibrator is not None:
            self.calibrator.save(folder / CALIBRATOR)


def read_report(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What `save` wrote: metrics and description, and the rows of the file of predictions."""
    content = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    with open(folder / PREDICTIONS, encoding="utf-8") as file:
        return content, [json.loads(line) for line in file]
