"""The report about a regressor: its numbers, every prediction, and files that others can read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...metrics import paired_regression_differences
from ...metrics.content import ReportContent
from ...posthoc import QuantileCalibrator
from ...predictors.numbers import RegressionPredictions
from ..prediction_report import CALIBRATOR, PredictionReport, read_predictions
from ..report import Differences
from .page import write_number_page


#: Digits of the numbers in the file: those of a float32, and some.
DIGITS = 9
#: Metrics of the printed table; the others are in the JSON file.
MAIN_METRICS = (
    "mse", "nll", "regression_ece", "coverage_95", "ence", "alignment_error", "ause", "corr_error_pe",
    "corr_error_var", "mean_std",
)  # fmt: skip


@dataclass
class RegressionReport(PredictionReport[RegressionPredictions]):
    """
    What [`RegressionEvaluator`] found, in the target's own units.

    Args:
        raw ([`RegressionPredictions`]):
            Mean, standard deviation and truth of each row.
        calibrated ([`RegressionPredictions`], *optional*):
            The same by the calibrator.
        metrics (`dict`):
            `raw` and `calibrated`: every metric with value, interval and n; `clamped`: how many variances were below
            `min_variance` (squared units of the target). An undefined metric is `None` with a reason.
        description (`dict`):
            Definitions, settings, versions, and notes on what was done to the rows.
        calibrator ([`~clue_hf.posthoc.QuantileCalibrator`], *optional*):
            Fitted on validation data.
        numbers (`np.ndarray`, *optional*):
            Which rows of the data these are; by default all.
        rows (*optional*):
            The rows of the table, images or texts, for those to look at.
    """

    kind: ClassVar = "numbers"
    main_metrics: ClassVar = MAIN_METRICS

    raw: RegressionPredictions
    calibrated: RegressionPredictions | None
    metrics: dict[str, Any]
    description: dict[str, Any]
    calibrator: QuantileCalibrator | None = None
    numbers: Any = None
    rows: Any = None

    def __post_init__(self) -> None:
        if self.numbers is None:
            self.numbers = np.arange(len(self.raw))

    @property
    def target_name(self) -> str:
        """The column that is predicted."""
        return self.description.get("target") or "target"

    def summary(self) -> str:
        """The report in words and tables, as markdown."""
        description, members = self.description, self.description["settings"]["members"]
        how = self._passes() + (f" of each of {members} models" if members > 1 else "")
        lines = [
            "# Uncertainty report",
            f"{self._subject()}{self.metrics['n']:,} rows with a number to predict, `{self.target_name}`. "
            f"Predictions from {how}.",
            self.table(),
            f"Uncertainty: {description['uncertainty']}. Intervals: {description['interval']}. MSE, NLL, ECE, ENCE, "
            "alignment error and AUSE: lower is better. The correlations tell how well the uncertainty goes with the "
            "squared error: higher is better. MSE and alignment error are in squared units of the target, the mean "
            "std in its units.",
            *self.remarks(),
        ]
        return "\n\n".join(lines) + "\n"

    def remarks(self) -> list[str]:
        """What else to know: the calibrator, variances below the floor, what was done to the rows."""
        remarks = []
        if self.calibrator is not None:
            remarks.append(f"Calibrated: {self.calibrator.name}, fitted on validation data.")
        clamped, n = self.metrics["clamped"], self.metrics["n"]
        if clamped:
            remarks.append(
                f"{clamped:,} of {n:,} variances were below the floor, and raised to it: "
                f"{self.metrics['min_variance']:.4g} in squared units of the target (min_variance "
                f"{self.description['settings']['min_variance']:g} of the standardised one)."
            )
        return remarks + list(self.description.get("notes", []))

    def compare(self, other: RegressionReport, resamples: int = 2000) -> Differences:
        mine, theirs = self.raw.forecasts.target, other.raw.forecasts.target
        same_rows = np.array_equal(self.numbers, other.numbers)
        if not same_rows or not np.allclose(mine, theirs, rtol=10.0 ** (2 - DIGITS), atol=0):
            raise ValueError("The reports are about different data: their targets differ.")
        differences = {}
        for kind in (kind for kind in self.kinds if kind in other.kinds):
            one, two = self.kinds[kind].forecasts, other.kinds[kind].forecasts
            differences[kind] = paired_regression_differences(
                one.mean, one.std, two.mean, two.std, mine, one.calibrated_pit, two.calibrated_pit, resamples
            )
        return differences

    def _lines(self) -> Iterator[dict[str, Any]]:
        columns = {kind: _columns(predicted) for kind, predicted in self.kinds.items()}
        texts = getattr(self.rows, "texts", None)
        for place, (row, target) in enumerate(zip(self.numbers.tolist(), self.raw.forecasts.target, strict=True)):
            line: dict[str, Any] = {"row": row, "target": _rounded(target)}
            line.update({name: _rounded(values[place]) for name, values in columns["raw"].items()})
            if "calibrated" in columns:
                line["calibrated"] = {name: _rounded(values[place]) for name, values in columns["calibrated"].items()}
            yield line if texts is None else {**line, "text": texts[place]}

    def _write_page(self, path: Path, comparison: Differences | None, other: str) -> None:
        write_number_page(self, path, comparison, other)

    def _plotter(self) -> Callable[[RegressionReport, Path], list[Path]]:
        from .plots import plot_number_report

        return plot_number_report

    @classmethod
    def load(cls, folder: str | Path) -> RegressionReport:
        """Reads what `save` wrote; the numbers are rounded, and the images are not there."""
        folder = Path(folder)
        content = ReportContent.read(folder)
        metrics, description = content.metrics, content.description
        lines = read_predictions(folder)
        mean, std, target = (np.array([line[name] for line in lines], float) for name in ("mean", "std", "target"))
        raw = RegressionPredictions(mean, std, target, clamped=metrics["clamped"])
        calibrator = QuantileCalibrator.load(folder / CALIBRATOR) if (folder / CALIBRATOR).exists() else None
        return cls(
            raw,
            None if calibrator is None else raw.calibrated(calibrator),
            metrics,
            description,
            calibrator,
            np.array([line["row"] for line in lines], int),
        )


def _columns(predicted: RegressionPredictions) -> dict[str, np.ndarray]:
    return {**predicted.columns(), "squared_error": predicted.error}


def _rounded(value: Any) -> float:
    return float(f"{value:.{DIGITS}g}")
