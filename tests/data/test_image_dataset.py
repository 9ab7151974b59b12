"""Rows of pixels and class numbers from every kind of column, and what is said of bad ones."""

import io
import struct
import zlib

import datasets
import numpy as np
import pytest
from PIL import Image

from clue_hf.data.columns import find_image_columns, has_images
from clue_hf.data.image_dataset import EncodedImages, ImageDataset, as_pixels, image_dataset
from clue_hf.errors import UserError
from clue_hf.inputs.images import image_statistics, make_transform


PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 7, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2]


def png(pixels, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def columns_of_images():
    make = datasets.Dataset.from_dict
    encoded = [png(image) for image in PIXELS]
    structs = make({"image": [{"bytes": data, "path": None} for data in encoded]})
    nested = datasets.List(datasets.List(datasets.List(datasets.Value("uint8"))))
    array = datasets.Array3D((5, 7, 3), "uint8")
    return {
        "images": structs.cast_column("image", datasets.Image()),
        "structs": structs,
        "bytes": make({"image": encoded}),
        "lists": make({"image": PIXELS.tolist()}),
        "typed lists": make({"image": PIXELS.tolist()}, datasets.Features(image=nested)),
        "arrays": make({"image": PIXELS}, datasets.Features(image=array)),
        "channels first": make({"image": PIXELS.transpose(0, 3, 1, 2).tolist()}),
    }


@pytest.mark.parametrize("kind", list(columns_of_images()))
@pytest.mark.parametrize("memory_limit", [0, 2**20])
def test_every_kind_of_column(kind, memory_limit, monkeypatch):
    monkeypatch.setattr("clue_hf.data.image_dataset.MEMORY_LIMIT", memory_limit)
    data = columns_of_images()[kind].add_column("label", LABELS)
    data = image_dataset(data.select([5, 0, 3]))
    np.testing.assert_array_equal(data.pixels(), PIXELS[[5, 0, 3]])
    assert [row["labels"] for row in data.__getitems__([0, 1, 2])] == [2, 0, 0]
    assert data.num_channels == 3
    assert data.names == ["0", "1", "2"]
    part = data.select([2, 0])
    np.testing.assert_array_equal(part[1]["pixel_values"], PIXELS[5])
    assert part.labels.tolist() == [0, 2]
    assert len(part) == 2


def test_grey_files_stay_grey_and_prepared_data_stays_as_it_is():
    rows = [
        {"img": png(PIXELS[0, :, :, 0]), "fine_label": "cat"},
        {"img": png(PIXELS[1, :, :, 0]), "fine_label": "ant"},
    ]
    data = image_dataset({"train": datasets.Dataset.from_list(rows)})["train"]
    assert data.num_channels == 1
    np.testing.assert_array_equal(data.pixels()[..., 0], PIXELS[:2, :, :, 0])
    assert data.names == ["ant", "cat"]
    assert data.labels.tolist() == [1, 0]
    assert image_dataset(data) is data


def test_photographs_of_many_sizes():
    sizes = [(30, 40), (50, 20), (32, 32)]
    rows = [{"image": png(np.full((*size, 3), 50, np.uint8), "JPEG"), "label": 0} for size in sizes]
    data = image_dataset(datasets.Dataset.from_list(rows))
    assert isinstance(data.images, EncodedImages)
    assert data.size is None
    transform = make_transform(data, 16)
    assert (transform.size, transform.shortest_edge) == ((16, 16), 18)
    assert image_statistics(data)[0] == pytest.approx((50 / 255,) * 3)
    with pytest.raises(
        UserError, match=r"row 1 \(counted from 0\) is 50 x 20 pixels, row 0 is 30 x 40. Set image_size"
    ):
        make_transform(data)
    with pytest.raises(UserError, match="row 1 .* 50 x 20"):
        data.pixels()


def test_two_classes_of_many():
    data = ImageDataset(PIXELS, np.array(LABELS), ["cat", "dog", "ship"])
    pair = data.select([5, 4, 3, 2, 1]).binary("dog, cat")
    assert pair.names == ["cat", "dog"]
    assert pair.labels.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(pair.pixels(), PIXELS[[4, 3, 1]])
    rest = data.binary("cat")
    assert rest.names == ["not cat", "cat"]
    assert rest.labels.tolist() == [1, 0, 0, 1, 0, 0]
    for task in ("cat,cow", "cat,dog,ship", "cat,cat"):
        with pytest.raises(UserError, match="must name one or two classes"):
            data.binary(task)


# ---- columns ----


def test_columns():
    assert find_image_columns(["img", "label"], None, None) == ("img", "label")
    assert find_image_columns(["image", "coarse_label", "fine_label"], None, None) == ("image", "fine_label")
    assert find_image_columns(["a", "b", "img"], "a", "b") == ("a", "b")
    with pytest.raises(
        UserError, match="Cannot infer the column of the image. Set image_column; the columns are a, label"
    ):
        find_image_columns(["a", "label"], None, None)
    with pytest.raises(UserError, match="Set label_column"):
        find_image_columns(["img", "kind"], None, None)
    with pytest.raises(UserError, match="Did you mean 'label'"):
        find_image_columns(["img", "label"], None, "lable")


def test_texts_are_not_images():
    assert has_images(["image", "label"], None, None)
    assert not has_images(["image", "label"], "caption", "other")
    assert not has_images(["image", "text"], None, None)
    assert not has_images(["image", "question", "answer"], None, None)
    assert not has_images(["source", "target"], None, None)


# ---- bad images ----


def damaged():
    whole = png(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8))
    return [whole, whole[: len(whole) // 2]]


def huge():
    """A small file whose header promises 30,000 x 30,000 pixels."""
    content = bytearray(png(PIXELS[0]))
    content[16:24] = struct.pack(">II", 30_000, 30_000)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([png(PIXELS[0]), b"no image"], "Row 1 .counted from 0. of the train data has no readable image"),
        (damaged(), "Row 1 .* has no readable image"),
        ([png(PIXELS[0]), None], r"Row 1 .* has no readable image .* it is empty \(null\)"),
        ([{"bytes": None, "path": "missing.png"}], "Row 0 .* No such file"),
        ([PIXELS[0, :, :, :2].tolist(), PIXELS[0, :, :, :2].tolist()], "must have 1 channel .grey. or 3 .RGB., not 2"),
        ([(PIXELS[0] / 255).tolist()], "must be whole numbers from 0 to 255"),
        ([[[[1, 2, 3]]], [[[1, 2, 300]]]], "but row 1 .counted from 0. does not"),
        ([[1, 2, 3]], "must have the shape"),
        ([huge()], "Row 0 .* has no readable image .* Image size .900000000 pixels. exceeds limit"),
        ([png(np.zeros((4, 4), np.uint16))], "Row 0 .* it is of mode I;16: convert it to 8 bits"),
    ],
)  # fmt: skip
def test_bad_images_are_named(images, message):
    data = datasets.Dataset.from_dict({"image": images, "label": [0] * len(images)})
    with pytest.raises(UserError, match=message):
        image_dataset(data)


def test_lazily_decoded_images_name_their_row_too(monkeypatch):
    monkeypatch.setattr("clue_hf.data.image_dataset.MEMORY_LIMIT", 0)
    data = datasets.Dataset.from_dict({"image": [png(PIXELS[0])] * 20 + [b"no image"], "label": [0] * 21})
    data = image_dataset(data)
    with pytest.raises(UserError, match="Row 20"):
        data[20]


def test_no_rows():
    with pytest.raises(UserError, match="The train data has no rows"):
        image_dataset(datasets.Dataset.from_dict({"image": [], "label": []}))


def test_layouts():
    assert as_pixels(np.zeros((2, 5, 7), np.int64)).shape == (2, 5, 7, 1)
    assert as_pixels(np.zeros((2, 3, 32, 32), np.uint8)).shape == (2, 32, 32, 3)
    assert as_pixels(np.zeros((2, 5, 7, 4), np.uint8)).shape == (2, 5, 7, 3)
    assert as_pixels(np.zeros((2, 5, 7), np.int64)).dtype == np.uint8
