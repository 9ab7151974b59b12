"""Every metric of a report, from its examples alone."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import scipy  # its parts are imported when they are first used: stats takes a second

from ...metrics import (
    Measured,
    calibration_intervals,
    cluster_mean_interval,
    confidence_calibration_interval,
    corpus_quality_interval,
    has_corpus_score,
    is_right_or_wrong,
    metric_definitions,
    rejection_reports,
    right_or_wrong_report,
)
from ...posthoc import cross_fitted_confidence
from .examples import Example


TRUTH = "true_entropy_correlation"
#: PRR of the learned score minus that of the best single one.
GAIN = "prr_gain"
#: What a scorer has beside the others where every output is right or wrong.
RIGHT_OR_WRONG = ("auroc", "aupr", "confidence_brier", "confidence_ece")
#: Metrics beside those of the scorers that a report defines.
DEFINED = (
    "confidence_ece", TRUTH, "error", "uncertainty", "alignment_error", "token_ece", "cut", "cut_sources",
    "exp_perplexity", "share_of_tokens_above_cpmi_tau",
)  # fmt: skip
#: Values of a reference's tokens, in the order of [`calibration_intervals`].
REFERENCE_VALUES = ("reference_errors", "reference_entropies", "reference_confidences", "reference_correct")
#: Those of them that a token calibrator changes, and the beginning of their names without it.
CALIBRATED_VALUES, UNCALIBRATED = REFERENCE_VALUES[:3], "uncalibrated_"


def measure(
    examples: Sequence[Example],
    scorers: Sequence[str],
    qualities: Sequence[str],
    resamples: int = 2000,
    cpmi_tau: float | None = None,
    single: str | None = None,
) -> dict[str, Any]:
    """
    Quality, calibration on the references, and how well every scorer ranks the outputs: each with its value, its
    interval and the number of examples, or the reason why it has none. The scorers are judged by the first quality;
    `other_qualities` has the rest. With `cpmi_tau` also the share of tokens at which `cpmi` differs from
    `perplexity`; with `single` the PRR of `learned` minus that of this scorer. Where a token calibrator was used,
    `uncalibrated_references` is the calibration without it.
    """
    columns = Columns(examples, scorers, qualities)
    main, *others = qualities
    ranked = _scorers(columns, main, resamples)
    gain = {} if single is None else {"single": single, GAIN: ranked["learned"]["prr"] - ranked[single]["prr"]}
    return {
        "n": len(examples),
        **_outputs(examples, cpmi_tau),
        "quality": _quality(examples, columns, resamples),
        **(
            {"references": _references(columns.tokens, columns.lengths, resamples)}
            if any(REFERENCE_VALUES[0] in example for example in islice(examples, 1))
            else {}
        ),
        **(
            {"uncalibrated_references": _references(columns.uncalibrated_tokens, columns.lengths, resamples)}
            if columns.uncalibrated_tokens
            else {}
        ),
        "scorers": ranked,
        **({"learned": gain} if gain else {}),
        "other_qualities": {name: _scorers(columns, name, resamples) for name in others},
    }


class Columns:
    """
    The numbers of the examples: an array for each quality and score, and the values of all reference tokens, also
    without the token calibrator where one was used.
    """

    def __init__(self, examples: Sequence[Example], scorers: Sequence[str], qualities: Sequence[str]) -> None:
        n = len(examples)
        self.scores = {name: np.empty(n) for name in scorers}
        self.qualities = {name: np.empty(n) for name in qualities}
        self.true_entropy = np.full(n, np.nan)
        self.lengths = np.zeros(n, int)
        calibrated = any(f"{UNCALIBRATED}{REFERENCE_VALUES[0]}" in example for example in islice(examples, 1))
        before = [f"{UNCALIBRATED}{name}" for name in CALIBRATED_VALUES] if calibrated else []
        tokens = {name: array("f") for name in (*REFERENCE_VALUES, *before)}
        for row, example in enumerate(examples):
            for name, values in self.scores.items():
                values[row] = example["scores"][name]
            for name, values in self.qualities.items():
                values[row] = example["qualities"][name]
            self.true_entropy[row] = example.get("true_entropy", np.nan)
            for name, numbers in tokens.items():
                numbers.extend(example.get(name, ()))
            self.lengths[row] = len(example.get(REFERENCE_VALUES[0], ()))
        arrays = [np.array(numbers, dtype=float) for numbers in tokens.values()]
        self.tokens, self.uncalibrated_tokens = arrays[:4], [*arrays[4:], arrays[3]] if before else []


def read_texts(examples: Iterable[Example]) -> tuple[list[str], list[list[str]]]:
    """The outputs, and the references of each."""
    outputs, references = [], []
    for example in examples:
        outputs.append(example["output"])
        references.append(example.get("references") or [example["reference"]])
    return outputs, references


def _outputs(examples: Sequence[Example], cpmi_tau: float | None) -> dict[str, Any]:
    """
    Number of empty outputs, of truncated outputs and of truncated sources; number of output tokens, their perplexity,
    and the share of them at which `cpmi` differs from `perplexity`.
    """
    tokens, total, unsure, cut, empty, sources = 0, 0.0, 0, 0, 0, 0
    for example in examples:
        empty += not example["output"]
        cut += not example["ended"]
        sources += example.get("source_was_cut", False)
        tokens += len(example["token_log_probabilities"])
        total -= sum(example["token_log_probabilities"])
        unsure += sum(entropy >= (cpmi_tau or 0) for entropy in example["token_entropies"])
    outputs: dict[str, Any] = {
        "cut": cut,
        "cut_sources": sources,
        "tokens": tokens,
        "exp_perplexity": math.exp(total / tokens) if tokens else None,
    }
    if cpmi_tau is not None:
        outputs["share_of_tokens_above_cpmi_tau"] = unsure / tokens if tokens else None
    return {"empty_outputs": empty, "outputs": outputs}


def definitions(metrics: dict[str, Any]) -> dict[str, str]:
    """What each metric of a report is, in a sentence."""
    scorer = next(iter(metrics["scorers"].values()))
    gain = [GAIN] if "learned" in metrics else []
    return metric_definitions([*scorer, *(name for name in DEFINED if name not in scorer), *gain], "text")


def _quality(examples: Sequence[Example], columns: Columns, resamples: int) -> dict[str, Any]:
    """Each quality, of all outputs together and as a mean; only here are the texts in memory, where they must be."""
    texts = read_texts(examples) if any(map(has_corpus_score, columns.qualities)) else None
    return {
        name: {
            "mean": cluster_mean_interval(values, np.ones(len(values)), resamples),
            "corpus": corpus_quality_interval(name, *texts, resamples=resamples)
            if texts and has_corpus_score(name)
            else cluster_mean_interval(100 * values, np.ones(len(values)), resamples),
        }
        for name, values in columns.qualities.items()
    }


def reference_metrics(tokens: Sequence[np.ndarray], lengths: np.ndarray, resamples: int = 2000) -> dict[str, Measured]:
    """
    Calibration on the reference tokens, from their [`REFERENCE_VALUES`] and the number of them in each text; intervals
    over the texts, whose tokens are not independent.
    """
    example = np.repeat(np.arange(len(lengths)), lengths)
    errors, entropies, confidences, correct = tokens
    error, uncertainty = (
        cluster_mean_interval(np.bincount(example, values, len(lengths)), lengths, resamples)
        for values in (errors, entropies)
    )
    calibration = calibration_intervals(errors, entropies, confidences, correct, example, resamples=resamples)
    return {
        "error": error,
        "uncertainty": uncertainty,
        "gap": error - uncertainty,
        "alignment_error": calibration["alignment_error"],
        "token_ece": calibration["confidence_calibration_error"],
    }


def _references(tokens: Sequence[np.ndarray], lengths: np.ndarray, resamples: int) -> dict[str, Any]:
    metrics = reference_metrics(tokens, lengths, resamples)
    del metrics["gap"]  # which the reports do not have
    return {"tokens": len(tokens[0]), **metrics}


def _scorers(columns: Columns, quality: str, resamples: int) -> dict[str, dict[str, Measured]]:
    values = columns.qualities[quality]
    reports = rejection_reports(columns.scores, values, resamples=resamples)
    for name, report in reports.items():
        uncertainty = columns.scores[name]
        confidence = cross_fitted_confidence(uncertainty, values)
        report["confidence_ece"] = (
            Measured(math.nan, "too few examples to fit a confidence", len(values))
            if confidence is None
            else confidence_calibration_interval(confidence, values, resamples=resamples)
        )
        if is_right_or_wrong(values):
            report |= right_or_wrong_report(uncertainty, values, confidence, resamples)
        if not np.isnan(columns.true_entropy).any():
            report[TRUTH] = _correlation(uncertainty, columns.true_entropy)
    return reports


def _correlation(uncertainty: np.ndarray, truth: np.ndarray) -> Measured:
    value = float(scipy.stats.spearmanr(uncertainty, truth).statistic) if len(truth) > 1 else math.nan
    return Measured(value, "one of the two is constant" if math.isnan(value) else None, len(truth))
