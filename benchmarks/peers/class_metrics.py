"""
Metrics of classifiers and regressors by one library, in an environment of its own: a part of `peers.py`.

`class_metrics.py FOLDER LIBRARY` reads the arrays of the folder and answers requests, see `measure.serve`: the value
of a metric and how long it took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: a file there has the name of a package
from measure import serve


ANSWERS, CLASSES = 50_000, 100
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


def of_clue_hf(arrays: dict[str, np.ndarray]) -> dict[str, Callable[[], Any]]:
    from clue_hf import metrics

    probabilities, labels = arrays["probabilities"], arrays["labels"]
    forecasts = arrays["mean"], arrays["std"], arrays["target"]

    def ranked() -> tuple[np.ndarray, np.ndarray]:
        """Uncertainty and quality of each answer, from the probabilities: that work counts too."""
        return 1 - probabilities.max(axis=1), probabilities.argmax(axis=1) == labels

    return {
        "ece": lambda: metrics.expected_calibration_error(probabilities, labels, BINS),
        "ece_adaptive": lambda: metrics.adaptive_calibration_error(probabilities, labels, BINS),
        "ece_classwise": lambda: metrics.classwise_calibration_error(probabilities, labels, BINS),
        "brier": lambda: metrics.brier_score(probabilities, labels),
        "nll": lambda: metrics.negative_log_likelihood(probabilities, labels),
        "aurc": lambda: metrics.aurc(*ranked()),
        "augrc": lambda: metrics.augrc(*ranked()),
        "coverage_at_risk": lambda: metrics.coverage_at_risk(*ranked(), RISK),
        "risk_at_coverage": lambda: metrics.risk_at_coverage(*ranked(), COVERAGE),
        "fpr95": lambda: metrics.ood_detection(arrays["inside"], arrays["outside"])["ood_fpr95"],
        "ause": lambda: metrics.ause(*forecasts),
        "gaussian_nll": lambda: metrics.gaussian_nll(*forecasts),
        "all": lambda: len(metrics.classification_report(probabilities, labels, resamples=0, num_bins=BINS)),
    }


def of_torch_uncertainty(arrays: dict[str, np.ndarray]) -> dict[str, Callable[[], Any]]:
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
    found = torch.cat([tensors["inside"], tensors["outside"]])
    outside = torch.cat([torch.zeros(len(tensors["inside"])), torch.ones(len(tensors["outside"]))]).long()

    def value(metric: Any, *inputs: Any) -> float:
        metric.update(*inputs)
        return float(metric.compute())

    def all_metrics() -> int:
        routine = ClassificationRoutine(torch.nn.Identity(), num_classes=classes, num_bins_calibration_error=BINS)
        routine.test_cls_metrics.update(probabilities, labels)
        return len(routine.test_cls_metrics.compute())

    def errors() -> tuple[torch.Tensor, torch.Tensor]:
        return tensors["std"] ** 2, (tensors["target"] - tensors["mean"]) ** 2

    return {
        "ece": lambda: value(metrics.CalibrationError(**options), probabilities, labels),
        "ece_adaptive": lambda: value(metrics.CalibrationError(adaptive=True, **options), probabilities, labels),
        "ece_classwise": lambda: value(metrics.ClasswiseCalibrationError(classes, BINS), probabilities, labels),
        "brier": lambda: value(metrics.BrierScore(classes), probabilities, labels),
        "nll": lambda: value(metrics.CategoricalNLL(), probabilities, labels),
        "aurc": lambda: value(metrics.AURC(), probabilities, labels),
        "augrc": lambda: value(metrics.AUGRC(), probabilities, labels),
        "coverage_at_risk": lambda: value(metrics.CovAtxRisk(RISK), probabilities, labels),
        "risk_at_coverage": lambda: value(metrics.RiskAtxCov(COVERAGE), probabilities, labels),
        "fpr95": lambda: value(metrics.FPR95(pos_label=1), found, outside),
        "ause": lambda: value(metrics.AUSE(), *errors()),
        "gaussian_nll": lambda: value(
            metrics.DistributionNLL(), Normal(tensors["mean"], tensors["std"]), tensors["target"]
        ),
        "all": all_metrics,
    }


LIBRARIES = {"clue_hf": of_clue_hf, "torch-uncertainty": of_torch_uncertainty}


def main() -> None:
    arrays = dict(np.load(Path(sys.argv[1]) / "arrays.npz"))
    metrics = LIBRARIES[sys.argv[2]](arrays)

    def answer(request: dict) -> dict:
        if "metric" not in request:  # the first request: libraries are loaded
            return {"metrics": list(metrics)}
        start, work = time.perf_counter(), time.process_time()
        value = metrics[request["metric"]]()
        return {"value": value, "seconds": time.perf_counter() - start, "processor": time.process_time() - work}

    serve(answer)


if __name__ == "__main__":
    main()
