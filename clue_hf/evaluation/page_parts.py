"""What the pages of all reports share: tables, cells and lists in HTML, and the frame around them."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html import escape
from pathlib import Path
from typing import Any

from .selection import DARK, LIGHT


HERE = Path(__file__).parent


def fill_template(name: str, parts: dict[str, str]) -> str:
    """A page from its template, the styles and the script that all pages share, and its own parts."""
    template = (HERE / name).read_text(encoding="utf-8")
    shared = {
        "palette": palette_css(),
        "style": "\n" + (HERE / "page.css").read_text(encoding="utf-8"),
        "common": (HERE / "page.js").read_text(encoding="utf-8"),
    }
    for key, text in shared.items():
        template = template.replace(f"{{{{{key}}}}}", text)
    parts = {**parts, "policy": content_policy(template)}
    # one pass: a text that looks like a placeholder stays a text
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


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


def metric_td(entry: dict[str, Any] | None, best: bool = False, signed: bool = False) -> str:
    """A metric and its interval; a dash and the reason where it is undefined."""
    value = number_text((entry or {}).get("value"), signed)
    if value == "-":
        reason = escape((entry or {}).get("reason") or "not computed")
        return f'<td class="number" title="{reason}">-<span class="unseen"> {reason}</span></td>'
    interval = interval_text(entry or {})
    return (
        f'<td class="number{" best" if best else ""}">{value}'
        + (f'<span class="interval">{interval}</span>' if interval else "")
        + "</td>"
    )


def value_text(entry: dict[str, Any]) -> str:
    """A value and its interval."""
    interval = interval_text(entry)
    return number_text(entry.get("value")) + (f", {interval}" if interval else "")


def interval_text(entry: dict[str, Any]) -> str:
    """The interval of a value, where it has one."""
    low, high = entry.get("low"), entry.get("high")
    return "" if low is None or high is None else f"{number_text(low)} to {number_text(high)}"


def number_text(value: float | None, signed: bool = False) -> str:
    """Three digits after the point, one for larger numbers; a dash for none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:{'+' if signed else ''}.{1 if abs(value) >= 10 else 3}f}".replace("-", "−")
