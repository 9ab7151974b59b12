"""Calibrates a model and writes what was found beside it: `clue-hf calibrate`, and the same in Python."""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers.utils import logging

from ..data.loading import DataArguments, data_name
from ..errors import UserError
from ..models.uncertainty_file import (
    DENSITY_FILE,
    UNCERTAINTY_FILE,
    NewerVersionError,
    optional_file,
    read_uncertainty,
    write_uncertainty,
)
from ..posthoc.baked import BakedTemperature
from ..posthoc.calibration_file import UncertaintyCalibration
from ..posthoc.learned import LearnedScore
from ..predictors.loading import read_config, save_model
from .bake import bake, check_new_folder
from .calibration import CalibrateArguments, fit_calibration
from .learned_score import learned_part
from .token_calibration import TokenCalibration, token_parts


logger = logging.get_logger(__name__)


def calibrate(model: str, data: Any = None, output_dir: str | None = None, **settings: Any) -> UncertaintyCalibration:
    """
    Finds what the uncertainty of a model means, on rows that it was not trained on, and writes it beside the model
    (`uncertainty.json`), where [`pipeline`] and all commands read it: calibrated probabilities of tokens, the quality
    to expect of an answer, and thresholds to abstain by. Outputs stay the same. The same as `clue-hf calibrate`.

    Args:
        model (`str`):
            Hub id or folder of a language model, classifier or regressor, trained with CLUE or not.
        data (`datasets.Dataset`, `list[dict]` or `str`, *optional*):
            Held-out rows, or the path of a file with them. By default the settings name the data: `dataset_name`,
            `validation_file`, `split` ...
        output_dir (`str`, *optional*):
            Folder for a copy of the model and what was found. By default it is written to the folder of the model.
        settings:
            Options of `clue-hf calibrate`, such as `quality="chrf"`, `scorer="learned"`, `source_column="en"`.

    Returns:
        [`~clue_hf.posthoc.calibration_file.UncertaintyCalibration`]: the quality to expect at an uncertainty, and the
        thresholds.

    Example:

    ```python
    >>> from clue_hf import calibrate, pipeline

    >>> calibrate("Helsinki-NLP/opus-mt-en-fr", pairs, "out/translator", source_column="en", target_column="fr")
    >>> pipeline("out/translator")("How are you?", min_quality=0.7)
    {'generated_text': ..., 'uncertainty': ..., 'confidence': ..., 'percentile': ..., 'abstain': False}
    ```
    """
    with TemporaryDirectory() as folder:
        if data is not None:
            settings["validation_file"] = data if isinstance(data, (str, os.PathLike)) else _write_rows(data, folder)
        arguments, where = _arguments({**settings, "output_dir": output_dir})
        return calibrate_model(model, arguments, where).calibration


@dataclass(frozen=True)
class CalibratedModel:
    """What a calibration found and where it was written."""

    folder: Path
    calibration: UncertaintyCalibration
    tokens: TokenCalibration | None = None
    learned: LearnedScore | None = None
    baked: BakedTemperature | None = None


def calibrate_model(model: str, arguments: CalibrateArguments, data: DataArguments) -> CalibratedModel:
    """Calibrates a model, and writes what was found to its folder or to that of the arguments."""
    baking = arguments.bake is not None
    folder = check_new_folder(str(arguments.bake), model) if baking else output_folder(model, arguments.output_dir)
    _check_split(arguments.split, data)
    read_config(model)  # says where there is no such model
    stored = _stored(model)
    name = data_name(data, arguments.split)
    calibration, predictor, tokens = fit_calibration(model, arguments, data, name, stored)
    if baking and tokens is not None:
        baked = bake(predictor, calibration, tokens, folder, model, stored, arguments.qualities[0])
        return CalibratedModel(folder, calibration, tokens, baked=baked)
    if not _same(folder, model):
        save_model(predictor, folder, stored)
        write_uncertainty(folder, **{key: value for key, value in stored.items() if key != "version"})
    calibration.write(folder)
    if arguments.density_split is not None:
        predictor.density.save(folder)
    elif not _same(folder, model) and (path := optional_file(model, DENSITY_FILE)):
        shutil.copyfile(path, folder / DENSITY_FILE)
    learned = getattr(predictor, "learned_score", None)
    write_uncertainty(folder, **token_parts(tokens), **learned_part(learned))
    return CalibratedModel(folder, calibration, tokens, learned)


def _arguments(settings: dict[str, Any]) -> tuple[CalibrateArguments, DataArguments]:
    """Settings of Python as those of the command."""
    kinds = (CalibrateArguments, DataArguments)
    ours, datas = ({field.name for field in dataclasses.fields(kind) if field.init} for kind in kinds)
    known = (ours | datas) - {"outputs"}
    for name in settings:
        if name not in known:
            close = get_close_matches(name, known, 1)
            raise UserError(f"There is no setting {name!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
    arguments = CalibrateArguments(**{name: value for name, value in settings.items() if name in ours})
    return arguments, DataArguments(**{name: value for name, value in settings.items() if name in datas})


def _write_rows(rows: Any, folder: str) -> str:
    """Rows in memory as a file, which is how all data is read."""
    from datasets import Dataset

    path = os.path.join(folder, "rows.parquet")
    (rows if isinstance(rows, Dataset) else Dataset.from_list(list(rows))).to_parquet(path)
    return path


def output_folder(model: str, output_dir: str | None) -> Path:
    """Where to write; another folder than the model's must not hold a model already."""
    if output_dir is None:
        if not os.path.isdir(model):
            raise UserError(
                f"{model!r} is not a folder to write to: give --output_dir, which gets a copy of the model."
            )
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
    path = Path(model) / UNCERTAINTY_FILE
    try:
        return read_uncertainty(model)
    except UserError as error:
        if isinstance(error, NewerVersionError) or not path.is_file():
            raise
        aside = path.with_name(f"{UNCERTAINTY_FILE}.damaged")
        os.replace(path, aside)
        logger.warning(f"{error} A new one is written, the old one is now {aside}.")
        return {}
