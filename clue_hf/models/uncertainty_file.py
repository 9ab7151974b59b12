"""`uncertainty.json`: what a saved model's uncertainty is made of, beside its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers.utils import cached_file

from ..errors import UserError
from ..files import write_json


UNCERTAINTY_FILE = "uncertainty.json"
#: Beside it, what the scorers of a density were fitted to.
DENSITY_FILE = "density.safetensors"
VERSION = 1


class NewerVersionError(UserError):
    """A file was written by a newer clue_hf."""


def optional_file(name: str, filename: str, subfolder: str = "") -> str | None:
    """The path of a file of a folder or of a Hub repository; `None` where there is none, or it cannot be reached."""
    reasons = ("missing_entries", "gated_repo", "connection_errors")
    quiet = {f"_raise_exceptions_for_{reason}": False for reason in reasons}
    return cached_file(name, filename, subfolder=subfolder, **quiet)


def read_uncertainty(name: str, subfolder: str = "") -> dict[str, Any]:
    """
    What stands in the `uncertainty.json` of a folder or of a Hub repository; nothing where there is none.

    Known keys are `task`, `mc_samples` (passes with dropout), `members` (folders of the other models of an ensemble),
    `calibrator`, `error_predictor` (its folder and bounds), and what `clue-hf calibrate` fits.
    """
    path = optional_file(name, UNCERTAINTY_FILE, subfolder)
    if path is None:
        return {}
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(
            f"{UNCERTAINTY_FILE} of {name!r} is damaged ({error}). Delete it, or write it anew: clue-hf calibrate."
        ) from error
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        newer = isinstance(version, int) and version > VERSION
        advice = "update clue_hf" if newer else "write it anew: clue-hf calibrate"
        raise (NewerVersionError if newer else UserError)(
            f"{UNCERTAINTY_FILE} of {name!r} has version {version!r}, and this clue_hf reads version {VERSION}: "
            f"{advice}."
        )
    return content


def write_uncertainty(folder: str | Path, **parts: Any) -> None:
    """Adds to the `uncertainty.json` of a folder, or begins one; a part that is `None` is taken out."""
    folder = Path(folder)
    path = folder / UNCERTAINTY_FILE
    content = read_uncertainty(str(folder)) if path.exists() else {}
    content = {key: value for key, value in {**content, **parts}.items() if key != "version" and value is not None}
    write_json(path, {"version": VERSION, **content}, allow_nan=False, default=None)


def damaged(name: str, part: str, why: Any, advice: str = "Write it anew: clue-hf calibrate") -> UserError:
    """The error for a part of `uncertainty.json` that cannot be used."""
    return UserError(f"{part!r} in {UNCERTAINTY_FILE} of {name!r} is damaged ({why}). {advice}.")
