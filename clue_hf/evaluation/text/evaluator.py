"""From (model, data) to scores, from scores to metrics, from metrics to one report."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import broadcast_object_list, gather_object
from transformers.utils.logging import tqdm

from ...data.columns import column_values, text_pairs
from ...functional import check_choice
from ...metrics import interval_description, quality_signature, sentence_quality
from ...metrics.quality import QUALITIES
from ...posthoc.learned import LearnedScore
from ...predictors.text import TextPredictor, collection_settings
from ...processes import PartialState, process_state
from ...scorers import ALL, DEFAULT_SCORERS, SCORERS, Batch, ScoredText
from ...scorers.density import Density
from ...versions import package_versions
from .examples import Example, ExampleLog, logged_texts
from .measures import CALIBRATED_VALUES, REFERENCE_VALUES, UNCALIBRATED, definitions, measure
from .report import EvaluationReport


#: Rows that are read and sorted by length together; the examples of a dataset larger than memory pass through.
SHARD = 1024
#: Digits of the values per token.
DIGITS = 6
#: Source, references, and the true entropy of the targets where it is known.
Texts = tuple[str, list[str], float | None]


class UncertaintyEvaluator:
    """
    Evaluates the uncertainty of a language model: generates an output for every row, scores its uncertainty, judges
    its quality, and measures how well the one predicts the other.

    Args:
        model, tokenizer:
            A sequence-to-sequence or causal language model, trained with CLUE or not, and its tokenizer. Inside a
            [`CLUETrainer`] they are not needed: it sets its own.
        scorers (`Sequence[str]`, *optional*):
            Names in [`~clue_hf.scorers.SCORERS`], or `["all"]` for all that can run; seven by default.
        quality (`str` or `Sequence[str]`, *optional*, defaults to `"bleu"`):
            Quality metrics of the outputs: names in [`~clue_hf.metrics.QUALITIES`]; the first is the primary one, used
            by the rejection metrics and plots.
        resamples (`int`, *optional*, defaults to 2000):
            Bootstrap resamples of the 95 % intervals; 0 for none.
        max_rows (`int`, *optional*):
            Maximum number of rows to evaluate.
        learned_score ([`~clue_hf.posthoc.learned.LearnedScore`], *optional*):
            What the scorer `learned` needs; the single scorer that it is compared with is added to the scorers.
        density ([`~clue_hf.scorers.density.Density`], *optional*):
            What `mahalanobis`, `relative_mahalanobis` and `rde` need.
        settings:
            Fields of [`~clue_hf.scorers.CollectionSettings`] (`max_new_tokens`, `batch_size`, `num_samples` ...);
            everything else goes to `generate` (`num_beams` ...).

    Example:

    ```python
    report = UncertaintyEvaluator(model, tokenizer, quality="bleu", max_new_tokens=64).evaluate(test_data)
    print(report.table())
    report.save("report")
    ```
    """

    def __init__(
        self,
        model: Any = None,
        tokenizer: Any = None,
        scorers: Sequence[str] = DEFAULT_SCORERS,
        quality: str | Sequence[str] = "bleu",
        resamples: int = 2000,
        max_rows: int | None = None,
        token_calibrator: Any = None,
        learned_score: LearnedScore | None = None,
        density: Density | None = None,
        **settings: Any,
    ) -> None:
        self.qualities = [quality] if isinstance(quality, str) else list(quality)
        for name in scorers:
            check_choice("scorers", name, (*SCORERS, ALL))
        for name in self.qualities:
            check_choice("quality", name, QUALITIES)
        if not scorers or not self.qualities:
            raise ValueError("Pass at least one scorer and one quality.")
        self.scorer_names, self.resamples, self.max_rows = list(scorers), resamples, max_rows
        self.settings = collection_settings(settings)
        self.model, self.tokenizer, self.token_calibrator = model, tokenizer, token_calibrator
        self.density = density
        self.learned_score = learned_score if {"learned", ALL} & set(scorers) else None
        if self.learned_score is not None and not {self.learned_score.single, ALL} & set(scorers):
            self.scorer_names.append(self.learned_score.single)  # what it is compared with

    @classmethod
    def from_predictor(
        cls, predictor: TextPredictor, quality: str | Sequence[str] = "bleu", resamples: int = 2000
    ) -> UncertaintyEvaluator:
        """An evaluator of a model that was loaded with its settings."""
        fitted = {name: getattr(predictor, name) for name in ("token_calibrator", "learned_score", "density")}
        settings = {**vars(predictor.collection), **fitted}
        return cls(predictor.model, predictor.processing_class, predictor.requested, quality, resamples, **settings)

    def evaluate(
        self,
        dataset: Iterable[dict[str, Any]],
        source_column: str | None = None,
        target_column: str | None = None,
        entropy_column: str | None = None,
        folder: str | Path | None = None,
        resume: bool = False,
        description: dict[str, Any] | None = None,
    ) -> EvaluationReport:
        """
        Generates, scores and judges an output for every row of a dataset. Started on several processes, each takes its
        share; the report is the same, and the main process has the examples.

        Args:
            dataset (`datasets.Dataset` or an iterable of rows):
                Rows with a source and a reference text, or a list of them; a stream works too. Outputs are judged
                against all references; the errors and entropies of reference tokens are those of the first.
            source_column, target_column (`str`, *optional*):
                Their columns; dots reach inside. By default the first known pair, see `docs/own_data.md`.
            entropy_column (`str`, *optional*):
                Column with the true entropy of a row's targets, where it is known: adds the rank correlation of every
                scorer with it.
            folder (`str`, *optional*):
                Where examples are kept as they are finished, so that a long run may be interrupted and the data may be
                larger than memory. [`EvaluationReport.save`] completes the folder.
            resume (`bool`, *optional*, defaults to `False`):
                Continue what the folder holds.
            description (`dict`, *optional*):
                More entries of the report's description, such as the names of model and data.
        """
        if self.model is None or self.tokenizer is None:
            raise ValueError("The evaluator needs a model and a tokenizer: pass both.")
        self.predictor = TextPredictor(
            self.model,
            self.tokenizer,
            self.scorer_names,
            token_calibrator=self.token_calibrator,
            learned_score=self.learned_score,
            density=self.density,
            **vars(self.settings),
        )
        self.scorer_names = list(self.predictor.scorers)
        state = process_state()
        description = description or {}
        description = {**description, **self._description(description.get("model"))}
        log = None
        if state.is_main_process:
            log = ExampleLog(None if folder is None else Path(folder), description["signature"], resume)
        [done] = broadcast_object_list([log.done if log else None])
        columns = (source_column, target_column, entropy_column)
        count = 0
        total = min(filter(None, (length_hint(dataset), self.max_rows)), default=None)  # a stream has no length
        bar = tqdm(total=total, desc="Evaluating", unit=" texts", disable=not state.is_main_process)
        for rows in _shards(islice(dataset, self.max_rows)):
            texts = _texts(rows, *columns, count)
            for finished in self._finish(texts, count, done, log, state):
                bar.update(finished)
            count += len(rows)
        bar.close()
        if count == 0:
            raise ValueError("The dataset has no rows.")
        report = None
        if log is not None:
            examples = log.examples(count)
            tau = getattr(self.predictor.scorers.get("cpmi"), "cpmi_tau", None)
            single = None if self.learned_score is None else self.learned_score.single
            metrics = measure(examples, self.scorer_names, self.qualities, self.resamples, tau, single)
            description = {**description, **self._judged_against(examples), "metrics": definitions(metrics)}
            report = EvaluationReport(examples, metrics, description)
        [metrics] = broadcast_object_list([report.metrics if report else None])
        return report or EvaluationReport([], metrics, description)

    def _finish(
        self, texts: list[Texts], first_row: int, done: set[int], log: ExampleLog | None, state: PartialState
    ) -> Iterator[int]:
        """Evaluates one shard, a batch on each process at a time; yields how many rows are new in the log."""
        ready = [row for row in range(first_row, first_row + len(texts)) if row in done]
        if log is not None:
            for row in ready:
                log.check(row, logged_texts(*texts[row - first_row][:2]))
        yield len(ready)
        planned = self.predictor.collector.plan([source for source, _, _ in texts], first_row)
        batches = [batch for batch in planned if not done.issuperset(batch.rows)]
        for start in range(0, len(batches), state.num_processes):
            mine = batches[start : start + state.num_processes][state.process_index :][:1]
            examples = gather_object([example for batch in mine for example in self._judged(batch, texts, first_row)])
            if log is not None:
                log.add_examples(examples)
            yield sum(example["row"] not in done for example in examples)

    def _judged(self, batch: Batch, texts: list[Texts], first_row: int) -> list[Example]:
        """The examples of one batch."""
        chosen = [texts[row - first_row] for row in batch.rows]
        references = [texts for _, texts, _ in chosen]
        collected = self.predictor.collector.collect_batch(batch, references=[texts[0] for texts in references])
        outputs = [entry.output.text for entry in collected]
        judged = {name: sentence_quality(name, outputs, references) for name in self.qualities}
        examples = []
        for place, (row, entry) in enumerate(zip(batch.rows, collected, strict=True)):
            source, (reference, *others), entropy = chosen[place]
            qualities = {name: float(values[place]) for name, values in judged.items()}
            expected: ScoredText = entry.reference  # type: ignore[assignment]
            example = {
                "row": row,
                "source": source,
                "reference": reference,
                "output": entry.output.text,
                "quality": qualities[self.qualities[0]],
                "qualities": qualities,
                "scores": self.predictor.scores(entry, row),
                "ended": entry.output.ended,
                "tokens": self.tokenizer.convert_ids_to_tokens(entry.output.tokens),
                "token_log_probabilities": _rounded(entry.output.log_probability),
                "token_entropies": _rounded(entry.output.entropy),
                **_reference_values(expected),
            }
            if others:
                example["references"] = [reference, *others]
            if entry.uncalibrated_reference is not None:
                values = _reference_values(entry.uncalibrated_reference)
                example |= {f"{UNCALIBRATED}{name}": values[name] for name in CALIBRATED_VALUES}
            if entropy is not None:
                example["true_entropy"] = entropy
            if batch.cut[place]:
                example["source_was_cut"] = True
            examples.append(example)
        return examples

    def _judged_against(self, examples: Iterable[Example]) -> dict[str, Any]:
        """How the outputs were judged, which the number of their references decides."""
        counts = [len(example.get("references", [""])) for example in examples]
        same = counts[0] if len(set(counts)) == 1 else None
        judged: dict[str, Any] = {"quality": {name: quality_signature(name, same) for name in self.qualities}}
        if max(counts) > 1:
            judged["references"] = {"total": sum(counts), "fewest": min(counts), "most": max(counts)}
        return judged

    def _description(self, name: str | None) -> dict[str, Any]:
        """What it takes to read the numbers, or to compute them again; an adapter's config names its base only."""
        signature = {
            "scorers": self.scorer_names,
            "quality": self.qualities,
            "model": name or getattr(self.model.config, "_name_or_path", ""),
            **{name: value for name, value in vars(self.settings).items() if name != "batch_size"},
        }
        if self.token_calibrator is not None:
            signature["token_calibrator"] = self.token_calibrator.to_dict()
        if self.learned_score is not None:  # its trees are many numbers
            signature["learned_score"] = zlib.crc32(json.dumps(self.learned_score.to_dict()).encode())
        if self.density is not None:
            signature["density"] = zlib.crc32(self.density.mean.tobytes())
        return {
            "compat": self.settings.compat,
            "quality": {name: quality_signature(name) for name in self.qualities},
            "scorers": self.predictor.definitions,
            **({"unavailable_scorers": self.predictor.unavailable} if self.predictor.unavailable else {}),
            "interval": interval_description(self.resamples, "examples"),
            "generation": vars(self.settings),
            "signature": signature,
            "versions": package_versions(),
        }


def _shards(dataset: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rows = iter(dataset)
    while shard := list(islice(rows, SHARD)):
        yield shard


def _rounded(values: np.ndarray) -> list[float]:
    return values.round(DIGITS).tolist()


def _reference_values(reference: ScoredText) -> dict[str, list[float]]:
    correct: list[Any] = [int(right) for right in reference.correct]
    values = (-reference.log_probability, reference.entropy, reference.confidence)
    return dict(zip(REFERENCE_VALUES, [*map(_rounded, values), correct], strict=True))


def _texts(
    rows: list[dict[str, Any]], source: str | None, target: str | None, entropy: str | None, first_row: int
) -> list[Texts]:
    """Source text and references of some rows, checked, and their true entropy where there is a column of it."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    texts = text_pairs(columns, source, target, first_row)
    entropies = column_values(columns, entropy, "entropy_column") if entropy else [None] * len(rows)
    return list(zip(*texts, entropies, strict=True))
