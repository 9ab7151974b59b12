"""From (model, data) to scores, from scores to metrics, from metrics to one report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from .. import __version__
from ..data.columns import check_texts, column_values, find_pair
from ..functional import check_choice
from ..metrics import (
    alignment_error,
    aurc,
    bootstrap_interval,
    confidence_calibration_error,
    corpus_quality,
    prediction_rejection_ratio,
    quality_signature,
    rejection_area,
    rejection_report,
    sentence_quality,
)
from ..metrics.quality import QUALITIES
from ..scorers import SCORERS, Collected, Collector, Scorer
from .generate import collection_settings
from .report import EvaluationReport


#: Rows that are read, generated and scored together; the examples of a dataset larger than memory pass through.
SHARD = 1024
#: Metrics that get a bootstrap interval.
WITH_INTERVAL: dict[str, Callable[..., float]] = {
    "prr": prediction_rejection_ratio,
    "prr_0.5": partial(prediction_rejection_ratio, max_rejection=0.5),
    "rejection_area": rejection_area,
    "aurc": aurc,
}


class UncertaintyEvaluator:
    """
    Tells how far each output of a model can be trusted, and how well its uncertainty knows.

    Args:
        model, tokenizer:
            A sequence-to-sequence or causal language model, trained with CLUE or not, and its tokenizer.
        scorers (`Sequence[str]`, *optional*):
            Names in [`~clue_hf.scorers.SCORERS`]; all of them by default.
        quality (`str`, *optional*, defaults to `"bleu"`):
            How outputs are judged: a name in [`~clue_hf.metrics.QUALITIES`].
        resamples (`int`, *optional*, defaults to 2000):
            Bootstrap resamples of the 95 % intervals.
        settings:
            Fields of [`~clue_hf.scorers.CollectionSettings`]; everything else goes to `generate`.

    Example:

    ```python
    report = UncertaintyEvaluator(model, tokenizer, quality="bleu", max_new_tokens=64).evaluate(test_data)
    print(report.table())
    report.save("report")
    ```
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        scorers: Sequence[str] = tuple(SCORERS),
        quality: str = "bleu",
        resamples: int = 2000,
        **settings: Any,
    ) -> None:
        for name in scorers:
            check_choice("scorers", name, tuple(SCORERS))
        check_choice("quality", quality, QUALITIES)
        self.scorers: dict[str, Scorer] = {name: SCORERS[name]() for name in scorers}
        self.quality, self.resamples = quality, resamples
        needs = frozenset().union(*(scorer.needs for scorer in self.scorers.values()))
        self.settings = collection_settings(settings)
        self.collector = Collector(model, tokenizer, needs, self.settings)
        self.reader = Collector(model, tokenizer, frozenset(), self.settings)

    def evaluate(
        self, dataset: Iterable[dict[str, Any]], source_column: str | None = None, target_column: str | None = None
    ) -> EvaluationReport:
        """
        Generates, scores and judges an output for every row of a dataset (a stream works too).

        Args:
            dataset (`datasets.Dataset` or an iterable of rows):
                Rows with a source and a reference text.
            source_column, target_column (`str`, *optional*):
                Their columns; dots reach inside. By default the first known pair, see `docs/own_data.md`.
        """
        examples: list[dict[str, Any]] = []
        references: list[Collected] = []
        for rows in _shards(dataset):
            sources, targets = _texts(rows, source_column, target_column, len(examples))
            collected = self.collector.collect(sources, first_row=len(examples))
            references += self.reader.collect(sources, targets)
            qualities = sentence_quality(self.quality, [entry.output.text for entry in collected], targets)
            for source, target, entry, quality in zip(sources, targets, collected, qualities, strict=True):
                examples.append(self._example(source, target, entry, float(quality)))
        if not examples:
            raise ValueError("The dataset has no rows.")
        return EvaluationReport(examples, self._metrics(examples, references), self._description())

    def _example(self, source: str, target: str, entry: Collected, quality: float) -> dict[str, Any]:
        return {
            "source": source,
            "reference": target,
            "output": entry.output.text,
            "quality": quality,
            "scores": {name: scorer.score(entry) for name, scorer in self.scorers.items()},
            "tokens": self.collector.tokenizer.convert_ids_to_tokens(entry.output.tokens),
            "token_log_probabilities": entry.output.log_probability.tolist(),
            "token_entropies": entry.output.entropy.tolist(),
        }

    def _metrics(self, examples: list[dict[str, Any]], references: list[Collected]) -> dict[str, Any]:
        quality = np.array([example["quality"] for example in examples])
        outputs, targets = ([example[name] for example in examples] for name in ("output", "reference"))
        tokens = {
            name: np.concatenate([getattr(entry.output, name) for entry in references])
            for name in ("log_probability", "entropy", "confidence", "correct")
        }
        error = -tokens["log_probability"]
        return {
            "n": len(examples),
            "empty_outputs": sum(not output for output in outputs),
            "mean_quality": float(quality.mean()),
            f"corpus_{self.quality}": corpus_quality(self.quality, outputs, targets),
            "references": {
                "tokens": len(error),
                "error": float(error.mean()),
                "uncertainty": float(tokens["entropy"].mean()),
                "alignment_error": alignment_error(error, tokens["entropy"]),
                "token_ece": confidence_calibration_error(tokens["confidence"], tokens["correct"]),
            },
            "scorers": {
                name: self._scorer_metrics(np.array([example["scores"][name] for example in examples]), quality)
                for name in self.scorers
            },
        }

    def _scorer_metrics(self, uncertainty: np.ndarray, quality: np.ndarray) -> dict[str, dict[str, Any]]:
        """Every rejection metric of one scorer: value or reason, and the interval of the main ones."""
        report = rejection_report(uncertainty, quality)
        for name, metric in WITH_INTERVAL.items():
            if self.resamples and report[name]["value"] is not None:
                interval = bootstrap_interval(metric, uncertainty, quality, resamples=self.resamples)
                report[name].update(low=interval.low, high=interval.high)
        return report

    def _description(self) -> dict[str, Any]:
        """What it takes to read the numbers, or to make them again."""
        import torch
        import transformers

        return {
            "quality": quality_signature(self.quality),
            "scorers": {name: " ".join((type(s).__doc__ or "").split()) for name, s in self.scorers.items()},
            "interval": f"95 % percentile bootstrap over examples, {self.resamples} resamples, seed 0",
            "generation": vars(self.settings),
            "versions": {"clue_hf": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
        }


def _shards(dataset: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rows = iter(dataset)
    while shard := list(islice(rows, SHARD)):
        yield shard


def _texts(
    rows: list[dict[str, Any]], source: str | None, target: str | None, first_row: int
) -> tuple[list[str], list[str]]:
    """Source and reference texts of some rows, checked."""
    pair = find_pair(rows[0], source, target)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    texts = []
    for path, option in zip(pair, ("source_column", "target_column"), strict=True):
        values = column_values(columns, path, option)
        check_texts(values, path, option, first_row)
        texts.append(values)
    return texts[0], texts[1]
