"""
Checks of what a stranger's model brings: links out of its folder are refused, and so are weights that run anything.

Weights are read from safetensors, or else from `pytorch_model.bin` by torch's weights-only reader, which makes nothing
but tensors and plain values; a pickle that asks for more is refused.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from ..errors import UserError


def check_folder(name: str, subfolder: str = "") -> None:
    """Raises where a local folder of a model reaches out of itself."""
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


@contextmanager
def refusing_pickles(name: str) -> Iterator[None]:
    """Explains why torch's weights-only reader did not read a file, without its advice to use the other one."""
    try:
        yield
    except pickle.UnpicklingError as error:
        raise UserError(
            f"The weights of {name!r} are a damaged file, or a pickle that holds more than tensors, which can run any "
            "code when it is read: refused, and nothing of it was run. Download them again, or convert them to "
            "safetensors where you trust them (load them with torch there, and `save_pretrained`)."
        ) from error


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
