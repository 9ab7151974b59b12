"""From raw images and texts with labels to what a classifier takes."""

import datasets
import numpy as np
import pytest
import torch
from classifiers import (
    NAMES,
    image_data,
    image_rows,
    make_processor,
    make_text_classifier,
    make_vit,
    text_rows,
)
from PIL import Image
from transformers import AutoTokenizer, utils

from clue_hf import CLUEConfig
from clue_hf.data.image_dataset import ImageDataset
from clue_hf.errors import UserError
from clue_hf.inputs.base import InputSettings
from clue_hf.inputs.image_rows import ImageInputs
from clue_hf.inputs.labels import TrainingData, class_names_of, make_training_data, number_dataset
from clue_hf.inputs.text_rows import TextInputs


@pytest.fixture
def config(tmp_path):
    return CLUEConfig(str(tmp_path), use_cpu=True)


def image_training(config, processor=None, names=NAMES):
    return TrainingData(ImageInputs(processor, InputSettings.from_config(config)), None, list(names))


@pytest.fixture
def warnings_seen(caplog):
    utils.logging.enable_propagation()
    yield caplog
    utils.logging.disable_propagation()


def test_who_prepares_what(tokenizer, config):
    bert, own = make_text_classifier()
    assert isinstance(make_training_data(bert, own, config, True).inputs, TextInputs)
    assert isinstance(make_training_data(make_vit(), make_processor(), config, True).inputs, ImageInputs)
    assert make_training_data(make_vit(), None, config, True).inputs.transform is None
    assert make_training_data(bert, None, config, True) is None
    assert class_names_of(make_vit()) == NAMES


@pytest.mark.parametrize(("image", "label"), [("image", "label"), ("img", "label"), ("img", "fine_label")])
def test_images_under_the_names_of_the_hub(image, label, config):
    data = image_training(config, make_processor())
    prepared = data.prepare(image_data(image=image, label=label), config, "train")
    images, labels = image_rows()
    np.testing.assert_array_equal(prepared.pixels(), images)
    assert prepared.labels.tolist() == labels.tolist()
    batch = data.inputs.collator(config)([prepared[2], prepared[5]])
    assert batch["labels"].tolist() == labels[[2, 5]].tolist()
    expected = (torch.from_numpy(images[[2, 5]]).permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
    torch.testing.assert_close(batch["pixel_values"], expected, rtol=1e-5, atol=1e-5)


def test_columns_of_another_name_are_named(tmp_path):
    config = CLUEConfig(str(tmp_path), use_cpu=True, image_column="photo", label_column="animal")
    prepared = image_training(config, make_processor()).prepare(
        image_data(image="photo", label="animal"), config, "train"
    )
    assert prepared.labels.tolist() == image_rows()[1].tolist()
    with pytest.raises(UserError, match="image_column 'photo' is not in the data"):
        image_training(config, make_processor()).prepare(image_data(), config, "train")


def test_labels_are_numbers_names_or_class_labels(config):
    labels = image_rows()[1]
    numbers = image_data()
    words = numbers.remove_columns("label").add_column("label", [NAMES[number] for number in labels])
    encoded = numbers.cast_column("label", datasets.ClassLabel(names=NAMES))
    for data in (numbers, words, encoded):
        assert (
            image_training(config, make_processor()).prepare(data, config, "train").labels.tolist() == labels.tolist()
        )
    with pytest.raises(UserError, match="Row .* of the train data has the label 'cat', which"):
        image_training(config, make_processor(), ["ant", "bee"]).prepare(words, config, "train")
    with pytest.raises(UserError, match="has the label 2, but there are only the 2 classes 0 to 1"):
        image_training(config, make_processor(), ["ant", "bee"]).prepare(numbers, config, "train")


def test_several_sets_and_lists_of_rows(config):
    images, labels = image_rows()
    rows = [
        {"image": Image.fromarray(image), "label": int(label)} for image, label in zip(images, labels, strict=True)
    ]
    data = image_training(config, make_processor())
    np.testing.assert_array_equal(data.prepare(rows, config, "train").pixels(), images)
    sets = data.prepare({"near": image_data(4), "far": image_data(6)}, config, "evaluation")
    assert {name: len(part) for name, part in sets.items()} == {"near": 4, "far": 6}
    assert all(isinstance(part, ImageDataset) for part in sets.values())
    assert data.prepare(sets, config, "evaluation")["near"] is sets["near"]
    assert data.prepare(None, config, "evaluation") is None


def test_without_a_processor_the_training_data_decides(config):
    data = image_training(config)
    assert data.inputs.collator(config) is None
    prepared = data.prepare(image_data(), config, "train")
    pixels = torch.from_numpy(image_rows()[0]).double() / 255
    batch = data.inputs.collator(config)([prepared[row] for row in range(len(prepared))])["pixel_values"].double()
    expected = (pixels - pixels.mean((0, 1, 2))) / pixels.std((0, 1, 2), correction=0)
    torch.testing.assert_close(batch, expected.permute(0, 3, 1, 2), rtol=1e-4, atol=1e-4)


def test_a_size_that_the_processor_does_not_make_is_refused(tmp_path, config):
    data = image_training(config, make_processor())
    data.prepare(image_data(), CLUEConfig(str(tmp_path), use_cpu=True, image_size=8), "train")
    with pytest.raises(UserError, match="image_size 16 does not match .* 8 x 8 pixels"):
        data.prepare(image_data(), CLUEConfig(str(tmp_path), use_cpu=True, image_size=16), "train")


def test_only_training_varies_images(tmp_path):
    config = CLUEConfig(str(tmp_path), use_cpu=True, augment="crop_flip")
    data = image_training(config, make_processor())
    prepared = data.prepare(image_data(), config, "train")
    rows = [prepared[row] for row in range(16)]
    train, evaluation = data.inputs.train_collator(config), data.inputs.collator(config)
    train.set_epoch(0)
    first = train(rows)["pixel_values"]
    train.set_epoch(1)
    assert not torch.equal(first, train(rows)["pixel_values"])
    train.set_epoch(0)
    assert torch.equal(first, train(rows)["pixel_values"])
    assert torch.equal(evaluation(rows)["pixel_values"], evaluation(rows)["pixel_values"])


@pytest.mark.parametrize("column", ["sentence", "text"])
@pytest.mark.parametrize("kind", ["words", "numbers", "class label"])
def test_texts_and_their_labels(column, kind, config):
    model, tokenizer = make_text_classifier()
    rows = datasets.Dataset.from_list([{column: row["sentence"], "label": row["label"]} for row in text_rows(1)])
    expected = [class_names_of(model).index(label) for label in rows["label"]]
    if kind != "words":
        rows = rows.remove_columns("label").add_column("label", expected)
    if kind == "class label":
        rows = rows.cast_column("label", datasets.ClassLabel(names=["bad", "good"]))
    prepared = make_training_data(model, tokenizer, config, True).prepare(rows, config, "train")
    assert prepared["labels"][:] == expected
    assert tokenizer.batch_decode(prepared["input_ids"][:], skip_special_tokens=True) == rows[column][:]
    assert set(prepared.column_names) >= {"input_ids", "attention_mask", "labels"}
    assert column not in prepared.column_names


def test_several_sets_lists_and_tokenised_texts(config):
    model, tokenizer = make_text_classifier()
    data = make_training_data(model, tokenizer, config, True)
    sets = data.prepare({"near": text_rows(1), "far": datasets.Dataset.from_list(text_rows(2))}, config, "evaluation")
    assert {name: len(part) for name, part in sets.items()} == {"near": 8, "far": 16}
    assert data.prepare(sets["near"], config, "train") is sets["near"]
    assert data.prepare(None, config, "evaluation") is None
    batch = data.inputs.collator(config)(sets["near"].select([0, 1, 4]).to_list())
    assert batch["labels"].tolist() == [1, 1, 0]
    lengths = [len(ids) for ids in sets["near"].select([0, 1, 4])["input_ids"]]
    assert batch["attention_mask"].sum(-1).tolist() == lengths


def test_truncated_texts_are_counted(tmp_path, warnings_seen):
    model, tokenizer = make_text_classifier()

    def prepared(**settings):
        config = CLUEConfig(str(tmp_path), use_cpu=True, **settings)
        return make_training_data(model, tokenizer, config, True).prepare(text_rows(1), config, "train")

    whole = prepared()
    assert not warnings_seen.records
    lengths = sorted(len(ids) for ids in whole["input_ids"])
    limit = lengths[0]
    longer = sum(length > limit for length in lengths)
    assert longer > 0
    cut = prepared(max_source_length=limit)
    assert sorted(len(ids) for ids in cut["input_ids"]) == [min(length, limit) for length in lengths]
    [record] = warnings_seen.records
    assert f"{longer} of 8 train sources" in record.message
    assert f"max_source_length={limit}" in record.message


def test_a_prefix_stands_before_every_text(tmp_path):
    model, tokenizer = make_text_classifier()
    config = CLUEConfig(str(tmp_path), use_cpu=True, source_prefix="so ")
    prepared = make_training_data(model, tokenizer, config, True).prepare(text_rows(1), config, "train")
    assert tokenizer.decode(prepared[0]["input_ids"], skip_special_tokens=True) == "so a fine film 0"


def test_bad_rows_are_named(config):
    model, tokenizer = make_text_classifier()
    data = make_training_data(model, tokenizer, config, True)
    with pytest.raises(UserError, match="source_column 'sentence' must hold text, but row 1"):
        data.prepare([{"sentence": "so good", "label": "good"}, {"sentence": None, "label": "bad"}], config, "train")
    with pytest.raises(UserError, match="Row 0 .* of the test data has the label 'fair'"):
        data.prepare([{"sentence": "so so", "label": "fair"}], config, "test")
    with pytest.raises(UserError, match="Set label_column; the columns are sentence"):
        data.prepare([{"sentence": "so good"}], config, "train")


def test_numbered_rows(config):
    images = image_training(config, make_processor()).prepare(image_data(6), config, "train")
    collate = image_training(config, make_processor()).inputs.collator(config)
    assert "row" not in images[3]
    assert collate([number_dataset(images)[row] for row in (4, 1)])["row"].tolist() == [4, 1]
    model, tokenizer = make_text_classifier()
    data = make_training_data(model, tokenizer, config, True)
    texts = number_dataset(data.prepare(text_rows(1), config, "train"))
    assert data.inputs.collator(config)([texts[5], texts[2]])["row"].tolist() == [5, 2]
    with pytest.raises(UserError, match="cannot number those of a list"):
        number_dataset([{"pixel_values": 0}])


def test_a_tokenizer_that_was_saved_prepares_the_same(config, tmp_path):
    model, tokenizer = make_text_classifier()
    tokenizer.save_pretrained(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    first, second = (
        make_training_data(model, one, config, True).prepare(text_rows(1), config, "train")
        for one in (tokenizer, again)
    )
    assert first["input_ids"][:] == second["input_ids"][:]
