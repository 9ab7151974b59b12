"""Results as a table for people, in the terminal and in markdown."""

from __future__ import annotations

import math


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
