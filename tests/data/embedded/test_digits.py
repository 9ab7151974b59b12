"""The embedded digits: real, fixed, evenly split."""

import hashlib

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from clue_hf.data.embedded.digits import load_digits_splits
from clue_hf.data.image_dataset import image_dataset


@pytest.fixture(scope="module")
def digits():
    return image_dataset(load_digits_splits())


def test_every_digit_is_in_one_split(digits):
    sizes = {name: len(split) for name, split in digits.items()}
    assert sizes == {"train": 1258, "validation": 180, "test": 359, "shifted": 359}
    pixels = np.concatenate([digits[name].pixels() for name in ("train", "validation", "test")])
    assert pixels.shape == (1797, 8, 8, 1)
    assert pixels.max() == 255
    found = sorted(image.tobytes() for image in pixels)
    expected = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    assert found == sorted(image.tobytes() for image in expected)
    for split in digits.values():
        assert split.names == list("0123456789")
        assert np.ptp(np.bincount(split.labels)) <= max(3, 0.01 * len(split))


def test_the_splits_never_change(digits):
    found = hashlib.sha256(b"".join(digits[name].pixels().tobytes() for name in ("train", "validation", "test")))
    assert found.hexdigest()[:16] == "2c8dbcc0eed29092"


def test_shifted_digits_are_the_test_digits_and_harder(digits):
    np.testing.assert_array_equal(digits["shifted"].labels, digits["test"].labels)
    classifier = LogisticRegression(max_iter=300).fit(flat(digits["train"]), digits["train"].labels)
    scores = {name: classifier.score(flat(digits[name]), digits[name].labels) for name in ("test", "shifted")}
    assert scores["test"] > 0.93
    assert 0.5 < scores["shifted"] < scores["test"] - 0.05


def flat(split):
    return split.pixels().reshape(len(split), -1) / 255
