"""
Metrics of classifiers and regressors by one library, in an environment of its own: a part of `peers.py`.

`class_metrics.py FOLDER LIBRARY` reads the arrays of the folder and answers requests, see `measure.serve`: the value
of a metric and how long it took, with or without the checks of its input, or the memory that it needs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: a file there has the name of a package
from measure import peak_above, serve


ANSWERS, CLASSES = 50_000, 100
LARGE_ANSWERS, LARGE_CLASSES = 10_000_000, 10
BINS, RISK, COVERAGE = 15, 0.05, 0.8


def make_arrays(folder: Path) -> None:
    """Probabilities and labels of a classifier, scores of two sets, means and deviations of a regressor."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, CLASSES, ANSWERS)
    logits = generator.normal(size=(ANSWERS, CLASSES))
    logits[np.arange(ANSWERS), labels] += generator.normal(4, 2, ANSWERS)
    exponentials = np.exp(1.5 * (logits - logits.max(axis=1, keepdims=True)))
    mean, std = generator.normal(size=ANSWERS), generator.gamma(4, 0.25, ANSWERS)
    arrays = {
        "probabilities": exponentials / exponentials.sum(axis=1, keepdims=True),
        "inside": generator.normal(size=ANSWERS),
        "outside": generator.normal(1.5, size=ANSWERS),
        "mean": mean,
        "std": std,
        "target": mean + std * generator.normal(size=ANSWERS),
    }
    single = {name: array.astype(np.float32) for name, array in arrays.items()}
    np.savez(folder / "arrays.npz", labels=labels, **single)


def make_large_arrays(folder: Path) -> int:
    """Probabilities and labels of many answers; returns how many bytes they have."""
    generator = np.random.default_rng(0)
    probabilities = generator.standard_exponential((LARGE_ANSWERS, LARGE_CLASSES), np.float32)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = generator.integers(0, LARGE_CLASSES, LARGE_ANSWERS)
    np.savez(folder / "arrays.npz", probabilities=probabilities, labels=labels)
    return probabilities.nbytes + labels.nbytes


Metrics = dict[str, Callable[[Any], Any]]


def of_clue_hf(arrays: dict[str, np.ndarray]) -> tuple[Metrics, Callable[[], Any]]:
    """The metrics of checked answers, and what checks them."""
    from clue_hf import metrics

    def ranked(answers: Any) -> tuple[np.ndarray, np.ndarray]:
        """Uncertainty and quality of each answer, from the probabilities: that work counts too."""
        return 1 - answers.confidence, answers.correct

    def forecasts() -> list[np.ndarray]:
        return [arrays[name] for name in ("mean", "std", "target")]

    return {
        "ece": lambda answers: metrics.expected_calibration_error(answers, num_bins=BINS),
        "ece_adaptive": lambda answers: metrics.adaptive_calibration_error(answers, num_bins=BINS),
        "ece_classwise": lambda answers: metrics.classwise_calibration_error(answers, num_bins=BINS),
        "brier": lambda answers: metrics.brier_score(answers),
        "nll": lambda answers: metrics.negative_log_likelihood(answers),
        "aurc": lambda answers: metrics.aurc(*ranked(answers)),
        "augrc": lambda answers: metrics.augrc(*ranked(answers)),
        "coverage_at_risk": lambda answers: metrics.coverage_at_risk(*ranked(answers), RISK),
        "risk_at_coverage": lambda answers: metrics.risk_at_coverage(*ranked(answers), COVERAGE),
        "fpr95": lambda _: metrics.ood_detection(arrays["inside"], arrays["outside"])["ood_fpr95"],
        "ause": lambda _: metrics.ause(*forecasts()),
        "gaussian_nll": lambda _: metrics.gaussian_nll(*forecasts()),
        "all": lambda answers: len(metrics.classification_report(answers, resamples=0, num_bins=BINS)),
        "checks": lambda _: metrics.checked_answers(arrays["probabilities"], arrays["labels"]).n,
    }, lambda: metrics.checked_answers(arrays["probabilities"], arrays["labels"])


def of_torch_uncertainty(arrays: dict[str, np.ndarray]) -> tuple[Metrics, Callable[[], Any]]:
    """The metrics; nothing is checked."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        import missing_operators  # noqa: F401
    import torch
    from torch.distributions import Normal
    from torch_uncertainty import metrics
    from torch_uncertainty.routines import ClassificationRoutine

    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    probabilities, labels = tensors["probabilities"], tensors["labels"]
    classes = probabilities.shape[1]
    options = {"task": "multiclass", "num_bins": BINS, "num_classes": classes}
    scores = ()
    if "inside" in tensors:
        outside = torch.cat([torch.zeros(len(tensors["inside"])), torch.ones(len(tensors["outside"]))]).long()
        scores = torch.cat([tensors["inside"], tensors["outside"]]), outside

    def value(metric: Any, *inputs: Any) -> float:
        metric.update(*inputs)
        return float(metric.compute())

    def all_metrics() -> int:
        routine = ClassificationRoutine(torch.nn.Identity(), num_classes=classes, num_bins_calibration_error=BINS)
        routine.test_cls_metrics.update(probabilities, labels)
        return len(routine.test_cls_metrics.compute())

    def errors() -> tuple[torch.Tensor, torch.Tensor]:
        return tensors["std"] ** 2, (tensors["target"] - tensors["mean"]) ** 2

    def gaussian_nll() -> float:
        return value(metrics.DistributionNLL(), Normal(tensors["mean"], tensors["std"]), tensors["target"])

    both = probabilities, labels
    return {
        "ece": lambda _: value(metrics.CalibrationError(**options), *both),
        "ece_adaptive": lambda _: value(metrics.CalibrationError(adaptive=True, **options), *both),
        "ece_classwise": lambda _: value(metrics.ClasswiseCalibrationError(classes, BINS), *both),
        "brier": lambda _: value(metrics.BrierScore(classes), *both),
        "nll": lambda _: value(metrics.CategoricalNLL(), *both),
        "aurc": lambda _: value(metrics.AURC(), *both),
        "augrc": lambda _: value(metrics.AUGRC(), *both),
        "coverage_at_risk": lambda _: value(metrics.CovAtxRisk(RISK), *both),
        "risk_at_coverage": lambda _: value(metrics.RiskAtxCov(COVERAGE), *both),
        "fpr95": lambda _: value(metrics.FPR95(pos_label=1), *scores),
        "ause": lambda _: value(metrics.AUSE(), *errors()),
        "gaussian_nll": lambda _: gaussian_nll(),
        "all": lambda _: all_metrics(),
        "checks": lambda _: len(arrays["probabilities"].sum(axis=1)),
    }, lambda: None


LIBRARIES = {"clue_hf": of_clue_hf, "torch-uncertainty": of_torch_uncertainty}


def main() -> None:
    arrays = dict(np.load(Path(sys.argv[1]) / "arrays.npz"))
    metrics, check = LIBRARIES[sys.argv[2]](arrays)

    def answer(request: dict) -> dict:
        if "metric" not in request:  # the first request: libraries are loaded
            return {"metrics": list(metrics)}
        metric = metrics[request["metric"]]
        if request.get("memory"):
            return {"peak": peak_above(lambda: metric(check()))}
        checked = None if request.get("check") else check()
        start, work = time.perf_counter(), time.process_time()
        value = metric(check() if checked is None else checked)
        return {"value": value, "seconds": time.perf_counter() - start, "processor": time.process_time() - work}

    serve(answer)


if __name__ == "__main__":
    main()
