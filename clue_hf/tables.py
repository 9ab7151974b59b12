"""Results as a table for people, in the terminal and in markdown."""

from __future__ import annotations

import math
from typing import Any


def format_table(rows: list[dict[str, Any]], quality: str) -> str:
    """The rows of a training report as a markdown table."""
    headings = _headings(quality)
    return markdown_table([list(headings), *([_cell(row, name) for name in headings.values()] for row in rows)])


def markdown_table(cells: list[list[str]]) -> str:
    """Lines of cells as a markdown table; the first line is the heading."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def format_number(number: float | None, digits: int | None = None, sign: str = "", minus: str = "-") -> str:
    """A number with some digits after the point, by default three, or one from 10 on; a dash for none."""
    if number is None or not math.isfinite(number):
        return "-"
    if digits is None:
        digits = 1 if abs(number) >= 10 else 3
    return f"{number:{sign}.{digits}f}".replace("-", minus)


def metric_cell(entry: dict[str, Any], digits: int = 3, sign: str = "") -> str:
    """A metric of a report, `{"value", "low", "high"}`, with its interval where it has one."""
    if entry["value"] is None:
        return "-"
    numbers = [entry[name] for name in ("value", "low", "high") if entry.get(name) is not None]
    value, *ends = (f"{number:{sign}.{digits}f}" for number in numbers)
    return f"{value} [{', '.join(ends)}]" if ends else value


def _headings(quality: str) -> dict[str, str]:
    shown = {} if quality == "none" else {quality.upper() if quality == "bleu" else quality: quality}
    return {
        "objective": "name",
        "split": "split",
        **shown,
        "error": "error",
        "uncertainty": "uncertainty",
        "gap": "gap",
        "alignment error": "alignment_error",
        "token ECE": "token_ece",
        "time/step": "seconds_per_step",
    }


def _cell(row: dict[str, Any], name: str) -> str:
    if name == "name":
        with_alpha = row["alpha"] is not None and row["objective"] == "clue"
        return f"{row['objective']} (alpha {row['alpha']:g})" if with_alpha else row["objective"]
    value = row[name]
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return "-"
    if name == "seconds_per_step":
        return f"{1000 * value:.0f} ms"
    if name == "gap":
        return f"{value:+.3f}"
    return f"{value:.3f}" if name in ("error", "uncertainty", "alignment_error", "token_ece") else f"{value:.1f}"
