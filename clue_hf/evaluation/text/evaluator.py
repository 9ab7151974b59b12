"""From (model, data) to scores, from scores to metrics, from metrics to one report."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers.utils.logging import tqdm

from ...data.bad_rows import BadRows
from ...errors import UserError
from ...metrics import find_quality, interval_description, quality_signature
from ...posthoc.learned import LearnedScore
from ...predictors.text import TextPredictor, collection_settings, finite_scores
from ...processes import process_state, share_work
from ...scorers import ALL, DEFAULT_SCORERS, SCORERS, Batch, Scorer
from ...scorers.by_similarity import compare_texts
from ...scorers.density import Density
from ...scorers.formulas import Learned, make_scorer
from ...scorers.outside import OutsideText
from ...scorers.similarity import Similarity, load_similarity
from ...settings import check_choice
from ...versions import package_versions
from .examples import Example, ExampleLog, logged_texts
from .judging import Row, judge, judged_against, make_example, read_rows
from .measures import definitions, measure
from .outside import OutsideTexts
from .report import EvaluationReport


#: Rows that are read and sorted by length together; the examples of a dataset larger than memory pass through.
SHARD = 1024
UNFITTED = (
    "it has not been fitted for these texts (clue-hf calibrate --outputs FILE --scorer learned --output_dir DIR, then "
    "--calibration DIR)"
)


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
            Quality metrics of the outputs: names in [`~clue_hf.metrics.QUALITIES`], `evaluate:NAME_OR_PATH`,
            `module:function`, or `column:NAME`, a quality that comes with the data. The first is the primary one,
            used by the rejection metrics and plots.
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
            find_quality(name)
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
            read = read_rows(rows, *columns, self.qualities, count)
            for finished in self._finish(read, count, done, log):
                bar.update(finished)
            count += len(rows)
        bar.close()
        if count == 0:
            raise ValueError("The dataset has no rows.")
        report = None
        if log is not None:
            report = self._report(log, count, description, self.predictor.scorers)
        [metrics] = broadcast_object_list([report.metrics if report else None])
        return report or EvaluationReport([], metrics, description)

    def evaluate_outputs(
        self,
        rows: str | Path | Iterable[Mapping[str, Any]],
        source_column: str | None = None,
        target_column: str | None = None,
        folder: str | Path | None = None,
        resume: bool = False,
        description: dict[str, Any] | None = None,
        bad_rows: BadRows | None = None,
    ) -> EvaluationReport:
        """
        Scores and judges texts that were generated elsewhere; no model is needed. The report names the scorers that
        cannot be computed from what is known of the texts, with the reason.

        Args:
            rows (`str`, `Path` or an iterable of rows):
                A jsonl file, gzipped or not, or rows. Each has `output`, `reference` or `references` (unless it is
                judged by its columns alone) and any of `source`, `tokens`, `token_log_probabilities`,
                `token_entropies`, `top_log_probabilities`, `samples`, `ended`: see `docs/uncertainty.md`.
            source_column, target_column (`str`, *optional*):
                Other names of `source` and `reference`.
            folder, resume, description (*optional*):
                As in [`evaluate`].
            bad_rows ([`~clue_hf.data.bad_rows.BadRows`], *optional*):
                `BadRows("skip")` skips rows that cannot be used, and counts them; by default the first one raises.

        Example:

        ```python
        rows = [{"output": "Paris", "reference": "Paris", "token_log_probabilities": [-0.1]}, ...]
        report = UncertaintyEvaluator(quality="exact_match").evaluate_outputs(rows)
        ```
        """
        scorers, unfitted = self._outside_scorers()
        texts = OutsideTexts(rows, self.qualities, scorers, source_column, target_column, bad_rows, self.max_rows)
        texts.unavailable |= unfitted
        scorers = {name: scorer for name, scorer in scorers.items() if name not in texts.unavailable}
        compared = {name for scorer in scorers.values() for name in scorer.similarities}
        options = (self.settings.similarity_threshold, torch.device("cpu"))
        similarities = {name: load_similarity(name, *options) for name in compared}
        description = {**(description or {}), **self._outside_description(texts, scorers)}
        log = ExampleLog(None if folder is None else Path(folder), description["signature"], resume)
        done, read = log.done, iter(texts)
        with tqdm(total=texts.count, desc="Evaluating", unit=" texts") as bar:
            for start in range(0, texts.count, SHARD):
                part = list(islice(read, SHARD))
                new = []
                for number, (row, text) in enumerate(part, start):
                    if number in done:
                        log.check(number, logged_texts(row.source, row.references or [""]))
                    else:
                        new.append((number, row, text))
                log.add_examples(self._judged_outside(new, scorers, similarities))
                bar.update(len(part))
        return self._report(log, texts.count, description, scorers)

    def _outside_scorers(self) -> tuple[dict[str, Scorer], dict[str, str]]:
        """The scorers of texts from elsewhere, and why one of them is not there."""
        names, similarity = list(SCORERS) if ALL in self.scorer_names else self.scorer_names, self.settings.similarity
        learned = None if self.learned_score is None else Learned(self.learned_score, similarity)
        unfitted = {"learned": UNFITTED} if learned is None and "learned" in names else {}
        if len(unfitted) == len(names):
            raise UserError(f"The scorer 'learned' cannot run: {UNFITTED}.")
        scorers = {
            name: learned if learned is not None and name == "learned" else make_scorer(name, similarity)
            for name in names
            if name not in unfitted
        }
        return scorers, unfitted

    def _judged_outside(
        self,
        texts: list[tuple[int, Row, OutsideText]],
        scorers: dict[str, Scorer],
        similarities: dict[str, Similarity],
    ) -> list[Example]:
        """The examples of some texts from elsewhere."""
        if not texts:
            return []
        rows, entries = [row for _, row, _ in texts], [text.collected for _, _, text in texts]
        judged = judge(rows, [entry.output.text for entry in entries], self.qualities)
        compare_texts(entries, similarities)
        return [
            make_example(
                number, row, text.collected, qualities, finite_scores(scorers, text.collected, number), text.tokens
            )
            for (number, row, text), qualities in zip(texts, judged, strict=True)
        ]

    def _report(
        self, log: ExampleLog, count: int, description: dict[str, Any], scorers: dict[str, Scorer]
    ) -> EvaluationReport:
        """The report of finished examples."""
        examples = log.examples(count)
        tau = getattr(scorers.get("cpmi"), "cpmi_tau", None)
        single = None if self.learned_score is None or "learned" not in scorers else self.learned_score.single
        metrics = measure(examples, list(scorers), self.qualities, self.resamples, tau, single)
        log.delete()
        counts = [len(example.get("references", [""])) for example in examples]
        judged = judged_against(counts, self.qualities)
        return EvaluationReport(examples, metrics, {**description, **judged, "metrics": definitions(metrics)})

    def _finish(self, rows: list[Row], first_row: int, done: set[int], log: ExampleLog | None) -> Iterator[int]:
        """Evaluates one shard, whose batches the processes share; yields how many rows are new in the log."""
        ready = [row for row in range(first_row, first_row + len(rows)) if row in done]
        if log is not None:
            for row in ready:
                log.check(row, logged_texts(rows[row - first_row].source, rows[row - first_row].references))
        yield len(ready)
        planned = self.predictor.collector.plan([row.source for row in rows], first_row)
        # the longest first: processes that share the work end at about the same time, too large a batch fails early
        batches = [batch for batch in reversed(planned) if not done.issuperset(batch.rows)]
        for examples in share_work(batches, lambda batch: self._judged(batch, rows, first_row)):
            if log is not None:
                log.add_examples(examples)
            yield sum(example["row"] not in done for example in examples)

    def _judged(self, batch: Batch, rows: list[Row], first_row: int) -> list[Example]:
        """The examples of one batch."""
        chosen = [rows[row - first_row] for row in batch.rows]
        references = [row.references[0] for row in chosen]
        collected = self.predictor.collector.collect_batch(batch, references=references)
        judged = judge(chosen, [entry.output.text for entry in collected], self.qualities)
        examples = []
        for place, (number, entry) in enumerate(zip(batch.rows, collected, strict=True)):
            # a model may have more tokens than its tokenizer, which has no text for them
            tokens = [token or "" for token in self.tokenizer.convert_ids_to_tokens(entry.output.tokens)]
            scores = self.predictor.scores(entry, number)
            examples.append(make_example(number, chosen[place], entry, judged[place], scores, tokens))
            if batch.cut[place]:
                examples[-1]["source_was_cut"] = True
        return examples

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
        signature |= self._learned_signature()
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

    def _outside_description(self, texts: OutsideTexts, scorers: dict[str, Scorer]) -> dict[str, Any]:
        """The same of texts from elsewhere, with what they bring and what could not be computed."""
        outputs: dict[str, Any] = {"from": "elsewhere"}
        if texts.top_tokens:
            each = "-".join(map(str, dict.fromkeys(texts.top_tokens)))
            outputs["entropy"] = f"over the {each} log-probabilities given for each token, renormalised"
        if texts.samples and texts.samples[1]:
            outputs["samples"] = "-".join(map(str, dict.fromkeys(texts.samples)))
        return {
            "scorers": {name: scorer.definition for name, scorer in scorers.items()},
            "unavailable_scorers": texts.unavailable,
            "outputs": outputs,
            "interval": interval_description(self.resamples, "examples"),
            "signature": {
                "scorers": list(scorers),
                "quality": self.qualities,
                "outputs": texts.checksum,
                **self._learned_signature(),
            },
            "versions": package_versions(),
        }

    def _learned_signature(self) -> dict[str, int]:
        """The trees of a learned score are many numbers."""
        if self.learned_score is None:
            return {}
        return {"learned_score": zlib.crc32(json.dumps(self.learned_score.to_dict()).encode())}


def _shards(dataset: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rows = iter(dataset)
    while shard := list(islice(rows, SHARD)):
        yield shard
