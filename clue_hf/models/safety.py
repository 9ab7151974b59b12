"""Checks of a model's folder, which may be untrusted: links out of it and pickled weights are refused."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from ..errors import UserError


#: Weights that are pickles, which can run anything when they are read.
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle")
WEIGHTS = ("*.safetensors", "*.safetensors.index.json")


def check_folder(name: str, subfolder: str = "") -> None:
    """Raises where a local folder of a model reaches out of itself, or has its weights as pickles only."""
    root = Path(name).expanduser()
    if not root.is_dir():
        return
    if not is_inside(subfolder):
        raise UserError(f"{name!r} names the folder {subfolder!r}, which is not inside it: refused.")
    folder = root / subfolder
    for path in (folder, *folder.glob("*")):
        if not _may_lead_to(path.resolve(), root.resolve()):
            raise UserError(
                f"{path} is a link out of the model's folder, to {path.resolve()}: refused. Put the file itself there."
            )
    for index in folder.glob("*.index.json"):
        _check_index(index)
    has_pickles = any(True for pattern in PICKLES for _ in folder.glob(f"*model{pattern}"))
    if has_pickles and not any(True for pattern in WEIGHTS for _ in folder.glob(pattern)):
        raise UserError(
            f"The weights in {str(folder)!r} are pickles, which can run any code when they are read: refused. Convert "
            "them to safetensors where you trust them (load them with transformers there, and `save_pretrained`)."
        )


def is_inside(path: str) -> bool:
    """Whether a path leads to somewhere inside the folder that it starts from, on any system."""
    for kind in (PurePosixPath, PureWindowsPath):
        parsed = kind(path)
        if parsed.is_absolute() or parsed.drive or parsed.root or ".." in parsed.parts:
            return False
    return True


def read_index(index: Path) -> set[Any]:
    """The files that the index of weights in several files names."""
    try:
        return set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{index} is damaged ({type(error).__name__}: {error}): save the model again.") from error


def _check_index(index: Path) -> None:
    """The index of weights in several files may name files of its own folder only."""
    for name in read_index(index):
        if not isinstance(name, str) or not is_inside(name):
            raise UserError(f"{index} names the file {name!r}, which is not inside its folder: refused.")


def _may_lead_to(target: Path, root: Path) -> bool:
    """Whether a link stays inside; the Hub's cache links from snapshots/REVISION to blobs beside it."""
    if target.is_relative_to(root):
        return True
    in_cache = root.parent.name == "snapshots" and root.parents[1].name.startswith("models--")
    return in_cache and target.is_relative_to(root.parents[1] / "blobs")
