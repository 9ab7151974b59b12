"""What the pages and figures of all reports show of long arrays: points of curves, bars, rows, images."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from ..metrics import rejection_curve


#: Longest side of the images on a page, in pixels.
THUMBNAIL = 128
#: Number of characters shown of a text, and of the text of a row in a table.
LONGEST_TEXT, LONGEST_CELL = 20_000, 2_000


def evenly_spaced(n: int, limit: int) -> np.ndarray:
    """At most `limit` of n places, evenly spaced, including the first and the last."""
    return np.unique(np.linspace(0, n - 1, min(n, limit)).round().astype(int)) if n else np.empty(0, int)


def kept_quality(
    quality: np.ndarray, ranked: Mapping[str, tuple[np.ndarray, np.ndarray]], points: int
) -> dict[str, np.ndarray]:
    """
    Mean quality of the kept part at no more than `points` shares rejected: `share`, `random` and `oracle` (both by
    `quality`), and a curve for each name of `ranked`, by its uncertainty and quality.
    """
    n = len(quality)
    places = evenly_spaced(n, points)
    return {
        "share": places / max(n, 1),
        "random": np.full(len(places), quality.mean() if n else 0.0),
        "oracle": rejection_curve(-quality, quality)[places],
        **{name: rejection_curve(*columns)[places] for name, columns in ranked.items()},
    }


def curve_limits(curves: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Limits of an axis that show the curves except for the random end where few outputs are kept."""
    values = [curve[: max(1, int(0.97 * len(curve)))] for name, curve in curves.items() if name != "share"]
    low, high = min(map(np.min, values), default=0.0), max(map(np.max, values), default=1.0)
    room = 0.06 * (high - low) or 0.05
    return float(low - room), float(high + room)


def score_histogram(uncertainty: np.ndarray, good: np.ndarray, bins: int = 24) -> dict[str, np.ndarray]:
    """
    Number of good and other examples by uncertainty: `edges`, `good`, `bad`. The outermost bars include everything
    beyond the first and the last percentile.
    """
    low, high = np.quantile(uncertainty, [0.01, 0.99]) if len(uncertainty) else (0.0, 0.0)
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, bins + 1)
    inside = np.clip(uncertainty, edges[0], edges[-1])
    return {
        "edges": edges,
        "good": np.histogram(inside[good], edges)[0],
        "bad": np.histogram(inside[~good], edges)[0],
    }


def quality_bins(
    place: np.ndarray,
    confidence: np.ndarray,
    quality: np.ndarray,
    interval: Callable[[float, np.ndarray], tuple[float, float]],
) -> list[dict[str, float]]:
    """
    Mean confidence and mean quality in the bins that are not empty; `place` is the bin of each example, and `interval`
    gives that of a mean from the mean and the values.
    """
    bins: list[dict[str, float]] = []
    for number in np.unique(place):
        inside = place == number
        mean = float(quality[inside].mean())
        low, high = interval(mean, quality[inside])
        bins.append(
            {
                "bin": int(number),
                "confidence": float(confidence[inside].mean()),
                "quality": mean,
                "low": max(0.0, low),
                "high": min(1.0, high),
                "count": int(inside.sum()),
            }
        )
    return bins


def rows_in_groups(groups: Mapping[str, np.ndarray], n: int, limit: int) -> dict[int, list[str]]:
    """The rows of some groups in the order of the data, each with its groups; all n rows if they fit the limit."""
    chosen: dict[int, list[str]] = {row: [] for row in range(n if n <= limit else 0)}
    for group, rows in groups.items():
        for row in rows.tolist():
            chosen.setdefault(row, []).append(group)
    return dict(sorted(chosen.items()))


def shortened(text: str) -> str:
    """A text up to a length that keeps the page fast to open; the file with all rows has the whole text."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} ... ({len(text):,} characters)"


def shown_row(rows: Any, row: int) -> dict[str, str]:
    """The image or the text of a row, if the report has its rows."""
    if rows is None:
        return {}
    if hasattr(rows, "pixels"):
        return {"image": data_uri(rows.pixels([row])[0])}
    return {"text": (rows.text(row) or "")[:LONGEST_CELL]}


def data_uri(pixels: np.ndarray) -> str:
    """An image as a PNG in a data URI, scaled down to a thumbnail."""
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    file = BytesIO()
    picture.save(file, "PNG", optimize=True)
    return png_uri(file.getvalue())


def png_uri(content: bytes) -> str:
    """A PNG file as a data URI."""
    return "data:image/png;base64," + base64.b64encode(content).decode()


def plain(value: Any) -> Any:
    """A nested value as JSON has it: arrays as lists, floats with six digits, those that are not finite as `None`."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(entry) for entry in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
