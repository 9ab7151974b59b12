"""`clue-hf score`: rejection metrics of uncertainties that stand in a file beside the quality of each output."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..data.columns import check_column, column_values
from ..data.loading import load_file
from ..errors import UserError
from ..metrics import bootstrap_interval, prediction_rejection_ratio, rejection_area, rejection_report
from ..tables import markdown_table
from .parser import ConfigParser


@dataclass
class ScoreArguments:
    """The file and its columns."""

    file: str | None = field(
        default=None, metadata={"help": "json, jsonl, csv, tsv or parquet file (gzipped too), a row per output."}
    )
    uncertainty_columns: list[str] = field(
        default_factory=lambda: ["uncertainty"],
        metadata={"help": "Columns with an uncertainty (higher: less certain); dots reach inside: scores.msp"},
    )
    quality_column: str = field(default="quality", metadata={"help": "Column with the quality (higher: better)."})
    nan_policy: str = field(
        default="error",
        metadata={"help": "Uncertainties that are no number: error, reject_last (as the most uncertain), drop."},
    )
    resamples: int = field(default=2000, metadata={"help": "Bootstrap resamples of the 95 %% intervals; 0: none."})
    output: str | None = field(default=None, metadata={"help": "Also write everything to this JSON file."})

    def __post_init__(self) -> None:
        if not self.file:
            raise ValueError("`file` is missing: --file predictions.jsonl")
        if self.nan_policy not in ("error", "reject_last", "drop"):
            raise ValueError(f"`nan_policy` must be error, reject_last or drop, not {self.nan_policy!r}.")
        if self.resamples < 0:
            raise ValueError(f"`resamples` must not be negative, but is {self.resamples}.")


GROUPS = {
    "Options": [
        "config", "file", "uncertainty_columns", "quality_column", "nan_policy", "resamples", "output", "help",
    ],
}  # fmt: skip

DESCRIPTION = """Computes from a file with an uncertainty and a quality per output how well the one tells the other:
the prediction rejection ratio (1: as good as knowing the quality, 0: useless), with all and with at most half of the
outputs rejected, areas, AURC, E-AURC, AUGRC, risk at coverage, coverage at risk (these need a quality from 0 to 1)."""

EXAMPLES = """Examples:
  clue-hf score --file predictions.jsonl
  clue-hf score --file predictions.csv.gz --uncertainty_columns msp pmi --quality_column bleu --output out.json"""


def command(words: Sequence[str]) -> int:
    """Runs `clue-hf score`; returns its exit code."""
    parser = ConfigParser((ScoreArguments,), GROUPS, (), EXAMPLES, prog="clue-hf score", description=DESCRIPTION)
    [arguments] = parser.parse(words)
    reports = score_file(arguments)
    print(_table(reports))
    for name, report in reports.items():
        for metric, entry in report["metrics"].items():
            if entry["reason"]:
                print(f"{name}: {metric} is not defined: {entry['reason']}.")
    if arguments.output:
        Path(arguments.output).write_text(
            json.dumps({"settings": asdict(arguments), "scores": reports}, indent=2) + "\n"
        )
        print(f"\nWritten to {arguments.output}.")
    return 0


def score_file(arguments: ScoreArguments) -> dict[str, dict[str, Any]]:
    """For each uncertainty column: the rows used, the metrics, and bootstrap intervals of the main ones."""
    data = load_file(str(arguments.file), "file")
    quality = _numbers(data, arguments.quality_column, "quality_column", allow_missing=False)
    reports = {}
    for name in arguments.uncertainty_columns:
        uncertainty = _numbers(data, name, "uncertainty_columns", allow_missing=arguments.nan_policy != "error")
        finite = np.isfinite(uncertainty)
        used_u, used_q = uncertainty, quality
        if arguments.nan_policy == "drop":
            used_u, used_q = uncertainty[finite], quality[finite]
        elif arguments.nan_policy == "reject_last" and not finite.all():
            worst = uncertainty[finite].max() + 1 if finite.any() else 0.0
            used_u = np.where(finite, uncertainty, worst)
        reports[name] = {
            "n": len(used_q),
            "not_finite": int((~finite).sum()),
            "metrics": rejection_report(used_u, used_q),
            "intervals": _intervals(used_u, used_q, arguments.resamples),
        }
    return reports


def _intervals(uncertainty: np.ndarray, quality: np.ndarray, resamples: int) -> dict[str, list[float] | None]:
    """The 95 % bootstrap intervals of the ratios and the area."""
    metrics: dict[str, Callable[..., float]] = {
        "prr": prediction_rejection_ratio,
        "prr_0.5": partial(prediction_rejection_ratio, max_rejection=0.5),
        "rejection_area": rejection_area,
    }
    intervals: dict[str, list[float] | None] = {}
    for name, metric in metrics.items():
        found = bootstrap_interval(metric, uncertainty, quality, resamples=resamples) if resamples else None
        intervals[name] = None if found is None or np.isnan(found.low) else [found.low, found.high]
    return intervals


def _numbers(data: Any, path: str, option: str, allow_missing: bool) -> np.ndarray:
    """A column as numbers; raises with the row's number where one is not."""
    check_column(data.column_names, path, option)
    column = path if path in data.column_names else path.split(".")[0]
    numbers = []
    for row, value in enumerate(column_values({column: data[column][:]}, path, option)):
        if value is None:
            value = float("nan")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(f"{option} {path!r} must hold numbers, but row {row} (counted from 0) is {value!r}.")
        if not allow_missing and not np.isfinite(value):
            raise UserError(
                f"{option} {path!r} is {value} in row {row} (counted from 0)."
                + (" Choose --nan_policy reject_last or drop." if option == "uncertainty_columns" else "")
            )
        numbers.append(float(value))
    return np.array(numbers)


def _table(reports: dict[str, dict[str, Any]]) -> str:
    names = ["prr", "prr_0.5", "rejection_area", "oracle_area", "mean_quality", "aurc", "augrc"]
    lines = [["uncertainty", "n", *names]]
    for column, report in reports.items():
        cells = [column, str(report["n"])]
        for name in names:
            value, interval = report["metrics"][name]["value"], report["intervals"].get(name)
            text = "-" if value is None else f"{value:.3f}"
            cells.append(
                text if interval is None or value is None else f"{text} [{interval[0]:.3f}, {interval[1]:.3f}]"
            )
        lines.append(cells)
    return markdown_table(lines)
