"""
clue_hf beside lm-polygraph, torch-uncertainty, TRL and transformers: what they take and how fast they are.

    python benchmarks/peers.py --folder out/peers

makes an environment for each in that folder (once: some 8 GB, and a quarter of an hour or more), measures them in
turns and writes `results/peers.md` and the tables of `docs/peers.md`. With the environments
there it takes under a quarter of an hour on two free cores. `--only metrics` (or several: `--only gpt2 t5`) makes the
environments of that part alone, and writes it in the place of the former one: a few minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from evaluate import OURS, PEER, Worker, agreement, log, measure_memory, measure_time, prepare, table_row
from measure import RESULTS, comparison_rows, ratio
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.models.tokenizer import train_tokenizer


HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "peers"))
from environments import ENVIRONMENTS, TORCH, Environments  # noqa: E402
from metric_tables import memory_section, metrics_section  # noqa: E402
from page import Section, fill_page, machine, megabytes, replace_sections  # noqa: E402


#: What a user imports: environment, statement.
STATEMENTS = (
    ("transformers", "import torch"),
    ("transformers", "from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments"),
    ("trl", "from trl import SFTConfig, SFTTrainer"),
    ("clue-hf", "from clue_hf import CLUEConfig, CLUETrainer"),
    ("lm-polygraph", "from lm_polygraph import WhiteboxModel, estimators"),
    ("clue-hf", "from clue_hf import UncertaintyEvaluator"),
    ("torch-uncertainty", "from torch_uncertainty.metrics import CalibrationError"),
    ("clue-hf", "from clue_hf.metrics import expected_calibration_error"),
)
#: What can be counted: environment, what, an expression, what it needs.
COUNTS = (
    ("clue-hf", "scores of generated texts", "len(SCORERS)", "from clue_hf.scorers import SCORERS"),
    (
        "lm-polygraph",
        "scores of generated texts or their claims",
        "len({c for c in vars(e).values() if isinstance(c, type) and issubclass(c, e.Estimator)} - {e.Estimator})",
        "from lm_polygraph import estimators as e",
    ),
    ("clue-hf", "training losses", "len(OBJECTIVES)", "from clue_hf.objectives import OBJECTIVES"),
    (
        "torch-uncertainty",
        "training losses",
        "len([c for c in vars(m).values() if isinstance(c, type)])",
        "from torch_uncertainty import losses as m",
    ),
    (
        "torch-uncertainty",
        "methods after training",
        "len([c for n, c in vars(m).items() if isinstance(c, type) and n not in ('PostProcessing', 'Conformal')])",
        "from torch_uncertainty import post_processing as m",
    ),
    ("trl", "trainers", "len([n for n in dir(trl) if n.endswith('Trainer')])", "import trl"),
)
#: Model -> the trainers that train it, as `environment, name in peers/steps.py, name in the table`; the first is the
#: baseline.
TRAINERS = {
    "gpt2": (
        ("transformers", "Trainer", "transformers Trainer, CE"),
        ("trl", "SFTTrainer", "TRL SFTTrainer, CE"),
        ("clue-hf", "CLUETrainer ce", "clue_hf CLUETrainer, CE"),
        ("clue-hf", "CLUETrainer clue", "clue_hf CLUETrainer, CLUE"),
    ),
    "t5": (
        ("transformers", "Seq2SeqTrainer", "transformers Seq2SeqTrainer, CE"),
        ("clue-hf", "CLUETrainer ce", "clue_hf CLUETrainer, CE"),
        ("clue-hf", "CLUETrainer clue", "clue_hf CLUETrainer, CLUE"),
    ),
}
BATCH, SHORTEST, LONGEST, VOCABULARY = 8, 32, 128, 32128
WIDTH, LAYERS, HEADS = 512, 4, 8
TEXTS, TEXT_BATCH = 32, 16


def install_section(environments: Environments) -> Section:
    """What lies in `site-packages` after a plain install."""
    rows, sizes = [], {}
    for name, requirement in ENVIRONMENTS.items():
        site, found = environments.site_packages(name), environments.distributions(name)
        total = sum(file.lstat().st_size for file in site.rglob("*") if file.is_file())
        files = (Path(str(file.locate())) for file in found["torch"].files or ())
        of_torch = sum(file.lstat().st_size for file in files if file.exists() and site in file.resolve().parents)
        sizes[name] = total - of_torch
        told = f"`pip install {requirement or TORCH}`"
        rows.append([told, str(len(found)), megabytes(total), megabytes(sizes[name])])
    for row, size in zip(rows, sizes.values(), strict=True):
        row.append(f"{size / sizes['transformers']:.2f}x")
    return Section(
        "Installed",
        ["command", "packages", "site-packages", "without torch", "ratio"],
        rows,
        f"In a fresh environment with {TORCH}, a build for processors; bytes of all files, those compiled by pip "
        "included. Without torch: without the files of that package, but with what it needs. Ratio: without torch, to "
        "transformers. `torch-uncertainty` alone, without `[cpu]` or `[gpu]`, cannot be imported for want of "
        "lightning, and its routines and what it does after training not without scikit-learn; `clue-hf` comes from "
        "its sources.",
    )


def count_section(environments: Environments) -> Section:
    """How much of a kind a library has."""
    rows = []
    for name, what, expression, needed in COUNTS:
        number = environments.run(name, f"{environments.preparation(name)}{needed}; print({expression})")
        rows.append([name, what, number])
    how = "\n".join(f"- {name}: `{needed}; {expression}`" for name, _, expression, needed in COUNTS)
    return Section("Counted", ["library", "what", "number"], rows, f"In the installed packages:\n\n{how}")


def import_section(environments: Environments, rounds: int) -> Section:
    """Seconds until a name can be used, in fresh processes, in turns."""
    probe = (
        "import json, re, time; start, work = time.perf_counter(), time.process_time(); {};"
        "times = [time.perf_counter() - start, time.process_time() - work];"
        "print(json.dumps([*times, int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])]))"
    )
    found: dict[str, list[list[float]]] = {statement: [] for _, statement in STATEMENTS}
    programs = [(name, one, probe.format(environments.preparation(name) + one)) for name, one in STATEMENTS]
    for number in range(rounds + 1):
        for name, statement, program in programs:
            run = json.loads(environments.run(name, program))
            if number:  # the first round reads the files from the disk
                found[statement].append(run)
    seconds, work = ({name: [run[i] for run in runs] for name, runs in found.items()} for i in (0, 1))
    rows = [
        [
            f"`{name}`",
            f"{statistics.median(seconds[name]):.2f} s",
            f"{ratio(seconds, name, 'import torch'):.2f}x",
            f"{statistics.median(work[name]):.2f} s",
            megabytes(1024 * statistics.median(run[2] for run in runs)),
        ]
        for name, runs in found.items()
    ]
    return Section(
        "Imported",
        ["statement", "time", "ratio", "processor time", "memory of the process"],
        rows,
        f"Fresh processes of each library's own environment, without the start of Python; medians of {rounds} "
        "interleaved rounds after one that does not count (ratio to `import torch`: median of the rounds' ratios). "
        "The torchvision that pip installs beside this torch is built for CUDA and cannot be imported: its operators "
        "are declared by hand (`benchmarks/peers/missing_operators.py`), for the metrics below too.",
    )


def make_texts_model(kind: str, folder: Path) -> None:
    """A model with random weights, a tokenizer and one batch, for every trainer to load."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer((row["source"] for row in phrase_rows("test", 500, seed=0)), vocab_size=1000)
    tokenizer.save_pretrained(folder)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, VOCABULARY, (BATCH, LONGEST), generator=generator)
    real = torch.arange(LONGEST) < torch.linspace(SHORTEST, LONGEST, BATCH).long().unsqueeze(1)
    targets = torch.randint(3, VOCABULARY, (BATCH, LONGEST), generator=generator)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    model: Any
    if kind == "t5":
        sizes = {"d_model": WIDTH, "d_ff": 4 * WIDTH, "num_layers": LAYERS, "num_heads": HEADS, "dropout_rate": 0.0}
        model = T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, **sizes, **ends))
        batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        batch["labels"] = targets.masked_fill(~real, -100)
    else:
        dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        sizes = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": LONGEST}
        model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes, bos_token_id=1, **dropout, **ends))
        batch = {"input_ids": ids.masked_fill(~real, ends["pad_token_id"]), "attention_mask": real.long()}
        batch["labels"] = ids.masked_fill(~real, -100)
        batch["labels"][:, 0] = -100  # nothing predicts it, but transformers and TRL would count it for GPT-2
    model.save_pretrained(folder)
    torch.save(batch, folder / "batch.pt")


def train_section(environments: Environments, kind: str, rounds: int) -> Section:
    """Steps of all trainers of a model, in turns; then their memory, each in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        make_texts_model(kind, Path(folder))
        commands = {
            label: [environments.python(name), str(HERE / "peers/steps.py"), folder, trainer]
            for name, trainer, label in TRAINERS[kind]
        }
        workers = {label: Worker(command) for label, command in commands.items()}
        answers: dict[str, list[dict[str, Any]]] = {label: [] for label in commands}
        for number in range(rounds + 2):
            for label, worker in workers.items():
                answers[label].append(worker.ask(steps=1))
            log(f"{kind}, step {number}: " + ", ".join(f"{found[-1]['seconds']:.2f} s" for found in answers.values()))
        for worker in workers.values():
            worker.close()
        memory = {}
        for label, command in commands.items():
            worker = Worker(command, returns_memory=True)
            memory[label] = worker.ask(steps=3, memory=True)["peak"]
            worker.close()
    seconds, work = ({name: [run[key] for run in runs[2:]] for name, runs in answers.items()} for key in TIMES)
    rows = comparison_rows(seconds, memory, next(iter(commands)))
    for row in rows:
        row.insert(3, f"{ratio(work, row[0], rows[0][0]):.2f}x")
        row.extend(f"{answers[row[0]][step]['losses'][0]:.5f}" for step in (0, rounds + 1))
    what = "GPT-2" if kind == "gpt2" else "T5"
    return Section(
        f"A training step of a small {what}",
        ["trainer and loss", "time", "ratio", "ratio of processor time", "peak memory above the model", "ratio",
         "loss of the first step", f"of step {rounds + 2}"],
        rows,
        f"{LAYERS} layers of width {WIDTH}, a vocabulary of {VOCABULARY:,}, random weights, no dropout; one batch of "
        f"{BATCH} texts, {SHORTEST} to {LONGEST} tokens" + (f" after sources of {LONGEST}" if kind == "t5" else "") +
        f", padded; float32, AdamW included. Each trainer in its own environment; medians of {rounds} interleaved "
        "rounds after two (ratio: median of the rounds' ratios); memory in fresh processes, over three steps, with an "
        "allocator that returns freed memory at once. " + TRAIN_NOTES[kind],
    )  # fmt: skip


TIMES = ("seconds", "processor")
TRAIN_NOTES = {
    "gpt2": "`SFTTrainer` with `bf16=False, gradient_checkpointing=False`, as the others; its defaults are both on. "
    "Its head and ours work in tiles and give the entropy too, which TRL logs. A tile of TRL's is larger than this "
    "batch, and computed with plain torch on a processor; on a GPU a Triton kernel does it, which is not measured "
    "here. The first label of a text is -100, since nothing predicts it: else transformers and TRL of these versions "
    "count it for a GPT-2, and their loss is smaller.",
    "t5": "TRL is missing: with a T5 the first step of its `SFTTrainer` fails, it is for causal models.",
}


def evaluate_section(environments: Environments, rounds: int) -> Section:
    """Seven scores and PRR, a small version of `evaluate.py`."""
    with tempfile.TemporaryDirectory() as folder:
        settings = argparse.Namespace(model="t5", data=None, tokenizer=None, examples=TEXTS)
        rows = prepare(Path(folder), settings)
        commands = {
            OURS: [environments.python("clue-hf"), str(HERE / "evaluate.py"), "--worker", folder],
            PEER: [environments.python("lm-polygraph"), str(HERE / "evaluate_peer.py"), folder],
        }
        memory = measure_memory(commands, "default", [TEXT_BATCH], len(rows))[TEXT_BATCH]
        answers = measure_time(commands, "default", {TEXT_BATCH: rounds}, len(rows))[TEXT_BATCH]
    sides = (OURS, PEER)
    return Section(
        "Seven uncertainty scores and their PRR",
        ["batch size", *(f"{name}, time" for name in sides), *(f"{name}, texts per second" for name in sides),
         "times faster", "by processor time", *(f"{name}, peak memory above the model" for name in sides), "ratio"],
        [table_row(TEXT_BATCH, answers, memory)],
        f"`benchmarks/evaluate.py` with {len(rows)} of the embedded phrases (rounds: {rounds}); see "
        "[evaluate.md](evaluate.md) for what is measured, and for more texts and batch sizes. "
        + agreement(answers[OURS][-1], answers[PEER][-1]),
    )  # fmt: skip


def versions(environments: Environments) -> str:
    """What was measured."""
    told = []
    for name in environments.names:
        if name == "torch":
            continue
        found = environments.distributions(name)
        beside = ("torch", "transformers", "accelerate", "lightning", "torchmetrics", "numpy")
        others = ", ".join(f"{other} {found[other].version}" for other in beside if other in found and other != name)
        [own] = [one.version for key, one in found.items() if key.replace("_", "-") == name]
        told.append(f"- {name} {own} with {others}")
    return "\n".join(told)


#: Part of the results -> the environments that it needs.
NEEDED = {
    "install": list(ENVIRONMENTS),
    "count": sorted({name for name, *_ in COUNTS}),
    "import": sorted({name for name, _ in STATEMENTS}),
    **{kind: sorted({name for name, *_ in trainers}) for kind, trainers in TRAINERS.items()},
    "evaluate": ["clue-hf", "lm-polygraph"],
    "metrics": ["clue-hf", "torch-uncertainty"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the environments are, or are made")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds of steps, imports and metrics")
    parser.add_argument("--text_rounds", type=int, default=2, help="interleaved rounds of scoring texts")
    parser.add_argument("--only", nargs="+", metavar="PART", choices=list(NEEDED), help=", ".join(NEEDED))
    arguments = parser.parse_args()
    chosen = arguments.only or list(NEEDED)
    environments = Environments(arguments.folder, {name for part in chosen for name in NEEDED[part]})
    rounds = arguments.rounds
    sections: dict[str, Callable[[], list[Section]]] = {
        "install": lambda: [install_section(environments)],
        "count": lambda: [count_section(environments)],
        "import": lambda: [import_section(environments, min(rounds, 4))],
        "gpt2": lambda: [train_section(environments, "gpt2", rounds)],
        "t5": lambda: [train_section(environments, "t5", rounds)],
        "evaluate": lambda: [evaluate_section(environments, arguments.text_rounds)],
        "metrics": lambda: [metrics_section(environments, rounds), memory_section(environments)],
    }
    about, start, made = machine(), time.perf_counter(), []
    for part in chosen:
        log(f"{part} ...")
        for section in sections[part]():
            made.append(section)
            print(section.text(), flush=True)
    log(f"{(time.perf_counter() - start) / 60:.0f} minutes")
    threads = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS",) if name in os.environ]
    told = [(name, getattr(arguments, name)) for name in ("rounds", "text_rounds")]
    options = [f"--{name} {value}" for name, value in told if value != parser.get_default(name)]
    options += [f"--only {' '.join(chosen)}"] if arguments.only else []
    command = " ".join([*threads, "python benchmarks/peers.py --folder out/peers", *options])
    by = f"by `{command}` on {time.strftime('%Y-%m-%d')} ({about})."
    file = RESULTS / "peers.md"
    if arguments.only:
        results = replace_sections(file.read_text(), made, f"Made again {by}")
    else:
        parts = "\n".join(section.text() for section in made)
        results = f"# Beside its peers\n\nMade {by}\n\n{versions(environments)}\n\n{parts}"
    file.write_text(results)
    page = HERE.parent / "docs/peers.md"
    page.write_text(fill_page(page.read_text(), results))


if __name__ == "__main__":
    main()
