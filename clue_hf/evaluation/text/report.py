"""The report of an evaluation: its numbers, every example, and files that others can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...files import write_lines
from ...metrics import format_metric, paired_rejection_differences, split_of_area_gain
from ...metrics.content import ReportContent
from ...posthoc import cross_fitted_confidence
from ...tables import format_number, markdown_table
from ..report import Differences, SavedReport, p_value_cell
from .examples import FINISHED, Example, ExampleFile
from .measures import GAIN, RIGHT_OR_WRONG
from .page import ranking_sentence, write_page
from .selection import best_scorer


@dataclass
class EvaluationReport(SavedReport):
    """
    The result of [`UncertaintyEvaluator`].

    Args:
        examples (`Sequence[dict]`):
            Per row of the data: source, reference (and `references` where there are several), output, quality, every
            score, tokens with their log-probability and entropy, and the values of the (first) reference's tokens.
        metrics (`dict`):
            Quality, calibration on the references, and the rejection metrics of every scorer, each with value,
            interval and n. An undefined one is `None` with a reason.
        description (`dict`):
            Definitions, settings and versions.
    """

    kind: ClassVar = "text"
    main_metrics: ClassVar = ("prr", "prr_0.5", "rejection_area", "aurc", "e_aurc", "augrc")

    examples: Sequence[Example]
    metrics: dict[str, Any]
    description: dict[str, Any]

    @cached_property
    def _columns(self) -> dict[str, np.ndarray]:
        """Quality and every score, read once."""
        columns = {name: np.empty(len(self.examples)) for name in ("quality", *self.scorers)}
        for row, example in enumerate(self.examples):
            columns["quality"][row] = example["quality"]
            for name in self.scorers:
                columns[name][row] = example["scores"][name]
        return columns

    @property
    def scorers(self) -> list[str]:
        """Names of the scorers."""
        return list(self.metrics["scorers"])

    @property
    def unavailable(self) -> dict[str, str]:
        """The scorers that could not be computed, and why."""
        return self.description.get("unavailable_scorers", {})

    def quality(self) -> np.ndarray:
        """The quality of each example."""
        return self._columns["quality"]

    def uncertainty(self, scorer: str) -> np.ndarray:
        """The score of each example."""
        return self._columns[scorer]

    def confidence(self, scorer: str) -> np.ndarray | None:
        """The quality to expect of each example by its score, learned from the other examples; `None` if too few."""
        return cross_fitted_confidence(self.uncertainty(scorer), self.quality())

    def confidences(self) -> dict[str, np.ndarray]:
        """The [`confidence`] of each scorer that has one."""
        confidences = {name: self.confidence(name) for name in self.scorers}
        return {name: values for name, values in confidences.items() if values is not None}

    def table(self, quality: str | None = None) -> str:
        """The scorers as a markdown table, the ratio first; `quality` names another of the qualities to judge by."""
        scorers = self.metrics["scorers"] if quality is None else self.metrics["other_qualities"][quality]
        right_or_wrong = RIGHT_OR_WRONG if _is_right_or_wrong(scorers) else ()
        missing = dict.fromkeys(self.unavailable, dict[str, Any]())
        return self._metric_table(("scorer",), {**scorers, **missing}, (*self.main_metrics, *right_or_wrong))

    def headline(self) -> str:
        return ranking_sentence(self.metrics["scorers"], best_scorer(self))

    def _paragraphs(self) -> list[str]:
        metrics, description = self.metrics, self.description
        qualities = "; ".join(
            f"{name}: corpus {format_metric(entries['corpus'], 'quality', 'text')}, mean of the outputs "
            f"{format_metric(entries['mean'])} ({description['quality'][name]})"
            for name, entries in metrics["quality"].items()
        )
        return [
            f"{self._subject()}{metrics['n']:,} outputs ({metrics['empty_outputs']} empty). Quality, {qualities}.",
            self.table(),
            f"Judged by {next(iter(metrics['quality']))}. Intervals: {description['interval']}. PRR: 1 is as good as "
            "knowing the quality, 0 is useless; PRR 0.5: at most half of the outputs rejected. Areas are in units "
            "of quality and depend on it: do not compare them between models.",
            *([f"On {_reference_sentence(metrics['references'])}"] if "references" in metrics else []),
            *self._remarks(),
            *(
                part
                for name, scorers in metrics.get("other_qualities", {}).items()
                if _is_right_or_wrong(scorers)
                for part in (f"Judged by {name}, right or wrong:", self.table(name))
            ),
        ]

    def learned_gain(self) -> str:
        """How much better `learned` ranks than the best single scorer, in a sentence; empty without `learned`."""
        entry = self.metrics.get("learned")
        if entry is None:
            return ""
        gain = format_metric(entry[GAIN], GAIN, "text", "+")
        return (
            f"PRR of learned minus that of {entry['single']}, the best single scorer when it was fitted: {gain}, on "
            "the same outputs."
        )

    def _remarks(self) -> list[str]:
        remarks = [gain] if (gain := self.learned_gain()) else []
        remarks += [f"{name} could not be computed: {reason}." for name, reason in self.unavailable.items()]
        if entropy := self.description.get("outputs", {}).get("entropy"):
            remarks.append(f"Entropies are {entropy}.")
        if "learned" in self.metrics:
            remarks.append(f"Learned score: {self.description['scorers']['learned']}")
        cut = self.metrics["outputs"]["cut"]
        if cut:
            limit = self.description.get("generation", {}).get("max_new_tokens")
            at = f" at {limit} tokens" if limit else ""
            remarks.append(f"{cut:,} outputs were cut{at} before they ended, which lowers their quality.")
        if sources := self.metrics["outputs"].get("cut_sources"):
            limit = self.description["generation"]["max_source_length"]
            remarks.append(f"{sources:,} sources were cut at {limit} tokens: the model did not see their end.")
        if counts := self.description.get("references"):
            fewest, most = counts["fewest"], counts["most"]
            each = f"{most}" if fewest == most else f"{fewest} to {most}"
            first = "; reference tokens are those of the first" if "references" in self.metrics else ""
            remarks.append(f"Outputs are judged against {each} references each ({counts['total']:,} in all){first}.")
        if calibrator := self.description.get("signature", {}).get("token_calibrator"):
            name = calibrator["name"]
            remarks.append(
                f"Probabilities are calibrated by the token calibrator {name!r}, which does not change the outputs."
            )
        if before := self.metrics.get("uncalibrated_references"):
            remarks.append(f"Without it, on {_reference_sentence(before)}")
        if compat := self.description.get("compat"):
            remarks.append(f"Scores are computed as in {compat} (compat mode), not by the definitions of clue_hf.")
        share = self.metrics["outputs"].get("share_of_tokens_above_cpmi_tau")
        if share is not None:
            same = " `cpmi` is `perplexity` here." if share == 0 else ""
            remarks.append(f"{share:.1%} of the output tokens have an entropy of cpmi_tau or more.{same}")
        correlations = [
            f"{scorer} {metrics['true_entropy_correlation'].value:.2f}"
            for scorer, metrics in self.metrics["scorers"].items()
            if "true_entropy_correlation" in metrics
        ]
        if correlations:
            remarks.append(f"Rank correlation with the true entropy of the targets: {', '.join(correlations)}.")
        return remarks

    def compare(self, other: EvaluationReport, resamples: int = 2000) -> Differences:
        """
        This report minus another on the same rows, for each scorer both have: the difference of the rejection metrics
        with interval and p-value (paired bootstrap), and that of the raw area split into ranking and quality (`area`).
        """
        rows, others = ((example["source"] for example in report.examples) for report in (self, other))
        if len(self.examples) != len(other.examples) or any(a != b for a, b in zip(rows, others, strict=True)):
            raise ValueError("The reports are about different data: their sources differ.")
        names = [name for name in self.scorers if name in other.scorers]
        mine, theirs = ({name: report.uncertainty(name) for name in names} for report in (self, other))
        differences: Differences = paired_rejection_differences(
            mine, self.quality(), theirs, other.quality(), resamples=resamples
        )
        for name in names:
            differences[name]["area"] = split_of_area_gain(mine[name], self.quality(), theirs[name], other.quality())
        return differences

    def difference_table(self, differences: Differences) -> str:
        lines = [["scorer", "PRR", "p", "raw area", "of which ranking", "of which quality"]]
        for name, metrics in differences.items():
            parts = (format_number(metrics["area"][part], 3, "+") for part in ("difference", "ranking", "quality"))
            lines.append([name, *self._cells(metrics, ["prr"], "+"), p_value_cell(metrics["prr"]), *parts])
        return markdown_table(lines)

    def _save_rows(self, folder: Path) -> None:
        path = folder / FINISHED
        if not isinstance(self.examples, ExampleFile) or self.examples.path.resolve() != path.resolve():
            write_lines(path, self.examples)

    def write_page(
        self, path: str | Path, comparison: Differences | None = None, other: str = "the other model"
    ) -> None:
        """See [`~clue_hf.evaluation.text.page.write_page`]."""
        write_page(self, path, comparison, other)

    @classmethod
    def load(cls, folder: str | Path) -> EvaluationReport:
        """Reads what `save` wrote; the examples stay in their file."""
        content = ReportContent.read(folder)
        return cls(ExampleFile(Path(folder) / FINISHED), content.metrics, content.description)


def _is_right_or_wrong(scorers: dict[str, Any]) -> bool:
    """Whether the quality that these scorers are judged by is right or wrong."""
    return all(RIGHT_OR_WRONG[0] in metrics for metrics in scorers.values())


def _reference_sentence(references: dict[str, Any]) -> str:
    """The calibration on the reference tokens in a sentence."""
    parts = {name: part if name == "tokens" else format_metric(part) for name, part in references.items()}
    return (
        "{tokens:,} reference tokens: error {error} and uncertainty {uncertainty} nats, alignment error "
        "{alignment_error}, token ECE {token_ece}.".format(**parts)
    )
