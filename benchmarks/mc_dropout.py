"""K stochastic passes in a training step: the shared part once and the stochastic tail K times, against plain passes.

A ResNet-18 for images of CIFAR's size, batch 64, float32; forward and backward of the CLUE loss on the mean
distribution over the passes.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import torch
from measure import interleaved, ratio, write_table

from clue_hf.functional import clue_loss, error_and_entropy
from clue_hf.models.mc_dropout import mc_logits
from clue_hf.models.vision import CLUEResNetConfig, CLUEResNetForImageClassification


BATCH, SIZE, CLASSES, ALPHA, DROPOUT = 64, 32, 10, 0.9, 0.3
PLACES = {"classifier": "before the classifier", "last_stage": "from the last stage on", "all": "in all blocks"}
Row = tuple[str, int, str]
# dropout from, passes, one after the other or together; what it is compared with; what the ratio may be at most
ROWS: list[tuple[Row, Row | None, float | None]] = [
    (("classifier", 1, "together"), None, None),
    (("classifier", 5, "together"), ("classifier", 1, "together"), 1.10),
    (("classifier", 20, "together"), ("classifier", 1, "together"), 1.25),
    (("last_stage", 5, "one by one"), None, None),
    (("last_stage", 5, "together"), ("last_stage", 5, "one by one"), 0.50),
    (("all", 5, "one by one"), None, None),
    (("all", 5, "together"), ("all", 5, "one by one"), 1.05),
]


def mc_clue_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The CLUE loss of the mean distribution over the passes."""
    log_mean = logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))
    return clue_loss(*error_and_entropy(log_mean, labels), ALPHA).mean()


def make_step(dropout_from: str, passes: int, how: str) -> Callable[[], object]:
    """One forward and backward in training mode."""
    torch.manual_seed(0)
    config = CLUEResNetConfig.preset("resnet18", num_labels=CLASSES, dropout=DROPOUT, dropout_from=dropout_from)
    model = CLUEResNetForImageClassification(config).train()
    inputs, labels = {"pixel_values": torch.randn(BATCH, 3, SIZE, SIZE)}, torch.randint(0, CLASSES, (BATCH,))

    def step() -> None:
        model.zero_grad()
        if how == "together":
            logits = mc_logits(model, inputs, passes)
        else:
            logits = torch.stack([model(**inputs).logits for _ in range(passes)])
        mc_clue_loss(logits, labels).backward()

    return step


def with_cpu_time(step: Callable[[], object], found: list[float]) -> Callable[[], object]:
    """A step that also notes its processor time, which changes less with what else the machine does."""

    def run() -> None:
        start = time.process_time()
        step()
        found.append(time.process_time() - start)

    return run


def table_row(
    row: Row, baseline: Row | None, bar: float | None, clocks: tuple[dict[str, list[float]], dict[str, list[float]]]
) -> list[str]:
    """The time of one kind of step, and what it is compared with."""
    dropout_from, passes, how = row
    median = f"{statistics.median(clocks[0][str(row)]):.2f} s"
    cells = [PLACES[dropout_from], str(passes), how if passes > 1 else "-", median]
    if baseline is None:
        return [*cells, "1.00x", "1.00x", "-", "-"]
    ratios = [f"{ratio(seconds, str(row), str(baseline)):.2f}x" for seconds in clocks]
    against = "1 pass" if baseline[1] == 1 else f"{baseline[1]} passes, {baseline[2]}"
    return [*cells, *ratios, against, f"{bar:.2f}x"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=["vision"], default="vision", help="which network")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, after one that does not count")
    arguments = parser.parse_args()
    cpu: dict[str, list[float]] = {str(row): [] for row, _, _ in ROWS}
    steps = {str(row): with_cpu_time(make_step(*row), cpu[str(row)]) for row, _, _ in ROWS}
    seconds = interleaved(steps, arguments.rounds, warmup=1)
    cpu = {name: found[1:] for name, found in cpu.items()}
    rows = [table_row(row, baseline, bar, (seconds, cpu)) for row, baseline, bar in ROWS]
    write_table(
        "mc_dropout",
        "A training step with K stochastic passes",
        ["dropout", "K", "passes", "time", "ratio", "ratio of processor time", "against", "at most"],
        rows,
        f"ResNet-18, images of {SIZE} x {SIZE}, batch {BATCH}, float32, forward and backward of the CLUE "
        f"loss on the mean distribution over the passes, no optimizer. Medians of {arguments.rounds} interleaved "
        "rounds (ratio: median of the per-round ratios). Together: all before the first dropout runs once, the rest "
        f"on K x {BATCH} rows; one by one: K plain passes, one backward.",
    )


if __name__ == "__main__":
    main()
