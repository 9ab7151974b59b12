"""`clue-hf calibrate`: what the uncertainty of a model means, found on held-out data and kept beside the model."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils import logging
from transformers.utils.logging import tqdm

from ..data.loading import DataArguments
from ..deploy.held_out import Calibration, held_out_rows, predictor_settings
from ..deploy.pipeline import UncertaintyPipeline
from ..errors import UserError
from ..metrics.quality import QUALITIES
from ..models.uncertainty_file import UNCERTAINTY_FILE, VERSION, read_uncertainty, write_uncertainty
from ..posthoc import AbstentionThreshold
from ..posthoc.calibration_file import UncertaintyCalibration
from ..predictors.base import Answer, Predictor, TextPredictor
from ..predictors.loading import load_predictor, read_config, save_model
from ..processes import process_state
from ..scorers import SCORERS
from ..tables import markdown_table
from .arguments import DATA_ALTERNATIVES, EvaluateArguments
from .evaluate import data_name
from .parser import ConfigParser
from .train import TYPES


logger = logging.get_logger(__name__)
#: With fewer rows the map and the thresholds are rough.
FEW_ROWS = 200


@dataclass
class CalibrateArguments:
    """What to calibrate on, and how. The options that other commands share have the same names and meanings."""

    split: str = field(default="validation", metadata={"help": "Held-out split of the data: not the training data."})
    output_dir: str | None = field(
        default=None,
        metadata={"help": "Folder to write to (default: that of the model). Any other one gets a copy of the model."},
    )
    delta: float = field(
        default=0.1, metadata={"help": "Chance that a threshold does not keep its risk all the same."}
    )
    risks: list[str] = field(
        default_factory=list,
        metadata={"help": "Risks (1 - quality) to find thresholds for: 0.05,0.1 (default: some from 0.01 on)."},
    )
    scorer: str | None = field(
        default=None, metadata={"help": f"Texts: the uncertainty (default: perplexity): {', '.join(SCORERS)}."}
    )
    quality: str = field(default="bleu", metadata={"help": f"Texts: how outputs are judged: {', '.join(QUALITIES)}."})
    tolerance: float | None = field(
        default=None,
        metadata={"help": "Numbers: a prediction this far off, in units of the target, is still right."},
    )
    mc_samples: int | None = field(
        default=None, metadata={"help": "Passes with dropout, whose mean counts (default: as the model was trained)."}
    )
    max_target_length: int = field(default=128, metadata={"help": "Texts: longest output, in tokens."})
    generation_num_beams: int = field(default=1, metadata={"help": "Texts: beams of the output (1: greedy)."})
    num_samples: int = field(default=10, metadata={"help": "Texts: samples, for the scorers that need them."})
    per_device_eval_batch_size: int = field(default=16, metadata={"help": "Inputs per batch."})
    dtype: str = field(default="float32", metadata={"help": "Precision of the model: float32, bfloat16, float16."})
    seed: int = field(default=42, metadata={"help": "Seed of the samples."})
    source_column: str | None = field(default=None, metadata={"help": "Column of the source text or prompt."})
    target_column: str | None = field(
        default=None, metadata={"help": "Column of the reference text, or of the number to predict."}
    )
    source_prefix: str = field(default="", metadata={"help": "Text put before every source."})
    max_source_length: int = field(default=512, metadata={"help": "Longer sources are truncated to so many tokens."})
    image_column: str | None = field(default=None, metadata={"help": "Column of the image."})
    label_column: str | None = field(default=None, metadata={"help": "Column of the class."})

    def __post_init__(self) -> None:
        try:
            self.max_risks = [float(part) for word in self.risks for part in str(word).split(",") if part]
        except ValueError as error:
            raise ValueError(f"`risks` must be numbers, as in 0.05,0.1: {error}.") from error
        for name, values in (("risks", self.max_risks), ("delta", [self.delta])):
            for value in values:
                if not 0 < value < 1:
                    raise ValueError(f"`{name}` must lie between 0 and 1, but is {value:g}.")
        if self.scorer is not None and self.scorer not in SCORERS:
            raise ValueError(f"`scorer` must be one of {', '.join(SCORERS)}, not {self.scorer!r}.")
        if self.tolerance is not None and not self.tolerance >= 0:
            raise ValueError(f"`tolerance` must not be negative, but is {self.tolerance:g}.")
        if self.per_device_eval_batch_size < 1:
            raise ValueError("`per_device_eval_batch_size` must be at least 1.")


GROUPS = {
    "Options": ["config", "split", "output_dir", "risks", "delta", "mc_samples", "per_device_eval_batch_size", "dtype",
                "seed", "help", "help_all"],
    "Texts": ["scorer", "quality", "max_target_length", "generation_num_beams", "num_samples"],
    "Numbers": ["tolerance"],
    "Data": ["dataset_name", "dataset_config", "dataset_revision", "train_file", "validation_file", "test_file",
             "source_column", "target_column", "image_column", "label_column", "source_prefix", "max_source_length",
             "train_split", "validation_split", "test_split", "split_column", "validation_fraction", "test_fraction",
             "split_seed", "max_eval_samples", "binary_task", "on_bad_row"],
}  # fmt: skip

DESCRIPTION = """MODEL is a Hub id or a folder, trained with CLUE or not. Answers every row of a held-out split, judges
the answers, and keeps beside the model (uncertainty.json) what its uncertainty means: the quality to expect
(confidence), how it compares with others (percentile), and thresholds above which to abstain, so that the risk of what
is answered is bounded with probability 1 - delta. --config takes the YAML file of a training."""

EXAMPLES = """Examples:
  clue-hf calibrate out/quickstart/clue --config configs/quickstart/t5_phrases.yaml --quality chrf
  clue-hf calibrate out/quickstart_digits/clue --config configs/quickstart/resnet_digits.yaml --risks 0.01,0.05
  clue-hf calibrate google-t5/t5-small --dataset_name ./my-data --output_dir out/t5-small"""


class _Parser(ConfigParser):
    """The `output_dir` in the file of a training is where that wrote, not where this does."""

    def _overruled(self, words: list[str]) -> set[str]:
        return super()._overruled(words) | {"output_dir"}


def command(words: Sequence[str]) -> int:
    """Runs `clue-hf calibrate`; returns its exit code."""
    parser = _Parser(
        (CalibrateArguments, DataArguments), GROUPS, (DATA_ALTERNATIVES,), EXAMPLES, (*TYPES, EvaluateArguments),
        prog="clue-hf calibrate MODEL", description=DESCRIPTION,
    )  # fmt: skip
    model, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else (None, words)
    arguments, data = parser.parse(rest)
    if model is None:
        raise UserError("Which model? clue-hf calibrate MODEL --config CONFIG.yaml")
    folder = _folder(model, arguments.output_dir)
    _check_split(arguments.split, data)
    read_config(model)  # says where there is no such model
    stored = _stored(model)
    deployed, predictor = calibrate(model, arguments, data, stored)
    if not _same(folder, model):
        save_model(predictor, folder, stored)
        write_uncertainty(folder, **{key: value for key, value in stored.items() if key != "version"})
    deployed.write(folder)
    print("\n" + summary(deployed))
    print(f"\nWritten to {folder / UNCERTAINTY_FILE}.")
    return 0


def calibrate(
    model: str, arguments: CalibrateArguments, data: DataArguments, stored: dict[str, Any]
) -> tuple[UncertaintyCalibration, Predictor]:
    """What is found on the held-out rows, and what answered them."""
    settings = predictor_settings(model, arguments)
    predictor = load_predictor(
        model, process_state().device, arguments.dtype, mc_samples=arguments.mc_samples, **settings
    )
    rows = held_out_rows(predictor, arguments, data)
    _warn(rows, arguments, data, stored)
    answers = _answers(UncertaintyPipeline(predictor), rows, arguments.per_device_eval_batch_size)
    deployed = UncertaintyCalibration.fit(
        predictor.scorer,
        predictor.settings,
        np.array([answer["uncertainty"] for answer in answers]),
        None if rows.judge is None else rows.judge(answers),
        arguments.max_risks or rows.risks,
        arguments.delta,
        rows.test,
        data={"name": _public_name(data, arguments.split), "rows": rows.count},
        weights=predictor.fingerprint(),
        definitions={
            "uncertainty": predictor.definition,
            **({} if rows.judge is None else {"quality": rows.quality, "loss": "1 - quality"}),
        },
    )
    return deployed, predictor


def _public_name(data: DataArguments, split: str) -> str:
    """What the data is called, without the folders of this machine: the file may be published with the model."""
    place, _, words = data_name(data, split).rpartition(" (")
    return f"{Path(place).name if Path(place).expanduser().exists() else place} ({words}"


def summary(deployed: UncertaintyCalibration) -> str:
    """What was found, for people."""
    lines = [f"{deployed.scorer} on {deployed.data['rows']:,} rows of {deployed.data['name']}."]
    if deployed.abstention is None or deployed.confidence is None:
        return "\n".join(
            [*lines, "No --tolerance says when a number is right: no confidence, no thresholds for abstention."]
        )
    best, worst = max(deployed.confidence.quality), min(deployed.confidence.quality)
    lines.append(f"Quality: {deployed.definitions['quality']}. Confidence: from {worst:.3f} to {best:.3f}.")
    cells = [["risk at most", "quality at least", "answer below", "answered", "their risk", "certified"]]
    reasons = []
    for entry in deployed.abstention.thresholds:
        cells.append([f"{entry.max_risk:g}", f"{entry.min_quality:g}", *_threshold_cells(entry)])
        if entry.reason:
            reasons.append(f"{entry.max_risk:g}: {entry.reason}")
    return "\n".join([*lines, "", markdown_table(cells), *([""] if reasons else []), *reasons])


def _threshold_cells(entry: AbstentionThreshold) -> list[str]:
    if entry.threshold is None:
        return ["-", "-", "-", "no"]
    below = "any" if math.isinf(entry.threshold) else f"{entry.threshold:.4g}"
    certified = f"yes, with probability {1 - entry.delta:g}"
    return [below, f"{entry.coverage:.0%}", f"{entry.empirical_risk:.3f}", certified]


def _answers(pipe: Any, rows: Calibration, batch_size: int) -> list[Answer]:
    size = batch_size * (16 if isinstance(pipe.predictor, TextPredictor) else 1)  # sorted by length, texts pad little
    answers: list[Answer] = []
    with tqdm(total=rows.count, desc="Calibrating", unit=" rows") as bar:
        for start in range(0, rows.count, size):
            part = range(start, min(start + size, rows.count))
            answers += pipe(rows.inputs(part), batch_size=batch_size, first_row=start)
            bar.update(len(part))
    return answers


def _folder(model: str, output_dir: str | None) -> Path:
    """Where to write; another folder than the model's must not hold a model already."""
    if output_dir is None:
        if not os.path.isdir(model):
            raise UserError(f"{model!r} is no folder to write to: give --output_dir, which gets a copy of the model.")
        return Path(model)
    folder = Path(output_dir)
    if folder.is_file():
        raise UserError(f"output_dir {output_dir!r} is a file.")
    held = [name for name in ("config.json", "adapter_config.json") if (folder / name).exists()]
    if held and not _same(folder, model):
        raise UserError(
            f"output_dir {output_dir!r} holds a model already. To calibrate that one: clue-hf calibrate {output_dir}"
        )
    return folder


def _same(folder: Path, model: str) -> bool:
    return folder.exists() and os.path.isdir(model) and folder.samefile(model)


def _check_split(split: str, data: DataArguments) -> None:
    """Raises for the training data: on it a model is better, and more certain, than it will ever be."""
    files = {name: getattr(data, f"{name}_file") for name in ("train", "validation", "test")}
    own = files.get(split)
    same = own and files["train"] and Path(own).expanduser().resolve() == Path(files["train"]).expanduser().resolve()
    if split in ("train", data.train_split) or same:
        raise UserError(
            f"The split {split!r} is the training data, on which the model is better than elsewhere: calibrate on "
            "held-out data, such as --split validation."
        )


def _stored(model: str) -> dict[str, Any]:
    """The model's `uncertainty.json`; a damaged or older one in a folder is put aside, as it cannot be added to."""
    try:
        return read_uncertainty(model)
    except UserError as error:
        path = Path(model) / UNCERTAINTY_FILE
        if not path.is_file() or _is_newer(path):
            raise
        aside = path.with_name(f"{UNCERTAINTY_FILE}.damaged")
        os.replace(path, aside)
        logger.warning(f"{error} It is begun anew, the old one is now {aside}.")
        return {}


def _is_newer(path: Path) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    version = content.get("version") if isinstance(content, dict) else None
    return isinstance(version, int) and version > VERSION


def _warn(rows: Calibration, arguments: CalibrateArguments, data: DataArguments, stored: dict[str, Any]) -> None:
    if rows.count < FEW_ROWS:
        logger.warning(f"{rows.count} rows are few: confidence and thresholds are rough. Take {FEW_ROWS} or more.")
    fitted = [part for part in ("calibrator", "error_predictor") if part in stored]
    if fitted and arguments.split in ("validation", data.validation_split):
        logger.warning(
            f"The model's {' and '.join(fitted)} may have been fitted on the validation data too, so that the "
            "guarantee of the thresholds does not hold strictly: better calibrate on rows of their own (--split)."
        )
