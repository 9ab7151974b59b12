"""What a scorer is: the numbers collected for one text in, one uncertainty out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from .collected import Collected


@dataclass(frozen=True)
class Scorer(ABC):
    """
    An uncertainty of a generated text: higher means less certain. A subclass is one formula; add it to `SCORERS` and
    it is found by its name. `needs` says what the collection must bring beside the text itself; `reads`, which numbers
    it is computed from: texts from elsewhere may come without some of them (see [`~clue_hf.scorers.outside.PARTS`]).
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    reads: ClassVar[frozenset[str]] = frozenset({"log_probability", "entropy"})

    @property
    def similarities(self) -> frozenset[str]:
        """How the output and the samples must have been compared: see `clue_hf/scorers/similarity.py`."""
        return frozenset()

    @property
    def definition(self) -> str:
        """What it is, in words."""
        return " ".join((type(self).__doc__ or "").split())

    @abstractmethod
    def score(self, collected: Collected) -> float:
        """The uncertainty of one text; 0 tokens give 0."""
