"""Uncertainty scores of generated texts, fed by one shared collection pass. Higher means less certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from ..kernels.fused_linear import Temperature
from ..models.kind import text_task, unwrap
from ..posthoc.learned import LearnedScore
from ..settings import check_choice
from .base import Scorer
from .collected import Batch, Collected, CollectionSettings, ScoredText
from .collection import Collector
from .compat import PolygraphCollector, polygraph_scorer
from .density import Density
from .formulas import DEFAULT_SCORERS, SCORERS, ByDensity, Learned, make_scorer, output_features, scorer_group


#: Stands for the names of all scorers that can run.
ALL = "all"


def make_scorers(
    model: Any,
    tokenizer: Any,
    names: Sequence[str],
    settings: CollectionSettings,
    temperature: Temperature | None = None,
    learned_score: LearnedScore | None = None,
    density: Density | None = None,
) -> tuple[dict[str, Scorer], Collector, dict[str, str]]:
    """
    The scorers with these names, the collector that collects what they need, and where [`ALL`] is among the names, why
    the other scorers cannot run. `learned` and the scorers of a density need what was fitted for the model.
    """
    reasons = unavailable_scorers(model, settings, learned_score, density)
    unavailable = reasons if ALL in names else {}
    scorers: dict[str, Scorer] = {}
    for name in (name for name in SCORERS if name not in reasons) if ALL in names else names:
        check_choice("scorers", name, (*SCORERS, ALL))
        if name in reasons:
            raise UserError(f"The scorer {name!r} cannot run: {reasons[name]}.")
        if learned_score is not None and name == "learned":
            scorers[name] = Learned(learned_score, settings.similarity)
        elif settings.compat:
            scorers[name] = polygraph_scorer(name, settings.similarity, density, model)
        else:
            scorers[name] = make_scorer(name, settings.similarity, density)
    parts = list(scorers.values())
    needs, similarities = (
        frozenset().union(*(getattr(part, of) for part in parts)) for of in ("needs", "similarities")
    )
    collector_class = PolygraphCollector if settings.compat else Collector
    collector = collector_class(model, tokenizer, needs, settings, temperature, sorted(similarities))
    return scorers, collector, unavailable


def unavailable_scorers(
    model: Any,
    settings: CollectionSettings,
    learned_score: LearnedScore | None = None,
    density: Density | None = None,
) -> dict[str, str]:
    """The scorers that cannot run, and why."""
    reasons = {}
    if text_task(unwrap(model).config) != "causal":
        reasons["p_true"] = "it needs a causal language model, which can be asked a question"
    if density is None:
        command = "clue-hf calibrate MODEL --config CONFIG.yaml --density_split train"
        unfitted = f"it has not been fitted for this model ({command})"
        reasons |= dict.fromkeys((name for name in SCORERS if needs_density(name)), unfitted)
    if learned_score is None:
        reasons["learned"] = (
            "it has not been fitted for this model (clue-hf calibrate MODEL --config CONFIG.yaml --scorer learned)"
        )
    elif settings.compat:
        reasons["learned"] = f"it was fitted on our own scores, not on those of {settings.compat}"
    return reasons


def unfitted_names() -> list[str]:
    """The names of all scorers that need no fitting: what can score a model that is still in training."""
    return [name for name in SCORERS if name != "learned" and not needs_density(name)]


def needs_density(name: str) -> bool:
    """Whether a scorer needs a density that was fitted to training texts."""
    return issubclass(SCORERS[name], ByDensity)


__all__ = [
    "ALL",
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
    "needs_density",
    "output_features",
    "scorer_group",
    "unavailable_scorers",
    "unfitted_names",
]
