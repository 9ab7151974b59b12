"""
What each scorer costs: texts generated and scored with it alone, beside `msp` alone, which needs nothing but the text.

A T5 of t5-small's size with random weights on the embedded phrases; `p_true` is measured with a GPT-2 of four layers.
Scorers of samples and of a hidden state pay for what they need once, however many of them there are.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from evaluate import MAX_NEW_TOKENS, NUM_SAMPLES
from evaluate_models import make_model
from measure import interleaved, ratio, write_table
from pipeline import make_gpt2, use_words
from transformers.utils import logging

from clue_hf import generate_with_uncertainty
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.deploy.density import fit_density
from clue_hf.models.tokenizer import train_tokenizer
from clue_hf.predictors.text import TextPredictor
from clue_hf.scorers import SCORERS
from clue_hf.scorers.density import MIN_TEXTS


#: Its cost is that of the scores that it learns from.
LEARNED = "learned"
CAUSAL = "p_true"


def make_candidates(names: list[str], causal: bool, sources: list[str], batch_size: int) -> dict[str, Any]:
    torch.manual_seed(0)
    rows = list(phrase_rows("train", 200))
    texts = [text for row in rows for text in row.values() if isinstance(text, str)]
    tokenizer = train_tokenizer(texts, 400, not causal)
    if causal:
        model = make_gpt2(tokenizer).eval()
        use_words(model, tokenizer)
    else:
        model = make_model(tokenizer, [row["target"] for row in rows])
    predictor = TextPredictor(model, tokenizer)
    pairs = [[row[column] for row in rows[:MIN_TEXTS]] for column in ("source", "target")]
    density = None if causal else fit_density(predictor, *pairs, batch_size, seed=0)
    settings = {"max_new_tokens": MAX_NEW_TOKENS, "num_samples": NUM_SAMPLES, "batch_size": batch_size}

    def candidate(name: str) -> Any:
        fitted = {"density": density} if "hidden" in SCORERS[name].needs else {}
        return lambda: generate_with_uncertainty(model, tokenizer, sources, [name], **fitted, **settings)

    return {name: candidate(name) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds, after one that does not count")
    parser.add_argument("--texts", type=int, default=16)
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    sources = [row["source"] for row in phrase_rows("test", arguments.texts)]
    rows = []
    for causal in (False, True):
        others = [name for name in SCORERS if name not in ("msp", LEARNED) and (name == CAUSAL) == causal]
        candidates = make_candidates(["msp", *others], causal, sources, arguments.texts)
        seconds = interleaved(candidates, arguments.rounds, warmup=1, clock=time.process_time)
        for name in others if causal else candidates:
            milliseconds = 1000 * statistics.median(seconds[name]) / len(sources)
            rows.append([f"`{name}`", f"{milliseconds:.0f} ms", f"{ratio(seconds, name, 'msp'):.2f}x"])
    write_table(
        "scorers",
        "What each scorer costs",
        ["scorer", "per text", "beside `msp`"],
        rows,
        f"{len(sources)} sources in one batch, at most {MAX_NEW_TOKENS} new tokens, {NUM_SAMPLES} samples where a "
        "scorer needs them, float32, processor time on one thread, from texts to scores. Each alone; those that "
        "need the same (samples, a pass without the source, a hidden state) share it. `learned` costs what the scores "
        f"that it learns from cost. `{CAUSAL}` is measured with a GPT-2, beside `msp` of that. Medians of "
        f"{arguments.rounds} interleaved rounds (ratio: median of the per-round ratios).",
    )


if __name__ == "__main__":
    main()
