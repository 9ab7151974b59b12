"""`clue-hf evaluate`: generates with a model, scores every output, and tells how well the scores know the quality."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.loading import DataArguments, load_splits
from ..errors import UserError
from ..evaluation import EvaluationReport, UncertaintyEvaluator
from ..metrics.quality import QUALITIES
from ..models.loading import load_text_model, load_tokenizer
from ..scorers import SCORERS
from ..tables import markdown_table
from .parser import ConfigParser
from .train import DATA_ALTERNATIVES, TYPES


@dataclass
class EvaluateArguments:
    """What to evaluate and how. The options that training shares have the same names and meanings."""

    split: str = field(default="test", metadata={"help": "Split of the data to evaluate on."})
    compare: str | None = field(
        default=None, metadata={"help": "Another model, on the same data: adds the paired difference per scorer."}
    )
    scorers: list[str] = field(
        default_factory=lambda: list(SCORERS), metadata={"help": "Scorers, separated by spaces or commas."}
    )
    quality: str = field(default="bleu", metadata={"help": f"How outputs are judged: {', '.join(QUALITIES)}."})
    source_column: str | None = field(default=None, metadata={"help": "Column of the source text or prompt."})
    target_column: str | None = field(default=None, metadata={"help": "Column of the reference text."})
    source_prefix: str = field(default="", metadata={"help": "Text put before every source."})
    max_source_length: int = field(default=512, metadata={"help": "Longer sources are truncated to so many tokens."})
    max_target_length: int = field(default=128, metadata={"help": "Longest output, in tokens."})
    generation_num_beams: int = field(default=1, metadata={"help": "Beams of the output (1: greedy)."})
    num_samples: int = field(default=10, metadata={"help": "Samples per source, for the scorers that need them."})
    per_device_eval_batch_size: int = field(default=16, metadata={"help": "Sources per batch."})
    resamples: int = field(default=2000, metadata={"help": "Bootstrap resamples of the intervals; 0: none."})
    seed: int = field(default=42, metadata={"help": "Seed of the samples."})
    report_dir: str | None = field(
        default=None, metadata={"help": "Folder of the report (default: uncertainty_report in the model's folder)."}
    )

    def __post_init__(self) -> None:
        self.scorers = [name for words in self.scorers for name in words.split(",") if name]
        for name in self.scorers:
            if name not in SCORERS:
                raise ValueError(f"`scorers` must be among {', '.join(SCORERS)}, not {name!r}.")
        if self.quality not in QUALITIES:
            raise ValueError(f"`quality` must be one of {', '.join(QUALITIES)}, not {self.quality!r}.")


GROUPS = {
    "Options": [
        "config", "split", "compare", "scorers", "quality", "max_target_length", "generation_num_beams", "num_samples",
        "per_device_eval_batch_size", "resamples", "seed", "report_dir", "help", "help_all",
    ],
    "Data": [
        "dataset_name", "dataset_config", "dataset_revision", "train_file", "validation_file", "test_file",
        "source_column", "target_column", "source_prefix", "max_source_length", "train_split", "validation_split",
        "test_split", "split_column", "validation_fraction", "test_fraction", "split_seed", "max_eval_samples",
    ],
}  # fmt: skip

DESCRIPTION = """MODEL is a Hub id or a folder. Generates an output for every row of a split, scores each with up to
seven scorers, judges it against the reference, and reports how well the scores tell good outputs from bad ones (PRR,
areas, AURC ... with intervals). --config takes the YAML file of a training: data, columns and lengths are then the
same."""

EXAMPLES = """Examples:
  clue-hf evaluate out/quickstart/clue --config configs/quickstart/t5_phrases.yaml
  clue-hf evaluate out/quickstart/clue --config configs/quickstart/t5_phrases.yaml --compare out/quickstart/ce
  clue-hf evaluate google-t5/t5-small --dataset_name ./my-data --scorers msp,perplexity --quality rouge2"""


def command(words: Sequence[str]) -> int:
    """Runs `clue-hf evaluate`; returns its exit code."""
    parser = ConfigParser(
        (EvaluateArguments, DataArguments), GROUPS, (DATA_ALTERNATIVES,), EXAMPLES, TYPES,
        prog="clue-hf evaluate MODEL", description=DESCRIPTION,
    )  # fmt: skip
    model, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else (None, words)
    arguments, data = parser.parse(rest)
    if model is None:
        raise UserError("Which model? clue-hf evaluate MODEL --config CONFIG.yaml")
    data.report_splits = [arguments.split]
    rows = load_splits(data, arguments.source_column, arguments.target_column)[arguments.split]
    report = evaluate_model(model, rows, arguments)
    folder = Path(arguments.report_dir or _default_folder(model))
    report.save(folder)
    print("\n" + report.summary())
    if arguments.compare:
        other = evaluate_model(arguments.compare, rows, arguments)
        other.save(folder / "compared_with")
        difference = report.compare(other, max(arguments.resamples, 1))
        (folder / "comparison.json").write_text(json.dumps(difference, indent=2) + "\n")
        print(f"{model} minus {arguments.compare}, on the same rows:\n\n{_difference_table(difference)}\n")
    print(f"Written to {folder}: report.json, examples.jsonl (every output, score and token), summary.md.")
    return 0


def evaluate_model(name: str, rows: Any, arguments: EvaluateArguments) -> EvaluationReport:
    """The report about one model."""
    evaluator = UncertaintyEvaluator(
        load_text_model(name),
        load_tokenizer(name),
        arguments.scorers,
        arguments.quality,
        arguments.resamples,
        max_new_tokens=arguments.max_target_length,
        max_source_length=arguments.max_source_length,
        source_prefix=arguments.source_prefix,
        num_samples=arguments.num_samples,
        batch_size=arguments.per_device_eval_batch_size,
        seed=arguments.seed,
        num_beams=arguments.generation_num_beams,
    )
    return evaluator.evaluate(rows, arguments.source_column, arguments.target_column)


def _default_folder(model: str) -> str:
    return os.path.join(model, "uncertainty_report") if os.path.isdir(model) else "uncertainty_report"


def _difference_table(difference: dict[str, dict[str, Any]]) -> str:
    lines = [["scorer", "prr", "p", "raw area", "of which ranking", "of which quality"]]
    for name, entry in difference.items():
        prr, area = entry["prr"], entry["area"]
        lines.append(
            [
                name,
                f"{prr['value']:+.3f} [{prr['low']:+.3f}, {prr['high']:+.3f}]",
                f"{prr['p_value']:.3f}",
                *(f"{area[part]:+.3f}" for part in ("difference", "ranking", "quality")),
            ]
        )
    return markdown_table(lines)
