"""
lm-polygraph's side of `evaluate.py`: its own calculators, estimators and rejection metric on the same model and texts.

Runs in lm-polygraph's environment and answers requests, see `measure.serve`. What the scores do not need is switched
off where lm-polygraph lets it (attentions, more than one alternative per token); its statistics are dropped after
every batch. Where its scores take a model to compare texts, they are given what ours compare by instead: equal texts
for semantic entropy, rougeL for CoCoA.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from lm_polygraph import estimators
from lm_polygraph.generation_metrics.bleu import BLEUMetric
from lm_polygraph.stat_calculators import (
    EntropyCalculator,
    GreedyLMProbsCalculator,
    GreedyProbsCalculator,
    SamplingGenerationCalculator,
    SemanticClassesCalculator,
)
from lm_polygraph.ue_metrics.pred_rej_area import PredictionRejectionArea
from lm_polygraph.ue_metrics.ue_metric import get_random_scores, normalize_metric
from lm_polygraph.utils.generation_parameters import GenerationParameters
from lm_polygraph.utils.model import WhiteboxModel
from measure import peak_above, serve
from rouge_score.rouge_scorer import RougeScorer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


SCORERS = {
    "msp": estimators.MaximumSequenceProbability(),
    "perplexity": estimators.Perplexity(),
    "mean_token_entropy": estimators.MeanTokenEntropy(),
    "mc_sequence_entropy": estimators.MonteCarloSequenceEntropy(),
    "mc_normalized_sequence_entropy": estimators.MonteCarloNormalizedSequenceEntropy(),
    "pmi": estimators.MeanPointwiseMutualInformation(),
    "cpmi": estimators.MeanConditionalPointwiseMutualInformation(),
}
MORE_SCORERS = {
    "self_certainty": estimators.SelfCertainty(),
    "renyi_divergence": estimators.RenyiNeg(),
    "fisher_rao": estimators.FisherRao(),
    "lexical_similarity": estimators.LexicalSimilarity("rougeL"),
    "degree_matrix": estimators.DegMat("Jaccard_score"),
    "eccentricity": estimators.Eccentricity("Jaccard_score"),
    "laplacian_eigenvalues": estimators.EigValLaplacian("Jaccard_score"),
    "semantic_entropy": estimators.SemanticEntropy(),
    "cocoa_msp": estimators.CocoaMSP(),
    "cocoa_perplexity": estimators.CocoaPPL(),
    "cocoa_mean_token_entropy": estimators.CocoaMTE(),
}
ENTAILMENT = 2


def compare_texts(stats: dict, model: WhiteboxModel) -> None:
    """What its models would say about pairs of texts, by their words."""
    rouge = RougeScorer(["rougeL"], use_stemmer=True)
    stats["entailment_id"], samples = ENTAILMENT, stats["sample_texts"]
    equal = np.array([[[one == other for other in texts] for one in texts] for texts in samples])
    stats["semantic_matrix_classes"] = equal * ENTAILMENT
    stats.update(SemanticClassesCalculator()(stats, stats["greedy_texts"], model))
    stats["greedy_sentence_similarity"] = np.array(
        [
            [rouge.score(output, text)["rougeL"].fmeasure for text in texts]
            for output, texts in zip(stats["greedy_texts"], samples, strict=True)
        ]
    )


def evaluate(
    model: WhiteboxModel, rows: list[dict], scorers: dict, batch_size: int, num_samples: int, max_new_tokens: int
) -> dict:
    """Texts, scores and PRR of all rows."""
    calculators = (
        GreedyProbsCalculator(output_attentions=False, n_alternatives=1),
        EntropyCalculator(),
        GreedyLMProbsCalculator(),
        SamplingGenerationCalculator(num_samples),
    )
    texts, quality, lengths, scores = [], [], [], {name: [] for name in scorers}
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        stats: dict = {}
        for calculator in calculators:
            stats.update(calculator(stats, [row["source"] for row in batch], model, max_new_tokens=max_new_tokens))
        if len(scorers) > len(SCORERS):
            compare_texts(stats, model)
        for name, scorer in scorers.items():
            scores[name] += scorer(stats).tolist()
        quality += BLEUMetric()(stats, [row["target"] for row in batch]).tolist()
        texts += stats["greedy_texts"]
        lengths += [len(tokens) for samples in stats["sample_tokens"] for tokens in samples]
        del stats
    metric = PredictionRejectionArea()
    oracle, random = metric([-value for value in quality], quality), get_random_scores(metric, quality)
    prr = {name: normalize_metric(metric(values, quality), oracle, random) for name, values in scores.items()}
    return {"texts": texts, "scores": scores, "prr": prr, "sample_length": sum(lengths) / len(lengths)}


def main() -> None:
    folder = Path(sys.argv[1])
    rows = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    network = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    # as models with absolute positions (Marian, BART) were trained; lm-polygraph's own choice is the left
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="right")
    # top_k 0: samples of the whole distribution, as ours, instead of its 50 best tokens
    model = WhiteboxModel(network, tokenizer, "t5", "Seq2SeqLM", GenerationParameters(top_k=0))

    def answer(request: dict) -> dict:
        torch.manual_seed(0)
        found: dict = {}
        settings = (request["batch_size"], request["num_samples"], request["max_new_tokens"])
        scorers = SCORERS | (MORE_SCORERS if request["scorers"] == "all" else {})

        def run() -> None:
            found.update(evaluate(model, rows[: request["examples"]], scorers, *settings))

        start, work = time.perf_counter(), time.process_time()
        peak = peak_above(run) if request["memory"] else run()
        found["seconds"], found["processor"] = time.perf_counter() - start, time.process_time() - work
        return {**found, "peak": peak}

    serve(answer)


if __name__ == "__main__":
    main()
