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
from .compat import PolygraphCollector, polygraph_scorer
from .formulas import DEFAULT_SCORERS, SCORERS, Learned, make_scorer, output_features


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
    unavailable = unavailable_scorers(settings, learned_score)
    scorers: dict[str, Scorer] = {}
    for name in names:
        check_choice("scorers", name, SCORERS)
        if name in unavailable:
            raise UserError(f"The scorer {name!r} {unavailable[name]}")
        if learned_score is not None and name == "learned":
            scorers[name] = Learned(learned_score, settings.similarity)
        elif settings.compat:
            scorers[name] = polygraph_scorer(name, settings.similarity, model)
        else:
            scorers[name] = make_scorer(name, settings.similarity)
    needs = frozenset().union(*(scorer.needs for scorer in scorers.values()))
    collector_class = PolygraphCollector if settings.compat else Collector
    return scorers, collector_class(model, tokenizer, needs, settings, temperature)


def unavailable_scorers(settings: CollectionSettings, learned_score: LearnedScore | None = None) -> dict[str, str]:
    """The scorers that cannot run, each with the reason: the end of a sentence that begins with its name."""
    reasons = {}
    if learned_score is None:
        reasons["learned"] = (
            "has not been fitted for this model: clue-hf calibrate MODEL --config CONFIG.yaml --scorer learned"
        )
    elif settings.compat:
        reasons["learned"] = f"was fitted on our own scores, not on those of {settings.compat}."
    return reasons


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
    "make_scorer",
    "make_scorers",
    "output_features",
    "unavailable_scorers",
    "unfitted_names",
]
