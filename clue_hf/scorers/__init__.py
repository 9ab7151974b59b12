"""Uncertainty scores of generated texts, fed by one shared collection pass. Higher means less certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..functional import check_choice
from ..kernels.fused_linear import Temperature
from .base import Scorer
from .collection import Batch, Collected, CollectionSettings, Collector, ScoredText
from .compat import PolygraphCollector, PolygraphConditionalMutualInformation
from .formulas import SCORERS


def make_scorers(
    model: Any,
    tokenizer: Any,
    names: Sequence[str],
    settings: CollectionSettings,
    temperature: Temperature | None = None,
) -> tuple[dict[str, Scorer], Collector]:
    """The scorers with these names, and the collector that collects what they need."""
    for name in names:
        check_choice("scorers", name, SCORERS)
    scorers = {name: SCORERS[name]() for name in names}
    if settings.compat and "cpmi" in scorers:
        scorers["cpmi"] = PolygraphConditionalMutualInformation()
    needs = frozenset().union(*(scorer.needs for scorer in scorers.values()))
    collector_class = PolygraphCollector if settings.compat else Collector
    return scorers, collector_class(model, tokenizer, needs, settings, temperature)


__all__ = ["SCORERS", "Batch", "Collected", "CollectionSettings", "Collector", "ScoredText", "Scorer", "make_scorers"]
