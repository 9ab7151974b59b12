"""Head and loss: the fused objectives against linear + F.cross_entropy, forward and backward, time and peak memory.

2,048 tokens, 512 features, a vocabulary of 32,128 (T5-small), float32.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from measure import Ratio, comparison_rows, interleaved, peak_above, peak_of_each, ratio, write_table

from clue_hf.functional import clue_loss, error_and_entropy
from clue_hf.kernels import fused_linear_objective
from clue_hf.objectives import CLUE, DFT, EAFT, Brier, LabelSmoothing, MaxSup, Objective, Plain


TOKENS, FEATURES, VOCABULARY, ALPHA = 2048, 512, 32128, 0.9
BASELINE = "linear + F.cross_entropy"


def make_inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    hidden = torch.randn(TOKENS, FEATURES).mul_(0.5).requires_grad_()
    weight = torch.randn(VOCABULARY, FEATURES).mul_(0.05).requires_grad_()
    return hidden, weight, torch.randint(0, VOCABULARY, (TOKENS,))


def cross_entropy(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(hidden, weight), labels)


def plain_clue(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return clue_loss(*error_and_entropy(F.linear(hidden, weight), labels), ALPHA).mean()


def fused(objective: Objective, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    statistics = objective.row_statistics
    return fused_linear_objective(hidden, weight, labels, objective.item_loss, row_statistics=statistics)


OBJECTIVES = {
    "CLUE": CLUE(ALPHA),
    "CE": Plain(),
    "label smoothing": LabelSmoothing(),
    "MaxSup": MaxSup(),
    "Brier": Brier(),
    "EAFT": EAFT(),
    "DFT": DFT(),
}
LOSSES: dict[str, Callable[..., torch.Tensor]] = {
    BASELINE: cross_entropy,
    "CLUE, autograd": plain_clue,
    **{f"{name}, fused": partial(fused, objective) for name, objective in OBJECTIVES.items()},
}


def step(loss: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor | None]:
    """One forward and backward; the gradients are handed back, so that they count as memory in use."""
    for leaf in inputs[:2]:
        leaf.grad = None
    loss(*inputs).backward()
    return [leaf.grad for leaf in inputs[:2]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds")
    parser.add_argument("--memory_of", help="only measure the peak memory of one loss, in this process")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # its processor time is what it takes, whatever else the machine does
    inputs = make_inputs()
    if arguments.memory_of:
        tiny = (inputs[0][:8].detach().requires_grad_(), inputs[1][:64].detach().requires_grad_(), inputs[2][:8] % 64)
        step(LOSSES[arguments.memory_of], tiny)  # libraries and thread pools are loaded
        print(json.dumps({"bytes": peak_above(lambda: step(LOSSES[arguments.memory_of], inputs))}))
        return
    memory = peak_of_each(__file__, LOSSES)
    seconds = interleaved(
        {name: lambda loss=loss: step(loss, inputs) for name, loss in LOSSES.items()},
        arguments.rounds,
        warmup=1,
        clock=time.process_time,
    )
    rows = comparison_rows(seconds, memory, BASELINE)
    write_table(
        "loss",
        "Head and loss, forward and backward",
        ["loss", "time", "ratio", "peak memory above the inputs", "ratio"],
        rows,
        f"{TOKENS:,} tokens, {FEATURES} features, a vocabulary of {VOCABULARY:,}, float32. Medians of "
        f"{arguments.rounds} interleaved rounds (ratio: median of the per-round ratios), processor time on one "
        "thread; memory in a fresh process, with an allocator that returns freed memory at once.",
        command=" ".join(["loss.py", *sys.argv[1:]]),
        ratios=[
            *(
                Ratio(f"{name} / {BASELINE}, time", ratio(seconds, name, BASELINE), at_most=1.0)
                for name in LOSSES
                if name.endswith("fused")
            ),
            Ratio(f"CLUE, fused / {BASELINE}, memory", memory["CLUE, fused"] / memory[BASELINE], at_most=0.35),
        ],
    )


if __name__ == "__main__":
    main()
