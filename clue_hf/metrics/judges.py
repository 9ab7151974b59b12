"""Judges from elsewhere: a metric of the `evaluate` library, a function of a module, a column of the data."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from ..errors import UserError, did_you_mean


#: Beginnings of the names of such judges; those of others are `module:function`.
COLUMN, EVALUATE = "column:", "evaluate:"


class ColumnVerdict:
    """A verdict or score that came with the data: it is read there, and judges no other texts."""

    def __init__(self, column: str) -> None:
        self.column = column

    def __call__(self, predictions: Sequence[str], references: Sequence[str]) -> list[float]:
        raise UserError(f"The quality {COLUMN}{self.column} is in a column of the data, and cannot judge other texts.")

    def signature(self, num_references: int | None = 1) -> str:
        return f"column {self.column!r} of the data"


class EvaluateMetric:
    """
    A metric of the `evaluate` library, by its name on the Hub or its folder, on each text alone. Of several values
    that it computes, `place` names one after a colon, as in `rouge:rougeL`.
    """

    def __init__(self, place: str) -> None:
        import evaluate

        self.path, _, self.key = place.partition(":")
        try:
            self.metric = evaluate.load(os.path.expanduser(self.path), keep_in_memory=True)
        except Exception as error:  # whatever the code of a metric raises
            raise UserError(
                f"The metric {self.path!r} of the evaluate library cannot be loaded: {_first_line(error)}. Give the "
                "name of a metric on the Hub, or its folder."
            ) from error
        self.values_per_text: bool | None = None  # known once it has run

    def __call__(self, predictions: Sequence[str], references: Sequence[str]) -> list[float]:
        if not predictions:
            return []
        if self.values_per_text is not False:
            value = self._compute(predictions, references)
            self.values_per_text = np.ndim(value) == 1 and len(value) == len(predictions)
            if self.values_per_text or len(predictions) == 1:
                return np.atleast_1d(value).tolist()
        return [self._compute([text], [reference]) for text, reference in zip(predictions, references, strict=True)]

    def signature(self, num_references: int | None = 1) -> str:
        best = "" if num_references == 1 else ", best of the references"
        value = f", {self.key}" if self.key else ""
        return f"metric {self.metric.name}{value} of evaluate {version('evaluate')}, each text alone{best}"

    def _compute(self, predictions: Sequence[str], references: Sequence[str]) -> Any:
        try:
            values = self.metric.compute(predictions=list(predictions), references=list(references))
        except Exception as error:  # whatever the code of a metric raises
            raise UserError(
                f"The metric {self.path!r} of the evaluate library cannot judge a text against a text: "
                f"{_first_line(error)}."
            ) from error
        key = self.key or (self.metric.name if self.metric.name in values else "")
        if not key and len(values) == 1:
            [key] = values
        if key not in values:
            example = next(iter(values))
            raise UserError(
                f"The metric {self.path!r} computes {', '.join(values)}: name one of them, as in "
                f"{EVALUATE}{self.path}:{example}."
            )
        return values[key]


def _imported(module: str, name: str) -> Callable[..., Sequence[float]]:
    """A function by the name of its module, which may be a file in the working directory."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        function = getattr(import_module(module), name, None)
    except ImportError as error:
        raise UserError(f"The quality {module}:{name} cannot be imported: {error}.") from error
    if not callable(function):
        known = [key for key, value in vars(sys.modules[module]).items() if callable(value)]
        raise UserError(f"The module {module!r} has no function {name!r}.{did_you_mean(name, known)}")
    return function


@cache
def find_judge(name: str) -> Callable[..., Sequence[float]]:
    """The judge `evaluate:NAME_OR_PATH`, `column:NAME` or `module:function`."""
    if name.startswith(COLUMN):
        return ColumnVerdict(name.removeprefix(COLUMN))
    if name.startswith(EVALUATE):
        return EvaluateMetric(name.removeprefix(EVALUATE))
    return _imported(*name.rsplit(":", 1))


def judge_label(name: str) -> str:
    """What tables call it: the folders of this machine are left out."""
    kind, _, place = name.partition(":")
    return f"{kind}:{os.path.basename(place.rstrip('/'))}" if place.startswith(("/", ".", "~")) else name


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
