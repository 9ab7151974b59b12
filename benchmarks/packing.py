"""Training on short texts: batches that are padded, grouped by length, and packed.

A Llama of a few layers with random weights, on pairs of sentences (prompt and completion) from a file, such as
Tatoeba's English-French ones. Of the batches of an epoch, as many are timed of each candidate, evenly spaced; all hold
about as many tokens.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from measure import interleaved, ratio, write_table
from transformers import LlamaConfig, LlamaForCausalLM

from clue_hf import CLUEConfig, CLUETrainer
from clue_hf.data.columns import text_pairs
from clue_hf.data.loading import load_file
from clue_hf.models.tokenizer import train_tokenizer


VOCABULARY, WIDTH, LAYERS, BATCH, LENGTH = 4000, 192, 4, 64, 192
CANDIDATES: dict[str, dict[str, Any]] = {
    "padding": {},
    "grouped by length": {"train_sampling_strategy": "group_by_length"},
    "packing": {"packing": True},
}


def read_pairs(arguments: argparse.Namespace) -> Dataset:
    rows = load_file(arguments.data, "--data").shuffle(seed=0).select(range(arguments.examples))
    sources, references = text_pairs(rows[:], arguments.source_column, arguments.target_column)
    return Dataset.from_dict({"prompt": sources, "completion": [first for first, *_ in references]})


def make_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    size = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": LAYERS}
    ids = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, num_attention_heads=6, **size, **ids))


def make_trainer(settings: dict[str, Any], pairs: Dataset, tokenizer: Any, folder: str, rows: int) -> CLUETrainer:
    args = CLUEConfig(
        folder, per_device_train_batch_size=rows, max_length=LENGTH, use_cpu=True, report_to="none", **settings
    )
    return CLUETrainer(make_model(), args, train_dataset=pairs, processing_class=tokenizer)


def make_run(trainer: CLUETrainer, batches: list[dict[str, torch.Tensor]]) -> Callable[[], None]:
    """Forward, backward and AdamW of some batches, as the training loop runs them."""
    trainer.create_optimizer()
    prepared, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
    trainer.current_gradient_accumulation_steps = 1

    def run() -> None:
        for batch in batches:
            trainer.get_batch_samples(iter([batch]), 1, trainer.args.device)
            trainer.training_step(prepared, dict(batch))
            trainer.optimizer.step()
            prepared.zero_grad()

    return run


def evenly_spaced(batches: list[Any], count: int) -> list[Any]:
    """Some batches of an epoch; not its first, which holds the longest text where texts are grouped by length."""
    step = len(batches) // count
    return batches[step // 2 :: step][:count]


def count_tokens(trainer: CLUETrainer, batches: list[dict[str, torch.Tensor]]) -> int:
    return sum(int(trainer.task.count_tokens([batch])) for batch in batches)


def padding(trainer: CLUETrainer, batches: list[dict[str, torch.Tensor]]) -> float:
    return 1 - count_tokens(trainer, batches) / sum(batch["input_ids"].numel() for batch in batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="file of sentence pairs")
    parser.add_argument("--source_column", default="en")
    parser.add_argument("--target_column", default="fr")
    parser.add_argument("--examples", type=int, default=12_800, help="number of pairs")
    parser.add_argument("--batches", type=int, default=8, help="number of batches that are timed")
    parser.add_argument("--rounds", type=int, default=4, help="interleaved rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # so that its time on the processor is what it takes, whatever else runs
    pairs = read_pairs(arguments)
    tokenizer = train_tokenizer([*pairs["prompt"], *pairs["completion"]], VOCABULARY, end_every_text=False)
    with tempfile.TemporaryDirectory() as folder:
        padded = make_trainer({}, pairs, tokenizer, folder, BATCH)
        lengths = [len(ids) for ids in padded.train_dataset["input_ids"]]
        packed_rows = round(BATCH * statistics.mean(lengths) / LENGTH)
        trainers = {
            name: make_trainer(settings, pairs, tokenizer, folder, packed_rows if settings.get("packing") else BATCH)
            for name, settings in CANDIDATES.items()
        }
        batches = {name: list(trainer.get_train_dataloader())[:-1] for name, trainer in trainers.items()}
        timed = {name: evenly_spaced(every, arguments.batches) for name, every in batches.items()}
        runs = {name: make_run(trainer, timed[name]) for name, trainer in trainers.items()}
        seconds = interleaved(runs, arguments.rounds, warmup=1, clock=time.process_time)
    tokens = {name: count_tokens(trainers[name], timed[name]) for name in timed}
    rows = []
    for name, times in seconds.items():
        speed = tokens[name] / statistics.median(times)
        faster = tokens[name] / tokens["padding"] / ratio(seconds, name, "padding")
        share, per_step = padding(trainers[name], batches[name]), tokens[name] / arguments.batches
        rows.append([name, f"{speed:,.0f}", f"{faster:.2f}x", f"{share:.1%}", f"{per_step:,.0f}"])
    options = f"--data {Path(arguments.data).name}"
    write_table(
        "packing",
        "Training on short texts: padding, grouping, packing",
        ["batches", "tokens per second", "ratio", "padding", "tokens per step"],
        rows,
        f"{arguments.examples:,} pairs of Tatoeba's English and French sentences, {min(lengths)} to {max(lengths)} "
        f"tokens, {statistics.mean(lengths):.1f} on average; a Llama of {LAYERS} layers, width {WIDTH} and a "
        f"vocabulary of {VOCABULARY:,}, random weights, float32, CLUE, AdamW included. Batches of {BATCH} pairs; "
        f"packed: {packed_rows} rows of at most {LENGTH} tokens. Padding, a share of all batches, is not counted as "
        f"tokens. Timed are {arguments.batches} batches of each, evenly spaced over an epoch; "
        f"seconds are those of one thread on the "
        f"processor; medians of {arguments.rounds} interleaved rounds (ratio: median of the per-round ratios).",
        f"packing.py {options}",
    )


if __name__ == "__main__":
    main()
