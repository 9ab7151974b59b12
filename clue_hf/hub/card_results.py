"""The results in a card: which metrics of a report it shows, beside those of a baseline, and what limits them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from ..errors import UserError
from ..metrics import Measured, format_metric, metric_info, read_metrics
from ..metrics.content import ReportContent
from ..tables import markdown_table
from .escape import code_span, markdown_text, one_line, without_folders


#: Folder of a report inside that of its model, and of the report about the model it was compared with.
REPORT, COMPARED_WITH = "uncertainty_report", "compared_with"
#: Metrics of a card, by the part of the report that holds them.
CARD_METRICS = {
    "references": ("error", "uncertainty", "alignment_error", "token_ece"),
    "scorers": ("prr", "prr_0.5", "confidence_ece"),
    "classes": ("error", "ece", "nll", "brier", "alignment_error", "uncertainty_accuracy", "uncertainty_auc",
                "residual_correlation", "wasserstein", "prr", "aurc"),
    "numbers": ("mse", "nll", "regression_ece", "coverage_95", "ence", "alignment_error", "ause", "corr_error_pe",
                "corr_error_var"),
}  # fmt: skip
#: What the rows of the data are called, by kind of report.
ITEMS = {"text": "outputs", "classes": "examples", "numbers": "rows"}


class Report(Protocol):
    """A report in memory, or [`~clue_hf.metrics.content.ReportContent`] read from its file."""

    @property
    def kind(self) -> str: ...
    @property
    def metrics(self) -> dict[str, Any]: ...
    @property
    def description(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class CardMetric:
    """A metric in a card; `variant` is the scorer, or raw or calibrated predictions, where there are several."""

    name: str
    label: str
    measured: Measured
    variant: str = ""
    #: By what its numbers are formatted: the mean of a quality is not in the unit of the quality.
    unit_of: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The same metric in another report, or in a comparison."""
        return self.name, self.variant

    @property
    def full_label(self) -> str:
        return f"{self.label} ({self.variant})" if self.variant else self.label


@dataclass(frozen=True)
class CardResults:
    """
    A report as a card shows it.

    Args:
        report ([`Report`]):
            In memory, or read from its file.
        comparison (`dict`, *optional*):
            The differences to the baseline, as `report.compare` gives them.
        baseline ([`Report`], *optional*):
            The report on another model to show beside it.
    """

    report: Report
    comparison: dict[str, Any] = field(default_factory=dict)
    baseline: Report | None = None

    @property
    def items(self) -> str:
        """What the rows of the data are called."""
        return ITEMS[self.report.kind]

    @property
    def count(self) -> str:
        """The number of rows with their name."""
        return f"{self.report.metrics['n']:,} {self.items}"

    @cached_property
    def data_and_split(self) -> tuple[str, str]:
        """Name and split of the data, which the description has as `name (config, split)`."""
        text = one_line(self.report.description.get("data") or "data of its own")
        match = re.fullmatch(r"(.+) \(([^()]*)\)", text)
        name, parts = (match[1], match[2]) if match else (text, "")
        return without_folders(name), parts.rsplit(", ", 1)[-1]

    @property
    def data(self) -> str:
        return self.data_and_split[0]

    @property
    def split(self) -> str:
        return self.data_and_split[1]

    @property
    def other_name(self) -> str:
        """Name of the baseline."""
        description = {} if self.baseline is None else self.baseline.description
        return without_folders(str(description.get("model") or "baseline"))

    @property
    def has_intervals(self) -> bool:
        return any(metric.measured.has_interval for metric in self.metrics)

    @cached_property
    def metrics(self) -> list[CardMetric]:
        """The metrics of the table, in its order."""
        return card_metrics(self.report)

    @cached_property
    def differences(self) -> dict[tuple[str, str], Measured]:
        """This model minus the baseline, by [`CardMetric.key`]; none without a baseline."""
        return {
            (name, variant): measured
            for variant, metrics in (self.comparison if self.baseline is not None else {}).items()
            for name, measured in metrics.items()
            if isinstance(measured, Measured)
        }

    def table(self) -> str:
        """The metrics as a markdown table, with those of the baseline and the differences where there are any."""
        others = {metric.key: metric.measured for metric in card_metrics(self.baseline)} if self.baseline else {}
        lines = [["metric", "of", "this model"]]
        lines[0] += [code_span(self.other_name, in_table=True)] if others else []
        lines[0] += ["difference"] if self.differences else []
        for metric in self.metrics:
            shown = {"name": metric.unit_of, "kind": self.report.kind}
            line = [
                markdown_text(metric.label),
                markdown_text(metric.variant),
                format_metric(metric.measured, **shown),
            ]
            line += [format_metric(others.get(metric.key), **shown)] if others else []
            if self.differences:
                difference = self.differences.get(metric.key)
                text = format_metric(difference, sign="+", **shown)
                has_p_value = text != "-" and difference is not None and difference.p_value is not None
                line.append(f"{text}, p = {difference.p_value:.3f}" if has_p_value else text)
            lines.append(line)
        return markdown_table(lines)

    def definitions(self) -> dict[str, str]:
        """What the metrics of the table are, by their labels."""
        description = self.report.description
        known = description.get("metrics", {})
        qualities = {
            metric_info(name, "text").heading: f"signature {text}"
            for name, text in description.get("quality", {}).items()
            if name in self.report.metrics["quality"]
        }
        metrics = {metric.label: known[metric.name] for metric in self.metrics if metric.name in known}
        scorers = {name: text.replace("`", "") for name, text in description.get("scorers", {}).items()}
        return {**qualities, **metrics, **scorers}

    def limits(self) -> Iterator[str]:
        """What a reader must know before trusting the numbers."""
        yield (
            f"{self.count}. Intervals: {self.report.description.get('interval', 'none')}; they say how "
            "the numbers vary over draws of such examples, not over seeds of the training or over other data."
        )
        yield from (_text_limits if self.report.kind == "text" else _prediction_limits)(self.report)
        undefined: dict[str, list[str]] = {}
        for metric in self.metrics:
            if metric.measured["value"] is None:
                undefined.setdefault(metric.measured.reason or "not computed", []).append(metric.full_label)
        for reason, labels in undefined.items():
            yield f"No value here ({reason}): {', '.join(labels)}."


def card_metrics(report: Report) -> list[CardMetric]:
    """The metrics of a report that a card shows."""
    kind, metrics = report.kind, report.metrics

    def shown(name: str, measured: Measured, variant: str = "", unit_of: str | None = None) -> CardMetric:
        info = metric_info(name, kind)
        label = f"{info.heading}, nats" if info.unit == "nats" else info.heading
        return CardMetric(name, label, measured, variant, name if unit_of is None else unit_of)

    if kind != "text":
        variants = [variant for variant in ("raw", "calibrated") if variant in metrics]
        return [
            shown(name, metrics[variant][name], variant)
            for name in CARD_METRICS[kind]
            for variant in variants
            if name in metrics[variant]
        ]
    rows = []
    for name, measured in metrics["quality"].items():
        rows.append(shown(name, measured["corpus"], "whole corpus"))
        rows.append(shown(name, measured["mean"], "mean of the outputs", unit_of="mean_quality"))
    references = metrics["references"]
    rows += [shown(name, references[name]) for name in CARD_METRICS["references"] if name in references]
    return rows + [
        shown(name, measured[name], scorer)
        for name in CARD_METRICS["scorers"]
        for scorer, measured in metrics["scorers"].items()
        if name in measured
    ]


def _text_limits(report: Report) -> Iterator[str]:
    metrics, description = report.metrics, report.description
    if metrics["outputs"]["cut"]:
        limit = description["generation"]["max_new_tokens"]
        yield (
            f"{metrics['outputs']['cut']:,} outputs were cut at {limit} tokens before they ended, which lowers their "
            "quality."
        )
    if metrics["empty_outputs"]:
        yield f"{metrics['empty_outputs']:,} outputs are empty."
    yield (
        f"PRR and confidence are judged by {next(iter(metrics['quality']))}, which knows one reference per source and "
        "is itself no perfect judge."
    )
    if description.get("compat"):
        yield f"Scores are those of {description['compat']} (compat mode), which differ from ours."


def _prediction_limits(report: Report) -> Iterator[str]:
    description = report.description
    if "classes" in description:
        yield f"It knows {len(description['classes'])} classes, and answers with one of them whatever it is given."
    if report.metrics.get("clamped"):
        yield f"{report.metrics['clamped']:,} variances were below the floor, and raised to it."
    yield from description.get("notes", [])
    settings = description.get("settings", {})
    if settings.get("mc_samples"):
        yield f"Every prediction is the mean of {settings['mc_samples']} passes with dropout, and costs as much."
    if settings.get("calibrator"):
        yield f"Calibrated by {settings['calibrator']}, fitted on the validation data: it holds for data like that."
    if description.get("uncertainty"):
        yield f"Uncertainty: {description['uncertainty']}."


def read_report(folder: Path) -> ReportContent:
    """The report in a folder; raises where there is none that a card can show."""
    path = folder / "report.json"
    if not path.is_file():
        raise UserError(f"There is no {path}: make a report with clue-hf evaluate.")
    try:
        content = ReportContent.read(folder)
        card_metrics(content)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}): make it again with clue-hf evaluate.") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is no report of clue-hf evaluate: {error!r}.") from error
    return content


def read_comparison(folder: Path) -> dict[str, Any]:
    """The differences to another report in a folder; empty where there are none."""
    path = folder / "comparison.json"
    if not path.is_file():
        return {}
    try:
        return read_metrics(json.loads(path.read_text(encoding="utf-8")))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}): make it again with clue-hf evaluate.") from error
