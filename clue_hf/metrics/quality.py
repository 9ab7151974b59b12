"""How good generated texts are, against one reference each: BLEU, chrF, ROUGE, by the libraries that define them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ..functional import check_choice


QUALITIES = ("bleu", "chrf", "rouge1", "rouge2", "rougeL")


def corpus_quality(name: str, predictions: Sequence[str], references: Sequence[str]) -> float:
    """
    The quality of all predictions together, from 0 to 100: corpus BLEU and chrF (sacrebleu), or the mean ROUGE F1
    (rouge-score, with stemming).
    """
    check_choice("quality", name, QUALITIES)
    if len(predictions) != len(references):
        raise ValueError(f"There are {len(predictions)} predictions but {len(references)} references.")
    if not predictions:
        return float("nan")
    if name in ("bleu", "chrf"):
        import sacrebleu

        score = sacrebleu.corpus_bleu if name == "bleu" else sacrebleu.corpus_chrf
        return score(list(predictions), [list(references)]).score
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([name], use_stemmer=True)
    pairs = zip(references, predictions, strict=True)
    return 100 * fmean(scorer.score(reference, prediction)[name].fmeasure for reference, prediction in pairs)
