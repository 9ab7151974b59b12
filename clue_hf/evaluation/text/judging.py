"""Rows with what their outputs are judged by, and the examples that judged outputs become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...data.columns import as_verdicts, column_values, text_pairs
from ...metrics import quality_signature, sentence_quality
from ...metrics.judges import COLUMN
from ...scorers import Collected, ScoredText
from .examples import Example
from .measures import CALIBRATED_VALUES, REFERENCE_VALUES, UNCALIBRATED


#: Digits of the values per token.
DIGITS = 6


@dataclass(frozen=True)
class Row:
    """
    A source, its references, the verdicts that came with it by the name of the quality (`column:NAME`), and the true
    entropy of its targets where that is known.
    """

    source: str
    references: Sequence[str]
    verdicts: dict[str, float] = field(default_factory=dict)
    entropy: float | None = None


def verdict_columns(qualities: Sequence[str]) -> dict[str, str]:
    """The columns of the qualities that are columns of the data."""
    return {name: name.removeprefix(COLUMN) for name in qualities if name.startswith(COLUMN)}


def read_rows(
    rows: list[dict[str, Any]],
    source: str | None,
    target: str | None,
    entropy: str | None,
    qualities: Sequence[str],
    first_row: int,
) -> list[Row]:
    """Some rows of a dataset, checked."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    sources, references = text_pairs(columns, source, target, first_row)
    entropies = column_values(columns, entropy, "entropy_column") if entropy else [None] * len(rows)
    verdicts = {name: as_verdicts(columns, path, first_row) for name, path in verdict_columns(qualities).items()}
    each = [{name: values[place] for name, values in verdicts.items()} for place in range(len(rows))]
    return [Row(*values) for values in zip(sources, references, each, entropies, strict=True)]


def judge(rows: Sequence[Row], outputs: Sequence[str], qualities: Sequence[str]) -> list[dict[str, float]]:
    """The qualities of each output, by name."""
    columns = verdict_columns(qualities)
    judged = {
        name: [row.verdicts[name] for row in rows]
        if name in columns
        else sentence_quality(name, outputs, [row.references for row in rows]).tolist()
        for name in qualities
    }
    return [{name: values[place] for name, values in judged.items()} for place in range(len(rows))]


def make_example(
    number: int, row: Row, entry: Collected, qualities: dict[str, float], scores: dict[str, float], tokens: list[str]
) -> Example:
    """A judged output as it stands in `examples.jsonl`; numbers of its tokens that are not known are left out."""
    output = entry.output
    example = {
        "row": number,
        "source": row.source,
        "reference": row.references[0] if row.references else "",
        "output": output.text,
        "quality": next(iter(qualities.values())),
        "qualities": qualities,
        "scores": scores,
        "ended": output.ended,
        "tokens": tokens,
        "token_log_probabilities": _known(output.log_probability),
        "token_entropies": _known(output.entropy),
    }
    if entry.reference is not None:
        example |= _reference_values(entry.reference)
    if len(row.references) > 1:
        example["references"] = list(row.references)
    if entry.uncalibrated_reference is not None:
        values = _reference_values(entry.uncalibrated_reference)
        example |= {f"{UNCALIBRATED}{name}": values[name] for name in CALIBRATED_VALUES}
    if row.entropy is not None:
        example["true_entropy"] = row.entropy
    return example


def judged_against(counts: Sequence[int], qualities: Sequence[str]) -> dict[str, Any]:
    """How outputs were judged, which the number of references of each decides."""
    same = counts[0] if len(set(counts)) == 1 else None
    judged: dict[str, Any] = {"quality": {name: quality_signature(name, same) for name in qualities}}
    if max(counts) > 1 and len(verdict_columns(qualities)) < len(qualities):
        judged["references"] = {"total": sum(counts), "fewest": min(counts), "most": max(counts)}
    return judged


def _reference_values(reference: ScoredText) -> dict[str, list[float]]:
    correct: list[Any] = [int(right) for right in reference.correct]
    values = (-reference.log_probability, reference.entropy, reference.confidence)
    return dict(zip(REFERENCE_VALUES, [*map(_rounded, values), correct], strict=True))


def _known(values: np.ndarray) -> list[float]:
    return [] if np.isnan(values).any() else _rounded(values)


def _rounded(values: np.ndarray) -> list[float]:
    return values.round(DIGITS).tolist()
