import json

import datasets
import numpy as np
import pytest
import torch
from class_models import LABELS, TEXTS, digit_splits, make_bert, make_vit, text_data, train_resnet

from clue_hf import UserError
from clue_hf.data.corruptions import corrupt
from clue_hf.data.image_dataset import ImageDataset
from clue_hf.data.npz import load_ood_images
from clue_hf.evaluation.classes.evaluator import ClassificationEvaluator
from clue_hf.evaluation.classes.report import ClassificationReport
from clue_hf.inputs.images import ImageCollator, ImageTransform
from clue_hf.inputs.labels import aligned
from clue_hf.metrics import (
    best_threshold,
    binary_flip,
    classification_report,
    normalized_entropy,
    ood_detection,
    paired_classification_differences,
)
from clue_hf.models.mc_dropout import active_dropout, mc_logits
from clue_hf.posthoc import CALIBRATORS, load_calibrator
from clue_hf.predictors.classes import ClassPredictions


SPLITS = digit_splits()
# of unequal brightness: alike rows have the same prediction up to rounding, which decides about ties
GREY = np.broadcast_to(np.arange(80, 200, 10, dtype=np.uint8)[:, None, None, None], (12, 8, 8, 1)).copy()
TEST, VALIDATION = SPLITS["test"].select(range(70)), SPLITS["validation"].select(range(90))


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    return train_resnet(tmp_path_factory.mktemp("resnet"))


def evaluator(model, processing_class, **settings):
    return ClassificationEvaluator(model, processing_class, **{"resamples": 10, "batch_size": 32, **settings})


@pytest.fixture(scope="module")
def whole_report(resnet):
    """A report with everything in it."""
    ood = ImageDataset(GREY, np.zeros(12, int), ["something else"])
    return evaluator(*resnet, calibrator="temperature").evaluate(
        TEST, VALIDATION, ["gaussian_noise"], [2, 5], ood, description={"model": "a model", "data": "digits"}
    )


@pytest.fixture(scope="module")
def saved(whole_report, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    whole_report.save(folder)
    return folder


def probabilities_of(model, processor, pixels, passes=0, batch_size=32, seed=42):
    """The mean of passes with dropout, without any of the evaluator's parts but the seeds of its masks."""
    collate = ImageCollator(ImageTransform.from_processor(processor))
    found = []
    for start in range(0, len(pixels), batch_size):
        batch = collate([{"pixel_values": image} for image in pixels[start : start + batch_size]])
        with torch.no_grad():
            if not passes:
                found.append(model(**batch).logits.softmax(-1))
                continue
            with active_dropout(model, seed):
                found.append(mc_logits(model, batch, passes).softmax(-1).mean(0))
    return torch.cat(found).numpy()


@pytest.mark.parametrize("passes", [0, 3])
def test_the_numbers_are_those_of_the_model(resnet, passes):
    report = evaluator(*resnet, mc_samples=passes).evaluate(TEST, VALIDATION)
    expected = probabilities_of(*resnet, TEST.pixels(), passes)
    assert report.raw.probabilities == pytest.approx(expected, abs=1e-6)
    held_out = probabilities_of(*resnet, VALIDATION.pixels(), passes)
    tau = best_threshold(normalized_entropy(held_out), held_out.argmax(1) != VALIDATION.labels)
    assert report.metrics["tau"]["raw"] == pytest.approx(tau, abs=1e-5)
    direct = classification_report(
        report.raw.probabilities, TEST.labels, resamples=10, tau=report.metrics["tau"]["raw"]
    )
    assert direct.keys() <= report.metrics["raw"].keys()
    for name, entry in direct.items():
        assert report.metrics["raw"][name] == entry
    assert report.metrics["raw"]["mean_uncertainty"]["value"] == pytest.approx(normalized_entropy(expected).mean())
    assert 0.05 < report.metrics["raw"]["error"]["value"] < 0.9


def test_dropout_is_sampled_by_default_and_can_be_repeated(resnet):
    model, processor = resnet
    assert evaluator(model, processor).mc_samples == 5
    assert evaluator(*make_vit()).mc_samples == 0
    one, same, other = (
        evaluator(model, processor, mc_samples=2, seed=seed).evaluate(TEST).raw.probabilities for seed in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)
    assert not model.training


@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_calibrator_never_sees_the_test_labels(resnet, name):
    changed = ImageDataset(TEST.pixels(), (TEST.labels + 1) % 10, TEST.names)
    reports = [evaluator(*resnet, calibrator=name).evaluate(data, VALIDATION) for data in (TEST, changed)]
    fitted = [report.calibrator for report in reports]
    assert fitted[0] == fitted[1]
    held_out = probabilities_of(*resnet, VALIDATION.pixels(), 5).astype(np.float64)
    assert fitted[0](held_out) == pytest.approx(CALIBRATORS[name].fit(held_out, VALIDATION.labels)(held_out), abs=2e-3)
    assert reports[0].calibrated.probabilities == pytest.approx(fitted[0](reports[0].raw.probabilities))
    calibrated = classification_report(
        reports[0].calibrated.probabilities, TEST.labels, resamples=10, tau=reports[0].metrics["tau"]["calibrated"]
    )
    assert calibrated["ece"] == reports[0].metrics["calibrated"]["ece"]


def test_corrupted_copies_are_seeded_and_judged_alike(resnet, whole_report):
    model, processor = resnet
    found = whole_report.metrics["corruptions"]["gaussian_noise"]
    assert list(found) == ["2", "5"]
    pixels = corrupt(TEST.pixels(), "gaussian_noise", 5, seed=42)
    expected = probabilities_of(model, processor, pixels, 5)
    direct = classification_report(expected, TEST.labels, resamples=0)
    for name in ("error", "ece", "uncertainty_auc", "nll"):
        assert found["5"]["raw"][name]["value"] == pytest.approx(direct[name]["value"], abs=1e-5)
    detected = ood_detection(whole_report.raw.uncertainty, normalized_entropy(expected))
    assert found["5"]["raw"]["ood_auroc"]["value"] == pytest.approx(detected["ood_auroc"], abs=1e-3)
    again = evaluator(model, processor).evaluate(TEST, corruptions=["gaussian_noise"], severities=[5])
    assert again.metrics["corruptions"]["gaussian_noise"]["5"]["raw"]["nll"] == found["5"]["raw"]["nll"]
    other = evaluator(model, processor, seed=7).evaluate(TEST, corruptions=["gaussian_noise"], severities=[5])
    assert other.metrics["corruptions"]["gaussian_noise"]["5"]["raw"]["nll"] != found["5"]["raw"]["nll"]


def test_other_data_is_told_apart_whatever_its_classes(resnet, whole_report):
    grey = probabilities_of(*resnet, GREY, 5)
    expected = ood_detection(whole_report.raw.uncertainty, normalized_entropy(grey))
    for name, value in expected.items():
        assert whole_report.metrics["ood"]["raw"][name]["value"] == pytest.approx(value, abs=1e-6)


def test_two_classes_are_flipped_where_uncertain(tmp_path):
    model, processor = train_resnet(tmp_path, "3,8", steps=4)
    splits = digit_splits("3,8")
    report = evaluator(model, processor).evaluate(splits["test"], splits["validation"], positive="3")
    assert report.description["positive_class"] == "3"
    raw = report.raw
    expected = binary_flip(raw.probabilities, raw.labels, raw.uncertainty, report.metrics["tau"]["raw"], positive=1)
    for name, value in expected.items():
        assert report.metrics["raw"][name]["value"] == (None if np.isnan(value) else pytest.approx(value))
    assert "after flip" in report.table()


def test_a_transformer_takes_other_sizes_and_channels():
    model, processor = make_vit()
    report = evaluator(model, processor).evaluate(TEST)
    assert report.raw.probabilities == pytest.approx(probabilities_of(model, processor, TEST.pixels()), abs=1e-6)
    assert "uncertainty_accuracy_val" not in report.metrics["raw"]


def test_without_resamples_it_says_that_there_are_no_intervals(resnet):
    report = evaluator(*resnet, mc_samples=0, resamples=0).evaluate(TEST)
    assert "Intervals: none computed (0 resamples)." in report.summary()
    assert "bootstrap" not in report.summary()
    assert "[" not in report.table()


def test_texts_are_classified_by_the_names_of_their_classes():
    model, tokenizer = make_bert()
    report = evaluator(model, tokenizer, mc_samples=0, batch_size=5, calibrator="platt").evaluate(
        text_data(), text_data()
    )
    for row, text in enumerate(TEXTS[:6]):
        with torch.no_grad():
            expected = model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].numpy()
        assert report.raw.probabilities[row] == pytest.approx(expected, abs=1e-5)
    assert [report.names[label] for label in report.raw.labels] == LABELS
    assert evaluator(model, tokenizer).mc_samples == 5
    with pytest.raises(UserError, match="for images"):
        evaluator(model, tokenizer).evaluate(text_data(), corruptions=["fog"])


def test_a_report_is_read_back_and_compared(whole_report, resnet, saved):
    loaded = ClassificationReport.load(saved)
    assert loaded.metrics == json.loads(json.dumps(whole_report.metrics))
    assert loaded.raw.probabilities == pytest.approx(whole_report.raw.probabilities, abs=1e-6)
    assert loaded.calibrator == whole_report.calibrator == load_calibrator(saved / "calibrator.json")
    other = evaluator(*resnet, mc_samples=0, calibrator="temperature").evaluate(TEST, VALIDATION)
    comparison = whole_report.compare(other, resamples=10)
    assert list(comparison) == ["raw", "calibrated"]
    direct = paired_classification_differences(
        whole_report.raw.probabilities, other.raw.probabilities, TEST.labels, tau_a=whole_report.metrics["tau"]["raw"],
        tau_b=other.metrics["tau"]["raw"], resamples=10,
    )  # fmt: skip
    assert comparison["raw"] == direct
    assert "a model minus b" in whole_report.comparison(comparison, "b")
    assert all(entry["value"] in (0, None) for entry in loaded.compare(loaded, 5)["raw"].values())
    with pytest.raises(ValueError, match="labels differ"):
        whole_report.compare(evaluator(*resnet).evaluate(TEST.select(range(5, 75 - 5))))


def test_classes_in_another_order_are_compared_by_name():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 30)
    labels = rng.integers(0, 3, 30)
    order = [2, 0, 1]
    names = ["a", "b", "c"]
    metrics = {"tau": {}, "raw": {}}
    one = ClassificationReport(names, ClassPredictions(probabilities, labels), None, metrics, {})
    two = ClassificationReport(
        [names[place] for place in order],
        ClassPredictions(probabilities[:, order], np.argsort(order)[labels]),
        None,
        metrics,
        {},
    )
    assert all(entry["value"] in (0, None) for entry in one.compare(two, 5)["raw"].values())


def test_every_prediction_has_its_line(saved):
    lines = [json.loads(line) for line in (saved / "predictions.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == list(range(len(TEST)))
    assert [line["label"] for line in lines] == TEST.labels.tolist()
    for line in lines:
        assert line["prediction"] == int(np.argmax(line["probabilities"]))
        assert line["right"] == (line["prediction"] == line["label"])
        assert line["confidence"] == max(line["probabilities"])
        assert line["uncertainty"] == pytest.approx(
            normalized_entropy([np.array(line["probabilities"]) / sum(line["probabilities"])])[0], abs=1e-4
        )
        assert set(line["calibrated"]) == {
            "prediction", "prediction_name", "probabilities", "uncertainty", "confidence", "right",
        }  # fmt: skip
    content = json.loads((saved / "report.json").read_text())
    named = {name for kind in ("raw", "calibrated") for name in content["metrics"][kind]} | {"ood_fpr95"}
    assert named <= set(content["description"]["metrics"])
    assert content["description"]["settings"]["calibrator"] == "temperature"


def test_many_classes_are_stored_without_their_zeros(tmp_path):
    rng = np.random.default_rng(0)
    predicted = ClassPredictions(rng.dirichlet(np.full(150, 0.01), 20), rng.integers(0, 150, 20))
    names = [f"class {number}" for number in range(150)]
    lines = list(ClassificationReport(names, predicted, None, {}, {})._lines())
    assert len(lines[0]["probabilities"]) < 100
    (tmp_path / "predictions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "report.json").write_text(json.dumps({"metrics": {}, "description": {"classes": names}}))
    assert ClassificationReport.load(tmp_path).raw.probabilities == pytest.approx(predicted.probabilities, abs=1e-6)


@pytest.mark.parametrize(
    ("names", "model_names", "expected"),
    [
        (["cat", "dog"], ["Dog", "Cat"], [1, 0]),
        (["0", "1"], ["cat", "dog"], [0, 1]),
        (["cat", "dog"], ["LABEL_0", "LABEL_1", "LABEL_2"], [0, 1]),
        (["cat", "dog"], ["kitty", "doggy"], [0, 1]),
        (["b"], ["a", "b", "c"], [1]),
    ],
)
def test_labels_are_numbers_of_the_model(names, model_names, expected):
    assert aligned(np.arange(len(names)), names, model_names).tolist() == expected


def test_other_classes_than_the_model_has_are_an_error():
    for names in (["cat", "dog"], [str(n) for n in range(4)]):
        with pytest.raises(UserError, match="are not those of the model"):
            aligned(np.arange(len(names)), names, ["x", "y", "z"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mc_samples": -1}, "must not be negative"),
        ({"batch_size": 0}, "at least 1"),
        ({"calibrator": "magic"}, "calibrator"),
        ({"mc_samples": 2}, "no dropout"),
    ],
)
def test_wrong_settings_are_explained(settings, message):
    with pytest.raises((ValueError, UserError), match=message):
        evaluator(*make_vit(), **settings)


def test_what_is_missing_is_explained(tmp_path):
    model, processor = make_vit()
    with pytest.raises(ValueError, match="processing_class"):
        ClassificationEvaluator(model, None)
    with pytest.raises(ValueError, match="validation data"):
        evaluator(model, processor, calibrator="beta").evaluate(TEST)
    with pytest.raises(ValueError, match="no rows"):
        evaluator(model, processor).evaluate(TEST.select([]))
    with pytest.raises(ValueError, match="corruption"):
        evaluator(model, processor).evaluate(TEST, corruptions=["frost"])
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    with pytest.raises(UserError, match="not finite"):
        evaluator(model, processor).evaluate(TEST)
    np.savez(tmp_path / "one.npz", images=np.zeros((3, 4, 4, 3), np.uint8))
    assert len(load_ood_images(str(tmp_path / "one.npz"), limit=2)) == 2
    np.savez(tmp_path / "none.npz", labels=np.zeros(3))
    for name, message in (("none", "one array of images"), ("missing", "does not exist")):
        with pytest.raises(UserError, match=message):
            load_ood_images(str(tmp_path / f"{name}.npz"))


def test_a_dataset_of_the_hub_is_taken_as_it_is():
    model, processor = make_vit()
    raw = datasets.Dataset.from_dict({"img": TEST.pixels()[..., 0].tolist(), "fine": TEST.labels.tolist()})
    found = evaluator(model, processor, image_column="img", label_column="fine").evaluate(raw)
    assert np.array_equal(found.raw.probabilities, evaluator(model, processor).evaluate(TEST).raw.probabilities)
