"""How good generated texts are, against one reference each: BLEU, chrF, ROUGE, by the libraries that define them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..functional import check_choice
from .bootstrap import check_options, cluster_mean_interval, resampled_sums
from .measured import Measured


QUALITIES = ("bleu", "chrf", "rouge1", "rouge2", "rougeL")
#: Texts whose n-grams are in memory at once.
CHUNK = 1024


def corpus_quality(name: str, predictions: Sequence[str], references: Sequence[str]) -> float:
    """
    The quality of all predictions together, from 0 to 100: corpus BLEU and chrF (sacrebleu), or the mean ROUGE F1
    (rouge-score, with stemming). Returns nan without predictions.
    """
    _check(name, predictions, references)
    if not predictions:
        return float("nan")
    if name in ("bleu", "chrf"):
        return _sacrebleu(name).corpus_score(list(predictions), [list(references)]).score
    return 100 * float(sentence_quality(name, predictions, references).mean())


def corpus_quality_interval(
    name: str,
    predictions: Sequence[str],
    references: Sequence[str],
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Measured:
    """
    [`corpus_quality`] with its bootstrap interval over the texts. BLEU and chrF are computed anew for each resample,
    from the statistics of each text that sacrebleu sums up itself (matches, lengths); nothing is tokenised again.

    Same options as [`bootstrap_interval`], and the same draws.
    """
    check_options(resamples, level)
    _check(name, predictions, references)
    if name.startswith("rouge") or not predictions:
        values = 100 * sentence_quality(name, predictions, references)
        return cluster_mean_interval(values, np.ones(len(values)), resamples, level, seed)
    metric = _sacrebleu(name)
    chunks = [slice(start, start + CHUNK) for start in range(0, len(predictions), CHUNK)]
    table = np.concatenate([_statistics(metric, predictions[chunk], references[chunk]) for chunk in chunks])

    def score(totals: np.ndarray) -> float:
        return metric._compute_score_from_stats(totals.astype(int).tolist()).score

    values = np.array([score(totals) for totals in resampled_sums(table, resamples, seed)])
    return Measured.from_resamples(score(table.sum(axis=0)), values, len(table), level=level)


def sentence_quality(name: str, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """
    The quality of each prediction, from 0 to 1: sentence BLEU with effective order, sentence chrF, or ROUGE F1 with
    stemming. An empty prediction or reference has quality 0.
    """
    _check(name, predictions, references)
    score = _text_scorer(name)
    pairs = zip(predictions, references, strict=True)
    values = np.array([score(text, reference) if text and reference else 0.0 for text, reference in pairs])
    _clear_caches()
    return values.clip(0, 1)  # sacrebleu's 100 is 100.00000000000004


def quality_signature(name: str) -> str:
    """What exactly is computed, in the library's own words, to go with every number."""
    check_choice("quality", name, QUALITIES)
    if name.startswith("rouge"):
        from importlib.metadata import version

        return f"rouge-score {version('rouge-score')} {name} F1, stemmer on"
    metric = _sacrebleu(name, sentence=True)
    metric.sentence_score("a", ["a"])  # the signature knows the number of references only after a score
    return str(metric.get_signature())


def _check(name: str, predictions: Sequence[str], references: Sequence[str]) -> None:
    check_choice("quality", name, QUALITIES)
    if isinstance(predictions, str) or isinstance(references, str) or any(not isinstance(r, str) for r in references):
        raise TypeError("Predictions and references must be lists of texts, one reference for each prediction.")
    if len(predictions) != len(references):
        raise ValueError(f"There are {len(predictions)} predictions but {len(references)} references.")


def _sacrebleu(name: str, sentence: bool = False) -> Any:
    from sacrebleu.metrics import BLEU, CHRF

    if name == "chrf":
        return CHRF()
    return BLEU(effective_order=sentence, force=True)  # force: no advice to detokenise, whatever the language


def _statistics(metric: Any, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """The numbers of each text that sacrebleu sums up: matches and lengths."""
    statistics = np.array(metric._extract_corpus_statistics(list(predictions), [list(references)]), dtype=float)
    _clear_caches()
    return statistics


def _clear_caches() -> None:
    """Clears sacrebleu's caches of the last 65,536 texts and their tokens, which are not needed again."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    for tokenizer in (Tokenizer13a, TokenizerRegexp):
        tokenizer.__call__.cache_clear()


def _text_scorer(name: str) -> Any:
    if not name.startswith("rouge"):
        metric = _sacrebleu(name, sentence=True)
        return lambda text, reference: metric.sentence_score(text, [reference]).score / 100
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([name], use_stemmer=True)
    return lambda text, reference: scorer.score(reference, text)[name].fmeasure
