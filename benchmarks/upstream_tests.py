"""transformers' own tests of its trainers, with the stock classes and with `CLUETrainer` and `CLUEConfig` instead.

The tests come from a checkout of transformers, of a version near the installed one; its `src` is not used. They need
the package `parameterized`, and skip themselves where they need a GPU or packages that are not installed:

    python benchmarks/upstream_tests.py --checkout ../transformers --stand_ins

What they load from the Hub are then models with random weights and made-up data, in folders of the same names.
As a plugin of pytest, in the processes that it starts, this module puts the classes in place before a test is
imported. The objective is plain cross-entropy. Many of the tests train toy modules that compute a loss of their own,
which `CLUETrainer` does not know: there a subclass takes that loss over, as a user's own `compute_loss` does.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest


CLASSES, LIMIT = "UPSTREAM_TESTS_CLASSES", "UPSTREAM_TESTS_LIMIT"
#: Names that former versions had, which tests import and use only with the network.
FORMER = ("GlueDataset", "GlueDataTrainingArguments")
TESTS = ("tests/trainer/test_trainer*.py", "tests/trainer/test_training_args.py")
#: Why tests fail with ours on purpose: what their error says, and their names.
REASONS = {
    "No `training_args.bin` is written: it is a pickle that contains `hub_token`. The tests check for the file and "
    "pass without this check.": (
        "False is not true",
        ("test_save_checkpoints", "test_load_best_model_at_end", "test_load_best_model_from_safetensors"),
    ),
    "A checkpoint cannot be resumed with another batch size unless `allow_config_change` is set; stock warns.": (
        "was trained with another per_device_train_batch_size",
        ("test_resume_training_with_different_batch_size", "test_compare_trainer_and_checkpoint_args_logging"),
    ),
    "The list of callbacks also contains those of `CLUETrainer`.": (
        "Lists differ",
        (
            "test_custom_callback_added_at_init",
            "test_default_callbacks_are_present",
            "test_printer_callback_when_tqdm_disabled",
        ),
    ),
    "A file `.lock` stays in `output_dir`; it prevents a second training run there. The tests count the files.": (
        "Error: ",
        ("test_save_best_checkpoint", "test_best_model_checkpoint_behavior"),
    ),
    "If there is no checkpoint, the error message differs.": ("False is not true", ("test_can_resume_training",)),
    "Training stops after `max_nonfinite_steps` consecutive steps with non-finite gradients; stock continues.": (
        "consecutive steps",
        ("test_logging_inf_nan_filter",),
    ),
}


# ---- the plugin ----


def pytest_configure() -> None:
    import transformers

    for name in FORMER:
        if not hasattr(transformers, name):
            setattr(transformers, name, None)
    if os.environ.get(CLASSES) == "ours":
        from benchmarks.upstream_classes import SwappedConfig, SwappedTrainer

        transformers.Trainer = transformers.Seq2SeqTrainer = SwappedTrainer  # type: ignore[misc]
        transformers.TrainingArguments = transformers.Seq2SeqTrainingArguments = SwappedConfig  # type: ignore[misc]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"The test took more than {os.environ[LIMIT]} seconds.")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(os.environ[LIMIT]))
    try:
        return (yield)
    finally:
        signal.alarm(0)


# ---- the script ----


def make_environment() -> dict[str, str]:
    """That of processes that work in the checkout, without the Hub, with this repository on the path."""
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}


def run(file: Path, checkout: Path, classes: str, limit: int) -> dict[str, tuple[str, str]]:
    """Outcome (passed, failed, skipped) of each test of a file, and the first line of what went wrong."""
    environment = {
        **make_environment(), CLASSES: classes, LIMIT: str(limit), "PYTEST_PLUGINS": "benchmarks.upstream_tests",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(file)]
        log = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        if not report.exists():
            raise RuntimeError(f"{file} with {classes} classes ended with {log.returncode}:\n{log.stdout[-3000:]}")
        return dict(map(outcome, ElementTree.parse(report).iter("testcase")))


def outcome(case: ElementTree.Element) -> tuple[str, tuple[str, str]]:
    name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
    for child in case:
        if child.tag in ("failure", "error"):
            return name, ("failed", " ".join((child.get("message") or "").split())[:160])
        if child.tag == "skipped":
            return name, ("skipped", "")
    return name, ("passed", "")


def make_rows(file: str, stock: dict, ours: dict) -> tuple[list[str], list[list[str]]]:
    """A row of counts for a file, and one for each test that fares differently."""
    both = Counter((stock[name][0], ours.get(name, ("missing", ""))[0]) for name in stock)
    passed = sum(number for (before, _), number in both.items() if before == "passed")
    counts = [file, str(len(stock)), str(passed), str(both["passed", "passed"])]
    rows = []
    for name, (before, _) in stock.items():
        after, error = ours.get(name, ("missing", ""))
        if before != after:
            rows.append([f"{file}::{name}", before, after, explain(name, error)])
    return counts, rows


def explain(test: str, error: str) -> str:
    for reason, (words, tests) in REASONS.items():
        if words in error and test.rpartition("::")[2] in tests:
            return reason
    return "not on purpose: `" + error.replace("|", "/").replace("`", "'") + "`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, help="folder of a checkout of transformers")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files of tests in the checkout, patterns allowed")
    parser.add_argument("--limit", type=int, default=300, help="seconds after which a test has failed")
    parser.add_argument("--stand_ins", action="store_true", help="put tiny models and data into the checkout first")
    arguments = parser.parse_args()
    checkout = arguments.checkout.resolve()
    if arguments.stand_ins:
        script = Path(__file__).with_name("upstream_stand_ins.py").resolve()
        subprocess.run([sys.executable, str(script)], cwd=checkout, env=make_environment(), check=True)
    files = sorted(file for pattern in arguments.tests for file in checkout.glob(pattern))
    counts, rows = [], []
    for file in files:
        found = [run(file, checkout, classes, arguments.limit) for classes in ("stock", "ours")]
        count, different = make_rows(file.stem, *found)
        print(*count, *map(" | ".join, different), sep="\n", flush=True)
        counts.append(count)
        rows += different
    write(counts, rows)


def write(counts: list[list[str]], rows: list[list[str]]) -> None:
    import transformers
    from measure import write_table

    total = ["all", *(str(sum(int(count[column]) for count in counts)) for column in (1, 2, 3))]
    table = ["| test | stock | ours | why |", "|---|---|---|---|", *("| " + " | ".join(row) + " |" for row in rows)]
    write_table(
        "upstream_tests",
        "transformers' own tests of its trainers",
        ["file", "tests", "stock passes", "of these ours passes"],
        [*counts, total],
        f"Installed: transformers {transformers.__version__}. What stock fails or skips needs a GPU, the network, or "
        "packages that are not installed. Many of the tests train toy modules that return their own loss. For "
        "these, a subclass trains that loss, and the tests check the rest of `CLUETrainer`. The tests with different "
        "outcomes:\n\n" + "\n".join(table),
        "upstream_tests.py --checkout PATH --stand_ins",
    )


if __name__ == "__main__":
    main()
