"""`clue-hf score`: rejection metrics of uncertainties that stand in a file beside the quality of each output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..data.bad_rows import POLICIES, BadRows
from ..data.columns import check_column, column_values
from ..data.loading import load_file
from ..data.needs import bad_values
from ..errors import UserError
from ..files import write_json
from ..metrics import format_metric, metric_definitions, metric_info, rejection_reports
from ..metrics.arrays import NAN_POLICIES
from ..settings import check_choice, check_minimum, setting
from ..tables import markdown_table
from ..terminal import Result
from .parser import ConfigParser


@dataclass
class ScoreArguments:
    """The file and its columns."""

    file: str | None = setting(None, "json, jsonl, csv, tsv or parquet file (gzipped too), a row per output.")
    uncertainty_columns: list[str] = setting(
        ["uncertainty"], "Columns with an uncertainty (higher: less certain); dots for nested columns: scores.msp"
    )
    quality_column: str = setting("quality", "Column with the quality (higher: better).")
    nan_policy: str = setting(
        "error", "Uncertainties that are not a number: error, reject_last (as the most uncertain), drop."
    )
    on_bad_row: str = setting(
        "fail", "Rows that cannot be read or have no quality: fail (naming the first) or skip (and count)."
    )
    resamples: int = setting(2000, "Bootstrap resamples of the 95 %% intervals; 0: none.")
    output: str | None = setting(None, "Also write everything to this JSON file.")

    def __post_init__(self) -> None:
        if not self.file:
            raise ValueError("`file` is missing: --file predictions.jsonl")
        check_choice("nan_policy", self.nan_policy, NAN_POLICIES)
        check_choice("on_bad_row", self.on_bad_row, POLICIES)
        check_minimum(0, resamples=self.resamples)


DESCRIPTION = """Computes from a file with an uncertainty and a quality per output how well the one tells the other:
the prediction rejection ratio (1: as good as knowing the quality, 0: useless), with all and with at most half of the
outputs rejected, areas, AURC, E-AURC, AUGRC, risk at coverage, coverage at risk (these need a quality from 0 to 1)."""

EXAMPLES = """
clue-hf score --file predictions.jsonl
clue-hf score --file predictions.csv.gz --uncertainty_columns msp pmi --quality_column bleu --output out.json"""


def command(argv: Sequence[str]) -> Result:
    """Runs `clue-hf score`."""
    [arguments] = ConfigParser("clue-hf score", (ScoreArguments,), DESCRIPTION, EXAMPLES).parse(argv)
    bad_rows = BadRows(arguments.on_bad_row)
    reports = score_file(arguments, bad_rows)
    undefined = [
        f"{name}: {metric} is not defined: {entry.reason}."
        for name, report in reports.items()
        for metric, entry in report["metrics"].items()
        if entry.reason
    ]
    content = {
        "settings": asdict(arguments),
        "definitions": metric_definitions(name for report in reports.values() for name in report["metrics"]),
        "skipped_rows": bad_rows.skipped,
        "scores": reports,
    }
    if arguments.output:
        write_json(arguments.output, content)
    return Result(
        content,
        _table(reports),
        summary="\n\n".join([_table(reports), *bad_rows.summaries(), "\n".join(undefined)]).rstrip(),
        meaning=_meaning(reports),
        written=f"Written to {arguments.output}." if arguments.output else "",
    )


def _meaning(reports: dict[str, dict[str, Any]]) -> str:
    """Which uncertainty ranks best, and what rejecting by it gains."""
    ranked = {name: report["metrics"]["prr"].value for name, report in reports.items()}
    defined = {name: value for name, value in ranked.items() if np.isfinite(value)}
    if not defined:
        return ""
    best = max(defined, key=lambda name: defined[name])
    gain = f"{defined[best]:.0%} of the gain" if defined[best] > 0 else "nothing of the gain"
    return f"Rejecting the outputs with the highest {best} achieves {gain} of knowing their quality."


def score_file(arguments: ScoreArguments, bad_rows: BadRows) -> dict[str, dict[str, Any]]:
    """For each uncertainty column: the rows used, those that are no number, and every metric with its interval."""
    data = load_file(str(arguments.file), "file", bad_rows=bad_rows)
    if bad_rows.policy == "skip":
        check_column(data.column_names, arguments.quality_column, "quality_column")
        without = bad_values(data, {arguments.quality_column: "number"})
        data = bad_rows.keep_good(data, f"file {arguments.file!r}", without)
    quality = _numbers(data, arguments.quality_column, "quality_column", allow_missing=False)
    columns = {
        name: _numbers(data, name, "uncertainty_columns", allow_missing=arguments.nan_policy != "error")
        for name in arguments.uncertainty_columns
    }
    reports = rejection_reports(columns, quality, nan_policy=arguments.nan_policy, resamples=arguments.resamples)
    return {
        name: {
            "n": metrics["mean_quality"].n,
            "not_finite": int((~np.isfinite(columns[name])).sum()),
            "metrics": metrics,
        }
        for name, metrics in reports.items()
    }


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
    lines = [["uncertainty", "n", *(metric_info(name).heading for name in names)]]
    for column, report in reports.items():
        lines.append([column, str(report["n"]), *(format_metric(report["metrics"][name], name) for name in names)])
    return markdown_table(lines)
