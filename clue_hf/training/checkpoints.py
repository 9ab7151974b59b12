"""Checkpoints that are whole or do not count: a manifest of every file, written last."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import logging

from ..errors import UserError
from ..files import write_json


logger = logging.get_logger(__name__)

#: What a whole checkpoint has: the size and the SHA-256 of every other file of it.
MANIFEST = "manifest.json"


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
        return f"it has no {MANIFEST}: it was not saved to the end"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} cannot be read"
    for name, (size, digest) in expected.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size:,} bytes instead of {size:,}"
        if content and _digest(path)[0] != digest:
            return f"the content of {name} has changed"
    return None


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
