"""
Uncertainty scores and their PRR, from texts to numbers: clue_hf against lm-polygraph 0.7.0. By default the seven usual
ones; `--scorers all` takes all that need no other model, nothing fitted and no causal model.

The same model, texts, samples per text, longest output and threads; time and peak memory for several batch sizes.
lm-polygraph needs an environment of its own, because only what its modules import is installed:

    python3 -m venv lmp
    lmp/bin/pip install torch==2.13.0
    lmp/bin/pip install --no-deps lm-polygraph==0.7.0
    lmp/bin/pip install transformers==5.22.2 accelerate datasets rouge-score sacrebleu scikit-learn scipy pandas \
        hydra-core sentencepiece protobuf nltk einops dill diskcache evaluate bert-score sentence-transformers openai \
        spacy matplotlib boostedprob wget
    python benchmarks/evaluate.py --peer_python lmp/bin/python

`--peer_python auto` does that by itself. By default the texts are the embedded phrases; with `--data` and
`--tokenizer` they are sentence pairs of your own under a real T5 tokenizer. By default the model is a T5 with random
weights; `--model bart` is a BART likewise, `--model FOLDER` one of your own, which is loaded in float32 with its own
tokenizer; the table is then `results/evaluate_MODEL.md`. One thread (`OMP_NUM_THREADS=1`) gives the steadiest numbers
on a machine that others use.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from evaluate_models import MODELS
from measure import Ratio, peak_above, ratio, serve, write_table
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.utils import logging

from clue_hf import UncertaintyEvaluator
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.models.tokenizer import train_tokenizer
from clue_hf.scorers import DEFAULT_SCORERS


HERE = Path(__file__).resolve().parent
NUM_SAMPLES, MAX_NEW_TOKENS = 10, 32
#: How many times as fast as lm-polygraph, at least: T5 with the seven scores, everything else.
T5_AT_LEAST, AT_LEAST = 5.0, 3.0
MEMORY_AT_MOST = 0.33
#: The scores by the value of `--scorers`: their names in our library, and what a table calls them.
SCORERS = {"default": (list(DEFAULT_SCORERS), "Seven uncertainty scores"), "all": (["all"], "All uncertainty scores")}
OURS, PEER = "clue_hf", "lm-polygraph"
SAME = ("msp", "perplexity", "mean_token_entropy")  # what both define alike
PACKAGES = (
    "transformers==5.22.2 accelerate datasets rouge-score sacrebleu scikit-learn scipy pandas hydra-core",
    "sentencepiece protobuf nltk einops dill diskcache evaluate bert-score sentence-transformers openai spacy",
    "matplotlib boostedprob wget",
)
RECIPE = (["torch==2.13.0"], ["--no-deps", "lm-polygraph==0.7.0"], " ".join(PACKAGES).split())


def prepare(folder: Path, arguments: argparse.Namespace) -> list[dict[str, str]]:
    """Writes model, tokenizer and rows to where both sides find them."""
    if arguments.data is None:
        pairs = [(row["source"], row["target"]) for row in phrase_rows("test", 1000, seed=0)]
    else:
        opened = gzip.open if arguments.data.endswith(".gz") else open
        with opened(arguments.data, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines][-1000:]
        pairs = [(row[arguments.source_column], row[arguments.target_column]) for row in rows]
    if arguments.model not in MODELS:
        tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    elif arguments.tokenizer is None:
        tokenizer = train_tokenizer((text for pair in pairs for text in pair), vocab_size=2000)
    else:
        tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer)
    tokenizer.save_pretrained(folder)
    if arguments.model in MODELS:
        model = MODELS[arguments.model][0](tokenizer, [target for _, target in pairs])
    else:
        model = AutoModelForSeq2SeqLM.from_pretrained(arguments.model, dtype=torch.float32)
    model.save_pretrained(folder)
    rows = [{"source": source, "target": target} for source, target in pairs[: arguments.examples]]
    (folder / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    return rows


def evaluate(model: Any, tokenizer: Any, rows: list[dict[str, str]], request: dict[str, Any]) -> dict[str, Any]:
    """Our side: texts, scores and PRR of all rows."""
    settings = {name: request[name] for name in ("batch_size", "num_samples", "max_new_tokens", "resamples")}
    names, _ = SCORERS[request["scorers"]]
    report = UncertaintyEvaluator(model, tokenizer, names, quality="bleu", **settings).evaluate(rows)
    names = list(report.metrics["scorers"])
    return {
        "texts": [example["output"] for example in report.examples],
        "scores": {name: [example["scores"][name] for example in report.examples] for name in names},
        "prr": {name: report.metrics["scorers"][name]["prr"]["value"] for name in names},
    }


def answer_requests(folder: Path) -> None:
    """What our process does: load once, then evaluate as often as it is asked to."""
    logging.disable_progress_bar()
    rows = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def run() -> None:
            found.update(evaluate(model, tokenizer, rows[: request["examples"]], request))

        start, work = time.perf_counter(), time.process_time()
        peak = peak_above(run) if request["memory"] else run()
        found["seconds"], found["processor"] = time.perf_counter() - start, time.process_time() - work
        return {**found, "peak": peak}

    serve(answer)


class Worker:
    """A process with one of the two libraries and the model loaded."""

    def __init__(self, command: list[str], scorers: str = "default", returns_memory: bool = False) -> None:
        self.scorers = scorers
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
        if returns_memory:  # freed memory goes back at once, else the peak counts what the allocator keeps
            environment["MALLOC_MMAP_THRESHOLD_"] = "65536"
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors
        )
        self.ask(examples=2, batch_size=2, max_new_tokens=4)  # weights are read, thread pools started

    def ask(self, **request: Any) -> dict[str, Any]:
        """One evaluation: its results, seconds, and (with `memory`) peak memory."""
        defaults = {"num_samples": NUM_SAMPLES, "max_new_tokens": MAX_NEW_TOKENS, "resamples": 2000, "memory": False}
        self.process.stdin.write(json.dumps({**defaults, "scorers": self.scorers, **request}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(self.errors.read()[-3000:])
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.errors.close()


def write_profile(folder: Path, rows: list[dict[str, str]], batch_size: int, about: str, command: str) -> None:
    """Where the time of our side goes: a table of operators by their own time."""
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = {"num_samples": NUM_SAMPLES, "max_new_tokens": MAX_NEW_TOKENS, "resamples": 2000, "scorers": "default"}
    evaluate(model, tokenizer, rows[:batch_size], {"batch_size": batch_size, **settings})  # weights are read
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        evaluate(model, tokenizer, rows, {"batch_size": batch_size, **settings})
        total = time.perf_counter() - start
    seconds = {event.key: event.self_cpu_time_total / 1e6 for event in profiler.key_averages()}
    largest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:8]
    left = total - sum(seconds[name] for name in largest)
    table = [(f"`{name}`", seconds[name]) for name in largest] + [("everything else", left)]
    write_table(
        "evaluate_profile",
        "Where the time of an evaluation goes",
        ["operator", "own time", "share"],
        [[name, f"{value:.2f} s", f"{value / total:.0%}"] for name, value in table],
        f"`UncertaintyEvaluator` with {about}: {len(rows)} texts in batches of {batch_size}, {NUM_SAMPLES} samples, "
        f"at most {MAX_NEW_TOKENS} new tokens, seven scorers with intervals, one thread; {total:.1f} s under "
        "torch's profiler, which takes some of it. `mkldnn::_linear_pointwise`, or else `aten::mm` and `aten::addmm`, "
        "are the matrix products of the decoder's layers and of the output layer.",
        command,
    )


def peer_environment(folder: Path) -> str:
    """A fresh environment with lm-polygraph in a folder, or the one that is there; its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        for words in RECIPE:
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *words], check=True)
    return str(python)


def measure_time(
    commands: dict[str, list[str]], scorers: str, rounds: dict[int, int], examples: int
) -> dict[int, dict[str, list[dict[str, Any]]]]:
    """Every answer, by batch size and side; both sides take turns."""
    workers = {name: Worker(command, scorers) for name, command in commands.items()}
    found: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for batch_size, count in rounds.items():
        found[batch_size] = {name: [] for name in workers}
        for _ in range(count):
            for name, worker in workers.items():
                answer = worker.ask(batch_size=batch_size, examples=examples)
                found[batch_size][name].append(answer)
                log(f"batch size {batch_size}, {name}: {answer['seconds']:.1f} s, {answer['processor']:.1f} s of work")
    for worker in workers.values():
        worker.close()
    return found


def measure_memory(
    commands: dict[str, list[str]], scorers: str, batch_sizes: list[int], examples: int
) -> dict[int, dict[str, int]]:
    """Peak memory above the loaded model, each in a fresh process."""
    found: dict[int, dict[str, int]] = {}
    for batch_size in batch_sizes:
        found[batch_size] = {}
        for name, command in commands.items():
            worker = Worker(command, scorers, returns_memory=True)
            limited = min(examples, max(2 * batch_size, 8))  # the peak of a batch comes again in every batch
            found[batch_size][name] = worker.ask(batch_size=batch_size, examples=limited, memory=True)["peak"]
            worker.close()
            log(f"batch size {batch_size}, {name}: {found[batch_size][name] / 1e6:.0f} MB")
    return found


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def agreement(ours: dict[str, Any], peer: dict[str, Any]) -> str:
    """In how many rows both made the same text and the same scores where they define them alike."""
    pairs = list(zip(ours["texts"], peer["texts"], strict=True))
    same = [row for row, (mine, theirs) in enumerate(pairs) if mine.strip() == theirs.strip()]
    close = {
        name: sum(math.isclose(ours["scores"][name][row], peer["scores"][name][row], rel_tol=1e-4) for row in same)
        for name in SAME
    }
    sampled = " and ".join(
        f"{statistics.fmean(found['scores']['mc_sequence_entropy']):.1f} ({name})"
        for name, found in ((OURS, ours), (PEER, peer))
    )
    equal = ", ".join(f"{name} {count}" for name, count in close.items())
    return (
        f"The same greedy text in {len(same)} of {len(pairs)} rows; of these, equal to 1e-4: {equal}. Mean "
        f"`mc_sequence_entropy`, of samples that are drawn at random: {sampled}."
    )


def compared(ours: dict[str, Any], peer: dict[str, Any]) -> str:
    """Which scores were computed, and which by one side alone."""
    own = [name for name in ours["scores"] if name not in peer["scores"]]
    alone = f"; by clue_hf alone: {', '.join(own)}" if own else ""
    return f"Scores of both: {', '.join(peer['scores'])}{alone}."


def table_row(batch_size: int, answers: dict[str, list[dict[str, Any]]], memory: dict[str, int]) -> list[str]:
    seconds, work = (
        {name: [answer[key] for answer in given] for name, given in answers.items()}
        for key in ("seconds", "processor")
    )
    examples = len(answers[OURS][0]["texts"])
    return [
        str(batch_size),
        *(f"{statistics.median(seconds[name]):.1f} s" for name in (OURS, PEER)),
        *(f"{examples / statistics.median(seconds[name]):.2f}" for name in (OURS, PEER)),
        times_faster(seconds),
        times_faster(work),
        *(f"{memory[name] / 1e6:.0f} MB" for name in (OURS, PEER)),
        f"{memory[OURS] / memory[PEER]:.2f}x",
    ]


def times_faster(seconds: dict[str, list[float]]) -> str:
    """Median over the rounds of the peer's seconds by ours, with the range."""
    ratios = [theirs / mine for mine, theirs in zip(seconds[OURS], seconds[PEER], strict=True)]
    spread = f" ({min(ratios):.1f} to {max(ratios):.1f})" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.1f}x{spread}"


def bars(what: str, at_least: float, answers: dict[str, list[dict[str, Any]]], memory: dict[str, int]) -> list[Ratio]:
    """By the wall, since both sides took turns on the same cores."""
    seconds = {name: [answer["seconds"] for answer in given] for name, given in answers.items()}
    return [
        Ratio(f"{what}, texts per second: {OURS} / {PEER}", ratio(seconds, PEER, OURS), at_least=at_least),
        Ratio(f"{what}, memory: {OURS} / {PEER}", memory[OURS] / memory[PEER], at_most=MEMORY_AT_MOST),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer_python", help="Python of lm-polygraph's environment, or `auto` to make one")
    parser.add_argument("--peer_folder", help="where `auto` makes it, or finds it again (a temporary folder)")
    parser.add_argument("--data", help="JSON lines with sentence pairs, may be gzipped; the last 1,000 are used")
    parser.add_argument("--source_column", default="en")
    parser.add_argument("--target_column", default="fr")
    parser.add_argument("--tokenizer", help="folder or name of a tokenizer of at most 32,128 entries")
    parser.add_argument("--model", default="t5", help="t5 or bart, with random weights, or the folder of a model")
    parser.add_argument("--data_name", default="sentence pairs", help="what the table calls the data")
    parser.add_argument("--scorers", choices=list(SCORERS), default="default", help="the seven, or all that can run")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--batch_sizes", type=int, nargs="+", default=[16, 1, 64], help="the first gets all rounds")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds; other batch sizes get a third")
    parser.add_argument("--profile", action="store_true", help="only where our own time goes, by operator")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        answer_requests(arguments.worker)
        return
    told = [Path(word).name if Path(word).exists() else word for word in sys.argv[1:]]
    command = " ".join(["evaluate.py", *told])
    if arguments.profile:
        with tempfile.TemporaryDirectory() as temporary:
            rows = prepare(Path(temporary), arguments)
            about = MODELS[arguments.model][1] if arguments.model in MODELS else Path(arguments.model).name
            write_profile(Path(temporary), rows, arguments.batch_sizes[0], about, command)
        return
    if arguments.peer_python is None:
        parser.error("name lm-polygraph's Python (see --help), or have it installed with --peer_python auto")
    with tempfile.TemporaryDirectory() as temporary:
        peer_python = arguments.peer_python
        if peer_python == "auto":
            peer_python = peer_environment(Path(arguments.peer_folder or Path(temporary) / "lmp"))
        folder = Path(temporary) / "model"
        folder.mkdir()
        rows = prepare(folder, arguments)
        commands = {
            OURS: [sys.executable, str(HERE / "evaluate.py"), "--worker", str(folder)],
            PEER: [peer_python, str(HERE / "evaluate_peer.py"), str(folder)],
        }
        others = max(arguments.rounds // 3, 1)
        rounds = dict.fromkeys(arguments.batch_sizes, others) | {arguments.batch_sizes[0]: arguments.rounds}
        memory = measure_memory(commands, arguments.scorers, arguments.batch_sizes, len(rows))
        answers = measure_time(commands, arguments.scorers, rounds, len(rows))
    data = "the embedded phrases" if arguments.data is None else arguments.data_name
    words = "a tokenizer trained on them" if arguments.tokenizer is None else "the T5 tokenizer"
    model = MODELS[arguments.model][1] if arguments.model in MODELS else Path(arguments.model).name
    words = words if arguments.model in MODELS else "its own tokenizer"
    size, name = arguments.batch_sizes[0], Path(arguments.model).name
    parts = ["evaluate", *(["all"] if arguments.scorers == "all" else []), name]
    first = answers[size]
    write_table(
        "_".join(parts).removesuffix("_t5"),
        f"{SCORERS[arguments.scorers][1]} and their PRR",
        [
            "batch size",
            *(f"{name}, time" for name in (OURS, PEER)),
            *(f"{name}, texts per second" for name in (OURS, PEER)),
            "times faster",
            "by processor time",
            *(f"{name}, peak memory above the model" for name in (OURS, PEER)),
            "ratio",
        ],
        [table_row(size, answers[size], memory[size]) for size in sorted(answers)],
        "\n\n".join(
            [
                notes(rows, data, words, model, rounds),
                compared(first[OURS][-1], first[PEER][-1]),
                agreement(first[OURS][-1], first[PEER][-1]),
            ]
        ),
        command,
        bars(
            f"{SCORERS[arguments.scorers][1].lower()}, {name}, batch size {size}",
            T5_AT_LEAST if (arguments.model, arguments.scorers) == ("t5", "default") else AT_LEAST,
            first,
            memory[size],
        ),
    )


def notes(rows: list[dict[str, str]], data: str, words: str, model: str, rounds: dict[int, int]) -> str:
    counts = ", ".join(f"{count} at batch size {size}" for size, count in rounds.items())
    return (
        f"{len(rows)} sources of {data} with {words}, {NUM_SAMPLES} samples each, at most {MAX_NEW_TOKENS} new "
        f"tokens, float32. The model is {model}. Time is from texts to PRR, without imports and loading; medians of "
        f"interleaved rounds ({counts}), ratios are medians of the "
        "rounds' ratios, with their range. Processor time leaves out what other programs take. Memory is from fresh "
        "processes, two batches each, with an allocator that returns freed memory at once.\n\n"
        "Ours is `UncertaintyEvaluator` with its defaults: its time includes the pass over the references, corpus "
        "BLEU, the other rejection metrics and 2,000 bootstrap resamples, nothing of which lm-polygraph does. "
        "lm-polygraph 0.7.0 runs its own calculators, estimators, BLEU and rejection metric in batches, without "
        "attentions, logging or more than one alternative per token, with samples from the whole distribution like "
        "ours (`top_k=0` instead of 50), and its statistics are dropped after every batch."
    )


if __name__ == "__main__":
    main()
