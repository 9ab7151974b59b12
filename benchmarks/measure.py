"""What the benchmarks share: interleaved timing, peak memory of a fresh process, tables with their command."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch


#: The C allocator returns freed memory at once: else a peak also counts what it keeps, which changes from run to run.
RETURNS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536"}
RESULTS = Path(__file__).parent / "results"
#: The ratios of each table; `summary.py` makes one table of all of them.
RATIOS = RESULTS / "ratios"


@dataclass(frozen=True)
class Ratio:
    """A measured number with its bar, one of both: `Ratio("CLUE, fused / cross-entropy, time", 0.76, at_most=1.0)`."""

    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    unit: str = "x"

    def __post_init__(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"{self.name}: pass `at_most` or `at_least`.")

    @property
    def is_met(self) -> bool:
        return self.value <= self.at_most if self.at_most is not None else self.value >= self.at_least

    @property
    def bar(self) -> str:
        return f"<= {self.at_most:g}{self.unit}" if self.at_most is not None else f">= {self.at_least:g}{self.unit}"


def interleaved(
    candidates: dict[str, Callable[[], object]],
    rounds: int,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each candidate in each round; one of each per round, so that noise hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(warmup + rounds):
        for name, run in candidates.items():
            start = clock()
            run()
            if number >= warmup:
                seconds[name].append(clock() - start)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, baseline: str) -> float:
    """Median over the rounds of one candidate's time divided by the baseline's of the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[baseline], strict=True))


def comparison_rows(seconds: dict[str, list[float]], memory: dict[str, int], baseline: str) -> list[list[str]]:
    """A row per candidate: median time and peak memory, each also as a ratio to the baseline's."""
    return [
        [
            name,
            f"{statistics.median(times):.3f} s",
            f"{ratio(seconds, name, baseline):.2f}x",
            f"{memory[name] / 1e6:.0f} MB",
            f"{memory[name] / memory[baseline]:.2f}x",
        ]
        for name, times in seconds.items()
    ]


def peak_above(run: Callable[[], object]) -> int:
    """Bytes of resident memory that `run` needs at its peak above what the process holds before (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    before = _status("VmRSS")
    kept = run()
    after = _status("VmHWM")
    del kept
    return after - before


def in_fresh_process(script: str, *words: str) -> dict:
    """
    Runs a script of this folder with some words, with an allocator that returns freed memory at once, and reads the
    JSON object it prints last.
    """
    environment = {**os.environ, **RETURNS_MEMORY}
    command = [sys.executable, script, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def peak_of_each(script: str, names: Iterable[str]) -> dict[str, int]:
    """Peak memory that a script tells with `--memory_of NAME`, two processes at a time: only time suffers from it."""
    names = list(names)
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda name: in_fresh_process(script, "--memory_of", name), names)
        return {name: answer["bytes"] for name, answer in zip(names, answers, strict=True)}


def serve(answer: Callable[[dict], dict]) -> None:
    """
    Answers each line of the input, a JSON object, with the JSON object that `answer` makes of it: a process that is
    asked again and again loads its model once. Whatever else is printed goes to the error stream.
    """
    output, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=output, flush=True)


def write_table(
    name: str,
    title: str,
    header: list[str],
    rows: list[list[str]],
    notes: str,
    command: str | None = None,
    ratios: Sequence[Ratio] = (),
) -> None:
    """
    Prints a markdown table and keeps it in `results/NAME.md` with the command and the machine; its `ratios`, those
    numbers that have a bar, go into the table of all benchmarks.
    """
    lines = ["| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows)]
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    made = f"Made by `python benchmarks/{command or f'{name}.py'}` ({machine})."
    text = f"# {title}\n\n{made}\n\n" + "\n".join(lines) + f"\n\n{notes}\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    write_ratios(name, command or f"{name}.py", ratios)


def write_ratios(name: str, command: str, ratios: Sequence[Ratio]) -> None:
    """Keeps the ratios of one table in `results/ratios/NAME.json`."""
    RATIOS.mkdir(parents=True, exist_ok=True)
    path = RATIOS / f"{name}.json"
    if not ratios:
        path.unlink(missing_ok=True)
        return
    kept = [{key: value for key, value in asdict(one).items() if value is not None} for one in ratios]
    content = {"command": command, "ratios": [{**one, "value": round(one["value"], 4)} for one in kept]}
    path.write_text(json.dumps(content, indent=1) + "\n")


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{key} is not in /proc/self/status")
