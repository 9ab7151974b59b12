"""
lm-polygraph's side of `evaluate.py`: its own calculators, estimators and rejection metric on the same model and texts.

Runs in lm-polygraph's environment and answers requests, see `measure.serve`. What the seven scores do not need is
switched off where lm-polygraph lets it (attentions, more than one alternative per token); its statistics are dropped
after every batch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from lm_polygraph import estimators
from lm_polygraph.generation_metrics.bleu import BLEUMetric
from lm_polygraph.stat_calculators import (
    EntropyCalculator,
    GreedyLMProbsCalculator,
    GreedyProbsCalculator,
    SamplingGenerationCalculator,
)
from lm_polygraph.ue_metrics.pred_rej_area import PredictionRejectionArea
from lm_polygraph.ue_metrics.ue_metric import get_random_scores, normalize_metric
from lm_polygraph.utils.generation_parameters import GenerationParameters
from lm_polygraph.utils.model import WhiteboxModel
from measure import peak_above, serve
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


def evaluate(model: WhiteboxModel, rows: list[dict], batch_size: int, num_samples: int, max_new_tokens: int) -> dict:
    """Texts, scores and PRR of all rows."""
    calculators = (
        GreedyProbsCalculator(output_attentions=False, n_alternatives=1),
        EntropyCalculator(),
        GreedyLMProbsCalculator(),
        SamplingGenerationCalculator(num_samples),
    )
    texts, quality, lengths, scores = [], [], [], {name: [] for name in SCORERS}
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        stats: dict = {}
        for calculator in calculators:
            stats.update(calculator(stats, [row["source"] for row in batch], model, max_new_tokens=max_new_tokens))
        for name, scorer in SCORERS.items():
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
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    # top_k 0: samples of the whole distribution, as ours, instead of its 50 best tokens
    model = WhiteboxModel(network, tokenizer, "t5", "Seq2SeqLM", GenerationParameters(top_k=0))

    def answer(request: dict) -> dict:
        torch.manual_seed(0)
        found: dict = {}
        settings = (request["batch_size"], request["num_samples"], request["max_new_tokens"])

        def run() -> None:
            found.update(evaluate(model, rows[: request["examples"]], *settings))

        start, work = time.perf_counter(), time.process_time()
        peak = peak_above(run) if request["memory"] else run()
        found["seconds"], found["processor"] = time.perf_counter() - start, time.process_time() - work
        return {**found, "peak": peak}

    serve(answer)


if __name__ == "__main__":
    main()
