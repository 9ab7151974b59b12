"""A comparison of methods as one web page that needs no network."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
from transformers.utils import logging

from ..pages.parts import breakable, definition_lists, fill_template, html_table, number_text
from .compared_view import ComparedView
from .comparison import Compared


logger = logging.get_logger(__name__)

#: What the pictures show, for those who do not see them.
PICTURES = {
    "tradeoff": "Metrics of error against metrics of calibration, a point per method with the interval of its "
    "difference to the baseline; no method on the dashed line is beaten in both.",
    "rejection_curves": "What is kept when the least certain outputs are rejected, a line per method.",
}


def write_comparison_page(views: Sequence[ComparedView], path: str | Path) -> None:
    """
    Writes a comparison as one HTML file: for each view its tables and, with the extra `plots`, its pictures, which
    are also written beside it as PNG and SVG.
    """
    first = views[0]
    sections = "".join(_view(view, _pictures(view, Path(path).parent)) for view in views)
    parts = {
        "title": f"Comparison of {len(first.compared)} methods",
        "subject": f"<b>Comparison of {len(first.compared)} methods</b>",
        "surroundings": escape(first.surroundings),
        "command": escape(first.command),
        "contents": "".join(f'<li><a href="#{escape(view.name)}">{escape(view.name)}</a></li>' for view in views),
        "views": sections,
        "definitions": definition_lists(dict(first.definitions)),
    }
    page = fill_template("comparison_page", parts)
    Path(path).write_text(page, encoding="utf-8", newline="\n", errors="replace")


def _view(view: ComparedView, pictures: str) -> str:
    tables = "".join(
        (f"<h3>{escape(title)}</h3>" if title else "") + _table(view, columns, None if title else view.costs)
        for title, columns in view.tables.items()
    )
    words = "".join(f"<p>{escape(text)}</p>" for text in (view.reading, view.caption, *view.left_out))
    return f'<section id="{escape(view.name)}"><h2>{escape(view.name)}</h2>{words}{tables}{pictures}</section>'


def _table(view: ComparedView, columns: Mapping[str, str], costs: Mapping[str, Mapping[str, float]] | None) -> str:
    """A row per method; a star where it differs significantly from the baseline."""
    kinds = list(dict.fromkeys(kind for spent in (costs or {}).values() for kind in spent))
    head = "".join(f'<th scope="col">{breakable(word)}</th>' for word in ("method", *columns.values(), *kinds))
    rows = []
    for method, metrics in view.compared.items():
        cells = "".join(_cell(metrics.get(name)) for name in columns)
        spent = (costs or {}).get(method, {})
        cells += "".join(f'<td class="number">{f"{spent[k]:.2f}x" if k in spent else "-"}</td>' for k in kinds)
        rows.append(f'<tr><th scope="row">{escape(method)}</th>{cells}</tr>')
    return html_table(f"{view.name}: {', '.join(columns.values())}", head, rows)


def _cell(entry: Compared | None) -> str:
    if entry is None or np.isnan(entry.value):
        return '<td class="number">-</td>'
    told = f"difference {number_text(entry.difference, signed=True)}, p = {number_text(entry.p_value)}"
    title = "" if np.isnan(entry.p_value) else f' title="{told}"'
    interval = f'<span class="interval">{number_text(entry.low)} to {number_text(entry.high)}</span>'
    star = "*" if entry.p_value < 0.05 else ""
    return f'<td class="number"{title}>{number_text(entry.value)}{star}{interval}</td>'


def _pictures(view: ComparedView, folder: Path) -> str:
    try:
        from .comparison_plots import plot_comparison
    except ImportError:
        logger.warning("Install the extra `plots` (pip install 'clue-hf[plots]') for pictures of the comparison.")
        return ""
    parts = []
    for name, files in plot_comparison(view, folder).items():
        image = base64.b64encode(next(file for file in files if file.suffix == ".png").read_bytes()).decode()
        parts.append(
            f'<figure class="picture"><img alt="{escape(PICTURES[name])}" src="data:image/png;base64,{image}">'
            f"<figcaption>{escape(PICTURES[name])}</figcaption></figure>"
        )
    return "".join(parts)
