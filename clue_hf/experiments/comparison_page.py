"""The web page of a comparison of methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging

from ..pages import environment
from ..pages.selection import png_uri
from .compared_view import ComparedView


logger = logging.get_logger(__name__)

#: Alternative texts of the figures.
FIGURES = {
    "tradeoff": "Metrics of error against metrics of calibration, a point per method with the interval of its "
    "difference to the baseline; dashed: the Pareto front.",
    "rejection_curves": "Quality of the outputs kept when the least certain ones are rejected, a line per method.",
}


def write_comparison_page(views: Sequence[ComparedView], path: str | Path) -> None:
    """
    Writes a comparison as one HTML file: for each view its tables and, with the extra `plots`, its figures, which
    are also written beside it as PNG and SVG.
    """
    environment.write_page(
        path,
        "comparison",
        description=dict(views[0].definitions),
        methods=len(views[0].compared),
        views=views,
        costs={view.name: _costs(view) for view in views},
        figures={view.name: _figures(view, Path(path).parent) for view in views},
    )


def _costs(view: ComparedView) -> dict[str, dict[str, float]]:
    """For each kind of cost, the methods that have it."""
    kinds = dict.fromkeys(kind for costs in view.costs.values() for kind in costs)
    return {kind: {method: costs[kind] for method, costs in view.costs.items() if kind in costs} for kind in kinds}


def _figures(view: ComparedView, folder: Path) -> list[tuple[str, str]]:
    """Alternative text and data URI of each figure."""
    try:
        from .comparison_plots import plot_comparison
    except ImportError:
        logger.warning("Install the extra `plots` (pip install 'clue-hf[plots]') for figures of the comparison.")
        return []
    return [
        (FIGURES[name], png_uri(next(file for file in files if file.suffix == ".png").read_bytes()))
        for name, files in plot_comparison(view, folder).items()
    ]
