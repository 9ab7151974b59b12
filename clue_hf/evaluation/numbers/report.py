"""The report about a regressor: its numbers, every prediction, and files that others can read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...metrics import paired_regression_differences
from ...metrics.content import ReportContent
from ...posthoc import QuantileCalibrator
from ...predictors.numbers import RegressionPredictions
from ..prediction_report import Line, PredictionReport
from ..report import Differences
from .selection import page_data


#: Digits of the numbers in the file: those of a float32, and some.
DIGITS = 9


@dataclass
class RegressionReport(PredictionReport[RegressionPredictions]):
    """
    The result of [`RegressionEvaluator`], in the target's own units.

    Args:
        raw ([`RegressionPredictions`]):
            Mean, standard deviation and truth of each row.
        calibrated ([`RegressionPredictions`], *optional*):
            The same after the calibrator.
        metrics (`dict`):
            `raw` and `calibrated`: every metric with value, interval and n; `clamped`: how many variances were below
            `min_variance` (squared units of the target); `conformal` by kind and third of the widths. An undefined
            metric is `None` with a reason.
        description (`dict`):
            Definitions, settings, versions, and notes on what was done to the rows.
        calibrator ([`~clue_hf.posthoc.QuantileCalibrator`], *optional*):
            Fitted on validation data.
        numbers (`np.ndarray`, *optional*):
            Which rows of the data these are; by default all.
        rows (*optional*):
            The rows of the table, images or texts, shown on the page.
    """

    kind: ClassVar = "numbers"
    main_metrics: ClassVar = (
        "mse", "nll", "regression_ece", "coverage_95", "ence", "alignment_error", "ause", "corr_error_pe",
        "corr_error_var", "mean_std",
    )  # fmt: skip
    tile_metrics: ClassVar = ("mse", "nll", "regression_ece", "coverage_95")
    calibration_metric: ClassVar = "regression_ece"
    reading: ClassVar = (
        "MSE, NLL, ECE, ENCE, alignment error and AUSE: lower is better. The correlations measure how well the "
        "uncertainty follows the squared error: higher is better. MSE and alignment error are in squared units of the "
        "target, the mean std in its units."
    )
    conformal_title: ClassVar = "Conformal intervals"
    conformal_groups: ClassVar = "width"

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

    def _opening(self) -> str:
        members = self.description["settings"]["members"]
        how = self._passes() + (f" of each of {members} models" if members > 1 else "")
        return f"{self.metrics['n']:,} rows with a number to predict, `{self.target_name}`. Predictions from {how}."

    def _notes(self) -> list[str]:
        notes = []
        clamped, n = self.metrics["clamped"], self.metrics["n"]
        if clamped:
            notes.append(
                f"{clamped:,} of {n:,} variances were below the minimum and were set to it: "
                f"{self.metrics['min_variance']:.4g} in squared units of the target (min_variance "
                f"{self.description['settings']['min_variance']:g} of the standardised one)."
            )
        return notes + list(self.description.get("notes", []))

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

    def _page_content(self, limit: int) -> dict[str, Any]:
        first = (f"{self.metrics['n']:,}", "rows", f"target {self.target_name}")
        return {"tiles": self.tiles(first), "summary": self.sentences(), "data": page_data(self, limit)}

    def sentences(self) -> list[str]:
        raw = self.metrics["raw"]
        root, expected = raw["mse"]["value"] ** 0.5, raw["sharpness"]["value"]
        side = "overconfident" if expected < root else "underconfident"
        sentences = [
            f"The root mean squared error is {root:.4g}, and the model expects {expected:.4g} (root of the mean "
            f"variance): on average it is {side}.",
            f"The 95 % intervals contain {raw['coverage_95']['value']:.1%} of the targets.",
        ]
        if self.calibrator is not None:
            coverage = self.metrics["calibrated"]["coverage_95"]["value"]
            sentences += self.calibration_sentence(f"; its 95 % intervals contain {coverage:.1%}")
        return sentences + self._notes()

    def _labels(self) -> Iterator[Line]:
        for row, target in zip(self.numbers.tolist(), self.raw.forecasts.target, strict=True):
            yield {"row": row, "target": _rounded(target)}

    def _predicted(self, predictions: RegressionPredictions) -> Iterator[Line]:
        columns = {**predictions.columns(), "squared_error": predictions.error}
        if predictions.conformal is not None:
            columns["conformal_low"], columns["conformal_high"] = predictions.conformal_interval()
        for values in zip(*columns.values(), strict=True):
            yield dict(zip(columns, map(_rounded, values), strict=True))

    @classmethod
    def _read(cls, content: ReportContent, lines: list[Line], calibrator: Path | None) -> RegressionReport:
        metrics, description = content.metrics, content.description
        mean, std, target = (np.array([line[name] for line in lines], float) for name in ("mean", "std", "target"))
        raw = RegressionPredictions(mean, std, target, clamped=metrics["clamped"])
        fitted = None if calibrator is None else QuantileCalibrator.load(calibrator)
        calibrated = None if fitted is None else raw.calibrated(fitted)
        return cls(raw, calibrated, metrics, description, fitted, np.array([line["row"] for line in lines], int))


def _rounded(value: Any) -> float:
    return float(f"{value:.{DIGITS}g}")
