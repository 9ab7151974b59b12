"""The report of an evaluation: its numbers, every example, and files that others can read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..metrics import paired_bootstrap, prediction_rejection_ratio, split_of_area_gain
from ..tables import markdown_table


@dataclass
class EvaluationReport:
    """
    What [`UncertaintyEvaluator`] found.

    Args:
        examples (`list[dict]`):
            Per row of the data: source, reference, output, quality, every score, tokens with their log-probability and
            entropy.
        metrics (`dict`):
            Quality, calibration on the references, and the rejection metrics of every scorer. An undefined one is
            `None` with a reason.
        description (`dict`):
            Definitions, settings and versions.
    """

    examples: list[dict[str, Any]]
    metrics: dict[str, Any]
    description: dict[str, Any]

    def table(self) -> str:
        """The scorers as a markdown table: the ratio first, with its interval."""
        names = ["prr", "prr_0.5", "rejection_area", "aurc", "e_aurc", "augrc"]
        lines = [["scorer", *names]]
        for scorer, metrics in self.metrics["scorers"].items():
            lines.append([scorer, *(_cell(metrics[name]) for name in names)])
        return markdown_table(lines)

    def summary(self) -> str:
        """The report in words and a table, as markdown."""
        metrics, references = self.metrics, self.metrics["references"]
        [corpus] = [name for name in metrics if name.startswith("corpus_")]
        lines = [
            "# Uncertainty report",
            f"{metrics['n']:,} outputs ({metrics['empty_outputs']} empty), {corpus.replace('_', ' ')} "
            f"{metrics[corpus]:.1f}, mean quality {metrics['mean_quality']:.3f} ({self.description['quality']}).",
            self.table(),
            f"Intervals: {self.description['interval']}. `prr`: 1 is as good as knowing the quality, 0 is useless; "
            "`_0.5`: at most half of the outputs rejected. Areas are in units of quality and depend on it.",
            f"On {references['tokens']:,} reference tokens: error {references['error']:.3f} and uncertainty "
            f"{references['uncertainty']:.3f} nats, alignment error {references['alignment_error']:.3f}, token ECE "
            f"{references['token_ece']:.3f}.",
        ]
        return "\n\n".join(lines) + "\n"

    def compare(self, other: EvaluationReport, resamples: int = 2000) -> dict[str, dict[str, Any]]:
        """
        This report minus another on the same rows, for each scorer both have: the difference in `prr` with its
        interval and p-value (paired bootstrap), and the difference in raw area split into ranking and quality.
        """
        rows, others = ([example["source"] for example in report.examples] for report in (self, other))
        if rows != others:
            raise ValueError("The reports are about different data: their sources differ.")
        found = {}
        for name in self.metrics["scorers"]:
            if name in other.metrics["scorers"]:
                mine, theirs = self._pair(name), other._pair(name)
                difference = paired_bootstrap(prediction_rejection_ratio, mine, theirs, resamples=resamples)
                found[name] = {"prr": asdict(difference), "area": split_of_area_gain(*mine, *theirs)}
        return found

    def _pair(self, scorer: str) -> tuple[np.ndarray, np.ndarray]:
        """Uncertainty and quality of every example."""
        uncertainty = np.array([example["scores"][scorer] for example in self.examples])
        return uncertainty, np.array([example["quality"] for example in self.examples])

    def save(self, folder: str | Path) -> None:
        """Writes `report.json`, `examples.jsonl` and `summary.md`."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        content = {"metrics": self.metrics, "description": self.description}
        (folder / "report.json").write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
        with open(folder / "examples.jsonl", "w", encoding="utf-8") as file:
            for example in self.examples:
                file.write(json.dumps(example, ensure_ascii=False) + "\n")
        (folder / "summary.md").write_text(self.summary(), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> EvaluationReport:
        """Reads what `save` wrote."""
        content = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
        with open(Path(folder) / "examples.jsonl", encoding="utf-8") as file:
            examples = [json.loads(line) for line in file]
        return cls(examples, content["metrics"], content["description"])


def _cell(entry: dict[str, Any]) -> str:
    if entry["value"] is None:
        return "-"
    interval = f" [{entry['low']:.3f}, {entry['high']:.3f}]" if "low" in entry else ""
    return f"{entry['value']:.3f}{interval}"
