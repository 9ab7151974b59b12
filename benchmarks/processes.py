"""What a second process brings: an evaluation and a training on two processes against one, with one thread each.

Evaluation: the texts per second of `UncertaintyEvaluator`, beside two processes that know nothing of each other and
have half of the texts each, which is what the machine allows. Training: the rows per second of `CLUETrainer` beside
DDP's own limit, the speed-up if two processes add to a step the seconds that they add to that of transformers' own
trainer, with the same model and batch. Run it on two free cores: what others take of them is missing in the speed-up,
but not in the ratios of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import train_step
from evaluate import prepare
from measure import Ratio, serve, write_table
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    default_data_collator,
)
from transformers.utils import logging

from clue_hf import CLUEConfig, CLUETrainer, UncertaintyEvaluator


sys.path.append(str(Path(__file__).resolve().parent / "peers"))
from page import machine


AT_LEAST = 1.8
BATCH, TRAINING_BATCH = 8, 4
TRAINERS = {
    "CLUETrainer, CLUE": (CLUETrainer, CLUEConfig, {"objective": "clue"}),
    "Seq2SeqTrainer, CE": (Seq2SeqTrainer, Seq2SeqTrainingArguments, {}),
}
#: Seconds by the wall and of the processor.
Times = tuple[float, float]
Answers = list[dict[str, float]]


class Clock(TrainerCallback):
    """When each step ended."""

    def __init__(self) -> None:
        self.ends: list[Times] = []

    def on_step_end(self, *arguments: Any, **states: Any) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))


def timed(run: Callable[[], object]) -> Times:
    """What a run takes, begun at the same time by all processes of a group."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    start, work = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - work


def train(name: str, folder: str, steps: int) -> Times:
    """A step of a trainer, without the first one."""
    trainer_class, config_class, settings = TRAINERS[name]
    train_step.BATCH = TRAINING_BATCH
    batch = train_step.make_batch()
    every = int(os.environ.get("WORLD_SIZE", 1)) * steps
    rows = [{key: value[row] for key, value in batch.items()} for row in range(TRAINING_BATCH)] * every
    settings = {**settings, "per_device_train_batch_size": TRAINING_BATCH, "max_steps": steps, "save_strategy": "no"}
    settings |= {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "logging_strategy": "no"}
    clock = Clock()
    trainer = trainer_class(
        model=train_step.make_model(),
        args=config_class(folder, **settings),
        train_dataset=rows,
        data_collator=default_data_collator,
        callbacks=[clock],
    )
    trainer.train()
    first, last = clock.ends[0], clock.ends[-1]
    return (last[0] - first[0]) / (steps - 1), (last[1] - first[1]) / (steps - 1)


def answer_requests(folder: Path) -> None:
    """What each process does: load once, then evaluate some of the texts, or train, as it is asked to."""
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    rows = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["what"] in TRAINERS:
            with tempfile.TemporaryDirectory() as place:
                seconds, work = train(request["what"], place, request["steps"])
        else:
            some = rows[request["first"] :: request["step"]][: request.get("at_most")]
            settings = {"batch_size": BATCH, "num_samples": 4, "max_new_tokens": 32}
            evaluator = UncertaintyEvaluator(model, tokenizer, quality="bleu", **settings)
            seconds, work = timed(lambda: evaluator.evaluate(some))
        return {"seconds": seconds, "work": work}

    serve(answer)


class Group:
    """Processes that answer the same requests at the same time."""

    def __init__(self, folder: Path, environments: list[dict[str, str]]) -> None:
        command = [sys.executable, __file__, "--worker", str(folder)]
        shared = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        self.errors = [tempfile.TemporaryFile("w+") for _ in environments]  # noqa: SIM115 - closed with the group
        self.processes = [
            subprocess.Popen(
                command, env=shared | own, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
            for own, errors in zip(environments, self.errors, strict=True)
        ]

    def ask(self, *requests: dict[str, Any]) -> Answers:
        """Sends each process its request, or all the same; waits for all answers."""
        for process, request in zip(self.processes, requests * (len(self.processes) // len(requests)), strict=True):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        lines = [process.stdout.readline() for process in self.processes]
        for line, errors in zip(lines, self.errors, strict=True):
            if not line:
                errors.seek(0)
                raise RuntimeError(errors.read()[-3000:])
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        for process, errors in zip(self.processes, self.errors, strict=True):
            process.stdin.close()
            process.wait()
            errors.close()


def two_processes() -> list[dict[str, str]]:
    """What torchrun tells two processes."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    same = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [{**same, "ACCELERATE_USE_CPU": "true", "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]


def measure(folder: Path, rounds: int, steps: int) -> dict[str, dict[str, list[Answers]]]:
    """By what is done and by whom, the answers of all its processes in each round."""
    one, two, apart = Group(folder, [{}]), Group(folder, two_processes()), Group(folder, [{}, {}])
    whole = {"what": "evaluation", "first": 0, "step": 1}
    halves = [{"what": "evaluation", "first": half, "step": 2} for half in range(2)]
    for group in (one, two, apart):
        group.ask({**whole, "at_most": 2 * BATCH})  # weights are read, thread pools and connections made
    for name in TRAINERS:
        for group in (one, two):
            group.ask({"what": name, "steps": 2})
    found: dict[str, dict[str, list[Answers]]] = {"evaluation": {"1": [], "2": [], "apart": []}}
    found |= {name: {"1": [], "2": []} for name in TRAINERS}
    for _ in range(rounds):
        found["evaluation"]["1"].append(one.ask(whole))
        found["evaluation"]["2"].append(two.ask(whole))
        found["evaluation"]["apart"].append(apart.ask(*halves))
        for name in TRAINERS:
            found[name]["1"].append(one.ask({"what": name, "steps": steps}))
            found[name]["2"].append(two.ask({"what": name, "steps": steps}))
        print(json.dumps(found), file=sys.stderr, flush=True)
    for group in (one, two, apart):
        group.close()
    return found


def speed_up(one: list[Answers], two: list[Answers], size: float, key: str = "seconds") -> float:
    """Median over the rounds; `size` is how much more is done by two. The slowest process counts."""
    pairs = zip(one, two, strict=True)
    return statistics.median(size * a[0][key] / max(answer[key] for answer in b) for a, b in pairs)


def overhead(one: list[Answers], two: list[Answers], size: float) -> float:
    """Processor time of two processes together by that of one for the same work."""
    pairs = zip(one, two, strict=True)
    return statistics.median(sum(answer["work"] for answer in b) / (size * a[0]["work"]) for a, b in pairs)


def limit_of_ddp(found: dict[str, dict[str, list[Answers]]]) -> float:
    """Our speed-up if a second process cost us as many seconds a step as it costs transformers' own trainer."""
    ours, stock = (found[name] for name in TRAINERS)
    steps = zip(ours["1"], stock["1"], stock["2"], strict=True)
    limits = []
    for own, one, two in steps:
        alone, added = own[0]["seconds"], max(answer["seconds"] for answer in two) - one[0]["seconds"]
        limits.append(2 * alone / (alone + added))
    return statistics.median(limits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="interleaved rounds")
    parser.add_argument("--texts", type=int, default=96, help="number of texts to evaluate")
    parser.add_argument("--steps", type=int, default=4, help="training steps, of which the first does not count")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        answer_requests(arguments.worker)
        return
    about = machine()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), argparse.Namespace(model="t5", data=None, tokenizer=None, examples=arguments.texts))
        found = measure(Path(folder), arguments.rounds, arguments.steps)
    ours, stock = TRAINERS
    rows, ups, limits = [], {}, {ours: limit_of_ddp(found)}
    for what, runs in found.items():
        size = 1.0 if what == "evaluation" else 2.0  # a training step on two processes has twice the rows
        ups[what] = speed_up(runs["1"], runs["2"], size)
        of_work, more = speed_up(runs["1"], runs["2"], size, "work"), overhead(runs["1"], runs["2"], size)
        if "apart" in runs:
            limits[what] = speed_up(runs["1"], runs["apart"], size)
        limit = f"{limits[what]:.2f}x" if what in limits else "-"
        seconds = [statistics.median(max(a["seconds"] for a in run) for run in runs[key]) for key in ("1", "2")]
        cells = [*(f"{value:.1f} s" for value in seconds), f"{ups[what]:.2f}x", limit, f"{of_work:.2f}x"]
        rows.append([what if size == 1 else f"training step, {what}", *cells, f"{more:.2f}x"])
    ratios = [
        Ratio("evaluation, texts per second, 2 processes / 1", ups["evaluation"], at_least=AT_LEAST),
        Ratio(f"training, speed-up by 2 processes, {ours} / DDP's own limit", ups[ours] / limits[ours], at_least=1.0),
    ]
    write_table(
        "processes",
        "Two processes against one",
        ["what", "1 process", "2 processes", "speed-up", "limit", "speed-up of processor time", "processor time"],
        rows,
        f"{about[0].upper()}{about[1:]}. One thread for each process. Evaluation: {arguments.texts} embedded phrases, "
        f"batches of {BATCH}, at most 32 new tokens, 4 samples, seven scorers, a T5 of t5-small's size that ends its "
        "texts; limit: two processes that know nothing of each other, with half of the texts each. Training: T5-small,"
        f" {TRAINING_BATCH} rows for each process, AdamW, the mean of {arguments.steps - 1} steps; two processes do "
        "twice the rows of one, and add their gradients (gloo); limit: DDP's own, if they add to a step the seconds "
        f"that they add to that of `{stock.partition(',')[0]}`. Speed-up: by the wall, which others that run at the "
        "same time take from."
        " Speed-up of processor time: that of one process by that of the busiest of two. Processor time: of both"
        f" together by that of one for the same work. Medians of {arguments.rounds} interleaved rounds.",
        command=" ".join(["processes.py", *sys.argv[1:]]),
        ratios=ratios,
    )


if __name__ == "__main__":
    main()
