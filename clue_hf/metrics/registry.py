"""
Every metric of every report: its heading, which direction is better, its unit and its definition; and how its numbers
are written. A new metric is one line here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..tables import format_number, markdown_table
from .judges import judge_label
from .measured import Entry
from .quality import QUALITIES


@dataclass(frozen=True)
class MetricInfo:
    """
    What a metric is.

    Args:
        name (`str`):
            Its key in a report.
        heading (`str`):
            Its name in tables, pages and cards.
        direction (`int`):
            1 where higher is better, -1 where lower is, 0 where neither is.
        definition (`str`):
            One sentence.
        unit (`str`, *optional*):
            `"nats"`, `"target"` or `"target²"` (units of the number that is predicted), `"%"` (from 0 to 100), or
            none.
        argument (`str`, *optional*):
            What the number at the end of its name is, such as the coverage of `risk_at_coverage_0.8`.
    """

    name: str
    heading: str
    direction: int
    definition: str
    unit: str = ""
    argument: str = ""

    @property
    def arrow(self) -> str:
        """Which way is better, after a space: " ↑", " ↓", or nothing."""
        return {1: " ↑", 0: "", -1: " ↓"}[self.direction]


def _infos(*infos: MetricInfo) -> dict[str, MetricInfo]:
    return {info.name: info for info in infos}


_M = MetricInfo
#: Every metric, by kind of model: `shared` are those of rejection, which every kind has; then `text`, `classes` and
#: `numbers`, where one name may mean different things (an `error` is a cross-entropy or a share of wrong answers).
METRICS: dict[str, dict[str, MetricInfo]] = {
    "shared": _infos(
        _M("mean_quality", "mean quality", 1, "mean quality of all items"),
        _M("random_area", "random area", 0, "rejection area of a useless order: the mean quality, exactly"),
        _M("prr", "PRR", 1, "(rejection area - random area) / (oracle area - random area): the share achieved of what "
           "rejection can gain", argument="max_rejection"),
        _M("rejection_area", "rejection area", 1, "(1/R) sum over k = n-R+1..n of the mean quality of the k most "
           "certain items, R = int(max_rejection n); ties count with the mean of their group",
           argument="max_rejection"),
        _M("rejection_area_minmax", "rejection area, min-max", 1, "rejection area of (quality - min) / (max - min)",
           argument="max_rejection"),
        _M("oracle_area", "oracle area", 0, "rejection area of the order of the quality itself",
           argument="max_rejection"),
        _M("aurc", "AURC", -1, "(1/n) sum over k of the mean risk of the k most certain items, risk = 1 - quality"),
        _M("e_aurc", "E-AURC", -1, "aurc minus the aurc of the order of the risk itself"),
        _M("augrc", "AUGRC", -1, "(1/n^2) sum over k of the sum of the risks of the k most certain items, risk = 1 - "
           "quality"),
        _M("risk_at_coverage", "risk at coverage", -1, "mean risk (1 - quality) of the ceil(coverage n) most certain "
           "items", argument="coverage"),
        _M("coverage_at_risk", "coverage at risk", 1, "largest k/n such that the mean risk (1 - quality) of the k "
           "most certain items is at most risk", argument="risk"),
    ),
    "text": _infos(
        _M("confidence_ece", "confidence ECE", -1, "isotonic confidence, each example by a map fitted on the other "
           "four of five folds, against quality: 15 equal-width bins, sum |B|/n |mean quality - mean confidence|"),
        _M("confidence_brier", "confidence Brier", -1, "mean of (confidence - quality)^2 of the same confidence, "
           "where every output is right (quality 1) or wrong (0)"),
        _M("auroc", "AUROC", 1, "chance that a wrong output is more uncertain than a right one, ties half"),
        _M("aupr", "AUPR", 1, "average precision of the uncertainty, wrong outputs being the positives; that of a "
           "useless score is their share"),
        _M("true_entropy_correlation", "true entropy correlation", 1, "Spearman rank correlation of the scores with "
           "the true entropy of the targets"),
        _M("prr_gain", "PRR gain", 1, "PRR of the learned score minus that of the best single scorer when it was "
           "fitted"),
        _M("error", "error", -1, "cross-entropy per reference token, nats", "nats"),
        _M("uncertainty", "uncertainty", 0, "entropy of the next-token distribution at the reference tokens, nats",
           "nats"),
        _M("gap", "gap", 0, "mean error - mean uncertainty", "nats"),
        _M("alignment_error", "alignment error", -1, "15 equal-mass bins of the uncertainty, sum |B|/n |mean error - "
           "mean uncertainty|", "nats"),
        _M("token_ece", "token ECE", -1, "top-1 probability against top-1 accuracy of reference tokens, 15 "
           "equal-width bins"),
        _M("quality", "corpus quality", 1, "quality of all outputs together", "%"),
        _M("bleu", "BLEU", 1, "corpus BLEU", "%"),
        _M("chrf", "chrF", 1, "corpus chrF", "%"),
        _M("rouge1", "ROUGE-1", 1, "mean ROUGE-1 F1", "%"),
        _M("rouge2", "ROUGE-2", 1, "mean ROUGE-2 F1", "%"),
        _M("rougeL", "ROUGE-L", 1, "mean ROUGE-L F1", "%"),
        _M("exact_match", "exact match", 1, "share of outputs that equal a reference, SQuAD's normalisation", "%"),
        _M("token_f1", "token F1", 1, "mean F1 of the words, SQuAD's normalisation", "%"),
        _M("contains", "contains", 1, "share of outputs that contain a reference, SQuAD's normalisation", "%"),
        _M("cut", "outputs cut", -1, "outputs that reached the longest length without an end token"),
        _M("cut_sources", "sources cut", -1, "sources longer than the longest length, whose end the model did not "
           "see"),
        _M("exp_perplexity", "perplexity", 0, "exponential of the mean negative log-probability of all output tokens"),
        _M("share_of_tokens_above_cpmi_tau", "tokens above cpmi_tau", 0, "share of output tokens with entropy >= "
           "cpmi_tau; at 0, cpmi is perplexity"),
    ),
    "classes": _infos(
        _M("error", "error", -1, "share of wrong answers"),
        _M("ece", "ECE", -1, "sum |B|/n |accuracy - mean confidence| over bins (low, high] of equal width along the "
           "top probability"),
        _M("ece_adaptive", "adaptive ECE", -1, "the same over bins of equal mass; equal confidences share their "
           "accuracy"),
        _M("ece_debiased", "debiased ECE", -1, "root of sum |B|/n [(accuracy - mean confidence)^2 - accuracy (1 - "
           "accuracy) / (|B| - 1)] over the bins of ece, at least 0 (Kumar et al. 2019)"),
        _M("ece_classwise", "classwise ECE", -1, "mean over the classes of the calibration error of their "
           "probability, bins of equal width"),
        _M("brier", "Brier", -1, "mean over the examples of sum over the classes of (p - 1{label})^2, from 0 to 2"),
        _M("nll", "NLL", -1, "mean of -ln p of the label in nats, p at least 2.2e-16", "nats"),
        _M("alignment_error", "alignment error", -1, "sum |B|/n |mean(-ln p of the label) - mean entropy| in nats "
           "over bins of equal mass along the entropy", "nats"),
        _M("uce", "UCE", -1, "sum |B|/n |share of wrong answers - mean uncertainty| over bins (low, high] of equal "
           "width along it"),
        _M("uncertainty_accuracy", "uA", 1, "largest share over all tau of answers with (uncertainty > tau) == wrong"),
        _M("uncertainty_accuracy_val", "uA, tau from validation", 1, "share of answers with (uncertainty > tau) == "
           "wrong, at a given tau"),
        _M("uncertainty_auc", "uAUC", 1, "chance that a wrong answer is more uncertain than a right one, ties half"),
        _M("residual_correlation", "corr", 1, "Pearson correlation of the uncertainty with 1{wrong}"),
        _M("residual_correlation_probability", "corr with 1 - p", 1, "Pearson correlation of the uncertainty with "
           "1 - p of the label"),
        _M("residual_correlation_nll", "corr with -ln p", 1, "Pearson correlation of the uncertainty with -ln p of "
           "the label, p at least 2.2e-16"),
        _M("wasserstein", "W1", 1, "Wasserstein distance W1 between the uncertainties of wrong and of right answers"),
        _M("uncertainty_gap", "uncertainty gap", 1, "mean uncertainty of the wrong answers minus that of the right "
           "ones"),
        _M("flip_error", "error after flip", -1, "share of wrong answers after flipping those with uncertainty > tau, "
           "at a given tau"),
        _M("flip_f1", "F1 after flip", 1, "F1 of the positive class after the flip"),
        _M("flip_precision", "precision after flip", 1, "precision of the positive class after the flip"),
        _M("flip_tpr", "TPR after flip", 1, "true positive rate after the flip"),
        _M("flip_tnr", "TNR after flip", 1, "true negative rate after the flip"),
        _M("mean_uncertainty", "mean uncertainty", 0, "mean of the uncertainty, from 0 (certain) to 1 (uniform)"),
        _M("conformal_coverage", "conformal coverage", 0, "share of rows whose conformal prediction set holds "
           "the label"),
        _M("prediction_set_size", "set size", -1, "mean number of classes in the conformal prediction sets"),
        _M("group_share", "share of rows", 0, "share of rows whose prediction set is of this size"),
        _M("ood_auroc", "OOD AUROC", 1, "chance that an example from out of distribution is more uncertain than one "
           "from within, ties half"),
        _M("ood_aupr", "OOD AUPR", 1, "average precision of the uncertainty, examples from out of distribution being "
           "the positives"),
        _M("ood_fpr95", "OOD FPR95", -1, "share of examples from within that are called out of distribution where "
           "95 % of those from out are"),
    ),
    "numbers": _infos(
        _M("mse", "MSE", -1, "mean of the squared error (target - mean)^2", "target²"),
        _M("nll", "NLL", -1, "mean of ln(2 pi variance) / 2 + (target - mean)^2 / (2 variance), nats", "nats"),
        _M("regression_ece", "ECE", -1, "mean over p = 0, 1/99, ..., 1 of |share of targets within the central "
           "interval of probability p - p|, at most 0.5"),
        _M("rmsce", "RMSCE", -1, "root of the mean over p = 0, 1/99, ..., 1 of (share of targets within the central "
           "interval of probability p - p)^2"),
        _M("kuleshov_error", "Kuleshov error", -1, "sum over p = 0, 1/99, ..., 1 of (share of targets below the "
           "predicted p-quantile - p)^2 (Kuleshov et al. 2018)"),
        _M("coverage_95", "coverage of 95 %", 0, "share of targets within the central interval of probability 0.95"),
        _M("coverage_95_gap", "coverage gap of 95 %", -1, "|coverage_95 - 0.95|"),
        _M("ence", "ENCE", -1, "mean over 10 bins of equally many rows along the variance of |RMV - RMSE| / RMV, the "
           "roots of the mean variance and of the mean squared error in the bin; bins with RMV 0 are left out (Levi "
           "et al. 2019)"),
        _M("alignment_error", "alignment error", -1, "sum |B|/n |mean squared error - mean variance| over 15 bins of "
           "equal mass along the variance", "target²"),
        _M("ause", "AUSE", -1, "area, over the share k/n of rows removed (k = 0..n-1), between the mean squared "
           "errors of what is left after removing those of largest variance and those of largest error, divided by "
           "that of all rows; ties count with the mean of their group"),
        _M("corr_error_pe", "corr(error, PE)", 1, "Pearson correlation of the squared error with the predictive "
           "entropy ln(2 pi e variance) / 2"),
        _M("corr_error_var", "corr(error, variance)", 1, "Pearson correlation of the squared error with the variance"),
        _M("mean_std", "mean std", 0, "mean of the standard deviation", "target"),
        _M("sharpness", "sharpness", 0, "root of the mean variance", "target"),
        _M("conformal_coverage", "conformal coverage", 0, "share of targets within the conformal interval"),
        _M("interval_width", "interval width", -1, "mean width of the conformal intervals", "target"),
        _M("group_share", "share of rows", 0, "share of rows whose interval is in this third of the widths"),
    ),
}  # fmt: skip


def metric_info(name: str, kind: str = "") -> MetricInfo:
    """
    What a metric is.

    Args:
        name (`str`):
            Its key in a report; a number may follow: `prr_0.5`, `risk_at_coverage_0.8`.
        kind (`str`, *optional*):
            Kind of the report, `text`, `classes` or `numbers`, for names that several of them have.
    """
    groups = [METRICS[kind], METRICS["shared"]] if kind else [*METRICS.values()]
    info, number = next((infos[name] for infos in groups if name in infos), None), ""
    if info is None and (name in QUALITIES or ":" in name) and kind in ("", "text"):  # judges of others
        label = judge_label(name)
        return MetricInfo(name, label, 1, f"mean {label} of the outputs", "%")
    if info is None:
        base, _, number = name.rpartition("_")
        info = METRICS["shared"].get(base)
        if info is None or not info.argument or not re.fullmatch(r"[01]?\.?\d+", number) or float(number) > 1:
            known = ", ".join(name for infos in groups for name in infos)
            raise ValueError(f"There is no metric {name!r}; the metrics are {known}.")
    if METRICS["shared"].get(info.name) is not info:
        return info
    definition = info.definition
    if info.argument and (number or info.argument == "max_rejection"):
        definition += f"; {info.argument} = {float(number or 1):g}"
    if kind == "classes":
        definition += "; quality = 1{right}"
    return replace(info, name=name, heading=f"{info.heading} {number}".strip(), definition=definition)


def metric_definitions(names: Iterable[str], kind: str = "") -> dict[str, str]:
    """The definitions of some metrics, by name."""
    return {name: metric_info(name, kind).definition for name in names}


def format_metric(
    entry: Entry | None,
    name: str = "",
    kind: str = "",
    sign: str = "",
    minus: str = "-",
    interval: str | None = " [{}, {}]",
) -> str:
    """
    A metric with its interval, as every table, page and card writes it: three digits after the point, one where a
    number is 100 or larger or the metric goes from 0 to 100, and four in all in units of the target, whose size may be
    any. A dash where it is undefined.

    Args:
        entry ([`Measured`] or `Mapping`):
            The metric, or its entry of a `report.json`.
        name, kind (`str`, *optional*):
            Its name and the kind of its report, which give the unit: see [`metric_info`].
        sign (`str`, *optional*):
            `"+"` for differences.
        minus (`str`, *optional*, defaults to `"-"`):
            The minus sign.
        interval (`str`, *optional*, defaults to `" [{}, {}]"`):
            How the ends of the interval follow the value; `None` leaves them out. See also [`format_interval`].
    """
    texts = _number_texts(entry or {}, name, kind, sign, minus)
    return texts[0] + (interval.format(*texts[1:]) if interval and len(texts) == 3 else "")


def format_interval(
    entry: Entry | None, name: str = "", kind: str = "", minus: str = "-", interval: str = "{} to {}"
) -> str:
    """The interval of a metric alone, with the digits of [`format_metric`]; nothing where it has none."""
    texts = _number_texts(entry or {}, name, kind, "", minus)
    return interval.format(*texts[1:]) if len(texts) == 3 else ""


def metrics_table(corner: str, columns: Mapping[str, Mapping[str, Entry]], kind: str = "") -> str:
    """The same metrics of several things as a markdown table: a line for each metric, a column for each thing."""
    names = list(next(iter(columns.values())))
    lines = [[corner, *columns]]
    lines += [
        [metric_info(name, kind).heading, *(format_metric(part[name], name, kind) for part in columns.values())]
        for name in names
    ]
    return markdown_table(lines)


def _number_texts(entry: Entry, name: str, kind: str, sign: str, minus: str) -> list[str]:
    """The value and, where there are any, both ends of the interval, all with the same digits."""
    known = {key: entry[key] for key in ("value", "low", "high") if entry.get(key) is not None}
    numbers = [number for number in known.values() if math.isfinite(number)]
    if not math.isfinite(known.get("value", math.nan)):
        return ["-"]
    digits = _digits(max(abs(number) for number in numbers), metric_info(name, kind).unit if name else "")
    return [format_number(number, digits, sign, minus) for number in numbers]


def _digits(size: float, unit: str) -> int:
    """How many digits after the point show numbers up to a size."""
    if unit.startswith("target"):
        return max(0, 3 - math.floor(math.log10(size))) if size else 3
    return 1 if unit == "%" or size >= 100 else 3
