"""A learned score for a language model: fitted on its judged outputs to held-out sources, chosen on others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from transformers.utils.logging import tqdm

from ..errors import UserError
from ..evaluation import EvaluationReport
from ..posthoc.learned import JudgedOutputs, LearnedScore, token_features
from ..predictors.base import Answer
from ..predictors.text import TextPredictor
from ..scorers import DEFAULT_SCORERS, SCORERS, output_features
from ..tables import format_number, markdown_table
from .token_calibration import Parts


def single_scorers(scores: Sequence[str] = ()) -> list[str]:
    """What a learned score is compared with: the scorers that need nothing but the output, and those of `scores`."""
    cheap = [name for name in DEFAULT_SCORERS if not SCORERS[name].needs]
    return list(dict.fromkeys([*cheap, *scores]))


def learn_score(
    predictor: TextPredictor,
    sources: Sequence[str],
    judge: Callable[[list[Answer]], np.ndarray],
    parts: Parts,
    scores: Sequence[str],
    batch_size: int,
    seed: int,
) -> tuple[TextPredictor, list[Answer]]:
    """
    The predictor with a learned score, and its answers to all sources: the uncertainty of those that fitted it is by a
    model that was fitted without them. The predictor that is given has the [`single_scorers`].
    """
    _check_parts(parts, len(sources))
    texts, features, by_scorer = _outputs(predictor, sources, batch_size)
    quality = judge([{"generated_text": text} for text in texts])
    outputs = JudgedOutputs(features, by_scorer, quality, sources)
    learned, uncertainty = LearnedScore.fit(outputs, parts.fit, parts.choose, scores, seed=seed)
    answers = [
        {"generated_text": text, "uncertainty": value} for text, value in zip(texts, uncertainty.tolist(), strict=True)
    ]
    fitted = (predictor.columns, predictor.token_calibrator, learned, predictor.density)
    settings = vars(predictor.collection)
    return TextPredictor(predictor.model, predictor.processing_class, "learned", *fitted, **settings), answers


def learn_score_of_outputs(
    report: EvaluationReport, scores: Sequence[str], seed: int
) -> tuple[LearnedScore, np.ndarray, Parts]:
    """
    The same of texts that were generated elsewhere, from a report on them with the [`single_scorers`]: the learned
    score, the uncertainty of each text, and which rows were for what. Nothing is known of the lengths of the sources.
    """
    for name, reason in report.unavailable.items():
        raise UserError(f"The scorer 'learned' cannot be fitted, since there is no {name}: {reason}.")
    sources, features = [], []
    for example in report.examples:
        sources.append(example["source"] or f"row {example['row']}")
        log_probability, entropy = example["token_log_probabilities"], example["token_entropies"]
        features.append(token_features(log_probability, entropy, source_tokens=0, ended=example["ended"]))
    parts = Parts.split(sources, seed)
    _check_parts(parts, len(sources))
    by_scorer = {name: report.uncertainty(name) for name in report.scorers}
    outputs = JudgedOutputs(np.stack(features), by_scorer, report.quality(), sources)
    learned, uncertainty = LearnedScore.fit(outputs, parts.fit, parts.choose, scores, seed=seed)
    return learned, uncertainty, parts


def _check_parts(parts: Parts, count: int) -> None:
    for purpose, rows in vars(parts).items():
        if not rows:
            raise UserError(
                f"{count} rows are too few for a learned score: none is left to {purpose}. Use some hundreds, better "
                "thousands."
            )


def _outputs(
    predictor: TextPredictor, sources: Sequence[str], batch_size: int
) -> tuple[list[str], np.ndarray, dict[str, np.ndarray]]:
    """The output for each source, its features, and its score by every scorer."""
    rows: dict[int, tuple[str, np.ndarray, dict[str, float]]] = {}
    for batch in tqdm(predictor.collector.plan(sources, batch_size=batch_size), desc="Calibrating", unit=" batches"):
        for row, entry in zip(batch.rows, predictor.collector.collect_batch(batch), strict=True):
            rows[row] = entry.output.text, output_features(entry), predictor.scores(entry, row)
    texts, features, scores = zip(*(rows[row] for row in range(len(sources))), strict=True)
    by_scorer = {name: np.array([entry[name] for entry in scores]) for name in predictor.scorers}
    return list(texts), np.stack(features), by_scorer


def learned_summary(learned: LearnedScore) -> str:
    """Whether the learned score is used, and why, in a sentence and a table."""
    lines = [["scorer", f"PRR on the {learned.rows['fit']:,} rows that fitted"]]
    lines += [[name, format_number(value)] for name, value in learned.prr.items()]
    note = "\n\nlearned is judged there by models that were fitted on other rows." if "learned" in learned.prr else ""
    return f"Learned score: {learned.explanation}\n\n{markdown_table(lines)}{note}"


def learned_part(learned: LearnedScore | None) -> dict[str, Any]:
    """The part of `uncertainty.json` that is about the learned score; `None` where it is to be taken out."""
    return {"learned_score": None if learned is None else learned.to_dict()}
