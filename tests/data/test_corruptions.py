"""Properties of the corruptions: range, determinism, independence of the batch, growing severity."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_sample_images

from clue_hf.data import corruptions
from clue_hf.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from clue_hf.errors import UserError


# elastic_transform tilts the image less and less, and bends it more and more locally; severities 1 and 2 of saturate
# take colour away, 3 to 5 add some
NOT_BY_DISTANCE = ("elastic_transform", "saturate")


@pytest.fixture(scope="module")
def photographs():
    """Real patches of 32 x 32, shrunk from photographs."""
    small = [image[: 32 * 12 : 4, : 32 * 16 : 4] for image in load_sample_images().images]
    patches = [image[y : y + 32, x : x + 32] for image in small for y in range(0, 96, 32) for x in range(0, 128, 32)]
    return np.stack(patches)


def distance(images, others):
    return np.abs(images.astype(float) - others).mean()


@pytest.mark.parametrize("name", CORRUPTIONS)
@settings(max_examples=10, deadline=None)
@given(
    height=st.integers(4, 40),
    width=st.integers(4, 40),
    channels=st.sampled_from([1, 3]),
    severity=st.sampled_from(SEVERITIES),
    seed=st.integers(0, 2**31),
    black=st.booleans(),
)
def test_any_image_stays_an_image(name, height, width, channels, severity, seed, black):
    images = np.random.default_rng(seed).integers(0, 1 if black else 256, (2, height, width, channels), dtype=np.uint8)
    before = images.copy()
    found = corrupt(images, name, severity, seed)
    assert found.shape == images.shape
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(images, before)
    np.testing.assert_array_equal(corrupt(images, name, severity, seed), found)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_an_image_does_not_depend_on_its_batch(name, photographs):
    whole = corrupt(photographs, name, 4, 7)
    order = np.random.default_rng(0).permutation(len(photographs))
    parts = [corrupt(photographs[rows], name, 4, 7, rows) for rows in np.array_split(order, 5)]
    np.testing.assert_array_equal(np.concatenate(parts), whole[order])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severity_takes_images_further_away(name, photographs):
    found = [distance(corrupt(photographs, name, severity, 0), photographs) for severity in SEVERITIES]
    assert min(found) > 0.5
    if name not in NOT_BY_DISTANCE:
        assert found == sorted(found)
        assert found[-1] > 1.3 * found[0]


@pytest.mark.parametrize(
    "name",
    ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "motion_blur", "snow", "fog",
     "elastic_transform"],
)  # fmt: skip
def test_rows_and_seeds_differ(name, photographs):
    same = np.repeat(photographs[:1], 2, 0)
    first, second = corrupt(same, name, 5, 0)
    assert distance(first, second) > 0.5
    assert distance(corrupt(same, name, 5, 1)[0], first) > 0.5


def test_noise_has_the_published_strength():
    grey = np.full((200, 32, 32, 3), 128, np.uint8)
    for severity, expected in zip(SEVERITIES, (0.04, 0.06, 0.08, 0.09, 0.10), strict=True):
        assert corrupt(grey, "gaussian_noise", severity, 0).std() / 255 == pytest.approx(expected, rel=0.02)
    speckled = corrupt(grey, "speckle_noise", 5, 0)
    assert speckled.std() / 255 == pytest.approx(0.2 * 128 / 255, rel=0.02)
    shot = corrupt(grey, "shot_noise", 5, 0)
    assert shot.mean() == pytest.approx(128, rel=0.01)
    assert shot.std() / 255 == pytest.approx(np.sqrt(128 / 255 / 50), rel=0.02)
    impulses = corrupt(grey, "impulse_noise", 5, 0)
    assert ((impulses == 0) | (impulses == 255)).mean() == pytest.approx(0.07, rel=0.05)


def test_colours_against_the_standard_library(photographs):
    """Brightness and saturation, pixel by pixel."""
    from colorsys import hsv_to_rgb, rgb_to_hsv

    pixels = photographs[0, :8, :8]
    brighter = corrupt(photographs[:1], "brightness", 5, 0)[0, :8, :8]
    richer = corrupt(photographs[:1], "saturate", 5, 0)[0, :8, :8]
    for y, x in np.ndindex(8, 8):
        h, s, v = rgb_to_hsv(*(pixels[y, x] / 255))
        np.testing.assert_allclose(brighter[y, x], 255 * np.array(hsv_to_rgb(h, s, min(v + 0.3, 1))), atol=0.6)
        np.testing.assert_allclose(richer[y, x], 255 * np.array(hsv_to_rgb(h, min(2.5 * s + 0.2, 1), v)), atol=0.6)


def test_blurs_keep_the_mean_and_flat_images():
    flat = np.full((2, 32, 32, 3), 77, np.uint8)
    point = np.zeros((1, 33, 33, 1), np.uint8)
    point[0, 16, 16] = 255
    for name in (
        "gaussian_blur",
        "defocus_blur",
        "motion_blur",
        "zoom_blur",
        "pixelate",
        "contrast",
        "elastic_transform",
    ):
        np.testing.assert_array_equal(corrupt(flat, name, 5, 0), flat)
    for name in ("gaussian_blur", "defocus_blur", "motion_blur"):
        assert int(corrupt(point, name, 5, 0).sum()) == pytest.approx(255, rel=0.15)  # rounded to whole numbers


@pytest.mark.parametrize("severity", SEVERITIES)
def test_motion_blur_is_that_of_imagemagick(severity):
    """`-motion-blur RADIUSxSIGMA+ANGLE` takes 2 * radius + 1 pixels along a line, at rounded places."""
    radius, sigma = [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)][severity - 1]
    point = np.zeros((1, 32, 32, 1), np.uint8)
    point[0, 18, 24] = 255
    angle = math.radians(np.random.default_rng((3, 0)).uniform(-45, 45))
    weights = [math.exp(-(place**2) / (2 * sigma**2)) for place in range(2 * radius + 1)]
    expected = np.zeros((32, 32))
    for place, weight in enumerate(weights):
        y, x = (math.ceil(place * part - 0.5) for part in (math.sin(angle), math.cos(angle)))
        expected[18 - y, 24 - x] += 255 * weight / sum(weights)
    found = corrupt(point, "motion_blur", severity, 3)[0, :, :, 0]
    np.testing.assert_allclose(found, expected, atol=0.5)


def test_fog_is_a_plasma_fractal():
    """The diamond-square algorithm on a torus of four points a side, written out point by point."""
    generator, amplitude, size = np.random.default_rng(5), 1.0, 4
    heights, step = np.zeros((size, size)), size
    while step >= 2:
        places, half = range(0, size, step), step // 2
        for shift, neighbours in (
            ((half, half), ((half, half), (half, -half), (-half, half), (-half, -half))),
            ((0, half), ((0, half), (0, -half), (half, 0), (-half, 0))),
            ((half, 0), ((0, half), (0, -half), (half, 0), (-half, 0))),
        ):
            noise = iter(amplitude * generator.uniform(-1, 1, len(places) ** 2))
            for y, x in product(places, places):
                y, x = y + shift[0], x + shift[1]
                corners = [heights[(y + down) % size, (x + right) % size] for down, right in neighbours]
                heights[y, x] = sum(corners) / 4 + next(noise)
        step, amplitude = half, amplitude / 9
    heights = (heights - heights.min()) / (heights.max() - heights.min())
    np.testing.assert_allclose(corruptions._plasma(4, 3, np.random.default_rng(5)), heights)


def test_blurs_grow_with_the_image(photographs):
    """Four times as large and blurred is about blurred and four times as large."""
    large = photographs.repeat(4, 1).repeat(4, 2)
    shrunk = corrupt(large[:6], "gaussian_blur", 5, 0).reshape(6, 32, 4, 32, 4, 3).mean((2, 4))
    expected = corrupt(photographs[:6], "gaussian_blur", 5, 0)
    assert distance(expected, shrunk) < 0.2 * distance(expected, photographs[:6])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "gausian_noise"}, "Did you mean 'gaussian_noise'"),
        ({"name": "frost"}, "There is no corruption 'frost'"),
        ({"severity": 0}, "from 1 to 5, but is 0"),
        ({"images": np.zeros((2, 8, 8, 3))}, "not float64 of shape"),
        ({"images": np.zeros((8, 8, 3), np.uint8)}, "not uint8 of shape"),
    ],
)
def test_mistakes_are_explained(settings, message):
    given = {"images": np.zeros((1, 8, 8, 3), np.uint8), "name": "fog", "severity": 1, "seed": 0, **settings}
    with pytest.raises(UserError, match=message):
        corrupt(**given)
