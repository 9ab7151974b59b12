"""What a card tells of each kind of report: the metrics that it shows, and what limits them."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ..errors import UserError


#: Folder of a report inside that of its model, and of the report about the model it was compared with.
REPORT, COMPARED_WITH = "uncertainty_report", "compared_with"

#: Metrics with their headings.
OF_REFERENCES = {
    "error": "error on the references, nats", "uncertainty": "uncertainty on the references, nats",
    "alignment_error": "alignment error, nats", "token_ece": "token ECE",
}  # fmt: skip
OF_SCORERS = {"prr": "PRR", "prr_0.5": "PRR, at most half rejected", "confidence_ece": "confidence ECE"}
OF_CLASSES = {
    "error": "error", "ece": "ECE", "nll": "NLL", "brier": "Brier score", "alignment_error": "alignment error",
    "uncertainty_accuracy": "uA", "uncertainty_auc": "uAUC", "residual_correlation": "corr", "wasserstein": "W1",
    "prr": "PRR", "aurc": "AURC",
}  # fmt: skip
OF_NUMBERS = {
    "mse": "MSE", "nll": "NLL", "regression_ece": "calibration error of intervals", "coverage_95": "coverage at 95 %",
    "ence": "ENCE", "alignment_error": "alignment error", "ause": "AUSE", "corr_error_pe": "corr of error and PE",
    "corr_error_var": "corr of error and variance",
}  # fmt: skip
#: Of predictions.
VARIANTS = ("raw", "calibrated")


@dataclass(frozen=True)
class Shown:
    """
    A metric in a card.

    Args:
        name (`str`):
            Its name in the definitions of the report.
        heading (`str`):
            Its name for people.
        entry (`dict`):
            Value, interval and n; the reason where it has no value.
        variant (`str`, *optional*):
            What it is the metric of, where there are several: a scorer, or raw and calibrated probabilities.
        digits (`int`, *optional*, defaults to 3):
            Digits after the point.
    """

    name: str
    heading: str
    entry: dict[str, Any]
    variant: str = ""
    digits: int = 3

    @property
    def words(self) -> str:
        """Heading and variant."""
        return f"{self.heading} ({self.variant})" if self.variant else self.heading

    @property
    def key(self) -> tuple[str, str]:
        """The same in another report, or in a comparison."""
        return self.name, self.variant


class CardReport(ABC):
    """
    A report as a card tells of it. A new kind of report is a class like those below, and its place in `KINDS`.

    Args:
        content (`dict`):
            What stands in `report.json`.
        comparison (`dict`, *optional*):
            What stands in `comparison.json`.
    """

    #: What the rows of the data are called.
    unit: ClassVar[str] = "examples"

    def __init__(self, content: dict[str, Any], comparison: dict[str, Any] | None = None) -> None:
        self.metrics: dict[str, Any] = content["metrics"]
        self.description: dict[str, Any] = content["description"]
        self.comparison = comparison or {}

    @staticmethod
    @abstractmethod
    def fits(content: dict[str, Any]) -> bool:
        """Whether a report is of this kind."""

    @abstractmethod
    def shown(self) -> list[Shown]:
        """The metrics of the table, in its order."""

    def differences(self) -> dict[tuple[str, str], dict[str, Any]]:
        """This model minus the other, by [`Shown.key`]."""
        return {
            (name, variant): entry
            for variant, entries in self.comparison.items()
            for name, entry in entries.items()
            if isinstance(entry, dict) and "value" in entry
        }

    def definitions(self) -> dict[str, str]:
        """What each metric of the table is, by its heading."""
        known = self.description.get("metrics", {})
        return {shown.heading: known[shown.name] for shown in self.shown() if shown.name in known}

    def limits(self) -> Iterator[str]:
        """What a reader must know before trusting the numbers."""
        yield (
            f"{self.metrics['n']:,} {self.unit}. Intervals: {self.description.get('interval', 'none')}; they say how "
            "the numbers vary over draws of such examples, not over seeds of the training or over other data."
        )
        yield from self.own_limits()
        undefined: dict[str, list[str]] = {}
        for shown in self.shown():
            if shown.entry["value"] is None:
                undefined.setdefault(shown.entry.get("reason") or "not computed", []).append(shown.words)
        for reason, names in undefined.items():
            yield f"No value here ({reason}): {', '.join(names)}."

    def own_limits(self) -> Iterator[str]:
        """Those of this kind of report."""
        yield from ()


class TextCardReport(CardReport):
    """Language models: quality of the outputs, calibration on the references, and how well each scorer ranks."""

    unit = "outputs"

    @staticmethod
    def fits(content: dict[str, Any]) -> bool:
        return "scorers" in content["metrics"]

    def shown(self) -> list[Shown]:
        found = []
        for name, entries in self.metrics["quality"].items():
            found.append(Shown(name, name, entries["corpus"], "whole corpus", 1))
            found.append(Shown(name, name, entries["mean"], "mean of the outputs"))
        references = self.metrics["references"]
        found += [Shown(name, words, references[name]) for name, words in OF_REFERENCES.items() if name in references]
        for name, words in OF_SCORERS.items():
            for scorer, entries in self.metrics["scorers"].items():
                if name in entries:
                    found.append(Shown(name, words, entries[name], scorer))
        return found

    def definitions(self) -> dict[str, str]:
        qualities = {name: f"signature {words}" for name, words in self.description.get("quality", {}).items()}
        scorers = {name: words.replace("`", "") for name, words in self.description.get("scorers", {}).items()}
        return {**qualities, **super().definitions(), **scorers}

    def own_limits(self) -> Iterator[str]:
        cut, empty = self.metrics["outputs"]["cut"], self.metrics["empty_outputs"]
        if cut:
            limit = self.description["generation"]["max_new_tokens"]
            yield f"{cut:,} outputs were cut at {limit} tokens before they ended, which lowers their quality."
        if empty:
            yield f"{empty:,} outputs are empty."
        yield (
            f"PRR and confidence are judged by {next(iter(self.metrics['quality']))}, which knows one reference per "
            "source and is itself no perfect judge."
        )
        if self.description.get("compat"):
            yield f"Scores are those of {self.description['compat']} (compat mode), which differ from ours."


class _PredictionReport(CardReport):
    """Reports with raw and, after a calibrator, calibrated predictions."""

    headings: ClassVar[dict[str, str]]

    def digits(self, name: str, value: float | None) -> int:
        """Digits after the point of a metric's value."""
        return 3

    def shown(self) -> list[Shown]:
        kinds = [kind for kind in VARIANTS if kind in self.metrics]
        return [
            Shown(name, words, self.metrics[kind][name], kind, self.digits(name, self.metrics[kind][name]["value"]))
            for name, words in self.headings.items()
            for kind in kinds
            if name in self.metrics[kind]
        ]

    def own_limits(self) -> Iterator[str]:
        settings = self.description.get("settings", {})
        passes = settings.get("mc_samples")
        if passes:
            yield f"Every prediction is the mean of {passes} passes with dropout, and costs as much."
        if settings.get("calibrator"):
            yield (
                f"Calibrated by {settings['calibrator']}, fitted on the validation data: it holds for data like that."
            )
        if self.description.get("uncertainty"):
            yield f"Uncertainty: {self.description['uncertainty']}."


class ClassCardReport(_PredictionReport):
    """Classifiers."""

    headings = OF_CLASSES

    @staticmethod
    def fits(content: dict[str, Any]) -> bool:
        return "raw" in content["metrics"] and "classes" in content["description"]

    def own_limits(self) -> Iterator[str]:
        count = len(self.description["classes"])
        yield f"It knows {count} classes, and answers with one of them whatever it is given."
        yield from super().own_limits()


class NumberCardReport(_PredictionReport):
    """Models that predict numbers."""

    unit = "rows"
    headings = OF_NUMBERS

    @staticmethod
    def fits(content: dict[str, Any]) -> bool:
        return "raw" in content["metrics"] and "mse" in content["metrics"]["raw"]

    def digits(self, name: str, value: float | None) -> int:
        # in units of the target, or their squares: of any size
        return max(0, 3 - math.floor(math.log10(value))) if name in ("mse", "alignment_error") and value else 3

    def own_limits(self) -> Iterator[str]:
        if self.metrics.get("clamped"):
            yield f"{self.metrics['clamped']:,} variances were below the floor, and raised to it."
        yield from self.description.get("notes", [])
        yield from super().own_limits()


KINDS: tuple[type[CardReport], ...] = (TextCardReport, ClassCardReport, NumberCardReport)


def read_report(folder: Path) -> CardReport:
    """The report in a folder; raises where there is none that a card can tell of."""
    content = _read(folder / "report.json")
    comparison = _read(folder / "comparison.json") if (folder / "comparison.json").exists() else None
    try:
        for kind in KINDS:
            if kind.fits(content):
                return kind(content, comparison)
    except (KeyError, TypeError) as error:
        raise UserError(f"{folder / 'report.json'} is no report of clue-hf evaluate: {error!r}.") from error
    raise UserError(f"{folder / 'report.json'} is no report of clue-hf evaluate that a card can tell of.")


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"There is no {path}: make a report with clue-hf evaluate.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}): make it again with clue-hf evaluate.") from error
