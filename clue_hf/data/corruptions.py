"""
Corrupted images, made on the fly: the corruptions of CIFAR-10-C (Hendrycks and Dietterich, 2019), severities 1 to 5.

The algorithms and their settings are those published for CIFAR's 32 x 32 pixels; lengths (blurs) grow with larger
images and stay as they are for smaller ones. The random numbers are our own, so the images are not those of the
published files. Frost (which needs photographs of ice), glass blur and spatter are not included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import scipy  # its parts are imported when they are first used: some take a second
from numpy.random import Generator
from PIL import Image

from ..errors import UserError, did_you_mean
from .image_dataset import image_to_pixels, pixels_to_image


SEVERITIES = (1, 2, 3, 4, 5)

#: Takes an image (height, width, channels) in [0, 1], the setting of a severity, a generator, and how many times
#: longer its lengths are than in CIFAR; returns the corrupted image.
Corruption = Callable[[np.ndarray, Any, Generator, float], np.ndarray]


def corrupt(
    images: np.ndarray, name: str, severity: int, seed: int, rows: Sequence[int] | np.ndarray | None = None
) -> np.ndarray:
    """
    Corrupts a batch of images.

    What happens to an image depends on the seed and its row only, not on the batch it is in. All severities of a
    corruption share their random numbers.

    Args:
        images (`np.ndarray` of shape `(rows, height, width, channels)`, uint8):
            Grey (one channel) or RGB images of any size.
        name (`str`):
            A name in [`CORRUPTIONS`].
        severity (`int`):
            From 1 to 5.
        seed (`int`):
            Seed of the random numbers.
        rows (`Sequence[int]`, *optional*):
            The row of each image in its dataset; by default the batch is the dataset.

    Returns:
        `np.ndarray`: New images of the same shape and type.
    """
    if name not in CORRUPTIONS:
        hint = did_you_mean(str(name), CORRUPTIONS)
        raise UserError(f"There is no corruption {name!r}: use one of {', '.join(CORRUPTIONS)}.{hint}")
    if severity not in SEVERITIES:
        raise UserError(f"The severity of a corruption goes from 1 to 5, but is {severity!r}.")
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[-1] not in (1, 3):
        raise UserError(
            "Corruptions take uint8 images of shape (rows, height, width, channels) with 1 or 3 channels, not "
            f"{images.dtype} of shape {tuple(images.shape)}."
        )
    change, settings = CORRUPTIONS[name]
    scale = max(1.0, min(images.shape[1:3]) / 32)
    corrupted = np.empty_like(images)
    for position, row in enumerate(range(len(images)) if rows is None else rows):
        generator = np.random.default_rng((seed, int(row)))
        image = change(images[position].astype(np.float32) / 255, settings[severity - 1], generator, scale)
        corrupted[position] = np.rint(np.clip(image, 0, 1) * 255)
    return corrupted


# ---- noise ----
def _gaussian_noise(image: np.ndarray, deviation: float, generator: Generator, *_: Any) -> np.ndarray:
    return image + deviation * generator.standard_normal(image.shape, np.float32)


def _shot_noise(image: np.ndarray, photons: float, generator: Generator, *_: Any) -> np.ndarray:
    return generator.poisson(image * photons) / photons


def _impulse_noise(image: np.ndarray, share: float, generator: Generator, *_: Any) -> np.ndarray:
    """That share of the values become black or white."""
    hit, salt = generator.random(image.shape) < share, generator.random(image.shape) < 0.5
    return np.where(hit, salt, image)


def _speckle_noise(image: np.ndarray, deviation: float, generator: Generator, *_: Any) -> np.ndarray:
    return image * (1 + deviation * generator.standard_normal(image.shape, np.float32))


# ---- blur ----
def _gaussian_blur(image: np.ndarray, sigma: float, generator: Generator, scale: float) -> np.ndarray:
    sigma *= scale
    return scipy.ndimage.gaussian_filter(image, (sigma, sigma, 0), mode="nearest")


def _defocus_blur(image: np.ndarray, setting: tuple[float, float], generator: Generator, scale: float) -> np.ndarray:
    """A disk, its edge softened."""
    radius, soft = (scale * length for length in setting)
    reach = int(np.ceil(radius + 3 * soft))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    kernel = scipy.ndimage.gaussian_filter((x**2 + y**2 <= radius**2).astype(np.float32), soft)
    padded = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    return scipy.signal.fftconvolve(padded, kernel[..., None] / kernel.sum(), "valid", axes=(0, 1))


def _motion_blur(image: np.ndarray, setting: tuple[float, float], generator: Generator, scale: float) -> np.ndarray:
    radius, sigma = setting
    return _smear(image, radius * scale, sigma * scale, generator.uniform(-45, 45))


def _zoom_blur(image: np.ndarray, furthest: float, *_: Any) -> np.ndarray:
    """The mean of the image and its enlargements, in steps of 1 %."""
    steps = np.arange(0, round(furthest * 100) + 1) / 100
    return (image + sum(_zoom(image, 1 + step) for step in steps)) / (len(steps) + 1)


def _smear(image: np.ndarray, radius: float, sigma: float, degrees: float) -> np.ndarray:
    """The motion blur of ImageMagick: pixels along a line to one side, with weights like half a bell curve."""
    height, width = image.shape[:2]
    distance = np.arange(2 * int(np.ceil(radius)) + 1)
    weight = np.exp(-(distance**2) / (2 * sigma**2))
    down = np.ceil(distance * np.sin(np.deg2rad(degrees)) - 0.5).astype(int) + distance[-1]
    right = np.ceil(distance * np.cos(np.deg2rad(degrees)) - 0.5).astype(int) + distance[-1]
    padded = np.pad(image, ((distance[-1],) * 2, (distance[-1],) * 2, (0, 0)), mode="edge")
    total = sum(w * padded[y : y + height, x : x + width] for w, y, x in zip(weight, down, right, strict=True))
    return total / weight.sum()


def _zoom(image: np.ndarray, factor: float) -> np.ndarray:
    """The middle of an image, enlarged to its size."""
    height, width = image.shape[:2]
    tall = (_enlarge(height, factor) @ image.reshape(height, -1)).reshape(image.shape)
    return np.einsum("xw,hwc->hxc", _enlarge(width, factor), tall, optimize=True)


@lru_cache(maxsize=256)
def _enlarge(size: int, factor: float) -> np.ndarray:
    """The matrix that enlarges the middle of a line of pixels, by linear interpolation."""
    middle = (size - 1) / 2
    at = middle + (np.arange(size) - middle) / factor
    return np.maximum(1 - abs(at[:, None] - np.arange(size)), 0).astype(np.float32)


# ---- weather and light ----
def _fog(image: np.ndarray, setting: tuple[float, float], generator: Generator, *_: Any) -> np.ndarray:
    amount, decay = setting
    brightest = image.max()
    fog = _plasma(max(image.shape[:2]), decay, generator)[: image.shape[0], : image.shape[1], None]
    return (image + amount * fog) * brightest / (brightest + amount)


def _plasma(size: int, decay: float, generator: Generator) -> np.ndarray:
    """A diamond-square fractal from 0 to 1 that wraps around; each finer grid has `decay ** 2` times weaker noise."""
    heights, amplitude = np.zeros((1, 1)), 1.0
    while len(heights) < max(2, size):
        noise = amplitude * generator.uniform(-1, 1, (3, *heights.shape))
        right, below = np.roll(heights, -1, 1), np.roll(heights, -1, 0)
        middle = (heights + right + below + np.roll(right, -1, 0)) / 4 + noise[0]
        finer = np.empty((2 * len(heights), 2 * len(heights)))
        finer[::2, ::2], finer[1::2, 1::2] = heights, middle
        finer[::2, 1::2] = (heights + right + middle + np.roll(middle, 1, 0)) / 4 + noise[1]
        finer[1::2, ::2] = (heights + below + middle + np.roll(middle, 1, 1)) / 4 + noise[2]
        heights, amplitude = finer, amplitude / decay**2
    heights -= heights.min()
    return heights / heights.max()


def _snow(image: np.ndarray, setting: tuple[float, ...], generator: Generator, scale: float) -> np.ndarray:
    mean, deviation, zoom, least, radius, sigma, keep = setting
    noise = mean + deviation * generator.standard_normal((*image.shape[:2], 1), np.float32)
    flakes = _zoom(noise, zoom * scale)
    flakes = np.clip(np.where(flakes < least, 0, flakes), 0, 1)
    flakes = _smear(flakes, radius * scale, sigma * scale, generator.uniform(-135, -45))
    weights = [0.299, 0.587, 0.114] if image.shape[-1] == 3 else [1.0]
    grey = (image @ np.array(weights, np.float32))[..., None]
    pale = np.maximum(image, 1.5 * grey + 0.5)
    return keep * image + (1 - keep) * pale + flakes + flakes[::-1, ::-1]


def _brightness(image: np.ndarray, amount: float, *_: Any) -> np.ndarray:
    """Raises the V of HSV: the largest channel; hue and saturation stay."""
    value = image.max(-1, keepdims=True)
    raised = np.minimum(value + amount, 1)
    return np.where(value > 0, image * raised / np.maximum(value, 1e-6), raised)


def _contrast(image: np.ndarray, share: float, *_: Any) -> np.ndarray:
    mean = image.mean((0, 1), keepdims=True)
    return mean + share * (image - mean)


def _saturate(image: np.ndarray, setting: tuple[float, float], *_: Any) -> np.ndarray:
    """Changes the S of HSV; greys count as red there, and grey images have no saturation to change."""
    if image.shape[-1] == 1:
        return image
    value = image.max(-1, keepdims=True)
    depth = value - image
    saturation = depth.max(-1, keepdims=True) / np.maximum(value, 1e-6)
    wanted = np.clip(setting[0] * saturation + setting[1], 0, 1)
    red = np.array([0, 1, 1], np.float32) * value
    hue = np.where(saturation > 0, depth / np.maximum(saturation, 1e-6), red)
    return value - wanted * hue


# ---- digital ----
def _pixelate(image: np.ndarray, share: float, *_: Any) -> np.ndarray:
    height, width = image.shape[:2]
    small = (max(1, int(width * share)), max(1, int(height * share)))
    coarse = _picture(image).resize(small, Image.Resampling.BOX)
    return image_to_pixels(coarse.resize((width, height), Image.Resampling.BOX), image.shape[-1]) / 255


def _jpeg_compression(image: np.ndarray, quality: int, *_: Any) -> np.ndarray:
    file = BytesIO()
    _picture(image).save(file, "JPEG", quality=quality)
    return image_to_pixels(Image.open(file), image.shape[-1]) / 255


def _picture(image: np.ndarray) -> Image.Image:
    return pixels_to_image(np.rint(image * 255).astype(np.uint8))


def _elastic_transform(image: np.ndarray, setting: tuple[float, ...], generator: Generator, *_: Any) -> np.ndarray:
    """Tilts the image by moving three of its points, then bends it by smooth displacements."""
    shape, side = image.shape[:2], min(image.shape[:2])
    strength, smooth, jitter = (side * share for share in setting)
    grid = np.indices(shape, np.float64)
    points = np.array(shape) // 2 + max(1, side // 3) * np.array([[1, 1], [-1, 1], [-1, -1]])
    moved = points + generator.uniform(-jitter, jitter, points.shape)
    tilt = np.linalg.solve(np.c_[moved, np.ones(3)], points)  # (y, x, 1) of the result @ tilt = (y, x) of the image
    tilted = _sample(image, np.tensordot(tilt[:2].T, grid, 1) + tilt[2][:, None, None], "mirror")
    bend = scipy.ndimage.gaussian_filter(generator.uniform(-1, 1, grid.shape), (0, smooth, smooth), truncate=3)
    return _sample(tilted, grid + strength * bend, "reflect")


def _sample(image: np.ndarray, at: np.ndarray, mode: str) -> np.ndarray:
    """The values of an image at places (2, height, width) between its pixels."""
    channels = [
        scipy.ndimage.map_coordinates(channel, at, order=1, mode=mode) for channel in np.moveaxis(image, -1, 0)
    ]
    return np.stack(channels, -1)


#: Each corruption with its settings for severities 1 to 5, as published for CIFAR.
CORRUPTIONS: dict[str, tuple[Corruption, tuple[Any, ...]]] = {
    "gaussian_noise": (_gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (_shot_noise, (500, 250, 100, 75, 50)),
    "impulse_noise": (_impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),
    "speckle_noise": (_speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2)),
    "gaussian_blur": (_gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1.0)),
    "defocus_blur": (_defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))),
    "motion_blur": (_motion_blur, ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))),
    "zoom_blur": (_zoom_blur, (0.05, 0.10, 0.15, 0.20, 0.25)),
    "snow": (
        _snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "fog": (_fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (_brightness, (0.05, 0.10, 0.15, 0.20, 0.30)),
    "contrast": (_contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "saturate": (_saturate, ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))),
    "pixelate": (_pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": (_jpeg_compression, (80, 65, 58, 50, 40)),
    "elastic_transform": (
        _elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
}
