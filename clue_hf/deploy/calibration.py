"""What the uncertainty of a model means: its answers to held-out rows, judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from transformers.utils import logging
from transformers.utils.logging import tqdm

from ..data.columns import as_verdicts, text_pairs
from ..data.loading import DataArguments
from ..errors import UserError
from ..evaluation import UncertaintyEvaluator
from ..inputs.base import InputSettings
from ..inputs.labels import class_rows, number_rows
from ..inputs.splits import EvaluationData
from ..metrics import count_references, quality_signature, sentence_quality
from ..models.divided_logits import check_divisible
from ..models.kind import ModelKind, config_kind
from ..posthoc.abstention import MAX_RISKS
from ..posthoc.calibration_file import UncertaintyCalibration
from ..posthoc.learned import LearnedScore
from ..posthoc.rules import check_posthoc
from ..predictors.base import Answer
from ..predictors.loading import read_config
from ..scorers import SCORERS, unfitted_names
from ..scorers.density import Density
from ..settings import check_choice, check_minimum, known_names, parse_fractions, setting
from .arguments import InferenceArguments
from .density import fit_density
from .learned_score import learn_score, learn_score_of_outputs, single_scorers
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
    learned_scores: list[str] = setting(
        [], "Texts: with --scorer learned, other scorers whose scores it learns from too: pmi,mc_sequence_entropy."
    )
    density_split: str | None = setting(
        None,
        "Texts: fit the scorers mahalanobis, relative_mahalanobis and rde on this split, which nothing else reads: "
        "train.",
    )
    token_calibrator: str | None = setting(
        None,
        f"Texts: calibrate the probabilities of the tokens, on half of the rows: {', '.join(TOKEN_CALIBRATORS)}, auto "
        "(default: chooses on rows of its own). Outputs stay the same.",
    )
    bake: str | None = setting(
        None,
        "Texts: new folder for a plain transformers model with the temperature in its weights; MODEL stays as it is.",
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
        if self.learned_scores:
            self.learned_scores = known_names("learned_scores", self.learned_scores, unfitted_names())
            if self.scorer != "learned":
                raise ValueError("`learned_scores` is for --scorer learned.")
        if self.token_calibrator is not None:
            check_choice("token_calibrator", self.token_calibrator, (*TOKEN_CALIBRATORS, "auto"))
        if self.bake is not None:
            self._check_bake()
        check_minimum(0, tolerance=self.tolerance or 0.0)

    def _check_bake(self) -> None:
        """Raises where a temperature cannot go into the weights; chooses the temperature where nothing is chosen."""
        if self.token_calibrator not in (None, "auto", "temperature"):
            raise ValueError(
                "`bake` takes the token_calibrator temperature alone: one number can be put into the weights, "
                f"{self.token_calibrator} cannot."
            )
        if self.quality_column is not None:
            raise ValueError("`bake` judges texts that the data has no verdicts for: use `quality`.")
        if self.output_dir is not None:
            raise ValueError("Give either `bake` or `output_dir`: each is the folder to write to.")
        if self.density_split is not None:
            raise ValueError("`bake` changes the hidden states: give `density_split` when calibrating the new folder.")
        if self.dtype != "float32":
            raise ValueError("`bake` writes float32, in which logits divided by T are exact: leave out `dtype`.")
        if self.generation_num_beams > 1:
            raise ValueError(
                "`bake` goes with greedy decoding, whose outputs stay the same: leave out `generation_num_beams`. For "
                "beams calibrate the new folder again, with --token_calibrator none."
            )
        self.token_calibrator = "temperature"


@dataclass(frozen=True)
class HeldOut:
    """Held-out inputs, and what judges the answers to them, where anything does."""

    inputs: Any
    judge: Callable[[list[Answer]], np.ndarray] | None = None
    quality: str = ""
    test: str | None = "binomial"
    risks: Sequence[float] = MAX_RISKS
    references: Sequence[str] = ()  # the first of each row
    labels: Any = None


def fit_calibration(
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
    if arguments.density_split is not None and kind.family != "text":
        raise UserError(f"--density_split is for models that write texts, and {model} does not.")
    if arguments.bake is not None:
        if kind.family != "text":
            raise UserError(f"--bake is for models that write texts, and {model} does not.")
        check_divisible(read_config(model).model_type)
    if arguments.token_calibrator is not None and kind.family != "text":
        raise UserError(f"--token_calibrator is for models that write texts, and {model} does not.")
    check_posthoc(kind.family, conformal=arguments.conformal)
    if kind.family == "text":
        data.merge_references = True  # what is fitted on one row of a source is not certified by another
    rows = arguments.load_data(kind, data, arguments.split, InputSettings.from_file(model, stored))
    beams = {"num_beams": arguments.generation_num_beams} if arguments.generation_num_beams > 1 else {}
    scorers = single_scorers(arguments.learned_scores) if arguments.scorer == "learned" else arguments.scorer
    text_options: dict[str, Any] = {"scorers": scorers, "seed": arguments.seed, "generation": beams}
    if arguments.density_split is not None:
        text_options["density"] = _fit_density(model, arguments, data, kind, stored)
    predictor = arguments.load_predictor(
        model, kind, rows, mc_samples=arguments.mc_samples, **(text_options if kind.family == "text" else {})
    )
    hold_out = {"text": _text_rows, "classes": _class_rows, "numbers": _number_rows}[kind.family]
    held_out = hold_out(predictor, rows, arguments)
    _warn(len(held_out.inputs), arguments, data, stored)
    tokens = parts = conformal = None
    if kind.family == "text":
        predictor, answers, tokens, parts = _answer_texts(predictor, held_out, arguments)
    else:
        batch_size = arguments.per_device_eval_batch_size
        predictions = predictor.calibrated(held_out.inputs, batch_size, 0, "Calibrating")
        answers = predictor.answered(predictions)
        if arguments.conformal is not None:
            conformal = predictions.fit_conformal(arguments.conformal, held_out.labels, arguments.chosen_coverage)
    judged = {} if held_out.judge is None else {"quality": held_out.quality, "loss": "1 - quality"}
    uncertainty = np.array([answer["uncertainty"] for answer in answers])
    quality, fitting = None if held_out.judge is None else held_out.judge(answers), None
    if quality is not None:
        fitting, uncertainty, quality = _certifying(parts, uncertainty, quality)
    calibration = UncertaintyCalibration.fit(
        predictor.scorer,
        predictor.settings,
        uncertainty,
        quality,
        arguments.max_risks or held_out.risks,
        arguments.delta,
        held_out.test,
        fitting,
        conformal=conformal,
        data={"name": _public_name(data_name), "rows": len(uncertainty)},
        weights=predictor.fingerprint(),
        definitions={"uncertainty": predictor.definition, **judged},
    )
    return calibration, predictor, tokens


def calibrate_outputs(
    arguments: CalibrateArguments, data: DataArguments
) -> tuple[UncertaintyCalibration, LearnedScore | None]:
    """
    The meaning of the uncertainty of texts that were generated elsewhere. All rows fit and certify it, unless a score
    is learned from some of them.
    """
    scorer, quality, path = arguments.scorer or "perplexity", arguments.qualities[0], str(arguments.outputs)
    scorers = single_scorers(arguments.learned_scores) if scorer == "learned" else [scorer]
    evaluator = UncertaintyEvaluator(
        scorers=scorers, quality=quality, resamples=0, max_rows=data.max_eval_samples, **arguments.similarity_options
    )
    columns, learned, parts = (arguments.source_column, arguments.target_column), None, None
    with TemporaryDirectory() as folder:  # the texts stay on the disk
        report = evaluator.evaluate_outputs(path, *columns, folder, bad_rows=data.bad_rows)
        values = report.quality()
        _warn(len(values), arguments, data, {})
        if scorer == "learned":
            learned, uncertainty, parts = learn_score_of_outputs(report, arguments.learned_scores, arguments.seed)
        else:
            uncertainty = report.uncertainty(scorer)
    skipped, description = data.bad_rows.summary("outputs"), report.description
    fitting, uncertainty, values = _certifying(parts, uncertainty, values)
    calibration = UncertaintyCalibration.fit(
        scorer,
        {"outputs": description["outputs"]},
        uncertainty,
        values,
        arguments.max_risks or TEXT_RISKS,
        arguments.delta,
        "hoeffding-bentkus",
        fitting,
        data={"name": Path(path).name + (f" ({skipped})" if skipped else ""), "rows": len(values)},
        definitions={
            "uncertainty": learned.explanation if learned else description["scorers"][scorer],
            "quality": f"sentence {quality} ({description['quality'][quality]})",
            "loss": "1 - quality",
        },
    )
    return calibration, learned


def _certifying(
    parts: Parts | None, uncertainty: np.ndarray, quality: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray] | None, np.ndarray, np.ndarray]:
    """The rows that fit the confidence, where these are others, and those that certify thresholds."""
    if parts is None:
        return None, uncertainty, quality
    fit, certify = parts.fit, parts.certify  # rows that were fitted on, or chosen by, certify nothing
    return (uncertainty[fit], quality[fit]), uncertainty[certify], quality[certify]


def _fit_density(
    model: str, arguments: CalibrateArguments, data: DataArguments, kind: ModelKind, stored: dict[str, Any]
) -> Density:
    """The density of the references of a split, of which the calibration knows nothing else."""
    rows = arguments.load_data(kind, data, str(arguments.density_split), InputSettings.from_file(model, stored))
    pairs = text_pairs(rows.test[:], rows.columns["source_column"], rows.columns["target_column"])
    predictor = arguments.load_predictor(model, kind, rows, scorers="perplexity")
    references = [first for first, *_ in pairs[1]]
    return fit_density(predictor, pairs[0], references, arguments.per_device_eval_batch_size, arguments.seed)


def _answer_texts(
    predictor: Any, held_out: HeldOut, arguments: CalibrateArguments
) -> tuple[Any, list[Answer], TokenCalibration | None, Parts | None]:
    """
    The predictor with all that is fitted, its answers, what calibrates its tokens, and which rows are for what, where
    anything is fitted.
    """
    sources, batch_size = held_out.inputs, arguments.per_device_eval_batch_size
    tokens = _calibrate_tokens(predictor, held_out, arguments)
    parts = None if tokens is None else tokens.parts
    answers: list[Answer] = []
    if arguments.scorer == "learned" and held_out.judge is not None:
        parts = parts or Parts.split(sources, arguments.seed)
        predictor, answers = learn_score(
            predictor, sources, held_out.judge, parts, arguments.learned_scores, batch_size, arguments.seed
        )
    else:
        with tqdm(total=len(sources), desc="Calibrating", unit=" rows") as bar:
            for start in range(0, len(sources), 16 * batch_size):  # sorted by length, texts pad little
                part = sources[start : start + 16 * batch_size]
                answers += predictor.predict(part, batch_size, start)[0]
                bar.update(len(part))
    if parts is not None and len(parts.certify) < FEW_ROWS:
        instead = ", or --token_calibrator none, with which all rows certify" if arguments.scorer != "learned" else ""
        logger.warning(
            f"Only {len(parts.certify)} of {len(sources)} rows are left for thresholds and the report: few risks can "
            f"be certified. Use more rows{instead}."
        )
    return predictor, answers, tokens, parts


def _calibrate_tokens(predictor: Any, held_out: HeldOut, arguments: CalibrateArguments) -> TokenCalibration | None:
    """
    Fits what calibrates the tokens, and makes the predictor use it. Rows that allow nothing to be fitted raise where a
    certain token calibrator was asked for; else the probabilities stay the model's own, and all rows certify.
    """
    predictor.token_calibrator = None
    if arguments.token_calibrator == "none":
        return None
    name, parts = arguments.token_calibrator or "auto", Parts.split(held_out.inputs, arguments.seed)
    try:
        tokens = calibrate_tokens(predictor, held_out.inputs, held_out.references, parts, name)
    except UserError as error:
        if name != "auto":
            raise
        logger.warning(f"The probabilities of the tokens are not calibrated: {error}")
        return None
    predictor.token_calibrator = tokens.calibrator
    return tokens


def _text_rows(predictor: Any, rows: EvaluationData, arguments: CalibrateArguments) -> HeldOut:
    quality, data = arguments.qualities[0], rows.test[:]
    sources, references = text_pairs(data, rows.columns["source_column"], rows.columns["target_column"])
    verdicts = as_verdicts(data, arguments.quality_column) if arguments.quality_column else None

    def judge(answers: list[Answer]) -> np.ndarray:
        if verdicts is not None:
            return np.array(verdicts)
        return sentence_quality(quality, [answer["generated_text"] for answer in answers], references)

    signature = f"sentence {quality} ({quality_signature(quality, count_references(references))})"
    return HeldOut(sources, judge, signature, "hoeffding-bentkus", TEXT_RISKS, [first for first, *_ in references])


def _class_rows(predictor: Any, rows: EvaluationData, arguments: CalibrateArguments) -> HeldOut:
    labelled = class_rows(rows.test, predictor.inputs, predictor.names, rows.class_names, arguments.split)

    def judge(answers: list[Answer]) -> np.ndarray:
        pairs = zip(answers, labelled.labels, strict=True)
        return np.array([answer["label"] == predictor.names[number] for answer, number in pairs], float)

    return HeldOut(labelled.rows, judge, "1 where the class is right, else 0", labels=labelled.labels)


def _number_rows(predictor: Any, rows: EvaluationData, arguments: CalibrateArguments) -> HeldOut:
    labelled, tolerance = number_rows(rows.test, predictor.inputs, arguments.split), arguments.tolerance
    if tolerance is None:
        return HeldOut(labelled.rows, labels=labelled.labels)

    def judge(answers: list[Answer]) -> np.ndarray:
        return (np.abs(labelled.labels - np.array([answer["mean"] for answer in answers])) <= tolerance).astype(float)

    quality = f"1 where |target - mean| <= {tolerance:g}, else 0"
    return HeldOut(labelled.rows, judge, quality, labels=labelled.labels)


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
            "guarantee of thresholds and prediction sets does not hold strictly: calibrate on another split (--split)."
        )
