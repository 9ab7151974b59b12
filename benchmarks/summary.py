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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measure import RATIOS, RESULTS, Ratio


HERE = Path(__file__).resolve().parent
#: What `make bench` runs. What needs other libraries (evaluate.py, peers.py) or data (packing.py) is run by hand.
#: First what does not depend on time, two at once; then the others, one after another.
UNTIMED = ("evaluation_memory.py", "conformal.py", "abstention.py")
TIMED = (
    "imports.py --rounds 3",
    "loss.py",
    "train_step.py",
    "metrics.py",
    "mc_dropout.py",
    "mc_dropout.py --task tabular",
    "pipeline.py --batch_sizes 16",
    "token_calibration.py",
    "processes.py --rounds 2",
    "growth.py",
)


def run_all(commands: list[str]) -> list[str]:
    """Runs some benchmarks, each on one thread; returns those that failed."""
    untimed = [command for command in commands if command in UNTIMED]
    with ThreadPoolExecutor(2) as pool:
        codes = dict(zip(untimed, pool.map(run, untimed), strict=True))
    codes |= {command: run(command) for command in commands if command not in UNTIMED}
    return [command for command, code in codes.items() if code]


def run(command: str) -> int:
    """Runs a benchmark and shows its table when it is there; returns its exit code."""
    start = time.perf_counter()
    words = [sys.executable, *f"{HERE}/{command}".split()]
    done = subprocess.run(
        words, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=False
    )
    print(f"{done.stdout}\n{command}: {time.perf_counter() - start:.0f} s\n", flush=True)
    return done.returncode


def processor_seconds() -> float:
    """What the ended child processes have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary() -> str:
    """The page: a line for each ratio, so that a change of one is a line of a diff."""
    lines = ["| what | measured | bar | | from |", "| --- | --- | --- | --- | --- |"]
    met = []
    for path in sorted(RATIOS.glob("*.json")):
        entry = json.loads(path.read_text())
        for ratio in (Ratio(**values) for values in entry["ratios"]):
            met.append(ratio.is_met)
            verdict = "met" if ratio.is_met else "**not met**"
            value = f"{ratio.value:.2f}{ratio.unit}"
            lines.append(
                f"| {ratio.name} | {value} | {ratio.bar} | {verdict} | [{entry['command']}]({path.stem}.md) |"
            )
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
        failed = run_all(arguments.run or [*UNTIMED, *TIMED])
    page = summary()
    (RESULTS / "README.md").write_text(page)
    print(page)
    if arguments.run is not None:
        print(f"{(time.perf_counter() - start) / 60:.1f} minutes, {processor_seconds() / 60:.1f} of the processor")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
