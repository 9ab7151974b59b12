"""The Jinja2 environment of all pages: every text is escaped, and a page loads nothing."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..metrics.registry import format_interval, format_metric, metric_info
from ..tables import format_number
from . import palette
from .selection import plain


#: A number to see first: its text, its name, and a note below.
Tile = tuple[str, str, str]
FOLDER = Path(__file__).with_name("templates")


def write_page(path: str | Path, template: str, **values: Any) -> None:
    """Writes a page. The same values give the same bytes."""
    page = ENVIRONMENT.get_template(f"{template}.html").render(values)
    Path(path).write_text(page, encoding="utf-8", newline="\n", errors="replace")


def metric_tile(entry: Mapping[str, Any] | None, label: str, name: str = "", kind: str = "") -> Tile:
    """A metric as a tile; below it is its interval, or why it is undefined."""
    value = format_metric(entry, name, kind, minus="−", interval=None)
    return value, label, format_interval(entry, name, kind, "−") or (entry or {}).get("reason") or ""


def best_value(columns: Mapping[str, Mapping[str, Any]], name: str, kind: str) -> float | None:
    """The best value of a metric among several columns; `None` if they are equal or no direction is better."""
    direction = metric_info(name, kind).direction
    values = [(metrics.get(name) or {}).get("value") for metrics in columns.values()]
    known = {value for value in values if value is not None}
    return max(known, key=lambda value: direction * value) if direction and len(known) > 1 else None


def excludes_zero(entry: Mapping[str, Any] | None) -> bool:
    """Whether the interval of a difference does."""
    low, high = ((entry or {}).get(name) for name in ("low", "high"))
    return low is not None and high is not None and not low <= 0 <= high


def inert(value: Any) -> Markup:
    """A text that is only text in HTML and in the templates that gradio fills (`${...}`, `{{...}}`)."""
    if hasattr(value, "__html__"):
        return Markup(value)
    return Markup(re.sub("[$`{}]", lambda sign: f"&#{ord(sign[0])};", str(escape(str(value)))))


def source(name: str) -> Markup:
    """A style or script as it is in its file."""
    return Markup((FOLDER / name).read_text(encoding="utf-8"))


def _sha256(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def make_environment(folder: Path, **settings: Any) -> Environment:
    """The templates of a folder: every text is escaped, and a missing value is an error."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **settings,
    )


ENVIRONMENT = make_environment(FOLDER)
ENVIRONMENT.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
ENVIRONMENT.filters |= {
    "best_value": best_value,
    "excludes_zero": excludes_zero,
    "number": lambda value, sign="": format_number(value, None, sign, "−"),
    "plain": plain,
    "sha256": _sha256,
    "split_code": partial(re.split, "`([^`]+)`"),
}
ENVIRONMENT.tests["finite"] = math.isfinite
ENVIRONMENT.globals |= {
    "format_interval": format_interval,
    "format_metric": format_metric,
    "metric_info": metric_info,
    "palette": palette,
    "source": source,
}
#: For texts inside gradio's own templates.
GRADIO = ENVIRONMENT.overlay(finalize=inert)
