"""What the reports about classifiers and regressors share: raw and calibrated predictions, their tables and files."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from ..files import write_lines
from ..metrics import CONFORMAL_METRICS, metric_info
from ..metrics.content import ReportContent
from ..pages import environment
from ..posthoc import Conformal
from ..posthoc.stored import Stored
from ..tables import markdown_table
from .report import Differences, SavedReport, p_value_cell


PREDICTIONS, CALIBRATOR = "predictions.jsonl", "calibrator.json"

Predictions = TypeVar("Predictions")
Line = dict[str, Any]


class PredictionReport(SavedReport, Generic[Predictions]):
    """Base of the reports about models that predict a class or a number."""

    #: Metrics at the top of the page, and the one that shows what the calibrator does.
    tile_metrics: ClassVar[tuple[str, ...]]
    calibration_metric: ClassVar[str]
    #: How to read the table.
    reading: ClassVar[str]
    #: What prediction sets or intervals are called, and their groups.
    conformal_title: ClassVar[str]
    conformal_groups: ClassVar[str]

    raw: Predictions
    calibrated: Predictions | None
    calibrator: Stored | None
    rows: Any

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
    def sentences(self) -> list[str]:
        """What the report found, in sentences, the most important first."""

    def headline(self) -> str:
        return " ".join(self.sentences()[:2])

    def _paragraphs(self) -> Iterator[str]:
        description = self.description
        yield self._subject() + self._opening()
        yield self.table()
        yield f"Uncertainty: {description['uncertainty']}. Intervals: {description['interval']}. {self.reading}"
        yield from self.remarks()
        if "conformal" in self.metrics:
            yield f"## {self.conformal_title}"
            yield self.conformal_sentence()
            yield self._metric_table(("predictions", self.conformal_groups), self.conformal(), self.conformal_metrics)

    # ---- prediction sets and intervals ----

    @property
    def conformal_metrics(self) -> tuple[str, ...]:
        """The metrics of prediction sets or intervals."""
        return CONFORMAL_METRICS[self.kind]

    def conformal(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The metrics of each kind of predictions, of all rows and of groups by the size of their set or interval."""
        return {
            (kind, group): metrics
            for kind, groups in self.metrics.get("conformal", {}).items()
            for group, metrics in groups.items()
        }

    def conformal_sentence(self) -> str:
        """How the prediction sets or intervals were made."""
        fitted = Conformal.from_dict(next(iter(self.description["conformal"].values())))
        return (
            f"{fitted.name}, fitted on {fitted.n:,} calibration rows to contain the true value of a similar new row "
            f"with a probability of at least {fitted.coverage:g}, over all rows. The coverage of single groups may be "
            "higher or lower."
        )

    @abstractmethod
    def _opening(self) -> str:
        """What was predicted, and how."""

    def remarks(self) -> list[str]:
        """What else to know about the numbers: the calibrator, and notes."""
        calibrator = self.calibrator
        fitted = [] if calibrator is None else [f"Calibrated: {calibrator.name}, fitted on the validation data."]
        return fitted + self._notes()

    @abstractmethod
    def _notes(self) -> list[str]:
        """Sentences about thresholds, floors and rows."""

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

    # ---- the page ----

    def write_page(
        self, path: str | Path, comparison: Differences | None = None, other: str = "the other model", limit: int = 200
    ) -> None:
        """
        Writes the report as one HTML file that works offline: summary, tables with intervals, curves to explore, and
        at most about `limit` examples to sort. See [`~clue_hf.evaluation.text.page.write_page`].
        """
        columns = {kind: self.metrics[kind] for kind in self.kinds}
        environment.write_page(
            path,
            self.kind,
            report=self,
            description=self.description,
            columns=columns,
            main=[name for name in self.main_metrics if name in columns["raw"]],
            comparison=comparison,
            other=other,
            **self._page_content(limit),
        )

    @abstractmethod
    def _page_content(self, limit: int) -> dict[str, Any]:
        """The `tiles`, the `summary` in sentences, and the `data` that the script of the page reads."""

    def tiles(self, first: environment.Tile) -> list[environment.Tile]:
        """The numbers to see first."""
        tiles = [first]
        shown = [("raw", name, "") for name in self.tile_metrics]
        shown += [("calibrated", self.calibration_metric, ", calibrated")] if self.calibrated is not None else []
        for kind, name, note in shown:
            label = metric_info(name, self.kind).heading + note
            tiles.append(environment.metric_tile(self.metrics[kind][name], label, name, self.kind))
        return tiles

    def calibration_sentence(self, more: str = "") -> list[str]:
        """What the calibrator changes, where there is one."""
        if self.calibrator is None:
            return []
        before, after = (self.metrics[kind][self.calibration_metric]["value"] for kind in ("raw", "calibrated"))
        return [
            f"The calibrator ({self.calibrator.name}, fitted on the validation data) changes the ECE from "
            f"{before:.3f} to {after:.3f}{more}."
        ]

    # ---- files ----

    @abstractmethod
    def _labels(self) -> Iterator[Line]:
        """The number of each row, and its label."""

    @abstractmethod
    def _predicted(self, predictions: Predictions) -> Iterator[Line]:
        """What was predicted for each row."""

    def _lines(self) -> Iterator[Line]:
        texts = getattr(self.rows, "texts", None)
        predicted = [self._predicted(predictions) for predictions in self.kinds.values()]
        for place, (label, raw, *calibrated) in enumerate(zip(self._labels(), *predicted, strict=True)):
            line = {**label, **raw}
            if calibrated:
                line["calibrated"] = calibrated[0]
            yield line if texts is None else {**line, "text": texts[place]}

    def _save_rows(self, folder: Path) -> None:
        (folder / "report.json").unlink(missing_ok=True)  # it is written last: its report is complete
        write_lines(folder / PREDICTIONS, self._lines())
        (folder / CALIBRATOR).unlink(missing_ok=True)
        if self.calibrator is not None:
            self.calibrator.save(folder / CALIBRATOR)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Reads what `save` wrote; the numbers are rounded, and the images are not there."""
        folder = Path(folder)
        content = ReportContent.read(folder)
        calibrator = folder / CALIBRATOR
        with open(folder / PREDICTIONS, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        report = cls._read(content, lines, calibrator if calibrator.exists() else None)
        for kind, fitted in content.description.get("conformal", {}).items():
            setattr(report, kind, replace(report.kinds[kind], conformal=Conformal.from_dict(fitted)))  # type: ignore[type-var]
        return report

    @classmethod
    @abstractmethod
    def _read(cls, content: ReportContent, lines: list[Line], calibrator: Path | None) -> Self:
        """The report whose files hold this."""
