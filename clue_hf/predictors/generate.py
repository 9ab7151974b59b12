"""Text in, text out, with how far it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..scorers import Collected
from .text import TextPredictor


@dataclass
class UncertainText:
    """
    A text and its uncertainty.

    Args:
        text (`str`):
            The text, without special tokens.
        uncertainty (`float`):
            The first scorer's score: higher means less certain.
        scores (`dict[str, float]`):
            Every scorer's score.
        tokens (`list[str]`), token_log_probabilities, token_entropies (`list[float]`):
            Per token, in nats; the end token is included if it came.
    """

    text: str
    uncertainty: float
    scores: dict[str, float]
    tokens: list[str]
    token_log_probabilities: list[float]
    token_entropies: list[float]

    @property
    def perplexity(self) -> float:
        """`exp(-mean_t l_t)`: the exponential of the score of that name."""
        return math.exp(-fmean(self.token_log_probabilities)) if self.token_log_probabilities else 1.0


def generate_with_uncertainty(
    model: Any, tokenizer: Any, texts: Sequence[str], scorers: Sequence[str] = ("perplexity",), **settings: Any
) -> list[UncertainText]:
    """
    Generates a text for each source and scores it.

    Args:
        model, tokenizer:
            A sequence-to-sequence or causal language model, trained with CLUE or not, and its tokenizer.
        texts (`Sequence[str]`):
            The sources (or prompts).
        scorers (`Sequence[str]`, *optional*, defaults to `("perplexity",)`):
            Names in [`~clue_hf.scorers.SCORERS`]; those that sample or need a pass without the source cost more.
        settings:
            Fields of [`~clue_hf.scorers.CollectionSettings`] (`max_new_tokens`, `batch_size`, `source_prefix` ...);
            everything else goes to `generate` (`num_beams` ...).

    Returns:
        `list[UncertainText]`: in the order of the sources.

    Example:

    ```python
    for output in generate_with_uncertainty(model, tokenizer, ["the cat sleeps ."], max_new_tokens=32):
        print(output.text, output.uncertainty)
    ```
    """
    return _run(model, tokenizer, texts, None, scorers, settings)


def score_with_uncertainty(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str],
    scorers: Sequence[str] = ("perplexity",),
    **settings: Any,
) -> list[UncertainText]:
    """The same for texts that already exist: nothing is generated, the targets are scored as the model sees them."""
    if len(sources) != len(targets):
        raise ValueError(f"There are {len(sources)} sources but {len(targets)} targets.")
    return _run(model, tokenizer, sources, targets, scorers, settings)


def _run(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str] | None,
    names: Sequence[str],
    settings: dict[str, Any],
) -> list[UncertainText]:
    if isinstance(sources, str) or isinstance(targets, str):
        raise TypeError("Give a list of texts, not one text.")
    predictor = TextPredictor(model, tokenizer, names, **settings)
    return [uncertain_text(predictor, entry) for entry in predictor.collector.collect(sources, targets)]


def uncertain_text(predictor: TextPredictor, entry: Collected) -> UncertainText:
    """What was collected of a text, with its scores."""
    scores = {name: scorer.score(entry) for name, scorer in predictor.scorers.items()}
    return UncertainText(
        entry.output.text,
        next(iter(scores.values())),
        scores,
        predictor.processing_class.convert_ids_to_tokens(entry.output.tokens),
        entry.output.log_probability.tolist(),
        entry.output.entropy.tolist(),
    )
