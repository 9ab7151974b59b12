"""What the pages of all reports share: tables, cells and lists in HTML, and the frame around them."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from ..evaluation.text.selection import DARK, LIGHT


HERE = Path(__file__).with_name("templates")


def write_parts(
    path: str | Path, template: str, model: str, description: dict[str, Any], parts: dict[str, str]
) -> None:
    """
    Writes a page.

    Args:
        path (`str` or `Path`):
            The file to write.
        template (`str`):
            Name of the template, without its ending; styles of the same name are its own.
        model (`str`):
            What to call a model without a name.
        description (`dict`):
            What the report tells of model, data and settings.
        parts (`dict`):
            HTML for the other placeholders of the template.
    """
    told = {
        "title": escape(f"Uncertainty of {description.get('model', model)}"),
        "subject": subject(description),
        "definitions": definition_lists(description),
    }
    page = fill_template(template, {**told, **parts})
    Path(path).write_text(page, encoding="utf-8", newline="\n", errors="replace")


def fill_template(name: str, parts: dict[str, str]) -> str:
    """A page from its template, the frame, the styles and the script that all pages share, and its own parts."""
    styles = dict.fromkeys(("page.css", f"{name}.css"))
    shared = {
        "head": _read("page_head.html").rstrip("\n"),
        "foot": _read("page_foot.html").rstrip("\n"),
        "palette": palette_css(),
        "style": "\n" + "".join(_read(style) for style in styles if (HERE / style).exists()),
        "common": _read("page.js"),
    }
    template = _read(f"{name}.html")
    for key, text in shared.items():
        template = template.replace(f"{{{{{key}}}}}", text)
    parts = {**parts, "policy": content_policy(template)}
    # one pass: a text that looks like a placeholder stays a text
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def content_policy(template: str) -> str:
    """A content security policy: the script and the styles of the template may run, and nothing may be loaded."""

    def hashes(pattern: str) -> str:
        digests = [hashlib.sha256(text.encode()).digest() for text in re.findall(pattern, template, re.DOTALL)]
        return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)

    script, style = hashes(r"<script>(.*?)</script>"), hashes(r"<style>(.*?)</style>")
    own = f"script-src {script}; style-src {style}; img-src data:"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def palette_css() -> str:
    """The colours of the scorers as CSS."""
    light, dark = ("".join(f"--s{i}:{colour};" for i, colour in enumerate(colours)) for colours in (LIGHT, DARK))
    classes = "".join(f".s{i}{{--c:var(--s{i})}}" for i in range(len(LIGHT)))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{classes}"


def embedded_json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, so U+2028 and the like are escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def subject(description: dict[str, Any]) -> str:
    """Which model on which data."""
    named = [str(description[name]) for name in ("model", "data") if description.get(name)]
    return " on ".join(f'<b dir="auto">{escape(name)}</b>' for name in named)


def breakable(text: str) -> str:
    """A text whose lines may break after an underscore."""
    return escape(text).replace("_", "_<wbr>")


def paragraphs(sentences: list[str]) -> str:
    """A paragraph for each sentence."""
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def html_table(caption: str, head: str, rows: list[str]) -> str:
    """A table that scrolls sideways where it is too wide; its caption is for screen readers."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f'<caption class="unseen">{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def definition_lists(value: Any) -> str:
    """A description of any depth as definition lists."""
    if isinstance(value, dict):
        entries = (f"<dt>{escape(str(key))}</dt><dd>{definition_lists(entry)}</dd>" for key, entry in value.items())
        return f"<dl>{''.join(entries)}</dl>" if value else "-"
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = {"": "(empty)", "None": "-"}.get(str(value), str(value))
    marked = re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
    return f'<span dir="auto">{marked}</span>'


def tile_list(tiles: list[tuple[str, str, str]]) -> str:
    """The few numbers to see first: value, name, what to know."""
    tile = '<li><span class="value">{}</span><span class="name">{}</span><span class="more">{}</span></li>'
    return "".join(tile.format(*map(breakable, texts)) for texts in tiles)


def comparison_section(other: str, words: str, heads: list[str], rows: list[str]) -> str:
    """What differs from another model, as a section with a table."""
    table = html_table("Comparison", "".join(f'<th scope="col">{escape(head)}</th>' for head in heads), rows)
    return (
        f'<section id="comparison"><h2>Compared with <span dir="auto">{escape(other)}</span></h2>'
        f"<p>This model minus the other one, on the same rows. {words}Bold: the interval leaves out zero.</p>"
        f"{table}</section>"
    )


def leaves_out_zero(entry: dict[str, Any]) -> bool:
    """Whether the interval of a difference does."""
    return entry.get("low") is not None and not entry["low"] <= 0 <= entry["high"]


def number_text(value: float | None, signed: bool = False) -> str:
    """Three digits after the point, one for larger numbers; a dash for none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:{'+' if signed else ''}.{1 if abs(value) >= 10 else 3}f}".replace("-", "−")


def metric_td(
    entry: dict[str, Any] | None, best: bool = False, signed: bool = False, number: Callable[..., str] = number_text
) -> str:
    """A metric and its interval, its numbers written by a function; a dash and the reason where it is undefined."""
    value = number((entry or {}).get("value"), signed)
    if value == "-":
        reason = escape((entry or {}).get("reason") or "not computed")
        return f'<td class="number" title="{reason}">-<span class="unseen"> {reason}</span></td>'
    interval = interval_text(entry or {}, number)
    return (
        f'<td class="number{" best" if best else ""}">{value}'
        + (f'<span class="interval">{interval}</span>' if interval else "")
        + "</td>"
    )


def value_text(entry: dict[str, Any]) -> str:
    """A value and its interval."""
    interval = interval_text(entry)
    return number_text(entry.get("value")) + (f", {interval}" if interval else "")


def interval_text(entry: dict[str, Any], number: Callable[..., str] = number_text) -> str:
    """The interval of a value, where it has one."""
    low, high = entry.get("low"), entry.get("high")
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"
