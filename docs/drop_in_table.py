"""Writes docs/drop_in.md: what is the same as in transformers and TRL, what is refused, and what differs on purpose.

Run as `.venv/bin/python docs/drop_in_table.py`. The rows are the cases of tests/drop_in, which run both.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path


sys.path.append(str(Path(__file__).parents[1] / "tests"))

import drop_in.evaluation
import drop_in.hooks
import drop_in.saving
import drop_in.training
import drop_in.trl
from drop_in.sides import CASES, Case


ROOT = Path(__file__).parents[1]

ORDER = (
    *(drop_in.training.MODELS, drop_in.training.OPTIONS, drop_in.saving.ARGUMENTS, drop_in.saving.SAVING),
    *(drop_in.hooks.HOOKS, drop_in.hooks.DATA),
    *(drop_in.evaluation.EVALUATION, drop_in.evaluation.PREDICTIONS, drop_in.evaluation.GENERATION),
    *(drop_in.trl.ROWS, drop_in.trl.SETTINGS),
)
HEADING = """# What is the same as in transformers and TRL

Made by `.venv/bin/python docs/drop_in_table.py`. Each row is a test that trains, evaluates or predicts with
transformers' classes and with `CLUETrainer` and `CLUEConfig` (`objective="ce"`, `"mse"` for numbers), on the same tiny
models and data, and compares losses, weights, predictions or files. TRL's results were recorded with TRL 1.16.
"""
MEANING = """
- **same**: the same as transformers or TRL; what is logged may be more.
- **refused**: an error with this sentence; nothing is ignored in silence.
- **ours**: different on purpose, for the reason given.
"""


DIFFERENT = """## Where it differs on purpose

The rows "ours" above. Of transformers' own tests of its trainers {all} pass with its classes, offline on a CPU, and
[{passed} of them with ours]({results}) in their place (toy modules of the tests keep the loss that they return). The
others fail because:
"""


def upstream_tests() -> str:
    """What the benchmark of transformers' tests has recorded: how many pass, and the reasons why others do not."""
    name = "benchmarks/results/upstream_tests.md"
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    [(_, _, stock, ours)] = [cells for cells in rows if cells[0] == "all"]
    reasons: dict[str, list[str]] = {}
    for test, *_, reason in (cells for cells in rows if cells[1:3] == ["passed", "failed"]):
        reasons.setdefault(reason, []).append(f"`{test.rpartition('::')[2]}`")
    lines = [f"- {reason} ({', '.join(tests)})" for reason, tests in reasons.items()]
    return "\n".join([DIFFERENT.format(passed=ours, all=stock, results=f"../{name}"), *lines])


def row(case: Case) -> str:
    return f"| {case.name} | {case.verdict} | {case.note} |"


def page() -> str:
    counts = Counter(case.verdict for case in CASES)
    number = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("same", "ours", "refused"))
    parts = [HEADING + MEANING, f"{len(CASES)} rows: {number}."]
    for group in ORDER:
        rows = [row(case) for case in CASES if case.group == group]
        parts.append("\n".join([f"## {group}\n", "| feature | verdict | |", "|---|---|---|", *rows]))
    return "\n\n".join([*parts, upstream_tests()]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("drop_in.md").write_text(page(), encoding="utf-8")
