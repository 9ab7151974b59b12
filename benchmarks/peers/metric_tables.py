"""The tables of metrics: their time, that of the checks of their input, and their memory; a part of `peers.py`."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any


HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from class_metrics import ANSWERS, CLASSES, LARGE_ANSWERS, LARGE_CLASSES, make_arrays, make_large_arrays  # noqa: E402
from environments import Environments  # noqa: E402
from evaluate import Worker, log  # noqa: E402
from measure import ratio  # noqa: E402
from page import Section, megabytes  # noqa: E402


#: Library in the table -> its environment.
LIBRARIES = {"clue_hf": "clue-hf", "torch-uncertainty": "torch-uncertainty"}
#: Metrics of probabilities and labels, whose checks are timed apart.
CHECKED = {
    "ece": "ECE, 15 bins",
    "ece_adaptive": "ECE, equal mass",
    "ece_classwise": "ECE, class-wise",
    "brier": "Brier score",
    "nll": "NLL",
    "aurc": "AURC",
    "augrc": "AUGRC",
    "coverage_at_risk": "coverage at 5 % risk",
    "risk_at_coverage": "risk at 80 % coverage",
}
METRICS = {
    **CHECKED,
    "fpr95": "FPR95, out of distribution",
    "ause": "AUSE, numbers",
    "gaussian_nll": "Gaussian NLL, numbers",
    "all": "all of a report",
    "checks": "checks of a report; beside it, sums of the rows by numpy",
}
#: Metrics of the table of memory.
LARGE_METRICS = ("ece", "brier", "nll", "aurc", "all")
TIMES = ("seconds", "processor")
#: The largest allowed ratio.
BAR = 1.0

Answers = dict[str, list[dict[str, Any]]]


def metrics_section(environments: Environments, rounds: int) -> Section:
    """The same metrics of the same arrays by two libraries, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        make_arrays(Path(folder))
        workers = {library: Worker(_command(environments, library, folder)) for library in LIBRARIES}
        answers: dict[str, Answers] = {}
        for metric in METRICS:
            answers[metric] = {library: [] for library in (*LIBRARIES, "with checks")}
            for _ in range(rounds + 1):
                for library, worker in workers.items():
                    answers[metric][library].append(worker.ask(metric=metric))
                if metric in CHECKED or metric == "all":
                    answers[metric]["with checks"].append(workers["clue_hf"].ask(metric=metric, check=True))
            log(f"{metric}: {_ratio(answers[metric], 'processor'):.2f}x")
        for worker in workers.values():
            worker.close()
    return Section(
        "Metrics of classifiers and regressors",
        ["metric", *LIBRARIES, *(f"{library}, time" for library in LIBRARIES), "ratio", "ratio of processor time",
         "with checks", "bar", "met"],
        [row for metric, found in answers.items() for row in metric_rows(metric, found)],
        f"{ANSWERS:,} answers of {CLASSES} classes, as many scores from within and from out of a distribution, as "
        f"many numbers with mean and deviation; single precision. Medians of {rounds} interleaved rounds after one "
        "(ratio: ours by theirs, median of the rounds' ratios; met: by processor time). Metrics of probabilities and "
        "labels take answers that were checked before (`checked_answers`), new ones each time, so that nothing is "
        "computed yet; with checks: the ratio of processor time where a metric makes them itself. The other metrics "
        "always check their input. AURC and AUGRC: a sum over all coverages here, the trapezoid rule there. All of a "
        "report: the number of metrics, not their value, of `classification_report` without resamples and of the "
        "metrics of `ClassificationRoutine`; below it, the time by the number of metrics. The checks of "
        "probabilities and labels, once for a report, stand beside `probabilities.sum(axis=1)` of numpy: one pass "
        "over the array.",
    )  # fmt: skip


def metric_rows(metric: str, answers: Answers) -> list[list[str]]:
    """The row of a metric; a report has a second one, for each of its metrics."""
    values = {library: answers[library][0]["value"] for library in LIBRARIES}
    if metric == "checks":
        return [_row(METRICS[metric], ["", ""], answers, 1.0)]
    if metric != "all":
        return [_row(METRICS[metric], [f"{value:.6f}" for value in values.values()], answers, 1.0)]
    shown = [f"{value} metrics" for value in values.values()]
    per_metric = {
        library: [{key: run[key] / values.get(library, values["clue_hf"]) for key in TIMES} for run in runs]
        for library, runs in answers.items()
    }
    whole = _row(METRICS[metric], shown, answers, None)
    return [whole, _row("the same, per metric", ["", ""], per_metric, 1.0)]


def _row(name: str, shown: list[str], answers: Answers, bar: float | None) -> list[str]:
    times = [
        f"{1000 * statistics.median(run['seconds'] for run in answers[library][1:]):.1f} ms" for library in LIBRARIES
    ]
    ratios = [_ratio(answers, key) for key in TIMES]
    checked = f"{_ratio(answers, 'processor', 'with checks'):.2f}x" if answers["with checks"] else ""
    verdict = ["", ""] if bar is None else [f"at most {bar:.1f}x", "yes" if round(ratios[1], 2) <= bar else "**no**"]
    return [name, *shown, *times, *(f"{value:.2f}x" for value in ratios), checked, *verdict]


def _ratio(answers: Answers, key: str, ours: str = "clue_hf") -> float:
    """Our time by theirs, the median over the rounds but the first."""
    return ratio({name: [run[key] for run in runs[1:]] for name, runs in answers.items()}, ours, "torch-uncertainty")


def memory_section(environments: Environments) -> Section:
    """Peak memory of metrics of a large array, each in a fresh process."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        size = make_large_arrays(Path(folder))
        for metric in LARGE_METRICS:
            peaks = []
            for library in LIBRARIES:
                worker = Worker(_command(environments, library, folder), returns_memory=True)
                peaks.append(worker.ask(metric=metric, check=True, memory=True)["peak"])
                worker.close()
            shares = [f"{peak / size:.2f}x" for peak in peaks]
            rows.append([METRICS[metric], *map(megabytes, peaks), *shares, f"{peaks[0] / peaks[1]:.2f}x"])
            log(f"{metric}: {', '.join(shares)}")
    return Section(
        "Memory of metrics",
        ["metric", *LIBRARIES, *(f"{library}, by the input" for library in LIBRARIES), "ratio"],
        rows,
        f"Peak memory above the input, {megabytes(size)}: {LARGE_ANSWERS:,} answers of {LARGE_CLASSES} classes in "
        "single precision and their labels; with the checks, each in a fresh process with an allocator that returns "
        f"freed memory at once. One number per answer in double precision is {megabytes(8 * LARGE_ANSWERS)}.",
    )


def _command(environments: Environments, library: str, folder: str) -> list[str]:
    return [environments.python(LIBRARIES[library]), str(HERE / "class_metrics.py"), folder, library]
