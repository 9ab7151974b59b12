"""How time and memory grow: rows, tokens, vocabulary, passes, samples, scorers; the slope of each curve on logarithms.

A slope of 1 means that twice as much takes twice as long. Small models and arrays, one thread, processor time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from loss import step
from measure import Ratio, in_fresh_process, peak_above, write_table
from transformers import T5Config, T5ForConditionalGeneration
from transformers.utils import logging

from clue_hf import UncertaintyEvaluator
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.functional import clue_loss, error_and_entropy
from clue_hf.inputs.packing import best_fit_decreasing
from clue_hf.kernels import fused_linear_objective
from clue_hf.metrics import rejection_reports
from clue_hf.metrics.resampled.classification import classification_report
from clue_hf.models.mc_dropout import mc_logits
from clue_hf.models.tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression
from clue_hf.models.tokenizer import train_tokenizer
from clue_hf.objectives import CLUE
from clue_hf.posthoc import CONFORMAL, IsotonicCalibrator, abstention_threshold
from clue_hf.scorers import DEFAULT_SCORERS
from clue_hf.training.sampler import LengthGroupedSampler


#: Largest slope of time at the largest sizes, where what is always there counts least: sorting grows a little faster
#: than its rows, and a clock is never exact.
AT_MOST = 1.25
#: The plain way, which has no bar: it stands beside ours.
PLAIN = "head and loss, on the logits"
#: Bytes below which memory says nothing; seconds after which a size is not run again.
SMALL, LONG = 8e6, 2.0
FEATURES = 128
Run = Callable[[], object]


@dataclass(frozen=True)
class Curve:
    """What grows with what: at each size a run, after which nothing is left of it."""

    what: str
    against: str
    sizes: tuple[int, ...]
    make: Callable[[int], Run]


def head(tokens: int, vocabulary: int, fused: bool) -> Run:
    """Output layer and CLUE loss, forward and backward."""
    torch.manual_seed(0)
    hidden = torch.randn(tokens, FEATURES).mul_(0.5).requires_grad_()
    weight = torch.randn(vocabulary, FEATURES).mul_(0.05).requires_grad_()
    inputs = (hidden, weight, torch.randint(0, vocabulary, (tokens,)))

    def on_logits(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return clue_loss(*error_and_entropy(hidden @ weight.T, labels), 0.9).mean()

    def without(*inputs: torch.Tensor) -> torch.Tensor:
        return fused_linear_objective(*inputs, CLUE(0.9).item_loss)

    return lambda: step(without if fused else on_logits, inputs)


@cache
def make_tokenizer() -> Any:
    return train_tokenizer([row["source"] for row in phrase_rows("train", 500)], 400)


def evaluation(rows: int = 64, tokens: int = 16, samples: int = 4, scorers: int = 7, vocabulary: int = 2000) -> Run:
    """Generates, scores and judges; the texts are as long as they may be."""
    data = [{name: row[name] for name in ("source", "target")} for row in phrase_rows("train", rows)]
    tokenizer = make_tokenizer()
    ids = {"pad_token_id": 0, "eos_token_id": tokenizer.eos_token_id, "decoder_start_token_id": 0}
    size = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(vocab_size=vocabulary, tie_word_embeddings=False, **size, **ids))
    with torch.no_grad():
        model.lm_head.weight.normal_(std=0.1)
        model.lm_head.weight[tokenizer.all_special_ids] = 0
    # the ones that need samples come first: what they need is collected once for all of them
    names = sorted(DEFAULT_SCORERS, key=lambda name: not name.startswith("mc_"))[:scorers]
    settings = {"batch_size": 32, "num_samples": samples, "max_new_tokens": tokens, "resamples": 200}
    evaluator = UncertaintyEvaluator(model, tokenizer, names, quality="chrf", **settings)

    return lambda: evaluator.evaluate(data)


def passes(count: int) -> Run:
    """Stochastic passes of the residual network for tables, batch 256."""
    torch.manual_seed(0)
    model = CLUETabularResNetForRegression(CLUETabularResNetConfig(num_numeric=90, dropout=0.3)).train()
    inputs = {"numeric": torch.randn(256, 90)}
    return lambda: mc_logits(model, inputs, count)


def rejection(rows: int) -> Run:
    """PRR and its like of one scorer with 20 resamples."""
    generator = np.random.default_rng(0)
    quality = generator.beta(1, 3, rows)
    scores = {"scorer": generator.normal(size=rows) - quality}
    return lambda: rejection_reports(scores, quality, resamples=20)


def answers(rows: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.full(10, 0.3), rows)
    labels = (probabilities.cumsum(axis=1) < generator.random((rows, 1))).sum(axis=1)
    return probabilities, np.minimum(labels, 9)


def classes(rows: int) -> Run:
    probabilities, labels = answers(rows)
    return lambda: classification_report(probabilities, labels, resamples=20)


def fits(rows: int) -> Run:
    """An isotonic calibrator, prediction sets and an abstention threshold."""
    probabilities, labels = answers(rows)
    wrong = (probabilities.argmax(axis=1) != labels).astype(float)

    def run() -> None:
        IsotonicCalibrator.fit(probabilities, labels)
        CONFORMAL["aps"].fit(probabilities, labels, 0.9)  # type: ignore[attr-defined]
        abstention_threshold(1 - probabilities.max(axis=1), wrong, 0.1)

    return run


def batches(rows: int) -> Run:
    """The order of an epoch grouped by length, and which rows are packed together."""
    lengths = np.random.default_rng(0).integers(5, 120, rows).tolist()

    def run() -> None:
        list(LengthGroupedSampler(lengths, 32, 0, lambda: 0))
        best_fit_decreasing(lengths, 1024)

    return run


CURVES = (
    Curve("head and loss, fused", "tokens", (512, 1024, 2048, 4096), lambda n: head(n, 8000, True)),
    Curve(PLAIN, "tokens", (512, 1024, 2048, 4096), lambda n: head(n, 8000, False)),
    Curve("head and loss, fused", "vocabulary", (4000, 8000, 16000, 32000), lambda n: head(1024, n, True)),
    Curve(PLAIN, "vocabulary", (4000, 8000, 16000, 32000), lambda n: head(1024, n, False)),
    Curve("evaluation", "rows", (256, 1024, 2048), lambda n: evaluation(n, 4, 1)),
    Curve("evaluation", "new tokens", (16, 64, 256), lambda n: evaluation(16, n)),
    Curve("evaluation", "vocabulary", (2000, 8000, 32000), lambda n: evaluation(32, vocabulary=n)),
    Curve("evaluation", "samples", (2, 4, 8, 16, 32), lambda n: evaluation(32, samples=n)),
    Curve("evaluation", "scorers", (1, 2, 4, 7), lambda n: evaluation(scorers=n)),
    Curve("passes with dropout", "passes", (8, 16, 32, 64), passes),
    Curve("rejection metrics with intervals", "rows", (10_000, 40_000, 160_000, 640_000), rejection),
    Curve("metrics of classes with intervals", "rows", (10_000, 40_000, 160_000), classes),
    Curve("calibrator, prediction sets, threshold", "rows", (10_000, 40_000, 160_000), fits),
    Curve("grouping by length and packing", "rows", (10_000, 40_000, 160_000), batches),
)


def seconds(curve: Curve, rounds: int) -> list[float]:
    """Seconds of the processor at each size, the fewest of the rounds; long runs have one."""
    curve.make(curve.sizes[0])()  # libraries are loaded
    found = []
    for size in curve.sizes:
        run, times = curve.make(size), []
        while len(times) < rounds and sum(times) < LONG:
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
        found.append(min(times))
    return found


def peaks(curve: Curve) -> list[int]:
    """Peak memory at each size above what is there before."""
    curve.make(curve.sizes[0])()
    return [max(peak_above(curve.make(size)), 1) for size in curve.sizes]


def slope(sizes: tuple[int, ...], values: list[float]) -> float:
    """Of the line through the logarithms, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def cells(curve: Curve, times: list[float], memory: list[int]) -> list[str]:
    sizes = " ... ".join(f"{size:,}" for size in (curve.sizes[0], curve.sizes[-1]))
    return [
        curve.what,
        f"{curve.against}, {sizes}",
        " / ".join(f"{value:.2f}" for value in times) + " s",
        f"{slope(curve.sizes, times):.2f}",
        f"{slope(curve.sizes[-2:], times[-2:]):.2f}",
        " / ".join(f"{value / 1e6:.0f}" for value in memory) + " MB",
        f"{slope(curve.sizes, memory):.2f}" if min(memory) > SMALL else "-",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="runs at each size, of which the fastest counts")
    parser.add_argument("--memory", action="store_true", help="only measure the memory of all curves, in this process")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # its processor time is what it takes, whatever else the machine does
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if arguments.memory:
        print(json.dumps({"peaks": [peaks(curve) for curve in CURVES]}))
        return
    rows, ratios = [], []
    for curve, memory in zip(CURVES, in_fresh_process(__file__, "--memory")["peaks"], strict=True):
        times = seconds(curve, arguments.rounds)
        rows.append(cells(curve, times, memory))
        at_last = slope(curve.sizes[-2:], times[-2:])
        if curve.what != PLAIN:
            ratios.append(Ratio(f"{curve.what}, time with {curve.against}: slope", at_last, at_most=AT_MOST, unit=""))
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    write_table(
        "growth",
        "How time and memory grow",
        ["what", "with", "time", "slope", "at last", "peak memory above the start", "slope"],
        rows,
        "Slope: of the line through the logarithms of sizes and values; 1 where twice as much takes twice as much, 0 "
        "where it takes no more; at last: between the two largest sizes. Processor time on one thread, the fewest of "
        f"{arguments.rounds} runs, or one that takes over {LONG:g} s; memory with an allocator that returns freed "
        f"memory at once, no slope where some is below {SMALL / 1e6:.0f} MB. Head and loss: {FEATURES} features, "
        "forward and backward, 8,000 words or 1,024 tokens. Evaluation: a T5 of two layers of width 64 whose texts go "
        "on to their largest length; 16 to 64 rows, 16 new tokens, 4 samples, seven scorers, a vocabulary of 2,000 "
        "where nothing else is said; with rows: 4 new tokens, 1 sample. Passes: a residual network for tables, batch "
        "256. Metrics: 20 resamples, 10 classes.",
        ratios=ratios,
    )


if __name__ == "__main__":
    main()
