"""Language models: a text for each source, with how uncertain the model is of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import UserError
from ..inputs.base import InputSettings
from ..inputs.text_rows import as_texts
from ..posthoc.learned import LearnedScore
from ..scorers import Batch, Collected, CollectionSettings, Scorer, make_scorers
from ..scorers.density import Density
from .base import NOT_FINITE, Answer, Predictor


def collection_settings(settings: dict[str, Any]) -> CollectionSettings:
    """Keyword arguments as settings: what is not a field of [`CollectionSettings`] goes to `generate`."""
    known = {field.name for field in dataclasses.fields(CollectionSettings)}
    own = {name: value for name, value in settings.items() if name in known}
    other = {name: value for name, value in settings.items() if name not in known}
    return CollectionSettings(**{**own, "generation": {**own.get("generation", {}), **other}})


def finite_scores(scorers: Mapping[str, Scorer], entry: Collected, row: int) -> dict[str, float]:
    """The score of a text by every scorer; raises where one is not a number."""
    scores = {name: scorer.score(entry) for name, scorer in scorers.items()}
    for name, score in scores.items():
        if not math.isfinite(score):
            raise UserError(
                f"The {name} of the output for row {row} (counted from 0) is {score}: the model's probabilities are "
                f"not finite. {NOT_FINITE}"
            )
    return scores


class TextPredictor(Predictor):
    """A language model: its text for each source."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        scorers: str | Sequence[str] = "perplexity",
        columns: InputSettings | None = None,
        token_calibrator: Any = None,
        learned_score: LearnedScore | None = None,
        density: Density | None = None,
        **settings: Any,
    ) -> None:
        names = [scorers] if isinstance(scorers, str) else list(scorers)
        self.model, self.processing_class, self.requested = model, tokenizer, names
        self.collection = collection_settings(settings)
        self.learned_score, self.density = learned_score, density
        self.scorers, self.collector, self.unavailable = make_scorers(
            model, tokenizer, names, self.collection, token_calibrator, learned_score, density
        )
        self.scorer = next(iter(self.scorers))
        self.settings = {name: value for name, value in vars(self.collection).items() if name != "batch_size"}
        self.definitions = {name: scorer.definition for name, scorer in self.scorers.items()}
        self.definition = self.definitions[self.scorer]
        self.columns = columns or InputSettings()

    @property
    def token_calibrator(self) -> Any:
        """What calibrates the probabilities of the tokens, where anything does."""
        return self.collector.temperature

    @token_calibrator.setter
    def token_calibrator(self, calibrator: Any) -> None:
        self.collector.temperature = calibrator

    def scores(self, entry: Collected, row: int) -> dict[str, float]:
        """The score of a text by every scorer; raises where one is not a number."""
        return finite_scores(self.scorers, entry, row)

    def predict(
        self,
        inputs: Any,
        batch_size: int,
        first_row: int = 0,
        return_tokens: bool = False,
        num_alternatives: int = 0,
        **options: Any,
    ) -> tuple[list[Answer], bool]:
        texts = as_texts(inputs, first_row)
        answers: dict[int, Answer] = {}
        for batch in self.collector.plan(texts, first_row, batch_size):
            collected = self.collector.collect_batch(batch)
            for place, (row, entry) in enumerate(zip(batch.rows, collected, strict=True)):
                answer = {"generated_text": entry.output.text, "uncertainty": self.scores(entry, row)[self.scorer]}
                if return_tokens or num_alternatives:
                    answer["tokens"] = self._tokens(batch, place, entry, num_alternatives)
                answers[row] = answer
        return [answers[row] for row in range(first_row, first_row + len(texts))], isinstance(inputs, str)

    def _tokens(self, batch: Batch, place: int, entry: Collected, num_alternatives: int) -> list[Answer]:
        """Each token with its probability and the entropy (nats) of its distribution, and those it was chosen from."""
        output = entry.output
        names = self.processing_class.convert_ids_to_tokens(output.tokens)
        columns = zip(names, np.exp(output.log_probability).tolist(), output.entropy.tolist(), strict=True)
        tokens = [{"token": name, "probability": p, "entropy": entropy} for name, p, entropy in columns]
        if num_alternatives:
            likely = self._alternatives(batch.prompts[place], output.tokens, num_alternatives)
            for token, alternatives in zip(tokens, likely, strict=True):
                token["alternatives"] = alternatives
        return tokens

    def _alternatives(self, prompt: list[int], tokens: list[int], count: int) -> Iterator[list[Answer]]:
        """The most probable tokens at each position of a text, by a pass of its own."""
        if not tokens:
            return
        logits = self.collector.output_logits(prompt, tokens)
        likely = logits.softmax(-1).topk(min(count, logits.shape[-1]), dim=-1)
        for ids, probabilities in zip(likely.indices.tolist(), likely.values.tolist(), strict=True):
            names = self.processing_class.convert_ids_to_tokens(ids)
            yield [{"token": name, "probability": p} for name, p in zip(names, probabilities, strict=True)]
