"""What an uncertainty costs: UncertaintyPipeline against the plain `generate` of transformers, on the same texts, and
with a token calibrator against without one, in the pipeline and in an evaluation.

A T5 and a GPT-2 of four layers with a large vocabulary and random weights, whose texts go on to their largest length.
Both ways tokenise, generate greedily and decode; the pipeline also knows the probability and the entropy of every
token, and scores each text. All must give the same texts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import Ratio, interleaved, ratio, write_table
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration
from transformers.utils import logging

from clue_hf import UncertaintyEvaluator, UncertaintyPipeline
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.models.tokenizer import train_tokenizer
from clue_hf.posthoc.token_temperature import TemperatureHead, TokenTemperature
from clue_hf.predictors.text import TextPredictor


#: Largest ratios: of the pipeline to `generate`, and of token calibrators to none.
AT_MOST = 1.15
CALIBRATED_AT_MOST = {"temperature": 1.05, "temperature_head": 1.10}
VOCABULARY, WIDTH, LAYERS, LENGTH = 32_128, 512, 4, 16
#: Standard deviation of the logits: with far larger ones, probabilities underflow as no trained model's do.
LOGIT_STD = 3.0
Texts = Callable[[], list[str]]


def make_t5(tokenizer: Any) -> Any:
    ids = {"pad_token_id": 0, "eos_token_id": tokenizer.eos_token_id, "decoder_start_token_id": 0}
    size = {"d_model": WIDTH, "num_layers": LAYERS, "d_ff": 4 * WIDTH, "num_heads": 8}
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, tie_word_embeddings=False, **size, **ids))


def make_gpt2(tokenizer: Any) -> Any:
    ids = {"pad_token_id": 0, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.eos_token_id}
    size = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": 8}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, tie_word_embeddings=False, **size, **ids))


@torch.no_grad()
def use_words(model: Any, tokenizer: Any) -> None:
    """Lets only tokens come that the tokenizer knows, and none that ends a text."""
    weight = model.get_output_embeddings().weight
    weight.normal_(std=LOGIT_STD / WIDTH**0.5)
    weight[len(tokenizer) :] = 0
    weight[tokenizer.all_special_ids] = 0


MODELS = {"T5": (make_t5, True), "GPT-2": (make_gpt2, False)}


def make_candidates(name: str, batch_size: int, sources: list[str]) -> dict[str, Texts]:
    """The plain way, and the pipeline."""
    make_model, end_every_text = MODELS[name]
    torch.manual_seed(0)
    tokenizer = train_tokenizer(sources, 400, end_every_text)
    tokenizer.padding_side = "right" if end_every_text else "left"
    model = make_model(tokenizer).eval()
    use_words(model, tokenizer)
    sources = sorted(sources, key=lambda text: len(tokenizer(text)["input_ids"]))  # batches of similar lengths

    def plain() -> list[str]:
        texts = []
        for start in range(0, len(sources), batch_size):
            inputs = tokenizer(sources[start : start + batch_size], padding=True, return_tensors="pt")
            inputs.pop("token_type_ids", None)
            tokens = model.generate(**inputs, max_new_tokens=LENGTH, do_sample=False, num_beams=1)
            first = 1 if end_every_text else inputs["input_ids"].shape[1]
            decoded = tokenizer.batch_decode(tokens[:, first:], skip_special_tokens=True)
            texts += [text.strip() for text in decoded]
        return texts

    def pipeline(calibrator: Any) -> Texts:
        predictor = TextPredictor(model, tokenizer, max_new_tokens=LENGTH, token_calibrator=calibrator)
        pipe = UncertaintyPipeline(predictor, None, batch_size)
        return lambda: [answer["generated_text"] for answer in pipe(sources)]

    def evaluation(calibrator: Any) -> Texts:
        rows = [{"source": source, "target": source} for source in sources]
        settings = {"max_new_tokens": LENGTH, "batch_size": batch_size, "resamples": 0}
        evaluator = UncertaintyEvaluator(model, tokenizer, quality="chrf", token_calibrator=calibrator, **settings)
        return lambda: [example["output"] for example in evaluator.evaluate(rows).examples]

    size = model.get_output_embeddings().weight.shape[1]
    calibrators = {
        "temperature": TokenTemperature(0.8),
        "temperature_head": TemperatureHead([0.01] * (size + 3), [0.0] * (size + 3), [1.0] * (size + 3), -0.2, size),
    }
    candidates = {"generate": plain, "pipeline": pipeline(None), "evaluation": evaluation(None)}
    for way, make in (("pipeline", pipeline), ("evaluation", evaluation)):
        candidates |= {f"{way}, {key}": make(calibrator) for key, calibrator in calibrators.items()}
    return candidates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="interleaved rounds, after one that does not count")
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=[16, 1])
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # processor time of one thread: what else the machine does hardly matters
    every = [row["source"] for row in phrase_rows("test", arguments.texts)]
    rows: list[list[str]] = []
    ratios: list[Ratio] = []
    for name in MODELS:
        for batch_size in arguments.batch_sizes:
            sources = every if batch_size > 1 else every[: max(4, len(every) // 4)]
            candidates = make_candidates(name, batch_size, sources)
            texts = candidates["generate"]()
            if any(run() != texts for run in candidates.values()) or len(set(texts)) < 2:
                raise RuntimeError(f"{name}, batch size {batch_size}: the texts are others, or all the same.")
            seconds = interleaved(candidates, arguments.rounds, warmup=1, clock=time.process_time)
            for way in candidates:
                main, _, calibrator = way.partition(", ")
                baseline = main if calibrator else "generate"
                limit = CALIBRATED_AT_MOST.get(calibrator, AT_MOST if way == "pipeline" else None)
                milliseconds = 1000 * statistics.median(seconds[way]) / len(sources)
                share = ratio(seconds, way, baseline)
                if limit is not None:
                    what = f"{name}, batch size {batch_size}: {way} / {baseline}"
                    ratios.append(Ratio(what, share, at_most=limit))
                cells = [f"{milliseconds:.0f} ms", baseline, f"{share:.2f}x"]
                rows.append([name, str(batch_size), way, *cells, "-" if limit is None else f"{limit:.2f}x"])
    write_table(
        "pipeline",
        "Texts with their uncertainty",
        ["model", "batch size", "", "per text", "beside", "ratio", "at most"],
        rows,
        f"{arguments.texts} sources (a quarter of them at batch size 1), {LENGTH} new tokens each, {LAYERS} layers of "
        f"width {WIDTH}, a vocabulary of {VOCABULARY:,}, random weights, logits with a standard deviation "
        f"of {LOGIT_STD:g}, float32. The pipeline's scorer is "
        "perplexity: all single-pass scorers read what is known of each token anyway. An evaluation has the default "
        "scorers, ten samples of each source included, also scores its reference, with a token calibrator also "
        "without it, and judges by chrF. From texts to texts, without loading, processor time on one thread; "
        "`generate` is transformers' own, greedy, in the same batches, and gives the same texts (checked). Medians "
        f"of {arguments.rounds} interleaved rounds (ratio: median of the per-round ratios).",
        command=" ".join(["pipeline.py", *sys.argv[1:]]),
        ratios=ratios,
    )


if __name__ == "__main__":
    main()
