"""K stochastic passes: the shared part once and the stochastic tail K times, against plain passes.

Vision: a ResNet-18 for images of CIFAR's size, batch 64, float32; forward and backward of the CLUE loss on the mean
distribution over the passes. Tabular: the residual network for tables at its default size, 20 passes; a training step
(forward and backward of the CLUE loss on mean and variance over the passes) and inference.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from measure import Ratio, interleaved, ratio, write_table

from clue_hf.functional import clue_loss, error_and_entropy
from clue_hf.models.inference import inference
from clue_hf.models.mc_dropout import active_dropout, mc_logits
from clue_hf.models.tabular import CLUETabularResNetConfig, CLUETabularResNetForRegression
from clue_hf.models.vision import CLUEResNetConfig, CLUEResNetForImageClassification


BATCH, SIZE, CLASSES, ALPHA, DROPOUT = 64, 32, 10, 0.9, 0.3
PLACES = {"classifier": "before the classifier", "last_stage": "from the last stage on", "all": "in all blocks"}
TABLE_COLUMNS, TABLE_PASSES, TABLE_REPEATS = 90, 20, 5
Row = tuple[str, int, str]
Rows = list[tuple[Row, Row | None, float | None]]
# dropout from, passes, one after the other or together; what it is compared with; what the ratio may be at most
VISION_ROWS: Rows = [
    (("classifier", 1, "together"), None, None),
    (("classifier", 5, "together"), ("classifier", 1, "together"), 1.10),
    (("classifier", 20, "together"), ("classifier", 1, "together"), 1.25),
    (("last_stage", 5, "one by one"), None, None),
    (("last_stage", 5, "together"), ("last_stage", 5, "one by one"), 0.50),
    (("all", 5, "one by one"), None, None),
    (("all", 5, "together"), ("all", 5, "one by one"), 1.05),
]
# what is done, rows of the batch, and the same as above
TABULAR_ROWS: Rows = [
    row
    for what in ("training step", "inference")
    for batch in (64, 256)
    for row in (
        ((what, batch, "one by one"), None, None),
        ((what, batch, "together"), (what, batch, "one by one"), 0.50),
    )
]


def mc_clue_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The CLUE loss of the mean distribution over the passes."""
    log_mean = logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))
    return clue_loss(*error_and_entropy(log_mean, labels), ALPHA).mean()


def all_passes(model: torch.nn.Module, inputs: dict[str, torch.Tensor], passes: int, how: str) -> torch.Tensor:
    """The logits of all passes, together or one by one."""
    if how == "together":
        return mc_logits(model, inputs, passes)
    return torch.stack([model(**inputs).logits for _ in range(passes)])


def make_vision_step(dropout_from: str, passes: int, how: str) -> Callable[[], object]:
    """One forward and backward in training mode."""
    torch.manual_seed(0)
    config = CLUEResNetConfig.preset("resnet18", num_labels=CLASSES, dropout=DROPOUT, dropout_from=dropout_from)
    model = CLUEResNetForImageClassification(config).train()
    inputs, labels = {"pixel_values": torch.randn(BATCH, 3, SIZE, SIZE)}, torch.randint(0, CLASSES, (BATCH,))

    def step() -> None:
        model.zero_grad()
        mc_clue_loss(all_passes(model, inputs, passes, how), labels).backward()

    return step


def make_tabular_step(what: str, batch: int, how: str) -> Callable[[], object]:
    """Some forwards and backwards in training mode, or some predictions with dropout active."""
    torch.manual_seed(0)
    config = CLUETabularResNetConfig(num_numeric=TABLE_COLUMNS, dropout=DROPOUT)
    model = CLUETabularResNetForRegression(config)
    if how == "one by one":  # the plain way: torch's own layers
        for block in model.blocks:
            block.dropout = torch.nn.Dropout(DROPOUT)
    inputs, labels = {"numeric": torch.randn(batch, TABLE_COLUMNS)}, torch.randn(batch)
    trains = what == "training step"
    model.train(trains)

    def moments() -> tuple[torch.Tensor, torch.Tensor]:
        outputs = all_passes(model, inputs, TABLE_PASSES, how).squeeze(-1)
        return outputs.mean(0), outputs.var(0, correction=1)

    def step() -> None:
        if trains:
            model.zero_grad()
            mean, variance = moments()
            clue_loss((labels - mean) ** 2, variance, ALPHA).mean().backward()
        else:
            with inference(model) if how == "together" else torch.no_grad(), active_dropout(model):
                moments()

    def steps() -> None:
        for _ in range(TABLE_REPEATS):
            step()

    return steps


def with_cpu_time(step: Callable[[], object], seconds: list[float]) -> Callable[[], object]:
    """A step that also notes its processor time, which changes less with what else the machine does."""

    def run() -> None:
        start = time.process_time()
        step()
        seconds.append(time.process_time() - start)

    return run


def vision_cells(row: Row, seconds: float) -> list[str]:
    dropout_from, passes, how = row
    return [PLACES[dropout_from], str(passes), how if passes > 1 else "-", f"{seconds:.2f} s"]


def tabular_cells(row: Row, seconds: float) -> list[str]:
    what, batch, how = row
    return [what, str(batch), how, f"{1000 * seconds / TABLE_REPEATS:.0f} ms"]


def table_row(
    benchmark: Benchmark,
    row: Row,
    baseline: Row | None,
    bar: float | None,
    clocks: tuple[dict[str, list[float]], dict[str, list[float]]],
) -> list[str]:
    """The time of one kind of step, and what it is compared with."""
    cells = benchmark.cells(row, statistics.median(clocks[0][str(row)]))
    if baseline is None:
        return [*cells, "1.00x", "1.00x", "-", "-"]
    ratios = [f"{ratio(seconds, str(row), str(baseline)):.2f}x" for seconds in clocks]
    return [*cells, *ratios, benchmark.against(baseline), f"{bar:.2f}x"]


@dataclass
class Benchmark:
    """What differs between the networks: the kinds of steps, how they are made, and their table."""

    rows: Rows
    passes: int | None  # where they are the same in all rows
    make_step: Callable[[str, int, str], Callable[[], object]]
    cells: Callable[[Row, float], list[str]]
    name: str
    title: str
    header: list[str]
    notes: str

    def describe(self, row: Row) -> str:
        """One kind of step in words."""
        first, number, _ = row
        if self.passes is None:
            return f"ResNet-18, dropout {PLACES[first]}, K = {number}, together"
        return f"table, {first}, batch {number}, K = {self.passes}, together"

    def against(self, baseline: Row) -> str:
        passes = self.passes or baseline[1]
        return "1 pass" if passes == 1 else f"{passes} passes, {baseline[2]}"


BENCHMARKS = {
    "vision": Benchmark(
        VISION_ROWS,
        None,
        make_vision_step,
        vision_cells,
        "mc_dropout",
        "A training step with K stochastic passes",
        ["dropout", "K", "passes"],
        f"ResNet-18, images of {SIZE} x {SIZE}, batch {BATCH}, float32, forward and backward of the CLUE "
        f"loss on the mean distribution over the passes, no optimizer. {{medians}} Together: all before the first "
        f"dropout runs once, the rest on K x {BATCH} rows; one by one: K plain passes, one backward.",
    ),
    "tabular": Benchmark(
        TABULAR_ROWS,
        TABLE_PASSES,
        make_tabular_step,
        tabular_cells,
        "mc_dropout_tabular",
        f"{TABLE_PASSES} stochastic passes of the residual network for tables",
        ["what", "batch", "passes"],
        f"With `--task tabular`: {TABLE_COLUMNS} numeric columns, 4 blocks of width 128 (256 inside) with dropout "
        f"{DROPOUT}, float32. Training step: forward and backward of the CLUE loss on mean and variance over the "
        "passes, no optimizer; inference: mean and variance with dropout active and BatchNorm in evaluation. "
        f"{{medians}} Together: all before the first dropout runs once, the rest on {TABLE_PASSES} x batch rows; one "
        f"by one: {TABLE_PASSES} plain passes with `nn.Dropout`, one backward.",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=list(BENCHMARKS), default="vision", help="which network")
    parser.add_argument("--rounds", type=int, default=2, help="interleaved rounds, after one that does not count")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # its processor time is what it takes, whatever else the machine does
    benchmark = BENCHMARKS[arguments.task]
    cpu: dict[str, list[float]] = {str(row): [] for row, _, _ in benchmark.rows}
    steps = {str(row): with_cpu_time(benchmark.make_step(*row), cpu[str(row)]) for row, _, _ in benchmark.rows}
    seconds = interleaved(steps, arguments.rounds, warmup=1)
    cpu = {name: times[1:] for name, times in cpu.items()}
    rows = [table_row(benchmark, row, baseline, bar, (seconds, cpu)) for row, baseline, bar in benchmark.rows]
    medians = f"Medians of {arguments.rounds} interleaved rounds (ratio: median of the per-round ratios)."
    write_table(
        benchmark.name,
        benchmark.title,
        [*benchmark.header, "time", "ratio", "ratio of processor time", "against", "at most"],
        rows,
        benchmark.notes.format(medians=medians),
        f"mc_dropout.py{'' if arguments.task == 'vision' else f' --task {arguments.task}'}",
        [
            Ratio(
                f"{benchmark.describe(row)} / {benchmark.against(baseline)}", ratio(cpu, str(row), str(baseline)), bar
            )
            for row, baseline, bar in benchmark.rows
            if baseline is not None
        ],
    )


if __name__ == "__main__":
    main()
