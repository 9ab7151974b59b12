"""Real handwritten digits that need no download: 1,797 grey images of 8 x 8 pixels, which scikit-learn carries."""

from __future__ import annotations

import functools

import datasets
import numpy as np

from ..corruptions import corrupt
from ..image_dataset import image_dataset
from ..labels import split_by_label
from ..npz import from_arrays


SEED = 0
#: What makes the split `shifted` differ from `test`: a corruption and its severity.
SHIFT = ("elastic_transform", 3)


def load_digits_splits() -> dict[str, datasets.Dataset]:
    """
    The splits `train` (1,258 rows), `validation` (180) and `test` (359), each with the same shares of the classes, and
    `shifted`: the test images, bent and tilted. (Noise as strong as in CIFAR-10-C hardly disturbs such clear images.)
    """
    return dict(_splits())


@functools.cache
def _splits() -> dict[str, datasets.Dataset]:
    """Bending them takes a while: a process that loads them again gets the same."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = np.rint(bunch.images[..., None] * (255 / 16)).astype(np.uint8)
    names = [str(name) for name in bunch.target_names]
    dataset = from_arrays(pixels, bunch.target, names, "the digits", "their labels")
    splits = split_by_label(dataset, {"validation": 0.1, "test": 0.2}, SEED, "label")
    test = image_dataset(splits["test"])
    shifted = corrupt(test.pixels(), *SHIFT, seed=SEED)
    return {**splits, "shifted": from_arrays(shifted, test.labels, names, "the digits", "their labels")}
