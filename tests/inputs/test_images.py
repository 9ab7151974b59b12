"""Transforms against transformers' own processors; augmentation against a plain one, and its exactness on resume."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from transformers import (
    AutoImageProcessor,
    BitImageProcessorPil,
    ConvNextImageProcessorPil,
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTImageProcessorPil,
)

from clue_hf.data.image_dataset import ImageDataset
from clue_hf.errors import UserError
from clue_hf.inputs.images import (
    ImageCollator,
    ImageTransform,
    image_statistics,
    make_transform,
    shift_and_flip,
)


COLOUR = {"image_mean": (0.5, 0.4, 0.3), "image_std": (0.2, 0.25, 0.3)}
TRANSFORMS = [
    ImageTransform((32, 32), **COLOUR),
    ImageTransform((24, 40), **COLOUR),
    ImageTransform((28, 28), **COLOUR, shortest_edge=32),
    ImageTransform((8, 8), (0.3,), (0.2,)),
]


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def make_dataset(rows=24, size=(16, 16), channels=3):
    return ImageDataset(noise(rows, *size, channels), np.arange(rows) % 4, list("abcd"))


# ---- transform ----


@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
@pytest.mark.parametrize("size", [(32, 32), (50, 70), (71, 45)])
def test_a_saved_processor_does_the_same_in_transformers(transform, size, tmp_path):
    transform.processor().save_pretrained(tmp_path)
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    assert ImageTransform.from_processor(processor) == transform
    pixels = noise(*size, transform.num_channels)
    picture = Image.fromarray(pixels if transform.num_channels == 3 else pixels[..., 0])
    expected = processor(picture, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(transform([pixels]), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(transform([picture]), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "processor",
    [
        ConvNextImageProcessorPil(size={"shortest_edge": 64}),
        ConvNextImageProcessorPil(),
        BitImageProcessorPil(),
        ViTImageProcessorPil(),
    ],
    ids=lambda processor: type(processor).__name__,
)
def test_processors_of_pretrained_models(processor):
    pixels = noise(90, 121, 3)
    expected = processor(pixels, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(ImageTransform.from_processor(processor)([pixels]), expected, atol=1e-6, rtol=0)


def test_channels_are_those_of_the_model():
    grey, colour = ImageTransform((8, 8), (0.0,), (1.0,)), ImageTransform((8, 8), (0.0,) * 3, (1.0,) * 3)
    transparent = Image.fromarray(noise(8, 8, 4), "RGBA")
    flat = Image.fromarray(noise(8, 8))
    assert grey([transparent, flat, noise(8, 8, 3), noise(8, 8)]).shape == (4, 1, 8, 8)
    three = colour([flat, noise(8, 8, 1), transparent])
    assert three.shape == (3, 3, 8, 8)
    assert torch.equal(three[0, 0], three[0, 2])
    assert three.dtype == torch.float32


def test_statistics_are_those_of_the_training_pixels():
    data = make_dataset(rows=1100, size=(4, 6)).select(range(3, 1100))
    mean, std = image_statistics(data)
    np.testing.assert_allclose(mean, (data.pixels() / 255).mean((0, 1, 2)), atol=1e-12)
    np.testing.assert_allclose(std, (data.pixels() / 255).std((0, 1, 2)), atol=1e-12)
    batch = ImageCollator(make_transform(data))([data[i] for i in range(len(data))])["pixel_values"]
    torch.testing.assert_close(batch.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(batch.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)
    black = ImageDataset(np.zeros((2, 4, 4, 1), np.uint8), np.zeros(2, int), ["black"])
    assert image_statistics(black) == ((0.0,), (1.0,))


def test_sizes():
    data = make_dataset(size=(16, 20))
    assert make_transform(data).size == (16, 20)
    assert make_transform(data, 8).size == (8, 8)
    assert make_transform(data, 8).shortest_edge is None
    with pytest.raises(UserError, match="image_size must be at least 1"):
        make_transform(data, 0)


# ---- batches ----


def test_evaluation_batches_hold_nothing_random():
    data = make_dataset()
    collate = ImageCollator(make_transform(data))
    batch = collate([data[i] for i in range(6)])
    assert batch["pixel_values"].shape == (6, 3, 16, 16)
    assert batch["labels"].tolist() == [0, 1, 2, 3, 0, 1]
    assert batch["labels"].dtype == torch.int64
    parts = [collate(data.__getitems__([2 * i, 2 * i + 1]))["pixel_values"] for i in range(3)]
    assert torch.equal(torch.cat(parts), batch["pixel_values"])
    assert list(batch) == ["pixel_values", "labels"]
    assert collate(data.numbered().__getitems__([4, 2]))["row"].tolist() == [4, 2]
    assert "labels" not in collate([{"image": Image.fromarray(noise(16, 16, 3))}])


@pytest.mark.parametrize("size", [(32, 32), (8, 8), (24, 40)])
def test_crops_and_flips_are_the_plain_ones(size):
    images, margins = noise(40, *size, 3), [max(1, round(side / 8)) for side in size]
    generator = np.random.default_rng(1)
    shift, flip = generator.random((40, 2)), generator.random(40) < 0.5
    found = shift_and_flip(torch.from_numpy(images), shift, flip).numpy()
    for row, image in enumerate(images):
        padded = np.pad(image, [(margin, margin) for margin in margins] + [(0, 0)], mode="reflect")
        top, left = (int(share * (2 * margin + 1)) for share, margin in zip(shift[row], margins, strict=True))
        expected = padded[top : top + size[0], left : left + size[1]]
        np.testing.assert_array_equal(found[row], expected[:, ::-1] if flip[row] else expected)
    unmoved = shift_and_flip(torch.from_numpy(images), None, np.zeros(40, bool))
    np.testing.assert_array_equal(unmoved.numpy(), images)


def test_every_shift_occurs_and_half_of_the_images_are_mirrored():
    """An image of its own coordinates tells where each pixel came from."""
    transform = ImageTransform((32, 32), (0.0,) * 3, (1.0,) * 3)
    y, x = np.mgrid[:32, :32].astype(np.uint8)
    rows = [{"pixel_values": np.stack([y, x, np.full_like(x, i % 256)], -1), "labels": i} for i in range(256)]
    collate = ImageCollator(transform, "crop_flip", seed=3)
    flips, shifts = [], set()
    for epoch in range(8):
        collate.set_epoch(epoch)
        values = (collate(rows)["pixel_values"] * 255).round()
        flips += (values[:, 1, 16, 20] < values[:, 1, 16, 12]).tolist()
        shifts |= {int(value) - 16 for value in values[:, 0, 16, 16]}
    assert shifts == set(range(-4, 5))
    assert abs(np.mean(flips) - 0.5) < 4 * 0.5 / np.sqrt(len(flips))
    only_crops = ImageCollator(transform, "crop")
    only_crops.set_epoch(0)
    values = only_crops(rows)["pixel_values"]
    assert (values[:, 1, 16, 20] > values[:, 1, 16, 12]).all()


@pytest.mark.parametrize(("side", "shortest_edge"), [(16, None), (14, 16)])
def test_augmentation_is_a_function_of_seed_epoch_and_image(side, shortest_edge):
    transform = ImageTransform((side, side), **COLOUR, shortest_edge=shortest_edge)
    data = make_dataset()
    rows = [data[i] for i in range(12)]

    def batch(epoch, seed=1, rows=rows):
        collate = ImageCollator(transform, "crop_flip", seed)
        collate.set_epoch(epoch)
        return collate(rows)["pixel_values"]

    state = torch.get_rng_state()
    first = batch(0)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(batch(0), first)
    assert torch.equal(torch.cat([batch(0, rows=rows[8:]), batch(0, rows=rows[:8])]), first.roll(4, 0))
    assert not torch.equal(batch(1), first)
    assert not torch.equal(batch(0, seed=2), first)


def test_without_an_epoch_the_draws_are_torchs():
    data = make_dataset()
    collate, rows = ImageCollator(make_transform(data), "crop_flip"), [data[i] for i in range(12)]
    torch.manual_seed(1)
    first, second = collate(rows)["pixel_values"], collate(rows)["pixel_values"]
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(collate(rows)["pixel_values"], first)


def test_parts_of_photographs():
    """Random parts of a gradient are parts of it: within its range, of varying extent."""
    transform = ImageTransform((32, 32), (0.0,) * 3, (1.0,) * 3, shortest_edge=36)
    ramp = np.broadcast_to(np.linspace(0, 255, 200).astype(np.uint8)[None, :, None], (100, 200, 3))
    rows = [{"pixel_values": np.ascontiguousarray(ramp), "labels": 0}] * 1
    extents = []
    for epoch in range(60):
        collate = ImageCollator(transform, "crop_flip")
        collate.set_epoch(epoch)
        values = collate(rows)["pixel_values"][0, 0]
        assert values.shape == (32, 32)
        extents.append(float(values.max() - values.min()))
    assert min(extents) < 0.3
    assert max(extents) > 0.5
    flat = transform.resized_crop(noise(2, 300, 3), np.full(40, 0.99))  # no part of it has such a ratio
    assert flat.shape == (32, 32, 3)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_that_outlive_an_epoch_hear_of_the_next(workers):
    data = make_dataset()
    alone, together = (ImageCollator(make_transform(data), "crop_flip") for _ in range(2))
    loader = DataLoader(data, 6, collate_fn=together, num_workers=workers, persistent_workers=True)
    for epoch in range(3):
        alone.set_epoch(epoch)
        together.set_epoch(epoch)
        found = torch.cat([batch["pixel_values"] for batch in loader])
        assert torch.equal(found, alone([data[i] for i in range(len(data))])["pixel_values"])


class TellsTheEpoch(TrainerCallback):
    """What [`CLUETrainer`] does for its collator."""

    def __init__(self, collator):
        self.collator = collator

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.collator.set_epoch(int(state.epoch or 0))


class Recorder(Trainer):
    """Remembers the batches of every step."""

    def compute_loss(self, model, inputs, *args, **kwargs):
        self.seen = [*getattr(self, "seen", []), inputs["pixel_values"].clone()]
        return super().compute_loss(model, inputs, *args, **kwargs)


def test_a_resumed_run_sees_the_same_batches(tmp_path):
    data = make_dataset()
    transform = make_transform(data)

    def train(resume=None):
        model = ResNetForImageClassification(
            ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic", num_labels=4)
        )
        args = TrainingArguments(
            str(tmp_path), max_steps=10, per_device_train_batch_size=6, save_steps=6, disable_tqdm=True, use_cpu=True,
            report_to="none",
        )  # fmt: skip
        collate = ImageCollator(transform, "crop_flip", args.seed)
        trainer = Recorder(
            model, args, data_collator=collate, train_dataset=data, callbacks=[TellsTheEpoch(collate)],
            processing_class=transform.processor(),
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
        return trainer.seen

    whole = train()
    resumed = train(str(tmp_path / "checkpoint-6"))  # in the middle of the second epoch of four steps
    assert len(whole) == 10
    assert len(resumed) == 4
    for expected, found in zip(whole[6:], resumed, strict=True):
        assert torch.equal(expected, found)
    assert ImageTransform.from_processor(AutoImageProcessor.from_pretrained(tmp_path / "checkpoint-6")) == transform


def test_mistakes_are_explained():
    with pytest.raises(UserError, match="augment must be one of none, crop, crop_flip, not 'flip'"):
        ImageCollator(TRANSFORMS[0], "flip")
    with pytest.raises(UserError, match="which is not supported"):
        ImageTransform.from_processor(ViTImageProcessorPil(do_resize=False))
