"""The results in a card: which metrics of a report it shows, beside those of a baseline, and what limits them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    "scorers": ("prr", "prr_0.5", "auroc", "aupr", "confidence_brier", "confidence_ece"),
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


class CardResults:
    """A report as a card shows it, in memory or read from its file, and the one on a baseline beside it."""

    def __init__(self, report: Report, comparison: dict[str, Any], baseline: Report | None) -> None:
        self.report, self.baseline, self.items = report, baseline, ITEMS[report.kind]
        self.count = f"{report.metrics['n']:,} {self.items}"
        # the description has the data as `name (config, split)`
        data = one_line(report.description.get("data") or "unnamed data")
        match = re.fullmatch(r"(.+) \(([^()]*)\)", data)
        name, parts = (match[1], match[2]) if match else (data, "")
        self.data, self.split = without_folders(name), parts.rsplit(", ", 1)[-1]
        self.metrics = card_metrics(report)
        self.has_intervals = any(metric.measured.has_interval for metric in self.metrics)
        self.other_name = without_folders(baseline.description.get("model") or "baseline") if baseline else ""
        self.differences = {
            (name, variant): measured
            for variant, metrics in (comparison if baseline else {}).items()
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
            line = [*map(markdown_text, (metric.label, metric.variant)), format_metric(metric.measured, **shown)]
            line += [format_metric(others.get(metric.key), **shown)] if others else []
            if self.differences:
                difference = self.differences.get(metric.key)
                p_value = None if difference is None else difference.get("p_value")
                text = format_metric(difference, sign="+", **shown)
                line.append(text if p_value is None else f"{text}, p = {p_value:.3f}")
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

    def undefined(self) -> dict[str, list[str]]:
        """The metrics without a value, by the reason."""
        labels: dict[str, list[str]] = {}
        for metric in self.metrics:
            if metric.measured["value"] is None:
                labels.setdefault(metric.measured.reason or "not computed", []).append(metric.full_label)
        return labels


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
    references = metrics.get("references", {})  # which texts from elsewhere do not have
    rows += [shown(name, references[name]) for name in CARD_METRICS["references"] if name in references]
    return rows + [
        shown(name, measured[name], scorer)
        for name in CARD_METRICS["scorers"]
        for scorer, measured in metrics["scorers"].items()
        if name in measured
    ]


def read_report(folder: Path) -> ReportContent:
    """The report in a folder; raises where there is none that a card can show."""
    path = folder / "report.json"
    if not path.is_file():
        raise UserError(f"There is no {path}: make a report with clue-hf evaluate.")
    with _damage(path):
        content = ReportContent.read(folder)
        card_metrics(content)
    return content


def read_comparison(folder: Path) -> dict[str, Any]:
    """The differences to another report in a folder; empty where there are none."""
    path = folder / "comparison.json"
    if not path.is_file():
        return {}
    with _damage(path):
        return read_metrics(json.loads(path.read_text(encoding="utf-8")))


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Errors of a file that is not valid JSON, or not a report."""
    try:
        yield
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}): make it again with clue-hf evaluate.") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a report of clue-hf evaluate: {error!r}.") from error
