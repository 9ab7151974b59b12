"""A training step: CLUE through CLUETrainer against cross-entropy through transformers' own Seq2SeqTrainer.

A T5 of t5-small's shape with random weights, batch 16, sources of 128 tokens, targets of 32 to 128 tokens, padded;
forward, backward and AdamW.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import Ratio, comparison_rows, interleaved, peak_above, peak_of_each, ratio, write_table
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration

from clue_hf import CLUEConfig, CLUETrainer


BATCH, SOURCE, SHORTEST, LONGEST, VOCABULARY = 16, 128, 32, 128, 32128
CANDIDATES = {
    "Seq2SeqTrainer, CE": (Seq2SeqTrainer, Seq2SeqTrainingArguments, {}),
    "CLUETrainer, CE": (CLUETrainer, CLUEConfig, {"objective": "ce"}),
    "CLUETrainer, CLUE": (CLUETrainer, CLUEConfig, {"objective": "clue"}),
    "CLUETrainer, CLUE, gradient of the uncertainty": (
        CLUETrainer,
        CLUEConfig,
        {"objective": "clue", "clue_gradient": "uncertainty"},
    ),
    "CLUETrainer, CLUE, sequence level": (CLUETrainer, CLUEConfig, {"objective": "clue", "level": "sequence"}),
    "CLUETrainer, CLUE, on the logits": (CLUETrainer, CLUEConfig, {"objective": "clue", "fused_head": "off"}),
}
BASELINE = next(iter(CANDIDATES))


def make_model() -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0))


def make_batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.full((BATCH, LONGEST), -100)
    for row, length in enumerate(torch.linspace(SHORTEST, LONGEST, BATCH).long().tolist()):
        labels[row, :length] = torch.randint(3, VOCABULARY, (length,), generator=generator)
    ids = torch.randint(3, VOCABULARY, (BATCH, SOURCE), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def make_step(name: str, model: Any, folder: str) -> Callable[[], None]:
    """One optimizer step of a trainer, as its training loop runs it."""
    trainer_class, config_class, settings = CANDIDATES[name]
    args = config_class(folder, per_device_train_batch_size=BATCH, use_cpu=True, report_to="none", **settings)
    trainer = trainer_class(model=model, args=args)
    trainer.create_optimizer()
    prepared, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)

    def step() -> None:
        [batch], items = trainer.get_batch_samples(iter([make_batch()]), 1, args.device)
        trainer.current_gradient_accumulation_steps = 1
        trainer.training_step(prepared, batch, items)
        trainer.optimizer.step()
        prepared.zero_grad()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="interleaved rounds")
    parser.add_argument("--memory_of", help="only measure the peak memory of one trainer, in this process")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # its processor time is what it takes, whatever else the machine does
    with tempfile.TemporaryDirectory() as folder:
        if arguments.memory_of:
            model = make_model()
            run = make_step(arguments.memory_of, model, folder)
            print(json.dumps({"bytes": peak_above(lambda: [run() for _ in range(2)])}))
            return
        memory = peak_of_each(__file__, CANDIDATES)
        steps = {name: make_step(name, make_model(), folder) for name in CANDIDATES}
        seconds = interleaved(steps, arguments.rounds, warmup=1, clock=time.process_time)
    rows = comparison_rows(seconds, memory, BASELINE)
    write_table(
        "train_step",
        "A training step of T5-small",
        ["trainer and objective", "time", "ratio", "peak memory above the model", "ratio"],
        rows,
        f"Random weights, batch {BATCH}, sources of {SOURCE} tokens, targets of {SHORTEST} to {LONGEST} tokens, "
        f"padded, float32, AdamW included. Medians of {arguments.rounds} interleaved rounds (ratio: median of the "
        "per-round ratios), processor time on one thread; memory in a fresh process, over two steps, with an "
        "allocator that returns freed memory at once.",
        command=" ".join(["train_step.py", *sys.argv[1:]]),
        ratios=[
            made
            for name in CANDIDATES
            if name.startswith("CLUETrainer") and not name.endswith("logits")
            for made in (
                Ratio(f"{name} / {BASELINE}, time", ratio(seconds, name, BASELINE), at_most=1.0),
                Ratio(f"{name} / {BASELINE}, memory", memory[name] / memory[BASELINE], at_most=0.8),
            )
        ],
    )


if __name__ == "__main__":
    main()
