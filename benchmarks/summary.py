"""Every measured ratio with its bar in one table, `results/README.md`; `--run` runs the benchmarks first.

A bar is declared where it is measured: `write_table(..., ratios=[Ratio("ours / theirs", 0.76, at_most=1.0)])`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from measure import RATIOS, RESULTS, Ratio


HERE = Path(__file__).resolve().parent
#: What `make bench` runs. What needs other libraries (evaluate.py, peers.py) or data (packing.py) is run by hand.
COMMANDS = (
    "loss.py",
    "train_step.py",
    "metrics.py",
    "mc_dropout.py",
    "mc_dropout.py --task tabular",
    "abstention.py",
    "conformal.py",
    "pipeline.py --batch_sizes 16",
    "token_calibration.py",
    "evaluation_memory.py",
    "processes.py",
    "growth.py",
)


def run_all(commands: list[str]) -> list[str]:
    """Runs some benchmarks one after another, each on one thread; returns those that failed."""
    failed = []
    for command in commands:
        print(f"$ python benchmarks/{command}", flush=True)
        start, work = time.perf_counter(), processor_seconds()
        words = [sys.executable, *f"{HERE}/{command}".split()]
        done = subprocess.run(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
        seconds, work = time.perf_counter() - start, processor_seconds() - work
        print(f"{command}: {seconds:.0f} s, {work:.0f} s of the processor\n", flush=True)
        if done.returncode:
            failed.append(command)
    return failed


def processor_seconds() -> float:
    """What the ended child processes have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary() -> str:
    """The page: a line for each ratio, so that a change of one is a line of a diff."""
    lines = ["| what | measured | bar | | from |", "| --- | --- | --- | --- | --- |"]
    met = []
    for name, entry in json.loads(RATIOS.read_text()).items():
        for ratio in (Ratio(**values) for values in entry["ratios"]):
            met.append(ratio.is_met)
            verdict = "met" if ratio.is_met else "**not met**"
            value = f"{ratio.value:.2f}{ratio.unit}"
            lines.append(f"| {ratio.name} | {value} | {ratio.bar} | {verdict} | [{entry['command']}]({name}.md) |")
    about = (
        f"{sum(met)} of {len(met)} bars are met. Made by `python benchmarks/summary.py`; `make bench` runs the "
        "benchmarks first, but for those that need other libraries or data. Each line names the command in "
        "`benchmarks/` that measured it and the page with what was measured and how."
    )
    return f"# Every ratio and its bar\n\n{about}\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--run", nargs="*", metavar="COMMAND", help="run all benchmarks first, or those that are named"
    )
    arguments = parser.parse_args()
    failed, start = [], time.perf_counter()
    if arguments.run is not None:
        failed = run_all(arguments.run or list(COMMANDS))
    page = summary()
    (RESULTS / "README.md").write_text(page)
    print(page)
    if arguments.run is not None:
        print(f"{(time.perf_counter() - start) / 60:.1f} minutes, {processor_seconds() / 60:.1f} of the processor")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
