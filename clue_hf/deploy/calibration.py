"""What the uncertainty of a model means: its answers to held-out rows, judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils import logging
from transformers.utils.logging import tqdm

from ..data.columns import check_texts, column_values, find_pair
from ..data.loading import DataArguments
from ..errors import UserError
from ..inputs.base import InputSettings
from ..inputs.labels import class_rows, number_rows
from ..inputs.splits import COLUMNS, EvaluationData, load_evaluation_data
from ..metrics import quality_signature, sentence_quality
from ..metrics.quality import QUALITIES
from ..models.kind import ModelKind, config_kind
from ..posthoc.abstention import MAX_RISKS
from ..posthoc.calibration_file import UncertaintyCalibration
from ..predictors.base import Answer
from ..predictors.loading import load_predictor, read_config
from ..processes import process_state
from ..scorers import SCORERS
from ..settings import known_names, setting


logger = logging.get_logger(__name__)
#: With fewer rows the map and the thresholds are rough.
FEW_ROWS = 200
#: Texts are never perfect by BLEU and the like: their risks reach further.
TEXT_RISKS = (0.05, *(number / 10 for number in range(1, 10)))


@dataclass
class CalibrateArguments:
    """What to calibrate on, and how. The options that other commands share have the same names and meanings."""

    split: str = setting("validation", "Held-out split of the data: not the training data.")
    output_dir: str | None = setting(
        None, "Folder to write to (default: that of the model). Any other one gets a copy of the model."
    )
    delta: float = setting(0.1, "Failure probability of the risk guarantee.")
    risks: list[str] = setting(
        [], "Risks (1 - quality) to find thresholds for: 0.05,0.1 (default: some from 0.01 on)."
    )
    scorer: str | None = setting(None, f"Texts: the uncertainty (default: perplexity): {', '.join(SCORERS)}.")
    quality: str = setting("bleu", f"Texts: how outputs are judged: {', '.join(QUALITIES)}.")
    tolerance: float | None = setting(
        None, "Numbers: largest error, in units of the target, of a prediction that counts as right."
    )
    mc_samples: int | None = setting(
        None, "Number of MC-dropout forward passes to average (default: as the model was trained)."
    )
    max_target_length: int | None = setting(
        None, "Texts: maximum length of the output in tokens (default: as trained, or 128)."
    )
    generation_num_beams: int = setting(1, "Texts: number of beams (1: greedy).")
    num_samples: int = setting(10, "Texts: samples per source, for scorers that need them.")
    per_device_eval_batch_size: int = setting(16, "Inputs per batch.")
    dtype: str = setting("float32", "Precision of the model: float32, bfloat16, float16.")
    seed: int = setting(42, "Seed of the samples.")
    source_column: str | None = setting(None, "Column of the source text or prompt.")
    target_column: str | None = setting(None, "Column of the reference text, or of the number to predict.")
    source_prefix: str | None = setting(None, "Text put before every source (default: as the model was trained).")
    max_source_length: int | None = setting(
        None, "Truncate sources to this many tokens (default: as trained, or 512)."
    )
    image_column: str | None = setting(None, "Column of the image.")
    label_column: str | None = setting(None, "Column of the class.")

    def __post_init__(self) -> None:
        try:
            self.max_risks = [float(part) for text in self.risks for part in str(text).split(",") if part]
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


@dataclass(frozen=True)
class HeldOut:
    """Held-out rows."""

    count: int
    answers: Callable[[], list[Answer]]
    judge: Callable[[list[Answer]], np.ndarray] | None
    quality: str = ""
    test: str | None = "binomial"
    risks: Sequence[float] = MAX_RISKS


def calibrate(
    model: str, arguments: CalibrateArguments, data: DataArguments, data_name: str, stored: dict[str, Any]
) -> tuple[UncertaintyCalibration, Any]:
    """The meaning of a model's uncertainty, fitted on held-out rows, and the predictor that answered them."""
    kind = config_kind(read_config(model))
    _check_options(arguments, kind, model)
    columns = {name: getattr(arguments, name) for name in COLUMNS}
    rows = load_evaluation_data(kind, data, arguments.split, columns, InputSettings.from_file(model, stored))
    predictor = load_predictor(
        model,
        process_state().device,
        arguments.dtype,
        mc_samples=arguments.mc_samples,
        columns=rows.columns,
        source_prefix=arguments.source_prefix if kind.modality == "text" else None,
        max_source_length=arguments.max_source_length if kind.modality == "text" else None,
        **(_text_settings(arguments) if kind.family == "text" else {}),
    )
    held_out = {"text": _text_rows, "classes": _class_rows, "numbers": _number_rows}[kind.family](
        predictor, rows, arguments
    )
    _warn(held_out, arguments, data, stored)
    answers = held_out.answers()
    judged = {} if held_out.judge is None else {"quality": held_out.quality, "loss": "1 - quality"}
    calibration = UncertaintyCalibration.fit(
        predictor.scorer,
        predictor.settings,
        np.array([answer["uncertainty"] for answer in answers]),
        None if held_out.judge is None else held_out.judge(answers),
        arguments.max_risks or held_out.risks,
        arguments.delta,
        held_out.test,
        data={"name": _public_name(data_name), "rows": held_out.count},
        weights=predictor.fingerprint(),
        definitions={"uncertainty": predictor.definition, **judged},
    )
    return calibration, predictor


def _check_options(arguments: CalibrateArguments, kind: ModelKind, model: str) -> None:
    if arguments.scorer is not None and kind.family != "text":
        raise UserError(f"--scorer is for models that write texts, and {model} does not.")
    if arguments.tolerance is not None and kind.family != "numbers":
        raise UserError("--tolerance is for models that predict numbers.")


def _text_settings(arguments: CalibrateArguments) -> dict[str, Any]:
    beams = arguments.generation_num_beams
    return {
        "scorers": arguments.scorer,
        "num_samples": arguments.num_samples,
        "seed": arguments.seed,
        "generation": {"num_beams": beams} if beams > 1 else {},
        "max_new_tokens": arguments.max_target_length,
    }


def _text_rows(predictor: Any, rows: EvaluationData, arguments: CalibrateArguments) -> HeldOut:
    try:
        quality = known_names("quality", [arguments.quality], QUALITIES)[0]
    except ValueError as error:
        raise UserError(str(error)) from error
    split, size = rows.test, arguments.per_device_eval_batch_size
    pair = find_pair(split.column_names, rows.columns["source_column"], rows.columns["target_column"])
    columns, texts = split[:], []
    for path, option in zip(pair, ("source_column", "target_column"), strict=True):
        texts.append(column_values(columns, path, option))
        check_texts(texts[-1], path, option, 0)
    sources, references = texts

    def answers() -> list[Answer]:
        answered: list[Answer] = []
        with tqdm(total=len(sources), desc="Calibrating", unit=" rows") as bar:
            for start in range(0, len(sources), 16 * size):  # sorted by length, texts pad little
                part = sources[start : start + 16 * size]
                answered += predictor.predict(part, size, start)[0]
                bar.update(len(part))
        return answered

    def judge(answers: list[Answer]) -> np.ndarray:
        return sentence_quality(quality, [answer["generated_text"] for answer in answers], references)

    signature = f"sentence {quality} ({quality_signature(quality)})"
    return HeldOut(len(sources), answers, judge, signature, "hoeffding-bentkus", TEXT_RISKS)


def _class_rows(predictor: Any, rows: EvaluationData, arguments: CalibrateArguments) -> HeldOut:
    labelled = class_rows(rows.test, predictor.inputs, predictor.names, rows.class_names, arguments.split)

    def judge(answers: list[Answer]) -> np.ndarray:
        pairs = zip(answers, labelled.labels, strict=True)
        return np.array([answer["label"] == predictor.names[number] for answer, number in pairs], float)

    return HeldOut(
        len(labelled), _answers(predictor, labelled.rows, arguments), judge, "1 where the class is right, else 0"
    )


def _number_rows(predictor: Any, rows: EvaluationData, arguments: CalibrateArguments) -> HeldOut:
    labelled, tolerance = number_rows(rows.test, predictor.inputs, arguments.split), arguments.tolerance
    answers = _answers(predictor, labelled.rows, arguments)
    if tolerance is None:
        return HeldOut(len(labelled), answers, None)

    def judge(answers: list[Answer]) -> np.ndarray:
        return (np.abs(labelled.labels - np.array([answer["mean"] for answer in answers])) <= tolerance).astype(float)

    return HeldOut(len(labelled), answers, judge, f"1 where |target - mean| <= {tolerance:g}, else 0")


def _answers(predictor: Any, rows: Any, arguments: CalibrateArguments) -> Callable[[], list[Answer]]:
    return lambda: predictor.answers(rows, arguments.per_device_eval_batch_size, 0, description="Calibrating")


def _public_name(data_name: str) -> str:
    """What the data is called, without the folders of this machine: the file may be published with the model."""
    place, _, details = data_name.rpartition(" (")
    return f"{Path(place).name if Path(place).expanduser().exists() else place} ({details}"


def _warn(rows: HeldOut, arguments: CalibrateArguments, data: DataArguments, stored: dict[str, Any]) -> None:
    if rows.count < FEW_ROWS:
        logger.warning(f"{rows.count} rows are few: confidence and thresholds are rough. Use {FEW_ROWS} or more.")
    fitted = [part for part in ("calibrator", "error_predictor") if part in stored]
    if fitted and arguments.split in ("validation", data.validation_split):
        logger.warning(
            f"The model's {' and '.join(fitted)} may have been fitted on the validation data too, so that the "
            "guarantee of the thresholds does not hold strictly: better calibrate on rows of their own (--split)."
        )
