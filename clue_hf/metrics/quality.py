"""How good generated texts are, against one reference each: BLEU, chrF, ROUGE, by the libraries that define them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from ..functional import check_choice
from .bootstrap import check_options, cluster_mean_interval, resampled_sums
from .measured import Measured


#: Texts whose n-grams are in memory at once.
CHUNK = 1024


class SacreBleu:
    """BLEU or chrF, by sacrebleu: of a sentence (BLEU with effective order) and of a corpus."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, predictions: Sequence[str], references: Sequence[str]) -> list[float]:
        metric = self.metric(sentence=True)
        pairs = zip(predictions, references, strict=True)
        scores = [metric.sentence_score(text, [reference]).score / 100 for text, reference in pairs]
        _clear_caches()
        return scores

    @property
    def signature(self) -> str:
        metric = self.metric(sentence=True)
        metric.sentence_score("a", ["a"])  # the signature knows the number of references only after a score
        return str(metric.get_signature())

    def metric(self, sentence: bool = False) -> Any:
        from sacrebleu.metrics import BLEU, CHRF

        if self.name == "chrf":
            return CHRF()
        return BLEU(effective_order=sentence, force=True)  # force: no advice to detokenise, whatever the language

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """The numbers of each text that the score of a corpus sums up: matches and lengths."""
        metric, rows = self.metric(), []
        for start in range(0, len(predictions), CHUNK):
            texts, expected = (list(column[start : start + CHUNK]) for column in (predictions, references))
            rows.append(np.array(metric._extract_corpus_statistics(texts, [expected]), dtype=float))
            _clear_caches()
        return np.concatenate(rows)


class Rouge:
    """ROUGE F1 with stemming, by rouge-score."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, predictions: Sequence[str], references: Sequence[str]) -> list[float]:
        from rouge_score.rouge_scorer import RougeScorer

        scorer = RougeScorer([self.name], use_stemmer=True)
        pairs = zip(predictions, references, strict=True)
        return [scorer.score(reference, text)[self.name].fmeasure for text, reference in pairs]

    @property
    def signature(self) -> str:
        return f"rouge-score {version('rouge-score')} {self.name} F1, stemmer on"


#: By name, a function of predictions and references (texts, none of them empty) that judges each from 0 to 1. Its
#: attribute `signature`, or else its docstring, says what it computes.
QUALITIES: dict[str, Callable[[Sequence[str], Sequence[str]], Sequence[float]]] = {
    "bleu": SacreBleu("bleu"),
    "chrf": SacreBleu("chrf"),
    "rouge1": Rouge("rouge1"),
    "rouge2": Rouge("rouge2"),
    "rougeL": Rouge("rougeL"),
}


def corpus_quality(name: str, predictions: Sequence[str], references: Sequence[str]) -> float:
    """
    The quality of all predictions together, from 0 to 100: corpus BLEU and chrF (sacrebleu), or the mean of
    [`sentence_quality`]. Returns nan without predictions.
    """
    return corpus_quality_interval(name, predictions, references, resamples=0).value


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
    quality = _checked(name, predictions, references)
    if not isinstance(quality, SacreBleu) or not predictions:
        values = 100 * sentence_quality(name, predictions, references)
        return cluster_mean_interval(values, np.ones(len(values)), resamples, level, seed)
    metric, table = quality.metric(), quality.statistics(predictions, references)

    def score(totals: np.ndarray) -> float:
        return metric._compute_score_from_stats(totals.astype(int).tolist()).score

    resampled = np.array([score(totals) for totals in resampled_sums(table, resamples, seed)])
    return Measured.from_resamples(score(table.sum(axis=0)), resampled, len(table), level=level)


def sentence_quality(name: str, predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """
    The quality of each prediction, from 0 to 1: sentence BLEU with effective order, sentence chrF, ROUGE F1 with
    stemming, or another of [`QUALITIES`]. An empty prediction or reference has quality 0.
    """
    quality = _checked(name, predictions, references)
    values = np.zeros(len(predictions))
    rows = [row for row, pair in enumerate(zip(predictions, references, strict=True)) if all(pair)]
    values[rows] = quality([predictions[row] for row in rows], [references[row] for row in rows])
    return values.clip(0, 1)  # sacrebleu's 100 is 100.00000000000004


def quality_signature(name: str) -> str:
    """What exactly is computed, in the library's own words, to go with every number."""
    check_choice("quality", name, QUALITIES)
    quality = QUALITIES[name]
    return getattr(quality, "signature", None) or " ".join((quality.__doc__ or name).split())


def _checked(name: str, predictions: Sequence[str], references: Sequence[str]) -> Callable[..., Sequence[float]]:
    """The quality of this name; raises where the texts are not one reference for each prediction."""
    check_choice("quality", name, QUALITIES)
    if isinstance(predictions, str) or isinstance(references, str) or any(not isinstance(r, str) for r in references):
        raise TypeError("Predictions and references must be lists of texts, one reference for each prediction.")
    if len(predictions) != len(references):
        raise ValueError(f"There are {len(predictions)} predictions but {len(references)} references.")
    return QUALITIES[name]


def _clear_caches() -> None:
    """Empties sacrebleu's memory of the last 65,536 texts and their tokens: nobody here asks for one of them again."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    for tokenizer in (Tokenizer13a, TokenizerRegexp):
        tokenizer.__call__.cache_clear()
