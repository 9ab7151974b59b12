"""
What starting costs: imports and commands beside `from transformers import Seq2SeqTrainer`, in fresh processes.

Processor time of whole processes, the start of Python included, in turns. Tests name the modules that must not be
loaded (`tests/test_package.py`); `python -X importtime -c "..."` shows what an import is made of.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Ratio, ratio, write_table


BASELINE = "from transformers import Seq2SeqTrainer"
#: Statement or command -> the largest allowed ratio, or that it must do without torch.
BARS = {
    "import torch": None,
    BASELINE: None,
    "from clue_hf import CLUEConfig, CLUETrainer": 1.1,
    "from clue_hf import UncertaintyEvaluator": 1.1,
    "clue-hf train --help": 1.2,
    "clue-hf --help": "no torch",
    "clue-hf card --help": "no torch",
    "clue-hf score --file scores.jsonl": "no torch",
}
TOLD = "import os, sys; os.write(2, b'\\ntorch ' + str('torch' in sys.modules).encode())"


def program_of(what: str) -> str:
    """The Python program of a row: it tells on the error stream whether torch was loaded."""
    if not what.startswith("clue-hf"):
        return f"{what}\n{TOLD}"
    return (
        f"from clue_hf.cli.main import main\ntry:\n  code = main({what.split()[1:]})\n"
        f"except SystemExit as end:\n  code = end.code\n{TOLD}\nsys.exit(code)"
    )


def run(program: str, folder: str) -> tuple[float, bool]:
    """Processor seconds of a fresh process, and whether it loaded torch."""
    # compiled modules are kept, as they are where a package is installed
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join([str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")])
    environment |= {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-W", "ignore", "-c", program]
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        told = errors.read().decode()
    if process.returncode:
        raise RuntimeError(f"{program}\n{told[-2000:]}")
    return usage.ru_utime + usage.ru_stime, told.endswith("torch True")


def row(what: str, seconds: dict[str, list[float]], loaded_torch: bool) -> list[str]:
    """The row of a table; the last cell says whether a bar is met."""
    bar, times = BARS[what], ratio(seconds, what, BASELINE)
    met = "" if bar is None else "yes" if (not loaded_torch if isinstance(bar, str) else times <= bar) else "**no**"
    shown = "" if bar is None else bar if isinstance(bar, str) else f"at most {bar}x"
    time = f"{statistics.median(seconds[what]):.2f} s"
    return [f"`{what}`", time, f"{times:.2f}x", "yes" if loaded_torch else "no", shown, met]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds, after one that does not count")
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {what: [] for what in BARS}
    torch_loaded = {}
    with tempfile.TemporaryDirectory() as folder:
        lines = [json.dumps({"uncertainty": i % 97, "quality": (i % 89) / 89}) for i in range(1000)]
        (Path(folder) / "scores.jsonl").write_text("\n".join(lines))
        for number in range(rounds + 1):
            for what in BARS:
                time, torch_loaded[what] = run(program_of(what), folder)
                if number:  # the first round compiles modules, and reads files from the disk
                    seconds[what].append(time)
    write_table(
        "imports",
        "What starting costs",
        ["statement or command", "processor time", "ratio", "loads torch", "bar", "met"],
        [row(what, seconds, torch_loaded[what]) for what in BARS],
        f"Whole processes, the start of Python included, all in one environment; medians of {rounds} interleaved "
        f"rounds after one (ratio: to `{BASELINE}`, median of the ratios). `clue-hf score` computes 17 metrics of "
        "1,000 rows with intervals by 2,000 resamples, which is most of its time.",
        f"imports.py --rounds {rounds}" if rounds != parser.get_default("rounds") else None,
        ratios=[
            Ratio(f"`{what}` / `{BASELINE}`, time", ratio(seconds, what, BASELINE), at_most=bar)
            for what, bar in BARS.items()
            if isinstance(bar, float)
        ],
    )


if __name__ == "__main__":
    main()
