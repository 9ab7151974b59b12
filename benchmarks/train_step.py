"""A training step: CLUE through CLUETrainer against cross-entropy through transformers' own Seq2SeqTrainer.

A T5 of t5-small's shape with random weights, batch 16, sources of 128 tokens, targets of 32 to 128 tokens, padded;
forward, backward and AdamW. `--heads` measures CLUE with output layers that are not plain: with a LoRA adapter on it,
sharded by `fully_shard` (on one process, so that no other's time is measured), and in a compiled model, each fused and
on the logits.
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
from peft import LoraConfig, get_peft_model
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
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


def make_adapted() -> Any:
    targets = LoraConfig(target_modules=["q", "v", "lm_head"], r=8)
    torch.manual_seed(0)
    config = T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, tie_word_embeddings=False)
    return get_peft_model(T5ForConditionalGeneration(config), targets)


def make_sharded() -> Any:
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    return fully_shard(make_model(), mesh=init_device_mesh("cpu", (1,)), reshard_after_forward=True)


#: Models with another output layer, and whether they are compiled.
HEADS = {
    "adapter on the output layer": (make_adapted, False),
    "sharded": (make_sharded, False),
    "compiled": (make_model, True),
}
WAYS = {"fused": "on", "on the logits": "off"}


def make_batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.full((BATCH, LONGEST), -100)
    for row, length in enumerate(torch.linspace(SHORTEST, LONGEST, BATCH).long().tolist()):
        labels[row, :length] = torch.randint(3, VOCABULARY, (length,), generator=generator)
    ids = torch.randint(3, VOCABULARY, (BATCH, SOURCE), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def make_step(name: str, folder: str) -> Callable[[], None]:
    """One optimizer step of a trainer, as its training loop runs it."""
    make, compiled = make_model, False
    if name in CANDIDATES:
        trainer_class, config_class, settings = CANDIDATES[name]
    else:
        head, _, way = name.partition(", ")
        trainer_class, config_class, settings = CLUETrainer, CLUEConfig, {"fused_head": WAYS[way]}
        make, compiled = HEADS[head]
    model = make()
    args = config_class(folder, per_device_train_batch_size=BATCH, use_cpu=True, report_to="none", **settings)
    trainer = trainer_class(model=model, args=args)
    trainer.create_optimizer()
    prepared, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
    if compiled:
        prepared = torch.compile(prepared)

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
    parser.add_argument("--heads", action="store_true", help="output layers that are not plain, fused or not")
    parser.add_argument("--memory_of", help="only measure the peak memory of one trainer, in this process")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # its processor time is what it takes, whatever else the machine does
    # by what each candidate is compared with
    groups = {BASELINE: list(CANDIDATES)}
    if arguments.heads:
        groups = {f"{head}, on the logits": [f"{head}, {way}" for way in WAYS] for head in HEADS}
    names = [name for group in groups.values() for name in group]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.memory_of:
            run = make_step(arguments.memory_of, folder)
            print(json.dumps({"bytes": peak_above(lambda: [run() for _ in range(2)])}))
            return
        memory = peak_of_each(__file__, names)
        steps = {name: make_step(name, folder) for name in names}
        seconds = interleaved(steps, arguments.rounds, warmup=1, clock=time.process_time)
    rows, ratios = [], []
    for baseline, group in groups.items():
        rows += comparison_rows({name: seconds[name] for name in group}, memory, baseline)
        for name in group:
            if name != baseline and not name.endswith("on the logits"):
                time_ratio, memory_ratio = ratio(seconds, name, baseline), memory[name] / memory[baseline]
                ratios.append(Ratio(f"{name} / {baseline}, time", time_ratio, at_most=1.0))
                ratios.append(Ratio(f"{name} / {baseline}, memory", memory_ratio, at_most=0.8))
    write_table(
        "train_step_heads" if arguments.heads else "train_step",
        "A training step of T5-small" + (" with CLUE, by its output layer" if arguments.heads else ""),
        ["trainer and objective", "time", "ratio", "peak memory above the model", "ratio"],
        rows,
        f"Random weights, batch {BATCH}, sources of {SOURCE} tokens, targets of {SHORTEST} to {LONGEST} tokens, "
        f"padded, float32, AdamW included. Medians of {arguments.rounds} interleaved rounds (ratio: median of the "
        "per-round ratios), processor time on one thread; memory in a fresh process, over two steps, with an "
        "allocator that returns freed memory at once."
        + (" Each ratio is to the same model with its loss on the logits." if arguments.heads else ""),
        command=" ".join(["train_step.py", *sys.argv[1:]]),
        ratios=ratios,
    )


if __name__ == "__main__":
    main()
