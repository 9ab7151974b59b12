"""Checkpoints that are whole or do not count: a manifest of every file, written last."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, logging

from ..errors import UserError
from ..files import write_json


logger = logging.get_logger(__name__)

#: What a whole checkpoint has: the size and the SHA-256 of every other file of it.
MANIFEST = "manifest.json"
#: File of a model and of a checkpoint with the settings that it was trained with.
SETTINGS = "training_settings.json"
#: Files of a model's weights.
WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")


def write_manifest(folder: Path) -> None:
    """Declares a checkpoint whole. Everything is on the disk before its manifest is."""
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST):
        digest, size = _digest(path, keep=True)
        files[path.relative_to(folder).as_posix()] = {"size": size, "sha256": digest}
    write_json(folder / MANIFEST, {"version": 1, "files": files}, indent=1)


def damage(folder: Path, content: bool = True) -> str | None:
    """What is wrong with a checkpoint; `None` where it is whole. Without `content` the sizes of its files will do."""
    try:
        files: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        expected = {name: (int(entry["size"]), str(entry["sha256"])) for name, entry in files.items()}
    except FileNotFoundError:
        if not is_foreign(folder):
            return f"it has no {MANIFEST}: it was not saved to the end"
        return None if _is_json(folder / TRAINER_STATE_NAME) else f"its {TRAINER_STATE_NAME} cannot be read"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} cannot be read"
    if _saved_anew(folder, expected):
        expected = {name: entry for name, entry in expected.items() if not WEIGHTS.fullmatch(name)}
        if missing := _missing_shard(folder):
            return f"{missing} is missing or damaged"
    for name, (size, digest) in expected.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size:,} bytes instead of {size:,}"
        if content and _digest(path)[0] != digest:
            return f"the content of {name} has changed"
    return None


def is_foreign(folder: Path) -> bool:
    """Whether a checkpoint was saved by transformers' own Trainer, which writes no manifest."""
    its_own = all((folder / name).is_file() for name in (TRAINER_STATE_NAME, TRAINING_ARGS_NAME))
    return its_own and not any((folder / name).exists() for name in (MANIFEST, SETTINGS))


def _saved_anew(folder: Path, expected: dict[str, Any]) -> bool:
    """Whether the weights were divided into other files since: their content cannot be checked, the rest can."""
    weights = {path.name for path in folder.iterdir() if WEIGHTS.fullmatch(path.name)}
    return bool(weights - expected.keys()) and any(WEIGHTS.fullmatch(name) for name in expected.keys() - weights)


def _missing_shard(folder: Path) -> str | None:
    """The first file of weights that is not there, or not whole."""
    if (folder / SAFE_WEIGHTS_NAME).exists():
        names = {SAFE_WEIGHTS_NAME}
    elif _is_json(folder / SAFE_WEIGHTS_INDEX_NAME):
        names = set(json.loads((folder / SAFE_WEIGHTS_INDEX_NAME).read_text(encoding="utf-8"))["weight_map"].values())
    else:
        return SAFE_WEIGHTS_INDEX_NAME
    return next((name for name in sorted(names) if not _opens(folder / name)), None)


def _opens(path: Path) -> bool:
    try:
        with safe_open(path, "pt"):  # compares the size of the file with that of its tensors
            return True
    except (OSError, SafetensorError):
        return False


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def checkpoints(output_dir: str | Path) -> list[Path]:
    """The checkpoints of a folder, whole or not, the newest first."""
    name = re.compile(rf"{PREFIX_CHECKPOINT_DIR}-\d+")
    folders = Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*")
    return sorted((path for path in folders if name.fullmatch(path.name) and path.is_dir()), key=_step, reverse=True)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def last_whole_checkpoint(output_dir: str | Path) -> Path | None:
    """
    The newest checkpoint that is whole; those that are not are named and skipped. `None` where there is no
    checkpoint at all; an error where none of those that exist is whole.
    """
    damaged = []
    for folder in checkpoints(output_dir):
        reason = damage(folder)
        if reason is None:
            return folder
        damaged.append(f"{folder.name}: {reason}")
        logger.warning(f"The checkpoint {folder} is skipped: {reason}.")
    if damaged:
        raise UserError(
            f"None of the checkpoints in {output_dir} is whole ({'; '.join(damaged)}). Delete them to start over, or "
            "give resume_from_checkpoint another folder."
        )
    return None


def rotate(written: Path, limit: int | None, best: str | None) -> None:
    """
    Deletes the oldest checkpoints until `limit` are left, those that are not whole first; never the one that was just
    written, and never the best one. Without a limit, or where the one just written is not whole, nothing is deleted.
    """
    # sizes will do: the one just written is whole whatever the others hold, and to hash them all at each save is slow
    if not limit or limit < 1 or damage(written, content=False):
        return
    spared = {written.resolve(), Path(best or written).resolve()}
    existing = checkpoints(written.parent)
    others = [folder for folder in existing if folder.resolve() not in spared]
    # a run counts upwards: higher steps than its newest are what an earlier run left, and older than its own
    step = _step(written)
    others.sort(key=lambda folder: (_step(folder) < step, _step(folder)), reverse=True)
    whole = [folder for folder in others if damage(folder, content=False) is None]
    kept = whole[: max(limit - (len(existing) - len(others)), 0)]
    for folder in reversed(others):
        if folder not in kept:
            logger.info(f"Deleting the checkpoint {folder}{'' if folder in whole else ', which is not whole'}.")
            remove(folder)


def remove(folder: Path) -> None:
    """Deletes a checkpoint, its manifest first: what is half deleted does not count."""
    (folder / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _digest(path: Path, keep: bool = False) -> tuple[str, int]:
    """SHA-256 and size of a file; with `keep`, after the system has it on the disk."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if keep:
            os.fsync(file.fileno())
        return digest, file.tell()
