"""What is known of a model whose weights hold a temperature: beside them in `uncertainty.json`, and in its card."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ..metrics import Measured, format_metric, read_metrics
from .stored import Stored


@dataclass(frozen=True)
class BakedTemperature(Stored):
    """
    A temperature in the weights of a model: its logits are those of another one, divided by it.

    Args:
        temperature (`float`):
            What the logits were divided by.
        model (`str`):
            The other model: Hub id, or name of its folder.
        rows (`int`):
            Number of held-out rows on which the two were compared.
        logit_error (`float`):
            Largest difference of new logits times temperature from old logits, as a share of the range of the latter.
        same_greedy (`int`):
            Number of rows whose greedy texts are the same.
        generation (`dict`):
            The model's own settings of beams and sampling; empty where it decodes greedily.
        same_generated (`int`):
            Number of rows whose texts are the same with these settings.
        quality (`dict`):
            `name`, `before`, `after` and `difference`: the quality of those texts, from 0 to 100, with intervals.
        tokens (`dict`):
            The metrics of reference tokens `before` and `after`, and the number of `rows` they are from.
    """

    name: ClassVar[str] = "baked_temperature"
    temperature: float
    model: str
    rows: int
    logit_error: float
    same_greedy: int
    generation: dict[str, Any]
    same_generated: int
    quality: dict[str, Any]
    tokens: dict[str, Any]

    def check(self) -> None:
        numbers = (self.temperature, self.rows, self.logit_error, self.same_greedy, self.same_generated)
        if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
            raise ValueError("its numbers are not finite")
        if not isinstance(self.model, str) or not isinstance(self.generation, dict):
            raise TypeError("model and generation must be a name and a map")
        parts = [self.quality[when] for when in ("before", "after", "difference")]
        parts += [entry for metrics in self.metrics.values() for entry in metrics.values()]
        if not all(isinstance(Measured.from_dict(part).value, float) for part in parts):
            raise TypeError("its metrics are not numbers")
        if not isinstance(self.certified_rows, int):
            raise TypeError("the number of rows is not a number")

    @property
    def metrics(self) -> dict[str, dict[str, Measured]]:
        """Metrics of the reference tokens before and after."""
        return {when: read_metrics(self.tokens[when]) for when in ("before", "after")}

    @property
    def certified_rows(self) -> int:
        """Number of rows that those metrics are from, none of which fitted anything."""
        return self.tokens["rows"]["certify"]

    @property
    def generation_text(self) -> str:
        """The model's own settings in words."""
        return ", ".join(f"{name}={value}" for name, value in self.generation.items())

    def differences(self) -> str:
        """What stays the same in the outputs and what does not, in sentences."""
        same = f"Greedy outputs are the same ({self.same_greedy:,} of {self.rows:,} held-out rows)."
        other = "Beam search and sampling see the new probabilities and may give other texts"
        if not self.generation:
            return f"{same} {other}; by its own settings the model decodes greedily."
        before, after = (
            format_metric(self.quality[when], "bleu", "text", interval=None) for when in ("before", "after")
        )
        difference = format_metric(self.quality["difference"], "bleu", "text", sign="+")
        return (
            f"{same} {other}: with the model's own settings ({self.generation_text}) {self.same_generated:,} of "
            f"{self.rows:,} are the same, {self.quality['name']} {before} before and {after} after (difference "
            f"{difference})."
        )
