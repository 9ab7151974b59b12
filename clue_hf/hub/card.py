"""The card of a model: what it is, how to ask it for its uncertainty, and how far that can be trusted."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import Environment
from markupsafe import Markup

from .. import __version__
from ..errors import UserError
from ..files import write_text
from ..metrics import metrics_table
from ..pages.environment import make_environment
from ..tables import format_number, markdown_table
from .card_model import ModelFolder, Training, existing_folder, is_hub_id, read_training
from .card_results import COMPARED_WITH, REPORT, CardResults, Report, read_comparison, read_report
from .escape import (
    code_block,
    code_span,
    markdown_text,
    one_line,
    shareable_command,
    without_folders,
    without_secrets,
)


CARD = "README.md"
TAGS = ("clue", "uncertainty", "calibration")
#: Cards that PEFT and transformers leave in a folder by themselves, with nothing of the user's in them.
GENERATED_CARDS = (
    "# Model Card for Model ID",
    "<!-- This model card has been generated automatically according to the information the Trainer had access to.",
)
#: Numbers of a training that a card shows, where they are there.
TRAINING_METRICS = (
    "bleu", "rouge1", "rouge2", "rougeL", "chrf", "exact_match", "token_f1", "contains", "mse", "error", "uncertainty",
    "alignment_error", "token_ece", "ece", "uncertainty_auc", "regression_ece", "nll",
)  # fmt: skip
# a card carries the hash of itself, from which it is seen whether somebody edited it
_MARKED, _UNSIGNED = "<!-- clue-hf card ", "0" * 16
_MARKER = re.compile(_MARKED + r"([0-9a-f]{16}); [^>]*-->")


def _environment() -> Environment:
    """Whatever a template shows is escaped for markdown, unless a filter or the code here made it markdown."""
    environment = make_environment(
        Path(__file__).with_name("templates"),
        finalize=lambda value: value if hasattr(value, "__html__") else Markup(markdown_text(value)),
    )
    environment.filters |= {
        "address": lambda name: Markup(quote(name)),
        "code": lambda text: Markup(code_span(text)),
        "code_block": lambda text, language: Markup(code_block(text, language)),
        "command": shareable_command,
        "short_name": without_folders,
    }
    return environment


@dataclass(frozen=True)
class CardOptions:
    """
    What a card cannot know by itself.

    Args:
        model_id (`str`, *optional*):
            The model's name on the Hub; by default that of its folder.
        license, language (`str`, *optional*):
            License and language in the metadata of the card.
        datasets (`Sequence[str]`, *optional*):
            Hub ids of the training data; by default that of the report, where it is from the Hub.
        tags (`Sequence[str]`, *optional*):
            Further tags.
    """

    model_id: str | None = None
    license: str | None = None
    language: str | None = None
    datasets: Sequence[str] = field(default_factory=tuple)
    tags: Sequence[str] = field(default_factory=tuple)

    @classmethod
    def read(cls, path: Path) -> CardOptions:
        """The options that a card was written with, but the model's name."""
        data = ModelCard(path.read_text(encoding="utf-8"), ignore_metadata_errors=True).data
        license, language = (
            data.get(name) if isinstance(data.get(name), str) else None for name in ("license", "language")
        )
        tags = [tag for tag in data.get("tags") or () if tag not in TAGS]
        return cls(None, license, language, tuple(data.get("datasets") or ()), tuple(tags))


def write_card(
    folder: str | Path,
    report: str | Path | Report | None = None,
    baseline: str | Path | None = None,
    options: CardOptions | None = None,
    training: Training | None = None,
    overwrite: bool = False,
) -> Path:
    """
    Writes the `README.md` of a model. The same report gives the same bytes.

    Args:
        folder (`str`):
            The model's folder.
        report (`str` or report, *optional*):
            The folder of its report, which is copied into the model's folder without the examples, or a report in
            memory; by default the report in the model's folder.
        baseline (`str`, *optional*):
            Folder of the report on another model on the same data, or `"none"`; by default the model that this one
            was compared with.
        options ([`CardOptions`], *optional*):
            Name, license, language, datasets and tags.
        training ([`Training`], *optional*):
            How it was trained; by default as in `results.json`.
        overwrite (`bool`, *optional*, defaults to `False`):
            Replace a card that somebody wrote or edited.
    """
    folder = existing_folder(folder)
    path = folder / CARD
    if not overwrite and path.exists() and not is_ours(path):
        raise UserError(f"{path} was not written by clue-hf, or was edited since: move it away, or --overwrite true.")
    if isinstance(report, str | Path):
        _copy_report(Path(report), folder / REPORT)
        report = None
    write_text(path, make_card(folder, baseline, options or CardOptions(), training, report))
    return path


def is_ours(path: Path) -> bool:
    """Whether a card was written by a program and not touched since: it may be written again."""
    text = path.read_text(encoding="utf-8", errors="replace")
    marker = _MARKER.search(text)
    if marker is None:
        return any(line in text for line in GENERATED_CARDS)
    return marker[1] == _digest(text.replace(f"{_MARKED}{marker[1]}", f"{_MARKED}{_UNSIGNED}", 1))


def make_card(
    folder: Path,
    baseline: str | Path | None,
    options: CardOptions,
    training: Training | None = None,
    report: Report | None = None,
) -> str:
    """The text of a card; see [`write_card`]."""
    model, training = ModelFolder(folder), training or read_training(folder)
    results = _results(folder / REPORT, report, baseline)
    name = one_line(options.model_id or folder.resolve().name)
    names = _training_metrics(training)
    training_definitions = {
        name.replace("_", " "): definition for name, definition in training.definitions.items() if name in names
    }
    text = (
        _environment()
        .get_template("card.md")
        .render(
            metadata=Markup(_metadata(model, training, results, options, name)),
            marker=Markup(f"{_MARKED}{_UNSIGNED}; once edited it is yours, and is not written again -->"),
            title=name.rsplit("/", 1)[-1],
            name=name,
            model=model,
            training=training,
            base_model=without_folders(model.made_from or training.base_model or ""),
            token_table=Markup(metrics_table("reference tokens", model.baked.metrics, "text") if model.baked else ""),
            report=results,
            table=Markup(results.table() if results else _training_table(training)),
            pictures=sorted((folder / REPORT).glob("*.png")),
            definitions=results.definitions() if results else training_definitions,
            versions=(results and results.report.description.get("versions")) or {"clue_hf": __version__},
        )
    )
    text = without_secrets(text)
    return text.replace(f"{_MARKED}{_UNSIGNED}", f"{_MARKED}{_digest(text)}", 1)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _results(folder: Path, report: Report | None, baseline: str | Path | None) -> CardResults | None:
    """The report, in memory or in a folder, and the one to show beside it."""
    if report is None and not (folder / "report.json").is_file():
        return None
    other = None
    if baseline is None:
        compared = folder / COMPARED_WITH
        other = read_report(compared) if (compared / "report.json").is_file() else None
    elif str(baseline).lower() != "none":
        other = read_report(Path(baseline))
    return CardResults(report or read_report(folder), read_comparison(folder), other)


def _copy_report(source: Path, target: Path) -> None:
    """Copies what a card shows into the folder of the model, so that its pictures are found there."""
    read_report(source)
    if source.resolve() == target.resolve():
        return
    if any((target / name).exists() for name in ("examples.jsonl", "predictions.jsonl")):
        raise UserError(f"{target} holds another report: move it away, or leave out --report.")
    shutil.rmtree(target, ignore_errors=True)  # an earlier copy
    (target / COMPARED_WITH).mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.name in ("report.json", "comparison.json", "summary.md") or path.suffix in (".png", ".svg"):
            shutil.copyfile(path, target / path.name)
    compared = Path(COMPARED_WITH, "report.json")
    if (source / compared).is_file():
        shutil.copyfile(source / compared, target / compared)


# ---- the metadata, which the Hub's search and leaderboards read ----


def _metadata(
    model: ModelFolder, training: Training, results: CardResults | None, options: CardOptions, name: str
) -> str:
    base = model.made_from or training.base_model
    datasets = list(options.datasets) or ([results.data] if results and is_hub_id(results.data) else [])
    card = ModelCardData(
        model_name=name,
        base_model=one_line(base) if base and is_hub_id(base, owned=False) else None,
        datasets=[one_line(entry) for entry in datasets] or None,
        language=one_line(options.language) if options.language else None,
        license=one_line(options.license) if options.license else None,
        library_name="peft" if model.adapter else "transformers",
        pipeline_tag=model.task,
        tags=list(dict.fromkeys([*TAGS, *map(one_line, options.tags)])),
        eval_results=list(_eval_results(model, results)) if results else None,
    )
    return card.to_yaml()


def _eval_results(model: ModelFolder, results: CardResults) -> Iterator[EvalResult]:
    for metric in results.metrics:
        if metric.measured["value"] is not None:
            yield EvalResult(
                task_type=model.task,
                dataset_type=results.data,
                dataset_name=results.data,
                dataset_split=results.split or None,
                metric_type=one_line(metric.name),
                metric_value=metric.measured.value,
                metric_name=one_line(metric.full_label),
                metric_config=one_line(metric.variant) or None,
            )


# ---- the results of a training, where there is no report ----


def _training_metrics(training: Training) -> list[str]:
    rows = training.rows
    return [name for name in TRAINING_METRICS if any(isinstance(row.get(name), int | float) for row in rows)]


def _training_table(training: Training) -> str:
    names = _training_metrics(training)
    lines = [["objective", "split", *(markdown_text(name.replace("_", " ")) for name in names)]]
    for row in training.rows:
        labels = [markdown_text(row.get(name, "-")) for name in ("objective", "split")]
        numbers = [row.get(name) if isinstance(row.get(name), int | float) else None for name in names]
        lines.append([*labels, *(format_number(number, 3) for number in numbers)])
    return markdown_table(lines)
