"""What the reports about classifiers and regressors share: raw and calibrated predictions, their tables and files."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from ..files import write_lines
from ..posthoc.stored import Stored
from ..tables import markdown_table
from .report import Differences, SavedReport, p_value_cell


PREDICTIONS, CALIBRATOR = "predictions.jsonl", "calibrator.json"

Predictions = TypeVar("Predictions")


class PredictionReport(SavedReport, Generic[Predictions]):
    """Base of the reports about models that answer with a class or a number."""

    raw: Predictions
    calibrated: Predictions | None
    calibrator: Stored | None

    @property
    def kinds(self) -> dict[str, Predictions]:
        """The predictions by name: `raw` and, with a calibrator, `calibrated`."""
        return {"raw": self.raw} | ({} if self.calibrated is None else {"calibrated": self.calibrated})

    def table(self) -> str:
        names = [name for name in self.main_metrics if name in self.metrics["raw"]]
        columns = [["metric", *self._headings(names)]]
        columns += [[kind, *self._cells(self.metrics[kind], names)] for kind in self.kinds]
        return markdown_table([list(line) for line in zip(*columns, strict=True)])

    @abstractmethod
    def compare(self, other: Self, resamples: int = 2000) -> Differences:
        """
        This report minus another on the same rows: for `raw`, and `calibrated` where both are, the difference of every
        metric with interval and p-value (paired bootstrap).
        """

    def difference_table(self, differences: Differences) -> str:
        names = [name for name in self.main_metrics if name in differences["raw"]]
        columns = [["metric", *self._headings(names)]]
        for kind, metrics in differences.items():
            columns.append([kind, *self._cells(metrics, names, "+")])
            columns.append(["p", *(p_value_cell(metrics.get(name)) for name in names)])
        return markdown_table([list(line) for line in zip(*columns, strict=True)])

    def _passes(self) -> str:
        """How the predictions were computed."""
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


def read_predictions(folder: Path) -> list[dict[str, Any]]:
    """The rows of the file of predictions that `save` wrote."""
    with open(folder / PREDICTIONS, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
