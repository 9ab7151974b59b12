"""Uncertainty scores of generated texts, fed by one shared collection pass. Higher means less certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from ..functional import check_choice
from ..kernels.fused_linear import Temperature
from ..posthoc.learned import LearnedScore
from .base import Scorer
from .collected import Batch, Collected, CollectionSettings, ScoredText
from .collection import Collector
from .compat import PolygraphCollector, PolygraphConditionalMutualInformation
from .formulas import DEFAULT_SCORERS, SCORERS, Learned, output_features


def make_scorers(
    model: Any,
    tokenizer: Any,
    names: Sequence[str],
    settings: CollectionSettings,
    temperature: Temperature | None = None,
    learned_score: LearnedScore | None = None,
) -> tuple[dict[str, Scorer], Collector]:
    """
    The scorers with these names, and the collector that collects what they need. `learned` needs what was fitted for
    the model.
    """
    for name in names:
        check_choice("scorers", name, SCORERS)
    scorers = {name: SCORERS[name]() for name in names if name != "learned"}
    if "learned" in names:
        if learned_score is None:
            raise UserError(
                "The scorer 'learned' has not been fitted for this model: clue-hf calibrate MODEL "
                "--config CONFIG.yaml --scorer learned"
            )
        if settings.compat:
            raise UserError(f"The scorer 'learned' was fitted on our own scores, not on those of {settings.compat}.")
        scorers = {name: scorers.get(name) or Learned(learned_score) for name in names}
    if settings.compat and "cpmi" in scorers:
        scorers["cpmi"] = PolygraphConditionalMutualInformation()
    needs = frozenset().union(*(scorer.needs for scorer in scorers.values()))
    collector_class = PolygraphCollector if settings.compat else Collector
    return scorers, collector_class(model, tokenizer, needs, settings, temperature)


def unfitted_names() -> list[str]:
    """The names of all scorers that need no fitting: what can score a model that is still in training."""
    return [name for name in SCORERS if name != "learned"]


__all__ = [
    "DEFAULT_SCORERS",
    "SCORERS",
    "Batch",
    "Collected",
    "CollectionSettings",
    "Collector",
    "ScoredText",
    "Scorer",
    "make_scorers",
    "output_features",
    "unfitted_names",
]
