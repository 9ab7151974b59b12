"""The card of a model: what it is, how to ask it for its uncertainty, and how far that can be trusted."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from .. import __version__
from ..errors import UserError
from ..files import write_text
from ..tables import markdown_table, metric_cell
from .card_model import ModelFolder, Training, is_hub_id, read_training, short_name
from .card_reports import COMPARED_WITH, REPORT, CardReport, Shown, read_report
from .escape import code_block, code_span, markdown_text, one_line, shareable_command, without_secrets


CARD = "README.md"
TAGS = ("clue", "uncertainty", "calibration")
TEMPLATE = Path(__file__).with_name("card_template.md")
#: Cards that PEFT and transformers leave in a folder by themselves, with nothing of the user's in them.
OF_MACHINES = (
    "# Model Card for Model ID",
    "<!-- This model card has been generated automatically according to the information the Trainer had access to.",
)
#: Numbers of a training that a card shows, where they are there.
OF_TRAINING = ("bleu", "rouge1", "rouge2", "rougeL", "chrf", "mse", "error", "uncertainty", "alignment_error",
               "token_ece", "ece", "uncertainty_auc", "regression_ece", "nll")  # fmt: skip
# a card carries the hash of itself, from which it is seen whether somebody edited it
_MARKED, _UNSIGNED = "<!-- clue-hf card ", "0" * 16
_MARKER = re.compile(_MARKED + r"([0-9a-f]{16}); [^>]*-->")


@dataclass(frozen=True)
class Wishes:
    """
    What a card cannot know by itself.

    Args:
        model_id (`str`, *optional*):
            The model's name on the Hub; by default that of its folder.
        license, language (`str`, *optional*):
            For the head of the card; only what is given is there.
        datasets (`Sequence[str]`, *optional*):
            Hub ids of the training data; by default those of the report's, where it is from the Hub.
        tags (`Sequence[str]`, *optional*):
            Further tags.
    """

    model_id: str | None = None
    license: str | None = None
    language: str | None = None
    datasets: Sequence[str] = field(default_factory=tuple)
    tags: Sequence[str] = field(default_factory=tuple)


def write_card(
    folder: str | Path,
    report: str | Path | None = None,
    baseline: str | Path | None = None,
    wishes: Wishes | None = None,
    training: Training | None = None,
    overwrite: bool = False,
) -> Path:
    """
    Writes the `README.md` of a model. The same report gives the same bytes.

    Args:
        folder (`str`):
            The model's folder.
        report (`str`, *optional*):
            Folder of its report, of which all but the examples is copied into the model's; by default the report that
            is there.
        baseline (`str`, *optional*):
            Folder of the report about another model on the same data, or `"none"`; by default the one that this model
            was compared with.
        wishes ([`Wishes`], *optional*):
            What else the card should say.
        training ([`Training`], *optional*):
            How it was trained; by default as `results.json` tells.
        overwrite (`bool`, *optional*, defaults to `False`):
            Replace a card that somebody wrote.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"There is no folder {str(folder)!r}: give that of a model.")
    path = folder / CARD
    if not overwrite and path.exists() and not is_ours(path):
        raise UserError(f"{path} was not written by clue-hf, or was edited since: move it away, or --overwrite true.")
    if report is not None:
        _copy_report(Path(report), folder / REPORT)
    write_text(path, make_card(folder, baseline, wishes or Wishes(), training))
    return path


def is_ours(path: Path) -> bool:
    """Whether a card was written by a program and not touched since: it may be written again."""
    text = path.read_text(encoding="utf-8", errors="replace")
    found = _MARKER.search(text)
    if found is None:
        return any(words in text for words in OF_MACHINES)
    return found[1] == _digest(text.replace(f"{_MARKED}{found[1]}", f"{_MARKED}{_UNSIGNED}", 1))


def wishes_of(path: Path) -> Wishes:
    """What was asked for when a card was written."""
    data = ModelCard(path.read_text(encoding="utf-8"), ignore_metadata_errors=True).data
    words = {name: data.get(name) for name in ("license", "language")}
    given = {name: value if isinstance(value, str) else None for name, value in words.items()}
    tags = [tag for tag in data.get("tags") or () if tag not in TAGS]
    return Wishes(**given, datasets=tuple(data.get("datasets") or ()), tags=tuple(tags))


def make_card(folder: Path, baseline: str | Path | None, wishes: Wishes, training: Training | None = None) -> str:
    """The text of a card."""
    model, training = ModelFolder(folder), training or read_training(folder)
    report = read_report(folder / REPORT) if (folder / REPORT / "report.json").is_file() else None
    name = one_line(wishes.model_id or folder.resolve().name)
    parts = {
        "metadata": _metadata(model, training, report, wishes, name),
        "marker": f"{_MARKED}{_UNSIGNED}; once edited it is yours, and is not written again -->",
        "title": markdown_text(name.rsplit("/", 1)[-1]),
        "about": _about(model, training),
        "usage": f"{model.usage(name)}\n\n{model.about_answers()}",
        "results": _results(folder, report, baseline, training),
        "training": _training(training),
        "definitions": _definitions(report, training),
        "limits": _items(_limits(model, report)),
    }
    # one pass: a text that looks like a placeholder stays a text
    template = TEMPLATE.read_text(encoding="utf-8")
    text = without_secrets(re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template))
    return text.replace(f"{_MARKED}{_UNSIGNED}", f"{_MARKED}{_digest(text)}", 1)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _copy_report(source: Path, target: Path) -> None:
    """Brings what a card shows into the folder of the model, so that its pictures are found there."""
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
    beside = Path(COMPARED_WITH, "report.json")
    if (source / beside).is_file():
        shutil.copyfile(source / beside, target / beside)


# ---- the head: what the Hub's search and leaderboards read ----


def _metadata(model: ModelFolder, training: Training, report: CardReport | None, wishes: Wishes, name: str) -> str:
    base = model.adapter.get("base_model_name_or_path") or training.base_model
    data, _ = _data(report)
    datasets = list(wishes.datasets) or ([data] if is_hub_id(data) else [])
    card = ModelCardData(
        model_name=name,
        base_model=one_line(base) if base and (is_hub_id(base) or _is_old_id(base)) else None,
        datasets=[one_line(entry) for entry in datasets] or None,
        language=one_line(wishes.language) if wishes.language else None,
        license=one_line(wishes.license) if wishes.license else None,
        library_name="peft" if model.adapter else "transformers",
        pipeline_tag=model.task,
        tags=list(dict.fromkeys([*TAGS, *map(one_line, wishes.tags)])),
        eval_results=list(_eval_results(model, report)) or None,
    )
    return card.to_yaml()


def _is_old_id(name: str) -> bool:
    """Ids without an owner, as those of the first models on the Hub."""
    return bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*", name)) and not Path(name).exists()


def _eval_results(model: ModelFolder, report: CardReport | None) -> Iterator[EvalResult]:
    if report is None:
        return
    data, split = _data(report)
    for shown in report.shown():
        if shown.entry["value"] is not None:
            yield EvalResult(
                task_type=model.task,
                dataset_type=data,
                dataset_name=data,
                dataset_split=split or None,
                metric_type=one_line(shown.name),
                metric_value=shown.entry["value"],
                metric_name=one_line(shown.words),
                metric_config=one_line(shown.variant) or None,
            )


def _data(report: CardReport | None) -> tuple[str, str]:
    """Name and split of the data of a report: `name (config, split)`."""
    told = one_line(report.description.get("data") or "data of its own") if report else ""
    found = re.fullmatch(r"(.+) \(([^()]*)\)", told)
    name, words = (found[1], found[2]) if found else (told, "")
    return short_name(name), words.rsplit(", ", 1)[-1]


# ---- the sections ----


def _about(model: ModelFolder, training: Training) -> str:
    base = short_name(model.adapter.get("base_model_name_or_path") or training.base_model)
    kind = " ".join(["A", *filter(None, [markdown_text(model.config.get("model_type", ""))]), "model"])
    kind = "An adapter (PEFT)" if model.adapter else kind
    lines = [f"{kind} for {model.task.replace('-', ' ')}" + (f", made from {code_span(base)}" if base else "") + "."]
    if training.objective == "clue":
        weight = "" if training.alpha is None else f" with alpha = {training.alpha:g}"
        lines.append(
            f"It was trained with CLUE{weight}, so that its uncertainty matches its error: "
            "loss = alpha · error + (1 - alpha) · (error - uncertainty)²."
        )
    elif training.objective:
        lines.append(f"It was trained with the objective {code_span(training.objective)} of clue\\_hf.")
    lines.append("It says how uncertain it is of each of its answers.")
    return " ".join(lines)


def _results(folder: Path, report: CardReport | None, baseline: str | Path | None, training: Training) -> str:
    if report is None:
        if training.rows:
            return f"What was measured at the end of the training, without intervals:\n\n{_rows_table(training.rows)}"
        return "Not evaluated yet: `clue-hf evaluate` measures how far the uncertainty can be trusted."
    other, other_name = _baseline(folder / REPORT, baseline)
    data, split = _data(report)
    told = code_span(data) + (f", split {code_span(split)}" if split else "")
    table = _table(report, other, other_name)
    pictures = [
        f"![{path.stem.replace('_', ' ')}]({REPORT}/{quote(path.name)})"
        for path in sorted((folder / REPORT).glob("*.png"))
    ]
    with_intervals = any(shown.entry.get("low") is not None for shown in report.shown())
    words = f"On {told}: {report.metrics['n']:,} {report.unit}{', with 95 % intervals' if with_intervals else ''}."
    if other is not None and report.differences():
        words += f" Difference: this model minus {code_span(other_name)} on the same {report.unit}."
    return "\n\n".join([words, table, *pictures])


def _baseline(folder: Path, wish: str | Path | None) -> tuple[CardReport | None, str]:
    """The report to show beside, and the name of its model."""
    if str(wish).lower() == "none" and wish is not None:
        return None, ""
    place = folder / COMPARED_WITH if wish is None else Path(wish)
    if wish is None and not (place / "report.json").is_file():
        return None, ""
    other = read_report(place)
    return other, short_name(str(other.description.get("model") or "baseline"))


def _table(report: CardReport, other: CardReport | None, other_name: str) -> str:
    beside = {} if other is None else {shown.key: shown for shown in other.shown()}
    differences = report.differences() if other is not None else {}
    heads = ["metric", "of", "this model"]
    heads += [code_span(other_name, in_table=True)] if beside else []
    heads += ["difference"] if differences else []
    lines = [heads]
    for shown in report.shown():
        line = [_cell(shown.heading), _cell(shown.variant), metric_cell(shown.entry, shown.digits)]
        if beside:
            line.append(metric_cell(beside[shown.key].entry, shown.digits) if shown.key in beside else "-")
        if differences:
            line.append(_difference(differences.get(shown.key), shown))
        lines.append(line)
    return markdown_table(lines)


def _difference(entry: dict[str, Any] | None, shown: Shown) -> str:
    if entry is None or entry["value"] is None:
        return "-"
    p_value = entry.get("p_value")
    words = metric_cell(entry, shown.digits, "+")
    return words if p_value is None else f"{words}, p = {p_value:.3f}"


def _cell(text: str) -> str:
    return markdown_text(text) if text else ""


def _shown_of(rows: list[dict[str, Any]]) -> list[str]:
    return [name for name in OF_TRAINING if any(isinstance(row.get(name), int | float) for row in rows)]


def _rows_table(rows: list[dict[str, Any]]) -> str:
    shown = _shown_of(rows)
    lines = [["objective", "split", *(markdown_text(name.replace("_", " ")) for name in shown)]]
    for row in rows:
        numbers = [row.get(name) for name in shown]
        cells = [f"{number:.3f}" if isinstance(number, int | float) else "-" for number in numbers]
        lines.append([markdown_text(row.get("objective", "-")), markdown_text(row.get("split", "-")), *cells])
    return markdown_table(lines)


def _training(training: Training) -> str:
    if not training.is_known:
        return "Nothing is known here of how it was trained."
    parts = [code_block(shareable_command(training.command), "bash")] if training.command else []
    if training.settings:
        pairs = [
            f"{markdown_text(name)} {code_span(short_name(str(value)))}" for name, value in training.settings.items()
        ]
        parts.append(", ".join(pairs) + ".")
    return "\n\n".join(parts) or f"Objective {code_span(training.objective or 'unknown')}."


def _definitions(report: CardReport | None, training: Training) -> str:
    if report is None:
        shown = _shown_of(training.rows)
        found = {name.replace("_", " "): words for name, words in training.definitions.items() if name in shown}
        versions = {"clue_hf": __version__}
    else:
        found = report.definitions()
        versions = report.description.get("versions") or {"clue_hf": __version__}
    lines = [f"**{markdown_text(name)}**: {markdown_text(words)}" for name, words in found.items() if words]
    told = ", ".join(f"{markdown_text(name)} {markdown_text(version)}" for name, version in versions.items())
    return f"{_items(lines)}\n\nMade with {told}.".strip()


def _limits(model: ModelFolder, report: CardReport | None) -> Iterator[str]:
    if report is None:
        yield "Its uncertainty has not been evaluated: nothing here says how far it can be trusted."
    else:
        yield from map(markdown_text, report.limits())
    fitted = model.uncertainty.get("data")
    if isinstance(fitted, dict) and "confidence" in model.uncertainty:
        name = code_span(short_name(str(fitted.get("name", "data of its own"))))
        yield f"Confidence and abstention were fitted on {name} ({markdown_text(fitted.get('rows', '?'))} rows)."
    members = model.uncertainty.get("members")
    if members:
        yield f"It is an ensemble of {len(members) + 1} models, and costs as much."
    yield "On data unlike that of its training and calibration, uncertainty and confidence may be wrong."


def _items(lines: Iterator[str] | Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
