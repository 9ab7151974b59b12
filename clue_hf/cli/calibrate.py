"""`clue-hf calibrate`: what the uncertainty of a model means, found on held-out data and kept beside the model."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..data.loading import DataArguments
from ..deploy.calibrating import calibrate_model, output_folder
from ..deploy.calibration import CalibrateArguments, calibrate_outputs
from ..deploy.learned_score import learned_part, learned_summary
from ..deploy.token_calibration import TokenCalibration
from ..errors import UserError
from ..models.uncertainty_file import DENSITY_FILE, UNCERTAINTY_FILE, write_uncertainty
from ..posthoc import AbstentionThreshold
from ..posthoc.baked import BakedTemperature
from ..posthoc.calibration_file import UncertaintyCalibration
from ..tables import markdown_table
from ..terminal import Result
from .arguments import DATA_OPTIONS, FILE_TYPES, SPLIT_OPTIONS
from .outside import check_outside_options
from .parser import ConfigParser


#: Share of the answers that the risk of the last line is certified for, where it can be.
MAIN_COVERAGE = 0.5


GROUPS = {
    "Options": ["split", "outputs", "output_dir", "risks", "delta", "mc_samples", "per_device_eval_batch_size",
                "dtype", "seed"],
    "Texts": ["scorer", "learned_scores", "density_split", "quality", "quality_column", "token_calibrator", "bake",
              "max_target_length", "generation_num_beams", "num_samples", "similarity", "similarity_threshold"],
    "Classes and numbers": ["conformal", "coverage", "tolerance"],
    "Data": [*DATA_OPTIONS, *SPLIT_OPTIONS, "split_seed", "max_eval_samples", "binary_task", "on_bad_row"],
}  # fmt: skip

DESCRIPTION = """MODEL is a Hub id or a folder, trained with CLUE or not. Answers every row of a held-out split, judges
the answers, and keeps beside the model (uncertainty.json) what its uncertainty means: the quality to expect
(confidence), how it compares with others (percentile), and thresholds above which to abstain, so that the risk of what
is answered is bounded with probability 1 - delta. The probabilities of a language model's tokens are calibrated first,
by temperatures that leave its outputs as they are; half of the rows fit them, a fifth chooses, the rest certifies.
--conformal also keeps how large the sets of classes or intervals of numbers must be to hold the truth with the
probability --coverage. --config takes the YAML file of a training. --outputs calibrates the uncertainty of texts that
were generated elsewhere, and needs no MODEL: what it means is written to --output_dir."""

EXAMPLES = """
clue-hf calibrate out/quickstart/clue --config quickstart/t5_phrases --quality chrf
clue-hf calibrate out/quickstart/clue --config quickstart/t5_phrases --scorer learned
clue-hf calibrate --outputs outputs.jsonl --quality exact_match --scorer msp --output_dir out/texts
clue-hf calibrate out/quickstart/clue --config quickstart/t5_phrases --density_split train
clue-hf calibrate out/quickstart_digits/clue --config quickstart/resnet_digits --risks 0.01,0.05
clue-hf calibrate out/quickstart_digits/clue --config quickstart/resnet_digits --conformal lac
clue-hf calibrate out/quickstart_diabetes/clue --config quickstart/tabular_diabetes --conformal scaled
clue-hf calibrate Helsinki-NLP/opus-mt-en-fr --validation_file pairs.jsonl --source_column en --target_column fr \\
    --output_dir out/opus-mt-en-fr"""


def make_parser() -> ConfigParser:
    # the output_dir in the file of a training is where the training wrote
    types, command_line_only = (CalibrateArguments, DataArguments), ["output_dir", "bake"]
    return ConfigParser(
        "clue-hf calibrate MODEL", types, DESCRIPTION, EXAMPLES, GROUPS, FILE_TYPES, command_line_only, ["outputs"]
    )


def command(argv: Sequence[str]) -> Result:
    """Runs `clue-hf calibrate`."""
    model, arguments, data = make_parser().parse(argv)
    if model is None:
        return _outside_command(arguments, data)
    done = calibrate_model(model, arguments, data)
    if arguments.density_split is not None:
        path = done.folder / DENSITY_FILE
        print(f"\nFitted on {arguments.density_split}: mahalanobis, relative_mahalanobis, rde ({path}).")
    for part in (done.tokens and done.tokens.summary(), done.learned and learned_summary(done.learned)):
        if part:
            print("\n" + part)
    print()
    return calibration_result(done.calibration, done.folder, done.tokens, done.baked)


def calibration_result(
    calibration: UncertaintyCalibration,
    folder: Path,
    tokens: TokenCalibration | None = None,
    baked: BakedTemperature | None = None,
) -> Result:
    """What was found and written to a folder."""
    stored = {name: getattr(calibration, name) for name in ("abstention", "conformal")}
    data = {
        "output_dir": str(folder),
        "scorer": calibration.scorer,
        "data": calibration.data,
        "definitions": calibration.definitions,
        **{name: None if part is None else part.to_dict() for name, part in stored.items()},
        "token_calibration": None if tokens is None else tokens.to_dict(),
    }
    written = f"Written to {folder / UNCERTAINTY_FILE}." if baked is None else bake_summary(baked, folder)
    outside = "outputs" in calibration.settings  # texts from elsewhere, which no model here writes
    predict = f"{shlex.join(['clue-hf', 'predict', str(folder)])} --input FILE --output FILE"
    if best := best_threshold(calibration):
        predict += f" --min_quality {best.min_quality:g}"
    return Result(
        data,
        threshold_table(calibration),
        summary=summary(calibration),
        meaning=headline(calibration) if calibration.abstention else "",
        written=written,
        next_step=None if outside else ("answer a file of inputs", predict),
    )


def _outside_command(arguments: CalibrateArguments, data: DataArguments) -> Result:
    """Calibrates texts that were generated elsewhere: there is no model to write beside."""
    check_outside_options(arguments)
    if arguments.output_dir is None:
        raise UserError(f"Give --output_dir, the folder for the {UNCERTAINTY_FILE} of these texts.")
    folder = output_folder("", arguments.output_dir)
    calibration, learned = calibrate_outputs(arguments, data)
    folder.mkdir(parents=True, exist_ok=True)
    calibration.write(folder)
    write_uncertainty(folder, **learned_part(learned))
    if learned is not None:
        print("\n" + learned_summary(learned) + "\n")
    return calibration_result(calibration, folder)


def bake_summary(baked: BakedTemperature, folder: Path) -> str:
    """The model with a temperature in its weights, in a few lines."""
    return "\n".join([
        f"The logits of the model in {folder} are those of {baked.model} divided by T = {baked.temperature:.4g} (to "
        f"{baked.logit_error:.1e} of their range, on {baked.rows:,} held-out rows).",
        "It is a plain transformers model in float32: nobody needs clue_hf to load it.",
        baked.differences(),
    ])  # fmt: skip


def summary(calibration: UncertaintyCalibration) -> str:
    """The calibration in a few lines and a table."""
    lines = [f"{calibration.scorer} on {calibration.data['rows']:,} rows of {calibration.data['name']}."]
    if (conformal := calibration.conformal) is not None:
        lines.append(
            f"Conformal: {conformal.name}, coverage {conformal.coverage:g}: holds what has a score of at most "
            f"{conformal.quantile:.4g} ({conformal.definition})."
        )
    if calibration.abstention is None or calibration.confidence is None:
        return "\n".join(
            [*lines, "No --tolerance says when a number is right: no confidence, no thresholds for abstention."]
        )
    best, worst = max(calibration.confidence.quality), min(calibration.confidence.quality)
    lines.append(f"Quality: {calibration.definitions['quality']}. Confidence: from {worst:.3f} to {best:.3f}.")
    reasons = [f"{entry.max_risk:g}: {entry.reason}" for entry in calibration.abstention.thresholds if entry.reason]
    return "\n".join([*lines, "", threshold_table(calibration), *([""] if reasons else []), *reasons])


def threshold_table(calibration: UncertaintyCalibration) -> str:
    """The thresholds for abstention as a markdown table; empty where there are none."""
    if calibration.abstention is None:
        return ""
    cells = [["risk at most", "quality at least", "answer below", "answered", "their risk", "certified"]]
    for entry in calibration.abstention.thresholds:
        cells.append([f"{entry.max_risk:g}", f"{entry.min_quality:g}", *_threshold_cells(entry)])
    return markdown_table(cells)


def best_threshold(calibration: UncertaintyCalibration) -> AbstentionThreshold | None:
    """The one with the highest quality of those that answer half of the rows or more, if any does."""
    thresholds = calibration.abstention.thresholds if calibration.abstention else []
    certified = [entry for entry in thresholds if entry.threshold is not None]
    return max(certified, key=lambda entry: (entry.coverage >= MAIN_COVERAGE, entry.min_quality), default=None)


def headline(calibration: UncertaintyCalibration) -> str:
    """What to do with it: the highest quality that is certified for half of the answers or more, if any is."""
    if (best := best_threshold(calibration)) is None:
        return "No risk is certified: use more rows, or ask for a larger --risks."
    certified_with = f"certified with probability {1 - best.delta:g}"
    if "outputs" in calibration.settings:  # texts from elsewhere, which no pipeline writes
        below = _threshold_cells(best)[0]
        return (
            f"The {best.coverage:.0%} with {calibration.scorer} below {below} have quality at least "
            f"{best.min_quality:g}, {certified_with}."
        )
    return (
        f"Answers {best.coverage:.0%} with quality at least {best.min_quality:g}, {certified_with}: "
        f"pipeline(...)(inputs, min_quality={best.min_quality:g})"
    )


def _threshold_cells(entry: AbstentionThreshold) -> list[str]:
    if entry.threshold is None:
        return ["-", "-", "-", "no"]
    below = "any" if math.isinf(entry.threshold) else f"{entry.threshold:.4g}"
    certified = f"yes, with probability {1 - entry.delta:g}"
    return [below, f"{entry.coverage:.0%}", f"{entry.empirical_risk:.3f}", certified]
