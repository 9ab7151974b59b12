"""Images and labels in npz files: `x_train`, `y_train`, `x_test` ... or `images`, `labels` and perhaps `split`."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets import Dataset

from ..errors import UserError
from .image_dataset import ImageDataset, as_pixels


IMAGES, LABELS = ("x", "images", "image", "data"), ("y", "labels", "label", "targets")
CLASSES = ("classes", "class_names", "names", "label_names")
#: What a part of the file is called here.
SPLITS = {"val": "validation", "valid": "validation", "dev": "validation"}


def load_npz(path: str, option: str, name: str = "train") -> dict[str, Dataset]:
    """
    The splits of an npz file, each with the columns `image` and `label`; rows without a split make up `name`.

    The pixels stay one uint8 array: they are neither copied nor turned into lists.
    """
    where, arrays = f"{option} {path!r}", _read_npz(path, option)
    classes = next((list(map(str, arrays[key].tolist())) for key in CLASSES if key in arrays), None)
    parts = _find_parts(arrays, name)
    if not parts:
        raise UserError(
            f"{where} has the arrays {', '.join(arrays)}: call them x_train, y_train, x_test, y_test, or images, "
            "labels."
        )
    splits = {
        split: from_arrays(arrays[x], arrays[y], classes, f"{x!r} in {where}", f"{y!r} in {where}")
        for split, (x, y) in parts.items()
    }
    if "split" not in arrays or list(splits) != [name]:
        return splits
    rows, part_of_row = splits[name], arrays["split"].astype(str)
    if part_of_row.shape != (len(rows),):
        raise UserError(f"'split' in {where} must name the split of each of the {len(rows)} images.")
    return {
        SPLITS.get(part, part): rows.select(np.flatnonzero(part_of_row == part)) for part in np.unique(part_of_row)
    }


def load_ood_images(path: str, option: str = "ood_file", limit: int | None = None) -> ImageDataset:
    """The images of an npz file that need no labels: those from out of the distribution."""
    arrays = _read_npz(path, option)
    names = [key for key in arrays if arrays[key].ndim >= 3]
    names = [key for key in names if "test" in key.lower()] or names
    if len(names) != 1:
        raise UserError(f"{option} {path!r} has the arrays {', '.join(arrays)}; it must hold one array of images.")
    pixels = as_pixels(arrays[names[0]][:limit], f"{names[0]!r} in {option} {path!r}")
    if len(pixels) == 0:
        raise UserError(f"{option} {path!r} has no rows.")
    return ImageDataset(pixels, np.zeros(len(pixels), np.int64), ["unknown"])


def _read_npz(path: str, option: str) -> dict[str, np.ndarray]:
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"{option} {path!r} does not exist.")
    try:
        with np.load(file, allow_pickle=False) as opened:
            return dict(opened)
    except (OSError, EOFError, zipfile.BadZipFile, AttributeError, ValueError, TypeError) as error:
        advice = ""
        if "Object arrays" in str(error):
            advice = " An array of objects is not read: are the images of unequal sizes? Use a folder of image files."
        raise UserError(f"{option} {path!r} cannot be read as npz: {error}.{advice}") from error


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


def from_arrays(
    images: np.ndarray, labels: np.ndarray, names: list[str] | None, images_are: str, labels_are: str
) -> Dataset:
    """A dataset of images and labels; the last two arguments are what error messages call the arrays."""
    pixels = np.ascontiguousarray(as_pixels(images, images_are))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (len(pixels),):
        raise UserError(f"{labels_are} must hold one label for each of the {len(pixels)} images, not {labels.shape}.")
    if len(pixels) == 0:
        raise UserError(f"{images_are} has no rows.")
    has_numbers = labels.dtype.kind in "iu"
    column: Any = pa.array(pixels.reshape(-1))
    for length in reversed(pixels.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, length)
    if labels.dtype.kind in "US":
        labels = labels.astype(str).astype(object)
    else:  # a NaN is a missing label
        labels = labels.astype(np.int64 if labels.dtype.kind in "iub" else np.float64)
    table = pa.table({"image": column, "label": pa.array(labels, from_pandas=True)})
    features = datasets.Features.from_arrow_schema(table.schema)
    if names is not None and has_numbers:
        features["label"] = datasets.ClassLabel(names=names)
    return Dataset(table, info=datasets.DatasetInfo(features=features))
