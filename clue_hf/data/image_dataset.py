"""Images with their classes: from files, bytes or lists of pixels to rows of uint8 pixels and class numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets import Dataset
from PIL import Image, ImageOps

from ..errors import UserError
from .columns import find_image_columns
from .labels import class_names, label_numbers, list_names


#: Images of one size that take no more bytes than this are decoded once and held in memory.
MEMORY_LIMIT = 2**30
CHANNELS = (1, 3)
GREY_MODES = ("1", "L", "LA")
#: What opening something else than an image raises.
UNREADABLE = (OSError, Image.DecompressionBombError, SyntaxError, ValueError, TypeError, AttributeError)


class ImageDataset:
    """
    Images and the numbers of their classes, as a trainer takes them: a row is `{"pixel_values": uint8 array of shape
    (height, width, channels), "labels": int}`. The names are those of the model's inputs, so that no trainer removes
    them as unused columns.

    Args:
        images (`np.ndarray` of shape `(rows, height, width, channels)` or [`EncodedImages`]):
            All images, in memory or decoded when asked for.
        labels (`np.ndarray` of shape `(rows,)`):
            The number of each image's class.
        names (`list[str]`):
            The classes.
        rows (`np.ndarray`, *optional*):
            Which of the images belong to this dataset, in its order.
    """

    column_names = ["pixel_values", "labels"]

    def __init__(
        self, images: np.ndarray | EncodedImages, labels: np.ndarray, names: list[str], rows: np.ndarray | None = None
    ) -> None:
        self.images, self.names = images, names
        self._labels = labels
        self._rows = np.arange(len(labels)) if rows is None else rows
        self._numbered = False

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        positions = self._rows[np.asarray(rows)].tolist()
        images, labels = self.images[positions], self._labels[positions].tolist()
        items = [{"pixel_values": image, "labels": label} for image, label in zip(images, labels, strict=True)]
        if self._numbered:
            for row, item in zip(rows, items, strict=True):
                item["row"] = int(row)
        return items

    def numbered(self) -> ImageDataset:
        """The same dataset, whose rows also hold their number as `row`: for objectives that remember each row."""
        copy = ImageDataset(self.images, self._labels, self.names, self._rows)
        copy._numbered = True
        return copy

    def select(self, rows: Iterable[int]) -> ImageDataset:
        """The dataset of these rows; the images are shared, not copied."""
        return ImageDataset(self.images, self._labels, self.names, self._rows[np.asarray(list(rows), dtype=np.int64)])

    @property
    def labels(self) -> np.ndarray:
        """The class number of each row."""
        return self._labels[self._rows]

    def with_labels(self, labels: np.ndarray) -> ImageDataset:
        """The same images with other labels, one for each row: numbers to predict instead of classes."""
        every = np.zeros(len(self._labels), labels.dtype)
        every[self._rows] = labels
        return ImageDataset(self.images, every, [], self._rows)

    @property
    def num_channels(self) -> int:
        """1 for grey images, 3 for coloured ones."""
        return self.images.shape[-1] if isinstance(self.images, np.ndarray) else self.images.num_channels

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width; `None` where the images may differ."""
        return self.images.shape[1:3] if isinstance(self.images, np.ndarray) else None

    def pixels(self) -> np.ndarray:
        """All images as one array; raises where they differ in size."""
        if isinstance(self.images, np.ndarray):
            return self.images[self._rows]
        images = self.images[self._rows.tolist()]
        common_size(images)
        return np.stack(images)

    def binary(self, task: str) -> ImageDataset:
        """
        Two of the classes, `"cat,dog"`, or one against all others, `"cat"`. The class named first is the positive one,
        number 1.
        """
        wanted = [name.strip() for name in task.split(",")]
        unknown = [name for name in wanted if name not in self.names]
        if unknown or not 1 <= len(set(wanted)) == len(wanted) <= 2:
            raise UserError(
                f"binary_task {task!r} must name one or two classes, as in cat,dog. The classes are "
                f"{list_names(self.names)}."
            )
        positive = self._labels == self.names.index(wanted[0])
        if len(wanted) == 1:
            return ImageDataset(self.images, positive.astype(np.int64), [f"not {wanted[0]}", wanted[0]], self._rows)
        kept = positive | (self._labels == self.names.index(wanted[1]))
        return ImageDataset(self.images, positive.astype(np.int64), wanted[::-1], self._rows[kept[self._rows]])


class EncodedImages:
    """Images of a dataset, decoded when asked for: files, PNG or JPEG bytes, or lists of pixels."""

    def __init__(self, dataset: Dataset, column: str, split: str) -> None:
        if isinstance(dataset.features[column], datasets.Image):
            dataset = dataset.cast_column(column, datasets.Image(decode=False))
        self._dataset, self._column, self._split = dataset.select_columns([column]), column, split
        grey = all(image.mode in GREY_MODES for image in self._open(list(range(min(16, len(dataset))))))
        self.num_channels = 1 if grey else 3

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, rows: list[int]) -> list[np.ndarray]:
        """The images of some rows, uint8 of shape (height, width, channels)."""
        return [image_to_pixels(image, self.num_channels) for image in self._open(rows)]

    def _open(self, rows: list[int]) -> Iterator[Image.Image]:
        where = f"of the {self._split} data has no readable image in column {self._column!r}"
        for row, value in zip(rows, self._dataset[rows][self._column], strict=True):
            yield readable_image(value, f"Row {row} (counted from 0) {where}")


def open_image(value: Any) -> Image.Image:
    """An image of any kind, upright: a file, encoded bytes, pixels, or how datasets stores it."""
    if isinstance(value, dict):  # how datasets stores images
        value = value.get("bytes") if value.get("bytes") is not None else value.get("path")
    if value is None:
        raise ValueError("it is empty (null).")
    if isinstance(value, (list, np.ndarray)):
        return pixels_to_image(as_pixels(np.asarray(value)[None])[0])
    if not isinstance(value, Image.Image):
        value = Image.open(BytesIO(value) if isinstance(value, bytes) else value)
    if value.mode[0] in "IF":
        raise ValueError(f"it is of mode {value.mode}: convert it to 8 bits per channel")
    value.load()  # a damaged file shows here
    return ImageOps.exif_transpose(value)


def readable_image(value: Any, problem: str) -> Image.Image:
    """An opened image; raises with the `problem` and its reason where it cannot be opened."""
    try:
        return open_image(value)
    except UNREADABLE as error:
        raise UserError(f"{problem}: {error}") from error


def pixels_to_image(pixels: np.ndarray) -> Image.Image:
    """A Pillow image from uint8 of shape (height, width) or (height, width, channels)."""
    return Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels)


def image_to_pixels(image: Image.Image, num_channels: int) -> np.ndarray:
    """A Pillow image as uint8 of shape (height, width, channels), grey or RGB."""
    pixels = np.asarray(image.convert("L" if num_channels == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], num_channels)


def common_size(images: Iterable[np.ndarray]) -> tuple[int, int]:
    """Height and width of all images; raises at the first that differs."""
    sizes = (image.shape[:2] for image in images)
    first = next(sizes)
    for row, size in enumerate(sizes, 1):
        if size != first:
            raise UserError(
                f"The images differ in size: row {row} (counted from 0) is {size[0]} x {size[1]} pixels, row 0 is "
                f"{first[0]} x {first[1]}. Set image_size, as in image_size=224."
            )
    return first


def image_dataset(
    dataset: Any,
    image: str | None = None,
    label: str | None = None,
    names: list[str] | None = None,
    split: str = "train",
) -> Any:
    """
    A dataset with an image and a label column as an [`ImageDataset`]; one that already is comes back as it is, a dict
    of datasets works too.

    Args:
        dataset (`datasets.Dataset`):
            Images (files, encoded bytes, or lists of pixels) and labels (numbers, names, or `ClassLabel`).
        image, label (`str`, *optional*):
            Their columns; by default those with the usual names.
        names (`list[str]`, *optional*):
            The classes, as [`class_names`] finds them in the training data; by default those of this dataset.
        split (`str`, *optional*, defaults to `"train"`):
            What error messages call the dataset.
    """
    if isinstance(dataset, dict):
        return {key: image_dataset(part, image, label, names, key) for key, part in dataset.items()}
    if not isinstance(dataset, Dataset):
        return dataset
    if len(dataset) == 0:
        raise UserError(f"The {split} data has no rows.")
    image, label = find_image_columns(dataset.column_names, image, label)
    names = class_names(dataset, label) if names is None else names
    labels = label_numbers(dataset, label, names, split)
    return ImageDataset(dataset_images(dataset, image, split), labels, names)


def dataset_images(dataset: Dataset, column: str, split: str) -> np.ndarray | EncodedImages:
    """The images of a column: one array where they are few and of one size, otherwise decoded when asked for."""
    stacked = _stacked_lists(dataset, column)
    if stacked is not None:
        return stacked
    images = EncodedImages(dataset, column, split)
    first = images[[0]][0]
    if first.nbytes * len(images) > MEMORY_LIMIT:
        return images
    pixels = np.empty((len(images), *first.shape), np.uint8)
    for start in range(0, len(images), 256):
        rows = range(start, min(start + 256, len(images)))
        for row, image in zip(rows, images[list(rows)], strict=True):
            if image.shape != first.shape:
                return images
            pixels[row] = image
    return pixels


def _stacked_lists(dataset: Dataset, column: str) -> np.ndarray | None:
    """The array in a column of lists of pixels, all of one size; `None` for other columns."""
    if not isinstance(dataset.features[column], (datasets.List, datasets.Array2D, datasets.Array3D)):
        return None
    values = dataset.select_columns([column]).with_format("arrow")[:][column].combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # where one array would be too long
        return None
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    shape = [len(values)]
    while pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        flat, lists = values.flatten(), max(len(values), 1)
        if values.null_count or len(flat) % lists or len(flat) == 0:
            return None
        if pa.types.is_list(values.type) and (np.diff(values.offsets.to_numpy()) != len(flat) // lists).any():
            return None
        shape.append(len(flat) // lists)
        values = flat
    return as_pixels(values.to_numpy(zero_copy_only=False).reshape(shape)) if len(shape) > 2 else None


def as_pixels(images: np.ndarray, what: str = "Images") -> np.ndarray:
    """Images of any usual layout as uint8 of shape (rows, height, width, channels)."""
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4:
        raise UserError(
            f"{what} must have the shape (rows, height, width) or (rows, height, width, channels), not {images.shape}."
        )
    if images.shape[-1] not in (*CHANNELS, 4) and images.shape[1] in CHANNELS:
        images = images.transpose(0, 2, 3, 1)
    if images.shape[-1] == 4:
        images = images[..., :3]  # without transparency
    if images.shape[-1] not in CHANNELS:
        raise UserError(f"{what} must have 1 channel (grey) or 3 (RGB), not {images.shape[-1]}.")
    if images.dtype == np.uint8:
        return images
    if not np.issubdtype(images.dtype, np.integer):
        raise UserError(f"{what} must be whole numbers from 0 to 255 (uint8), not {images.dtype}: rescale them.")
    outside = ((images < 0) | (images > 255)).reshape(len(images), -1).any(1)
    if outside.any():
        row = int(outside.argmax())
        raise UserError(f"{what} must lie between 0 and 255, but row {row} (counted from 0) does not.")
    return images.astype(np.uint8)
