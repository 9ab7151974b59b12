"""Images and labels in npz files: `x_train`, `y_train`, `x_test` ... or `images`, `labels` and perhaps `split`."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from ..errors import UserError
from .image_dataset import as_pixels


IMAGES, LABELS = ("x", "images", "image", "data"), ("y", "labels", "label", "targets")
CLASSES = ("classes", "class_names", "names", "label_names")
#: What a part of the file is called here.
SPLITS = {"val": "validation", "valid": "validation", "dev": "validation"}


def load_npz(path: str, option: str, name: str = "train") -> dict[str, datasets.Dataset]:
    """
    The splits of an npz file, each with the columns `image` and `label`; rows without a split make up `name`.

    The pixels stay one uint8 array: they are neither copied nor turned into lists.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"{option} {path!r} does not exist.")
    try:
        with np.load(file, allow_pickle=False) as opened:
            arrays = {key: opened[key] for key in opened.files}
    except (OSError, EOFError, zipfile.BadZipFile, AttributeError, ValueError) as error:
        advice = ""
        if "Object arrays" in str(error):
            advice = " An array of objects is not read: are the images of unequal sizes? Use a folder of image files."
        raise UserError(f"{option} {path!r} cannot be read as npz: {error}.{advice}") from error
    where = f"{option} {path!r}"
    classes = next((list(map(str, arrays[key].tolist())) for key in CLASSES if key in arrays), None)
    parts = _find_parts(arrays, name)
    if not parts:
        raise UserError(
            f"{where} has the arrays {', '.join(arrays)}: call them x_train, y_train, x_test, y_test, or images, "
            "labels."
        )
    found = {
        split: from_arrays(arrays[x], arrays[y], classes, f"{x!r} in {where}", f"{y!r} in {where}")
        for split, (x, y) in parts.items()
    }
    return _by_split(found, arrays, name, where)


def _find_parts(arrays: dict[str, Any], name: str) -> dict[str, tuple[str, str]]:
    """Pairs of an array of images and one of labels, by split."""
    keys = {key.lower(): key for key in arrays}
    pairs = {}
    for x, y in ((x, y) for x in IMAGES for y in LABELS):
        for key in keys:
            part = re.fullmatch(rf"{x}_(\w+)|(\w+)_{x}", key)
            split = part and (part[1] or part[2])
            other = part and (f"{y}_{split}" if part[1] else f"{split}_{y}")
            if split and other in keys:
                pairs[SPLITS.get(split, split)] = (keys[key], keys[other])
        if x in keys and y in keys:
            pairs[name] = (keys[x], keys[y])
    return pairs


def _by_split(
    found: dict[str, datasets.Dataset], arrays: dict[str, Any], name: str, where: str
) -> dict[str, datasets.Dataset]:
    """Divides the only part of a file by its array `split`."""
    if "split" not in arrays or list(found) != [name]:
        return found
    splits = arrays["split"].astype(str)
    if splits.shape != (len(found[name]),):
        raise UserError(f"'split' in {where} must name the split of each of the {len(found[name])} images.")
    return {
        SPLITS.get(split, split): found[name].select(np.flatnonzero(splits == split)) for split in np.unique(splits)
    }


def from_arrays(
    images: np.ndarray, labels: np.ndarray, names: list[str] | None, images_are: str, labels_are: str
) -> datasets.Dataset:
    """A dataset of images and labels; the last two arguments are what error messages call the arrays."""
    pixels = np.ascontiguousarray(as_pixels(images, images_are))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (len(pixels),):
        raise UserError(f"{labels_are} must hold one label for each of the {len(pixels)} images, not {labels.shape}.")
    if len(pixels) == 0:
        raise UserError(f"{images_are} has no rows.")
    column: Any = pa.array(pixels.reshape(-1))
    for length in reversed(pixels.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, length)
    table = pa.table({"image": column, "label": pa.array(_plain(labels), from_pandas=True)})
    features = datasets.Features.from_arrow_schema(table.schema)
    if names is not None and labels.dtype.kind in "iu":
        _check_range(labels, names, labels_are)
        features["label"] = datasets.ClassLabel(names=names)
    return datasets.Dataset(table, info=datasets.DatasetInfo(features=features))


def _check_range(labels: np.ndarray, names: list[str], labels_are: str) -> None:
    outside = np.flatnonzero((labels < 0) | (labels >= len(names)))
    if len(outside):
        row = int(outside[0])
        raise UserError(
            f"{labels_are} holds {labels[row]} in row {row} (counted from 0), but there are only the {len(names)} "
            f"classes 0 to {len(names) - 1}."
        )


def _plain(labels: np.ndarray) -> np.ndarray:
    """Labels of a type that Arrow knows: whole numbers, numbers (NaN: missing) or texts."""
    if labels.dtype.kind in "US":
        return labels.astype(str).astype(object)
    return labels.astype(np.int64) if labels.dtype.kind in "iub" else labels.astype(np.float64)
