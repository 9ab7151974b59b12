"""Images of classifiers and regressors: opened, resized, normalised; corrupted or augmented where asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from PIL import Image

from ..data.columns import find_image_columns
from ..data.corruptions import corrupt
from ..data.image_dataset import ImageDataset, dataset_images, readable_image
from ..errors import UserError
from .base import Inputs, InputSettings, Rows
from .images import ImageCollator, ImageTransform, make_transform


@dataclass(frozen=True)
class ImageRows(Rows):
    """Images, as they are or corrupted."""

    images: ImageDataset | Sequence[Any]
    transform: ImageTransform
    first_row: int = 0
    corruption: tuple[str, int, int] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: range) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.transform(self._opened(rows))}

    def pixels(self, rows: Any) -> list[np.ndarray]:
        """The images of some rows, uint8 of shape (height, width, channels)."""
        return [
            self.transform.pixels(image) if isinstance(image, Image.Image) else image for image in self._opened(rows)
        ]

    def labelled(self, labels: np.ndarray, chosen: np.ndarray) -> ImageDataset:
        assert isinstance(self.images, ImageDataset)
        return self.images.select(chosen).with_labels(labels)

    def corrupted(self, name: str, severity: int, seed: int) -> ImageRows:
        """The same rows with their images corrupted; what happens to one depends on the seed and its row only."""
        return replace(self, corruption=(name, severity, seed))

    def _opened(self, rows: Any) -> list[Any]:
        """
        Images of many sizes are corrupted as the model sees them, after resizing; those of one size before it, as in
        the published benchmarks.
        """
        if not isinstance(self.images, ImageDataset):
            problem = "Row {} (counted from 0) is no readable image"
            return [readable_image(self.images[row], problem.format(self.first_row + row)) for row in rows]
        images = [row["pixel_values"] for row in self.images.__getitems__(list(rows))]
        if self.corruption is None:
            return images
        if self.images.size is None:
            images = [self.transform.resize(self.transform.pixels(image)) for image in images]
        return list(corrupt(np.stack(images), *self.corruption, rows=list(rows)))


class ImageInputs(Inputs):
    """Images: paths, Pillow images, arrays of pixels (uint8), or encoded bytes."""

    modality = "image"

    def __init__(self, processor: Any = None, settings: InputSettings | None = None) -> None:
        super().__init__(processor, settings)
        self.transform = None if processor is None else ImageTransform.from_processor(processor)

    def is_single(self, values: Any) -> bool:
        pixels = isinstance(values, np.ndarray) and values.ndim < 4 and values.dtype != object
        return pixels or isinstance(values, (str, bytes, Path, Image.Image))

    def rows(self, values: Any, first_row: int = 0) -> ImageRows:
        assert self.transform is not None, "nothing says how images are resized and normalised"
        if isinstance(values, ImageDataset):
            return ImageRows(values, self.transform)
        single = self.is_single(values)
        if not single and not isinstance(values, Iterable):
            raise UserError(f"Give an image or a list of images, not a {type(values).__name__}.")
        return ImageRows([values] if single else list(values), self.transform, first_row)

    def column(self, dataset: Any, target: str | None, split: str) -> ImageDataset:
        if isinstance(dataset, ImageDataset):
            return dataset
        if not isinstance(dataset, datasets.Dataset):
            raise ValueError(f"A model of images takes a datasets.Dataset or an ImageDataset, not {type(dataset)}.")
        names = dataset.column_names
        column, _ = find_image_columns(names, self.settings.image_column, target or names[0])
        return ImageDataset(dataset_images(dataset, column, split), np.zeros(len(dataset)), [])

    def label_column(self, columns: list[str]) -> str:
        return find_image_columns(columns, self.settings.image_column, self.settings.label_column)[1]

    def training_data(self, dataset: Any, target: str, labels: np.ndarray, config: Any, split: str) -> ImageDataset:
        return self.column(dataset, target, split).with_labels(labels)

    def fit(self, dataset: Any, image_size: int | None) -> None:
        """Takes mean, deviation and size of the images from training data, where no processor says them."""
        if self.transform is None and isinstance(dataset, ImageDataset):
            self.transform = make_transform(dataset, image_size)
        elif self.transform and image_size and self.transform.size != (image_size, image_size):
            height, width = self.transform.size
            raise UserError(
                f"image_size {image_size} does not match the model's image processor, which makes images of "
                f"{height} x {width} pixels: leave it out."
            )

    def collator(self, config: Any) -> Any:
        return None if self.transform is None else ImageCollator(self.transform)

    def train_collator(self, config: Any) -> Any:
        return None if self.transform is None else ImageCollator(self.transform, config.augment, config.seed)
