"""
How good generated texts are, against one or several references each: BLEU, chrF and ROUGE by the libraries that define
them, and SQuAD's exact match and F1.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np

from ..errors import UserError
from ..settings import check_choice, known_names
from .bootstrap import check_options, cluster_mean_interval, resampled_sums
from .judges import find_judge
from .measured import Measured


#: A reference for each prediction, or several.
References = Sequence[str] | Sequence[Sequence[str]]
#: Texts whose n-grams are in memory at once.
CHUNK = 1024
#: How far a judgement may be outside of [0, 1]: sacrebleu's 100 is 100.00000000000004.
ROUNDING = 1e-6


class SacreBleu:
    """BLEU or chrF, by sacrebleu: of a sentence (BLEU with effective order) and of a corpus, in its own way."""

    takes_lists: ClassVar = True

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, predictions: Sequence[str], references: References) -> list[float]:
        metric = self.metric(sentence=True)
        pairs = zip(predictions, _listed(references), strict=True)
        scores = [metric.sentence_score(text, texts).score / 100 for text, texts in pairs]
        _clear_caches()
        return scores

    def signature(self, num_references: int | None = 1) -> str:
        metric = self.metric(sentence=True)
        metric.num_refs = -1 if num_references is None else num_references  # which it learns from a score else
        return str(metric.get_signature())

    def metric(self, sentence: bool = False) -> Any:
        from sacrebleu.metrics import BLEU, CHRF

        if self.name == "chrf":
            return CHRF()
        return BLEU(effective_order=sentence, force=True)  # force: no advice to detokenise, whatever the language

    def statistics(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
        """The numbers of each text that the score of a corpus sums up: matches and lengths."""
        metric, rows = self.metric(), []
        for start in range(0, len(predictions), CHUNK):
            texts, expected = (list(column[start : start + CHUNK]) for column in (predictions, references))
            columns = list(zip_longest(*expected))  # the first reference of each text, the second ..., or None
            rows.append(np.array(metric._extract_corpus_statistics(texts, columns), dtype=float))
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

    def signature(self, num_references: int | None = 1) -> str:
        signature = f"rouge-score {version('rouge-score')} {self.name} F1, stemmer on"
        return signature + _best_of(num_references)


class Answers:
    """A judgement of short answers by their words: lower case, without punctuation and the articles a, an, the."""

    judges_empty: ClassVar = True

    def __init__(self, definition: str, judge: Callable[[list[str], list[str]], float]) -> None:
        self.definition, self.judge = definition, judge

    def __call__(self, predictions: Sequence[str], references: Sequence[str]) -> list[float]:
        pairs = zip(predictions, references, strict=True)
        return [float(self.judge(_words(text), _words(reference))) for text, reference in pairs]

    def signature(self, num_references: int | None = 1) -> str:
        return f"{self.definition}, SQuAD's normalisation" + _best_of(num_references)


def _words(text: str) -> list[str]:
    """The words of a text as SQuAD's evaluation script normalises it."""
    letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", letters).split()


def _token_f1(words: list[str], reference: list[str]) -> float:
    if not (words and reference):
        return float(words == reference)
    common = (Counter(words) & Counter(reference)).total()
    return 2 * common / (len(words) + len(reference))


def _contains(words: list[str], reference: list[str]) -> bool:
    return f" {' '.join(reference)} " in f" {' '.join(words)} "


#: By name, a function of predictions and references (texts, none of them empty) that judges each from 0 to 1. Where a
#: prediction has several references, the best judgement counts; a function with a true attribute `takes_lists` is
#: given the list of references of each prediction instead, and one with `judges_empty` empty texts, too. Its
#: method `signature(num_references)`, or else its docstring, says what it computes.
QUALITIES: dict[str, Callable[..., Sequence[float]]] = {
    "bleu": SacreBleu("bleu"),
    "chrf": SacreBleu("chrf"),
    "rouge1": Rouge("rouge1"),
    "rouge2": Rouge("rouge2"),
    "rougeL": Rouge("rougeL"),
    "exact_match": Answers("exact match", lambda words, reference: words == reference),
    "token_f1": Answers("token F1", _token_f1),
    "contains": Answers("contains the words of the reference, in their order", _contains),
}


def find_quality(name: str) -> Callable[..., Sequence[float]]:
    """
    The function that judges: one of [`QUALITIES`], `evaluate:NAME_OR_PATH` (a metric of the evaluate library),
    `module:function`, or `column:NAME` (a verdict in the data). Raises a `ValueError` where there is none.
    """
    if name in QUALITIES or ":" not in name:
        check_choice("quality", name, QUALITIES)
        return QUALITIES[name]
    return find_judge(name)


def quality_names(text: str) -> list[str]:
    """The names of qualities in a text, separated by commas; raises where one is not known."""
    names = [name for name in text.split(",") if name]
    for name in names or [""]:
        if ":" in name:
            find_judge(name)
        else:
            known_names("quality", [name], QUALITIES)
    return names


def has_corpus_score(name: str) -> bool:
    """Whether the quality of all outputs together is more than the mean of theirs."""
    return isinstance(find_quality(name), SacreBleu)


def corpus_quality(name: str, predictions: Sequence[str], references: References) -> float:
    """
    The quality of all predictions together, from 0 to 100: corpus BLEU and chrF (sacrebleu), or the mean of
    [`sentence_quality`]. Returns nan without predictions.
    """
    return corpus_quality_interval(name, predictions, references, resamples=0).value


def corpus_quality_interval(
    name: str,
    predictions: Sequence[str],
    references: References,
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
    quality, lists = _checked(name, predictions, references)
    if not isinstance(quality, SacreBleu) or not predictions:
        values = 100 * sentence_quality(name, predictions, references)
        return cluster_mean_interval(values, np.ones(len(values)), resamples, level, seed)
    metric, table = quality.metric(), quality.statistics(predictions, lists)

    def score(totals: np.ndarray) -> float:
        return metric._compute_score_from_stats(totals.astype(int).tolist()).score

    resampled = np.array([score(totals) for totals in resampled_sums(table, resamples, seed)])
    return Measured.from_resamples(score(table.sum(axis=0)), resampled, len(table), level=level)


def sentence_quality(name: str, predictions: Sequence[str], references: References) -> np.ndarray:
    """
    The quality of each prediction, from 0 to 1: sentence BLEU with effective order, sentence chrF, ROUGE F1 with
    stemming, SQuAD's exact match and F1, or another that [`find_quality`] finds. A prediction has one reference, a
    text, or several, a list: BLEU and chrF then take all of them in sacrebleu's own way, and of the others the best
    judgement counts. An empty prediction or reference has quality 0; SQuAD's are 1 where both are empty.
    """
    quality, lists = _checked(name, predictions, references)
    pairs = [(row, text) for row, texts in enumerate(lists) for text in texts]
    if not getattr(quality, "judges_empty", False):
        pairs = [(row, text) for row, text in pairs if text and predictions[row]]
    if getattr(quality, "takes_lists", False):
        rows: list[int] = list(dict.fromkeys(row for row, _ in pairs))
        judged = quality([predictions[row] for row in rows], [lists[row] for row in rows])
    else:
        rows = [row for row, _ in pairs]
        judged = quality([predictions[row] for row in rows], [text for _, text in pairs])
    return _best_judgements(name, len(predictions), rows, judged)


def _best_judgements(name: str, n: int, rows: list[int], judged: Sequence[float]) -> np.ndarray:
    """The best judgement of each of n predictions, of which those in no row have quality 0."""
    found = np.asarray(judged, dtype=float)
    if found.shape != (len(rows),):
        raise UserError(f"The quality {name!r} gave {found.size} values for {len(rows)} texts.")
    wrong = np.flatnonzero(~((found >= -ROUNDING) & (found <= 1 + ROUNDING)))
    if len(wrong):
        raise UserError(
            f"The quality {name!r} is {found[wrong[0]]:g} for prediction {rows[wrong[0]]} (counted from 0), but must "
            "lie between 0 and 1."
        )
    values = np.zeros(n)
    np.maximum.at(values, np.array(rows, dtype=int), found)
    return values.clip(0, 1)


def quality_signature(name: str, num_references: int | None = 1) -> str:
    """
    What exactly is computed, in the library's own words, to go with every number; `num_references` is the number of
    references of each prediction, `None` where it varies (see [`count_references`]).
    """
    quality = find_quality(name)
    signature = getattr(quality, "signature", None)
    if signature is None:
        definition = " ".join((quality.__doc__ or name).split())
        return definition if num_references == 1 else definition.rstrip(".") + _best_of(num_references)
    return signature(num_references) if callable(signature) else signature


def count_references(references: References) -> int | None:
    """The number of references that every prediction has, or `None` where it varies."""
    counts = {1 if isinstance(texts, str) else len(texts) for texts in references}
    return counts.pop() if len(counts) == 1 else None if counts else 1


def _best_of(num_references: int | None) -> str:
    return "" if num_references == 1 else ", best of the references"


def _listed(references: References) -> list[Sequence[str]]:
    return [[texts] if isinstance(texts, str) else texts for texts in references]


def _checked(
    name: str, predictions: Sequence[str], references: References
) -> tuple[Callable[..., Sequence[float]], list[Sequence[str]]]:
    """The quality of this name and the references of each prediction; raises where these are not texts."""
    quality = find_quality(name)
    if isinstance(predictions, str) or isinstance(references, str):
        raise TypeError(
            "Predictions and references must be lists, with one or several references for each prediction."
        )
    if len(predictions) != len(references):
        raise ValueError(f"There are {len(predictions)} predictions but {len(references)} references.")
    for row, texts in enumerate(references):
        many = isinstance(texts, Sequence) and len(texts) > 0 and all(isinstance(text, str) for text in texts)
        if not (isinstance(texts, str) or many):
            raise TypeError(f"The references of prediction {row} must be a text or a list of texts, not {texts!r}.")
    return quality, _listed(references)


def _clear_caches() -> None:
    """Empties sacrebleu's memory of the last 65,536 texts and their tokens: nobody here asks for one of them again."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    for tokenizer in (Tokenizer13a, TokenizerRegexp):
        tokenizer.__call__.cache_clear()
