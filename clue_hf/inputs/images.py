"""From rows of pixels to batches: resizing, normalising, random crops and flips."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import ViTImageProcessorPil

from ..data.image_dataset import ImageDataset, common_size, image_to_pixels, pixels_to_image
from ..errors import UserError


AUGMENTATIONS = ("none", "crop", "crop_flip")
#: Side to resize to before cropping the middle, as a multiple of the side to crop: 256 for 224.
AROUND_CROP = 256 / 224
#: Number of images from which the mean and deviation of a dataset that is not in memory are computed.
STATISTICS_ROWS = 4096


@dataclass(frozen=True)
class ImageTransform:
    """
    What happens to every image before the model sees it: resized where it has another size, and normalised.

    Args:
        size (`tuple[int, int]`):
            Height and width of the model's images.
        image_mean, image_std (`tuple[float, ...]`):
            Mean and standard deviation of each channel, of pixels from 0 to 1. One value: grey images.
        shortest_edge (`int`, *optional*):
            For photographs of many sizes: resize the shorter side to this, then crop the middle. By default images
            are resized to `size` as they are.
        resample (`int`, *optional*, defaults to bilinear):
            Pillow's number of the interpolation.
    """

    size: tuple[int, int]
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    shortest_edge: int | None = None
    resample: int = int(Image.Resampling.BILINEAR)

    @property
    def num_channels(self) -> int:
        return len(self.image_mean)

    def __call__(self, images: Any) -> torch.Tensor:
        """Float images (rows, channels, height, width) from a list of arrays or Pillow images."""
        return self.normalize(_stacked(self.resize(self.pixels(image)) for image in images))

    def pixels(self, image: Any) -> np.ndarray:
        """An image as uint8 of shape (height, width, channels), with as many channels as the model takes."""
        if isinstance(image, np.ndarray) and image.ndim == 3 and image.shape[-1] == self.num_channels:
            return image
        if not isinstance(image, Image.Image):
            image = pixels_to_image(np.asarray(image))
        return image_to_pixels(image, self.num_channels)

    def resize(self, pixels: np.ndarray) -> np.ndarray:
        """Resizes, and crops the middle where there is a `shortest_edge`."""
        height, width = self.size
        if self.shortest_edge is None:
            return pixels if pixels.shape[:2] == self.size else self._resized(pixels, self.size)
        short = min(pixels.shape[:2])
        larger = [self.shortest_edge * side // short for side in pixels.shape[:2]]
        if tuple(larger) != pixels.shape[:2]:
            pixels = self._resized(pixels, (larger[0], larger[1]))
        top, left = (larger[0] - height) // 2, (larger[1] - width) // 2
        return pixels[top : top + height, left : left + width]

    def resized_crop(self, pixels: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """
        A random part of 8 to 100 % of the image, of a ratio from 3:4 to 4:3, resized. The draws from 0 to 1 decide.
        """
        rows, columns = pixels.shape[:2]
        for area, ratio, y, x in draws.reshape(-1, 4):
            area = rows * columns * (0.08 + 0.92 * area)
            stretch = np.exp(np.log(3 / 4) + ratio * np.log(16 / 9))
            width, height = round(np.sqrt(area * stretch)), round(np.sqrt(area / stretch))
            if 0 < width <= columns and 0 < height <= rows:
                top, left = int(y * (rows - height + 1)), int(x * (columns - width + 1))
                return self._resized(pixels, self.size, (left, top, left + width, top + height))
        return self.resize(pixels)

    def _resized(
        self, pixels: np.ndarray, size: tuple[int, int], box: tuple[int, int, int, int] | None = None
    ) -> np.ndarray:
        picture = pixels_to_image(pixels).resize(size[::-1], Image.Resampling(self.resample), box=box)
        return np.asarray(picture).reshape(*size, -1)

    def normalize(self, images: torch.Tensor) -> torch.Tensor:
        """Float images (rows, channels, height, width) from uint8 ones (rows, height, width, channels)."""
        mean = 255 * torch.tensor(self.image_mean).view(1, -1, 1, 1)
        std = 255 * torch.tensor(self.image_std).view(1, -1, 1, 1)
        floats = images.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return floats.sub_(mean).div_(std)

    def processor(self) -> ViTImageProcessorPil:
        """
        The same as an image processor of transformers: the trainer saves it beside the model as
        `preprocessor_config.json`, and `AutoImageProcessor.from_pretrained` loads it, with or without torchvision.
        """
        height, width = self.size
        settings: dict[str, Any] = {"size": {"height": height, "width": width}}
        if self.shortest_edge is not None:
            settings = {"size": {"shortest_edge": self.shortest_edge}, "crop_size": settings["size"]}
            settings["do_center_crop"] = True
        settings.update(resample=self.resample, do_convert_rgb=self.num_channels == 3)
        return ViTImageProcessorPil(image_mean=list(self.image_mean), image_std=list(self.image_std), **settings)

    @classmethod
    def from_processor(cls, processor: Any) -> ImageTransform:
        """The transform of an image processor: one saved with a model, or that of a pretrained model."""
        size, crop = _dict(processor.size), _dict(getattr(processor, "crop_size", None))
        mean, std = tuple(processor.image_mean), tuple(processor.image_std)
        shortest = size.get("shortest_edge")
        share = getattr(processor, "crop_pct", None)
        if shortest and share and shortest < 384:  # ConvNeXT and ResNet: the side after cropping, and its share
            crop, shortest = {"height": shortest, "width": shortest}, int(shortest / share)
        elif shortest and not (crop and getattr(processor, "do_center_crop", False)):
            size, shortest = {"height": shortest, "width": shortest}, None
        if not getattr(processor, "do_resize", True) or not (shortest or "height" in size):
            raise UserError(f"Image processor {type(processor).__name__} resizes to {size}, which is not supported.")
        sides = crop if shortest else size
        return cls((sides["height"], sides["width"]), mean, std, shortest, int(processor.resample))


def _dict(size: Any) -> dict[str, int]:
    return {name: size[name] for name in ("height", "width", "shortest_edge") if size and size.get(name)}


def _stacked(images: Iterable[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.stack(list(images)))


def make_transform(dataset: ImageDataset, image_size: int | None = None) -> ImageTransform:
    """
    The transform for a training dataset, with its own mean and deviation.

    Images of one size are taken as they are, or resized to `image_size`. Images of many sizes need an `image_size`:
    the shorter side is resized to 8/7 of it, and the middle cropped.
    """
    if image_size is not None and image_size < 1:
        raise UserError(f"image_size must be at least 1, but is {image_size}.")
    mean, std = image_statistics(dataset)
    if image_size is not None:
        shortest_edge = round(image_size * AROUND_CROP) if dataset.size is None else None
        return ImageTransform((image_size, image_size), mean, std, shortest_edge)
    size = dataset.size or common_size(dataset[row]["pixel_values"] for row in range(len(dataset)))
    return ImageTransform((int(size[0]), int(size[1])), mean, std)


def image_statistics(dataset: ImageDataset) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """
    Mean and standard deviation of each channel over the pixels of a dataset, from 0 to 1. Exact for images in memory;
    otherwise those of 4,096 rows, evenly spread.
    """
    counts = np.zeros((dataset.num_channels, 256))
    for images in _blocks(dataset):
        for channel in range(dataset.num_channels):
            counts[channel] += np.bincount(images[..., channel].reshape(-1), minlength=256)
    shares = counts / counts.sum(1, keepdims=True)
    values = np.arange(256) / 255
    mean = shares @ values
    std = np.sqrt(np.maximum(shares @ values**2 - mean**2, 0))
    return tuple(mean.tolist()), tuple(np.where(std < 1 / 255, 1.0, std).tolist())


def _blocks(dataset: ImageDataset) -> Iterator[np.ndarray]:
    """The images of a dataset in arrays of any size."""
    if dataset.size is None:
        rows = np.linspace(0, len(dataset) - 1, min(len(dataset), STATISTICS_ROWS))
        yield from (dataset[int(row)]["pixel_values"] for row in rows)
        return
    for block in np.split(np.arange(len(dataset)), range(1024, len(dataset), 1024)):
        yield dataset.select(block).pixels()


class ImageCollator:
    """
    Makes a batch of rows of an [`ImageDataset`]: `pixel_values` (rows, channels, height, width) and `labels` (rows,).

    The random crops and flips of an image are a pure function of the seed, the epoch and its pixels: they are the same
    after a resume, on any number of processes and workers, and in any layout of the batch. (The state of torch's
    generator in a checkpoint would not do: the first batches of a resumed epoch are made before it is restored.) Until
    somebody calls `set_epoch` they are drawn from torch's generator instead.
    """

    def __init__(self, transform: ImageTransform, augment: str = "none", seed: int = 42) -> None:
        if augment not in AUGMENTATIONS:
            raise UserError(f"augment must be one of {', '.join(AUGMENTATIONS)}, not {augment!r}.")
        self.transform, self.augment, self.seed = transform, augment, seed
        self._epoch = torch.full((), -1, dtype=torch.int64).share_memory_()  # seen by workers that outlive an epoch

    def set_epoch(self, epoch: int) -> None:
        """To be called at the start of every epoch."""
        self._epoch.fill_(epoch)

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        pixels = [self.transform.pixels(_image(row)) for row in rows]
        images = _stacked(map(self.transform.resize, pixels)) if self.augment == "none" else self._augmented(pixels)
        batch = {"pixel_values": self.transform.normalize(images)}
        labels = [row["labels"] if "labels" in row else row.get("label") for row in rows]
        if all(label is not None for label in labels):
            batch["labels"] = torch.tensor(labels)  # int64 for classes, float32 for numbers to predict
        if "row" in rows[0]:
            batch["row"] = torch.tensor([row["row"] for row in rows])
        return batch

    def _augmented(self, pixels: list[np.ndarray]) -> torch.Tensor:
        draws, transform = self._draws(pixels), self.transform
        flip, crop = draws[:, 0] < 0.5 * (self.augment == "crop_flip"), draws[:, 1:]
        if transform.shortest_edge is None:
            return shift_and_flip(_stacked(map(transform.resize, pixels)), crop[:, :2], flip)
        return shift_and_flip(_stacked(map(transform.resized_crop, pixels, crop)), None, flip)

    def _draws(self, pixels: list[np.ndarray], count: int = 41) -> np.ndarray:
        """Numbers from 0 to 1 for each image: one for the flip, four for each of ten tries at a crop."""
        epoch = int(self._epoch)
        if self.transform.shortest_edge is None:
            count = 3
        if epoch < 0:
            return torch.rand(len(pixels), count, dtype=torch.float64).numpy()
        keys = np.array([zlib.crc32(np.ascontiguousarray(image).data) for image in pixels], dtype=np.uint64)
        start = _mix(_mix(np.array([self.seed], np.uint64)) + np.uint64(epoch))
        bits = _mix(_mix(start + keys)[:, None] + np.arange(1, count + 1, dtype=np.uint64))
        return (bits >> np.uint64(11)) * 2.0**-53


def _image(row: dict[str, Any]) -> Any:
    name = next((name for name in ("pixel_values", "image", "img") if name in row), None)
    if name is None:
        raise UserError(
            f"A row has {', '.join(row) or 'nothing'}, but no pixel_values, image or img. The Trainer drops columns "
            "that the model does not take: set remove_unused_columns=False."
        )
    return row[name]


def _mix(numbers: np.ndarray) -> np.ndarray:
    """SplitMix64: every bit of the result depends on every bit of the number."""
    numbers = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def shift_and_flip(images: torch.Tensor, shift: np.ndarray | None, flip: np.ndarray) -> torch.Tensor:
    """
    Images (rows, height, width, channels) moved down and right by the share `shift` (rows, 2) of a quarter of their
    sides, less an eighth, reflected at their borders, and mirrored where `flip` (rows,) says so: one gather for all.
    """
    _, height, width, channels = images.shape
    moves = np.full((len(images), 2), 0.5) if shift is None else shift
    y = _places(height, moves[:, 0])
    x = _places(width, moves[:, 1])
    x[flip] = x[flip, ::-1]
    lines = np.arange(len(images))[:, None] * height + y
    places = torch.from_numpy((lines[:, :, None] * width + x[:, None, :]).reshape(-1))
    return images.reshape(-1, channels).index_select(0, places).view(images.shape)


def _places(length: int, share: np.ndarray) -> np.ndarray:
    """Which pixels of a line each image takes: all of them, moved by up to an eighth, reflected at the ends."""
    margin = max(1, round(length / 8))
    moved = np.minimum((share * (2 * margin + 1)).astype(np.int64), 2 * margin) - margin
    places = np.abs(np.arange(length) + moved[:, None])
    return np.where(places >= length, 2 * (length - 1) - places, places)
