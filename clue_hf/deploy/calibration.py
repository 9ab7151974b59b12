"""What the uncertainty of a model means: its answers to held-out rows, judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers.utils import logging
from transformers.utils.logging import tqdm

from ..data.columns import text_pairs
from ..data.loading import DataArguments
from ..errors import UserError
from ..functional import check_choice
from ..inputs.base import InputSettings
from ..inputs.labels import class_rows, number_rows
from ..inputs.splits import EvaluationData
from ..metrics import count_references, quality_signature, sentence_quality
from ..metrics.quality import QUALITIES
from ..models.kind import config_kind
from ..posthoc.abstention import MAX_RISKS
from ..posthoc.calibration_file import UncertaintyCalibration
from ..predictors.base import Answer
from ..predictors.loading import read_config
from ..scorers import SCORERS
from ..settings import check_minimum, known_names, parse_fractions, setting
from .arguments import InferenceArguments
from .token_calibration import TOKEN_CALIBRATORS, Parts, TokenCalibration, calibrate_tokens


logger = logging.get_logger(__name__)
#: With fewer rows the map and the thresholds are rough.
FEW_ROWS = 200
#: Texts are never perfect by BLEU and the like: their risks reach further.
TEXT_RISKS = (0.05, *(number / 10 for number in range(1, 10)))


@dataclass
class CalibrateArguments(InferenceArguments):
    """What to calibrate on, and how."""

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
    token_calibrator: str | None = setting(
        None,
        f"Texts: calibrate the probabilities of the tokens, on half of the rows: {', '.join(TOKEN_CALIBRATORS)}, auto "
        "(default: chooses on rows of its own). Outputs stay the same.",
    )
    tolerance: float | None = setting(
        None, "Numbers: largest error, in units of the target, of a prediction that counts as right."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.max_risks = parse_fractions("risks", self.risks)
        for name, values in (("risks", self.max_risks), ("delta", [self.delta])):
            for value in values:
                if not 0 < value < 1:
                    raise ValueError(f"`{name}` must lie between 0 and 1, but is {value:g}.")
        if self.scorer is not None:
            check_choice("scorer", self.scorer, SCORERS)
        if self.token_calibrator is not None:
            check_choice("token_calibrator", self.token_calibrator, (*TOKEN_CALIBRATORS, "auto"))
        check_minimum(0, tolerance=self.tolerance or 0.0)


@dataclass(frozen=True)
class HeldOut:
    """Held-out inputs, and what judges the answers to them, where anything does."""

    inputs: Any
    judge: Callable[[list[Answer]], np.ndarray] | None = None
    quality: str = ""
    test: str | None = "binomial"
    risks: Sequence[float] = MAX_RISKS
    references: Sequence[str] = ()  # the first of each row


def calibrate(
    model: str, arguments: CalibrateArguments, data: DataArguments, data_name: str, stored: dict[str, Any]
) -> tuple[UncertaintyCalibration, Any, TokenCalibration | None]:
    """
    The meaning of a model's uncertainty, fitted on held-out rows, the predictor that answered them, and what
    calibrates its tokens, where that was asked for.
    """
    kind = config_kind(read_config(model))
    if arguments.scorer is not None and kind.family != "text":
        raise UserError(f"--scorer is for models that write texts, and {model} does not.")
    if arguments.tolerance is not None and kind.family != "numbers":
        raise UserError("--tolerance is for models that predict numbers.")
    if arguments.token_calibrator is not None and kind.family != "text":
        raise UserError(f"--token_calibrator is for models that write texts, and {model} does not.")
    if kind.family == "text":
        data.merge_references = True  # what is fitted on one row of a source is not certified by another
    rows = arguments.load_data(kind, data, arguments.split, InputSettings.from_file(model, stored))
    beams = {"num_beams": arguments.generation_num_beams} if arguments.generation_num_beams > 1 else {}
    text_options = {"scorers": arguments.scorer, "seed": arguments.seed, "generation": beams}
    predictor = arguments.load_predictor(
        model, kind, rows, mc_samples=arguments.mc_samples, **(text_options if kind.family == "text" else {})
    )
    hold_out = {"text": _text_rows, "classes": _class_rows, "numbers": _number_rows}[kind.family]
    held_out = hold_out(predictor, rows, arguments)
    _warn(len(held_out.inputs), arguments, data, stored)
    batch_size, tokens = arguments.per_device_eval_batch_size, None
    if kind.family == "text":
        tokens = _calibrate_tokens(predictor, held_out, arguments)
        answers = _answer_texts(predictor, held_out.inputs, batch_size)
    else:
        answers = predictor.answers(held_out.inputs, batch_size, 0, description="Calibrating")
    judged = {} if held_out.judge is None else {"quality": held_out.quality, "loss": "1 - quality"}
    uncertainty = np.array([answer["uncertainty"] for answer in answers])
    quality, fitting = None if held_out.judge is None else held_out.judge(answers), None
    if tokens is not None and quality is not None:  # rows that were fitted on, or chosen by, certify nothing
        fit, certify = tokens.parts.fit, tokens.parts.certify
        fitting, uncertainty, quality = (uncertainty[fit], quality[fit]), uncertainty[certify], quality[certify]
    calibration = UncertaintyCalibration.fit(
        predictor.scorer,
        predictor.settings,
        uncertainty,
        quality,
        arguments.max_risks or held_out.risks,
        arguments.delta,
        held_out.test,
        fitting,
        data={"name": _public_name(data_name), "rows": len(uncertainty)},
        weights=predictor.fingerprint(),
        definitions={"uncertainty": predictor.definition, **judged},
    )
    return calibration, predictor, tokens


def _calibrate_tokens(predictor: Any, held_out: HeldOut, arguments: CalibrateArguments) -> TokenCalibration | None:
    """
    Fits what calibrates the tokens, and makes the predictor use it. Rows that allow nothing to be fitted raise where a
    token calibrator was asked for; else the probabilities stay the model's own, and all rows certify.
    """
    predictor.token_calibrator = None
    if arguments.token_calibrator == "none":
        return None
    name, parts = arguments.token_calibrator or "auto", Parts.split(held_out.inputs, arguments.seed)
    try:
        tokens = calibrate_tokens(predictor, held_out.inputs, held_out.references, parts, name)
    except UserError as error:
        if arguments.token_calibrator is not None:
            raise
        logger.warning(f"The probabilities of the tokens are not calibrated: {error}")
        return None
    predictor.token_calibrator = tokens.calibrator
    if len(parts.certify) < FEW_ROWS:
        logger.warning(
            f"Only {len(parts.certify)} of {len(held_out.inputs)} rows are left for thresholds and the report: few "
            "risks can be certified. Use more rows, or --token_calibrator none, with which all rows certify."
        )
    return tokens


def _text_rows(predictor: Any, rows: EvaluationData, arguments: CalibrateArguments) -> HeldOut:
    quality = known_names("quality", [arguments.quality], QUALITIES)[0]
    sources, references = text_pairs(rows.test[:], rows.columns["source_column"], rows.columns["target_column"])

    def judge(answers: list[Answer]) -> np.ndarray:
        return sentence_quality(quality, [answer["generated_text"] for answer in answers], references)

    signature = f"sentence {quality} ({quality_signature(quality, count_references(references))})"
    return HeldOut(sources, judge, signature, "hoeffding-bentkus", TEXT_RISKS, [first for first, *_ in references])


def _class_rows(predictor: Any, rows: EvaluationData, arguments: CalibrateArguments) -> HeldOut:
    labelled = class_rows(rows.test, predictor.inputs, predictor.names, rows.class_names, arguments.split)

    def judge(answers: list[Answer]) -> np.ndarray:
        pairs = zip(answers, labelled.labels, strict=True)
        return np.array([answer["label"] == predictor.names[number] for answer, number in pairs], float)

    return HeldOut(labelled.rows, judge, "1 where the class is right, else 0")


def _number_rows(predictor: Any, rows: EvaluationData, arguments: CalibrateArguments) -> HeldOut:
    labelled, tolerance = number_rows(rows.test, predictor.inputs, arguments.split), arguments.tolerance
    if tolerance is None:
        return HeldOut(labelled.rows)

    def judge(answers: list[Answer]) -> np.ndarray:
        return (np.abs(labelled.labels - np.array([answer["mean"] for answer in answers])) <= tolerance).astype(float)

    return HeldOut(labelled.rows, judge, f"1 where |target - mean| <= {tolerance:g}, else 0")


def _answer_texts(predictor: Any, sources: list[str], batch_size: int) -> list[Answer]:
    answers: list[Answer] = []
    with tqdm(total=len(sources), desc="Calibrating", unit=" rows") as bar:
        for start in range(0, len(sources), 16 * batch_size):  # sorted by length, texts pad little
            part = sources[start : start + 16 * batch_size]
            answers += predictor.predict(part, batch_size, start)[0]
            bar.update(len(part))
    return answers


def _public_name(data_name: str) -> str:
    """What the data is called, without the folders of this machine: the file may be published with the model."""
    place, _, details = data_name.rpartition(" (")
    return f"{Path(place).name if Path(place).expanduser().exists() else place} ({details}"


def _warn(count: int, arguments: CalibrateArguments, data: DataArguments, stored: dict[str, Any]) -> None:
    if count < FEW_ROWS:
        logger.warning(f"Only {count} rows: confidence and thresholds are rough. Use {FEW_ROWS} or more.")
    fitted = [part for part in ("calibrator", "error_predictor") if part in stored]
    if fitted and arguments.split in ("validation", data.validation_split):
        logger.warning(
            f"The model's {' and '.join(fitted)} may have been fitted on the validation data too, so that the "
            "guarantee of the thresholds does not hold strictly: calibrate on another split (--split)."
        )
