"""Runs the scripts and notebooks of this folder on small offline data: `make examples`.

Scripts run as they are, notebooks in a kernel; a cell or script that fails ends it. Names of examples run these alone.
With `--keep` the outputs of notebooks are written back to them. The notebook of the translator takes a real model and
data from the environment: `MODEL=Helsinki-NLP/opus-mt-en-fr PAIRS=pairs.jsonl`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from clue_hf import generate_with_uncertainty
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.models.loading import load_text_model, load_tokenizer


HERE = Path(__file__).parent
ROOT = HERE.parent
#: A T5 of 40,000 parameters that translates the embedded phrases: what stands in for a model of the Hub.
TINY = "tests/fixtures/lm_polygraph/model"
DATA = Path("out/examples/data")
ARGUMENTS = {"fine_tune_t5": [TINY, DATA / "pairs.jsonl"], "judge_texts": [DATA / "outputs.jsonl"]}


def main(keep: bool, names: list[str]) -> None:
    os.chdir(ROOT)
    write_data()
    for name, value in {"HF_HUB_OFFLINE": "1", "MODEL": TINY, "PAIRS": str(DATA / "en_fr.jsonl")}.items():
        os.environ.setdefault(name, value)
    for path in sorted([*HERE.glob("*.py"), *HERE.glob("*.ipynb")]):
        if path.name == Path(__file__).name or (names and path.stem not in names):
            continue
        started = time.monotonic()
        if path.suffix == ".py":
            subprocess.run([sys.executable, path, *ARGUMENTS.get(path.stem, [])], check=True)
        else:
            execute(path, keep)
        print(f"==== {path.name}: {time.monotonic() - started:.0f} s", flush=True)


def execute(path: Path, keep: bool) -> None:
    """Runs a notebook from the root of the repository."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT)}}).execute()
    for cell in notebook.cells:  # progress bars and log lines are no results
        outputs = [output for output in cell.get("outputs", []) if output.get("name") != "stderr"]
        if cell.cell_type == "code":
            cell.outputs, cell.metadata = outputs, {}
    if keep:
        nbformat.write(notebook, path)


def write_data() -> None:
    """Pairs of phrases, and outputs of the tiny model as another system would deliver them."""
    shutil.rmtree(DATA.parent, ignore_errors=True)  # a calibration does not write over a model
    DATA.mkdir(parents=True)
    rows = phrase_rows("validation", 400)
    shifted = phrase_rows("shifted", 400)  # constructions that the model has not seen: there is something to learn
    write("pairs.jsonl", [{"source": row["source"], "target": row["target"]} for row in shifted])
    write("en_fr.jsonl", [{"en": row["source"], "fr": row["target"]} for row in rows])
    model, tokenizer = load_text_model(TINY), load_tokenizer(TINY)
    sources = [str(row["source"]) for row in rows]
    outputs = generate_with_uncertainty(model, tokenizer, sources, ["perplexity"], max_new_tokens=32)
    judged = [
        {
            "output": made.text,
            "reference": row["target"],
            "token_log_probabilities": list(made.token_log_probabilities),
        }
        for made, row in zip(outputs, rows, strict=True)
    ]
    write("outputs.jsonl", judged)


def write(name: str, rows: list[dict]) -> None:
    (DATA / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main("--keep" in sys.argv, [name for name in sys.argv[1:] if not name.startswith("-")])
