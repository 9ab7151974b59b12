"""How much memory `clue-hf evaluate` needs as the data grows, and what is left of an evaluation that was killed.

A T5 of a few thousand random weights judges made-up phrases, with scorers that cost nothing beside the output itself,
so that what is measured is the evaluation and not the model. Each evaluation is the real command in a process of its
own. The largest one is done a second time, is killed (SIGKILL) on the way and resumed, and must leave the same files.

With `--outputs` there is no model, and nothing is killed: the same phrases come as texts that were generated
elsewhere, with made-up numbers of their tokens and of two samples.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from measure import Ratio, write_table
from transformers import T5Config, T5ForConditionalGeneration

from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.evaluation.text.examples import FINISHED, UNFINISHED
from clue_hf.models.tokenizer import train_tokenizer


AT_MOST = 1.2
#: Rows of the evaluation whose memory is that of the libraries and of the model.
FEW = 16
#: Tokens of a text from elsewhere.
NUM_TOKENS = 12
#: Runs a command; prints how much memory it needed at its peak, and its processor time. A process of its own, because
#: what is measured of a child is never less than what the process that started it holds.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, used.ru_maxrss * 1024, used.ru_utime + used.ru_stime)
"""


@dataclass
class Run:
    """What one evaluation needed."""

    rows: int
    seconds: float
    peak: int


def make_model(folder: Path, texts: list[str]) -> int:
    """Saves a tiny T5 with a tokenizer of its own; returns the number of its weights."""
    tokenizer = train_tokenizer(texts, 200)
    ids = {"pad_token_id": 0, "eos_token_id": tokenizer.eos_token_id, "decoder_start_token_id": 0}
    size = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **size, **ids))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.num_parameters()


def write_rows(path: Path, rows: list[dict]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({name: row[name] for name in ("source", "target")}) + "\n" for row in rows)


def write_outputs(path: Path, rows: list[dict]) -> None:
    """The targets as outputs, four in ten of them without their last word and less certain."""
    rng = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            is_wrong = bool(rng.random() < 0.4)
            text = row["target"].rpartition(" ")[0] if is_wrong else row["target"]
            log_probabilities = (-rng.exponential(0.5 if is_wrong else 0.2, NUM_TOKENS)).round(6).tolist()
            sample = {"text": text, "token_log_probabilities": log_probabilities[: NUM_TOKENS // 2]}
            output = {
                "source": row["source"],
                "output": text,
                "reference": row["target"],
                "token_log_probabilities": log_probabilities,
                "token_entropies": rng.uniform(0, 2, NUM_TOKENS).round(6).tolist(),
                "samples": [sample, {**sample, "text": row["source"]}],
            }
            file.write(json.dumps(output) + "\n")


def command(here: Path, rows: int, report: str, arguments: argparse.Namespace) -> list[str]:
    """The words of an evaluation of the first so many rows."""
    options = {"report_dir": here / report, "resamples": arguments.resamples}
    if arguments.outputs:
        options["outputs"] = here / f"{rows}.jsonl"
    else:
        options |= {
            "train_file": here / f"{FEW}.jsonl",
            "test_file": here / f"{rows}.jsonl",
            "scorers": "msp,perplexity",
            "max_target_length": arguments.max_target_length,
            "per_device_eval_batch_size": arguments.batch_size,
        }
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    model = [] if arguments.outputs else [str(here / "model")]
    return [sys.executable, "-m", "clue_hf.cli.main", "evaluate", *model, *words]


def environment(here: Path) -> dict[str, str]:
    """Nothing is asked of the network or left in the user's caches."""
    return {**os.environ, "HF_HOME": str(here / "cache"), "HF_HUB_OFFLINE": "1"}


def measured(here: Path, rows: int, arguments: argparse.Namespace) -> Run:
    words = [sys.executable, "-c", MEASURED, *command(here, rows, f"report-{rows}", arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment(here))
    code, peak, seconds = done.stdout.split()
    if code != "0":
        raise RuntimeError(done.stderr[-2000:])
    return Run(rows, float(seconds), int(peak))


def killed_and_resumed(here: Path, rows: int, share: float, arguments: argparse.Namespace) -> int:
    """Evaluates as before, but is killed when a share of the rows is finished, and resumed; returns the rows kept."""
    words, log = command(here, rows, "killed", arguments), here / "killed" / UNFINISHED
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(here))
    while not log.exists() or lines(log) < share * rows:
        if process.poll() is not None:
            raise RuntimeError(f"The evaluation ended with code {process.returncode} before it was killed.")
        time.sleep(0.2)
    process.kill()
    process.wait()
    kept = lines(log) - 1  # the first line is about the settings
    subprocess.run([*words, "--resume", "true"], stdout=subprocess.DEVNULL, check=True, env=environment(here))
    return kept


def interrupted(here: Path, rows: int, arguments: argparse.Namespace) -> str:
    """What is left of an evaluation that was killed, in a sentence."""
    kept = killed_and_resumed(here, rows, arguments.killed_at, arguments)
    files = check_same(here / f"report-{rows}", here / "killed")
    return (
        f"Killed (SIGKILL) with {kept:,} of {rows:,} rows finished and resumed with `--resume true`, it left the same "
        f"{len(files)} files as without the interruption, byte for byte (checked): {', '.join(files)}."
    )


def lines(path: Path) -> int:
    """How many whole lines a file has."""
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def check_same(one: Path, other: Path) -> list[str]:
    """The files of two reports, which must be the same byte for byte."""
    names, others = (sorted(path.name for path in folder.glob("[!.]*")) for folder in (one, other))
    different = [name for name in names if name in others and (one / name).read_bytes() != (other / name).read_bytes()]
    if names != others or different or FINISHED not in names or "report.json" not in names:
        raise RuntimeError(f"The reports differ: {names}, {others}; other content: {different}.")
    return names


def megabytes(count: float) -> str:
    return f"{count / 1e6:.0f} MB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outputs", action="store_true", help="texts from elsewhere instead of those of a model")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--resamples", type=int, default=200)
    parser.add_argument("--batch_size", type=int, default=512)
    parser.add_argument("--max_target_length", type=int, default=6)
    parser.add_argument("--killed_at", type=float, default=0.5, help="share of the rows that are finished by then")
    arguments = parser.parse_args()
    sizes = sorted(arguments.rows)
    with TemporaryDirectory() as folder:
        here = Path(folder)
        rows = phrase_rows("train", max(sizes))
        weights = make_model(here / "model", [row[name] for row in rows[:2000] for name in ("source", "target")])
        for size in (FEW, *sizes):
            (write_outputs if arguments.outputs else write_rows)(here / f"{size}.jsonl", rows[:size])
        few, *runs = [measured(here, size, arguments) for size in (FEW, *sizes)]
        interruption = "" if arguments.outputs else "\n\n" + interrupted(here, sizes[-1], arguments)
        examples = (here / f"report-{sizes[-1]}" / FINISHED).stat().st_size
    smallest = runs[0]
    of_model = (
        f"`clue-hf evaluate` of a T5 of {weights:,} random weights on made-up phrases: outputs of up to "
        f"{arguments.max_target_length} tokens, msp and perplexity, BLEU, {arguments.resamples} resamples, batches of "
        f"{arguments.batch_size}"
    )
    of_outputs = (
        f"`clue-hf evaluate --outputs` of made-up phrases with numbers of {NUM_TOKENS} tokens and two samples each: "
        f"the seven default scorers but pmi and cpmi, BLEU, {arguments.resamples} resamples"
    )
    write_table(
        "outputs_memory" if arguments.outputs else "evaluation_memory",
        "Memory of an evaluation of texts from elsewhere" if arguments.outputs else "Memory of an evaluation",
        ["rows", "peak memory", f"above {FEW} rows", f"ratio to {smallest.rows:,} rows", "at most", "processor time"],
        [
            [
                f"{run.rows:,}",
                megabytes(run.peak),
                megabytes(run.peak - few.peak),
                f"{run.peak / smallest.peak:.2f}x",
                f"{AT_MOST:.2f}x",
                f"{run.seconds:.0f} s",
            ]
            for run in runs
        ],
        f"{of_outputs if arguments.outputs else of_model}, from reading the file to the page and the pictures. Peak "
        f"memory: resident, of the whole process, of which {megabytes(few.peak)} are there with {FEW} rows: Python, "
        f"torch, transformers. The examples of {sizes[-1]:,} rows are a file of {megabytes(examples)}.{interruption}",
        " ".join(["evaluation_memory.py", *sys.argv[1:]]),
        [
            Ratio(
                f"evaluation of {runs[-1].rows:,} rows / {smallest.rows:,} rows, memory",
                runs[-1].peak / smallest.peak,
                at_most=AT_MOST,
            )
        ],
    )


if __name__ == "__main__":
    main()
