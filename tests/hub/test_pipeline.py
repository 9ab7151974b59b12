"""Answers with their uncertainty against plain transformers and closed forms, for tiny models of every kind."""

import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from class_models import TEXTS
from classifiers import NAMES, image_rows, make_processor
from helpers import SENTENCES
from hub.deployed_models import KINDS, inputs_for, make_folder, table_rows
from PIL import Image
from scipy import stats
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, ViTForImageClassification

from clue_hf import UncertaintyPipeline, generate_with_uncertainty, pipeline
from clue_hf.data.table_preprocessor import TablePreprocessor
from clue_hf.errors import UserError
from clue_hf.hub import Deployed
from clue_hf.hub.loading import save_model
from clue_hf.models.tabular import CLUETabularResNetForRegression
from clue_hf.models.uncertainty_file import UNCERTAINTY_FILE, read_uncertainty, write_uncertainty
from clue_hf.posthoc import QuantileCalibrator


SHORT = {"max_new_tokens": 6}
TEXT_KINDS = ("t5", "gpt2", "lora")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each kind."""
    return {kind: str(make_folder(tmp_path_factory.mktemp(kind.replace(" ", "_")), kind)) for kind in KINDS}


@pytest.fixture
def warnings_seen(caplog):
    transformers.utils.logging.enable_propagation()
    yield caplog
    transformers.utils.logging.disable_propagation()


def load(folders, kind, **settings):
    return pipeline(folders[kind], device="cpu", **(SHORT if kind in TEXT_KINDS else {}), **settings)


def assert_alike(found, expected, **tolerance):
    """Equal words, nearly equal numbers."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, float) or name == "interval":
            np.testing.assert_allclose(found[name], value, **{"rtol": 1e-4, "atol": 1e-5, **tolerance}, err_msg=name)
        else:
            assert found[name] == value, name


# ---- every kind ----


@pytest.mark.parametrize("kind", KINDS)
def test_answers_do_not_depend_on_the_batch_size(folders, kind):
    pipe, inputs = load(folders, kind), inputs_for(kind)
    alone = [pipe(given) for given in inputs]
    assert len({json.dumps(answer) for answer in alone}) > 1
    together = pipe(inputs, batch_size=3)
    for found, expected in zip(together, alone, strict=True):
        assert_alike(found, expected)
    assert pipe([]) == []
    assert load(folders, kind)(inputs, batch_size=3) == together  # nothing of it is drawn when the model is loaded


@pytest.mark.parametrize("kind", ["gpt2", "lora", "image ensemble", "image deup", "table", "table deup"])
def test_a_saved_copy_answers_the_same(folders, kind, tmp_path):
    pipe, stored = load(folders, kind), read_uncertainty(folders[kind])
    save_model(pipe.predictor, tmp_path, stored)
    write_uncertainty(tmp_path, **{name: value for name, value in stored.items() if name != "version"})
    settings = SHORT if kind in TEXT_KINDS else {}
    assert pipeline(str(tmp_path), device="cpu", **settings)(inputs_for(kind)) == pipe(inputs_for(kind))


def test_a_copy_never_leaves_its_folder(folders, tmp_path):
    pipe = load(folders, "image ensemble")
    with pytest.raises(UserError, match="outside of the model's"):
        save_model(pipe.predictor, tmp_path / "copy", {"members": ["../elsewhere"]})
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", ["image", "table", "t5"])
def test_passes_with_dropout_are_the_same_in_every_call(folders, kind):
    if kind == "image":
        from clue_hf.models.mc_dropout import add_classifier_dropout

        model = add_classifier_dropout(ViTForImageClassification.from_pretrained(folders[kind]), 0.5)
        model.save_pretrained(folder := folders[kind] + "_dropout")
        make_processor().save_pretrained(folder)
    else:
        folder = folders[kind]
    if kind == "t5":
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        model.config.dropout_rate = 0.3
        model.save_pretrained(folder := folder + "_dropout")
        AutoTokenizer.from_pretrained(folders[kind]).save_pretrained(folder)
    inputs, settings = inputs_for(kind), SHORT if kind == "t5" else {}
    passes = UncertaintyPipeline.from_pretrained(folder, "cpu", mc_samples=4, **settings)
    plain = UncertaintyPipeline.from_pretrained(folder, "cpu", mc_samples=0, **settings)
    assert passes(inputs) == passes(inputs)
    pairs = zip(passes(inputs), plain(inputs), strict=True)
    assert all(one["uncertainty"] != other["uncertainty"] for one, other in pairs)


# ---- texts ----


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_texts_and_tokens_are_those_of_generate(folders, kind):
    pipe = load(folders, kind)
    auto = AutoModelForSeq2SeqLM if kind == "t5" else AutoModelForCausalLM
    model, tokenizer = auto.from_pretrained(folders[kind]), AutoTokenizer.from_pretrained(folders[kind])
    for text in SENTENCES[:4]:
        inputs = tokenizer(text, return_tensors="pt")
        out = model.generate(
            **inputs, max_new_tokens=6, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
        ids = out.sequences[0, 1 if kind == "t5" else inputs["input_ids"].shape[1] :]
        log_p = torch.stack(out.logits)[:, 0].double().log_softmax(-1)
        chosen = log_p.gather(1, ids[:, None]).squeeze(1)
        answer = pipe(text, return_tokens=True, num_alternatives=3)
        assert answer["generated_text"] == tokenizer.decode(ids, skip_special_tokens=True).strip()
        assert answer["uncertainty"] == pytest.approx(-chosen.mean().item(), abs=1e-5)
        assert [token["token"] for token in answer["tokens"]] == tokenizer.convert_ids_to_tokens(ids.tolist())
        likely = log_p.exp().topk(3)
        for step, token in enumerate(answer["tokens"]):
            assert token["probability"] == pytest.approx(chosen[step].exp().item(), abs=1e-5)
            assert token["entropy"] == pytest.approx(-(log_p[step].exp() * log_p[step]).sum().item(), abs=1e-5)
            names = tokenizer.convert_ids_to_tokens(likely.indices[step].tolist())
            assert [other["token"] for other in token["alternatives"]] == names
            np.testing.assert_allclose(
                [other["probability"] for other in token["alternatives"]], likely.values[step], atol=1e-5
            )
    assert "tokens" not in pipe(SENTENCES[0])


@pytest.mark.parametrize("scorer", ["msp", "mean_token_entropy", "mc_sequence_entropy", "pmi"])
def test_any_scorer_serves(folders, scorer):
    pipe = load(folders, "t5", scorer=scorer)
    model, tokenizer = (auto.from_pretrained(folders["t5"]) for auto in (AutoModelForSeq2SeqLM, AutoTokenizer))
    expected = generate_with_uncertainty(model, tokenizer, SENTENCES[:4], [scorer], **SHORT)
    found = pipe(SENTENCES[:4])
    assert [answer["generated_text"] for answer in found] == [output.text for output in expected]
    np.testing.assert_allclose(
        [answer["uncertainty"] for answer in found], [output.uncertainty for output in expected], rtol=1e-6
    )
    # samples belong to rows, not to calls
    later = pipe(SENTENCES[2:4], first_row=2)
    assert [answer["uncertainty"] for answer in later] == pytest.approx(
        [output.uncertainty for output in expected[2:]], rel=1e-4
    )


def test_an_adapter_comes_with_its_base_model(folders):
    from peft import PeftModel

    base = AutoModelForSeq2SeqLM.from_pretrained(str(folders["lora"]).replace("adapter", "base"))
    tokenizer = AutoTokenizer.from_pretrained(folders["lora"])
    inputs = inputs_for("lora")
    plain = generate_with_uncertainty(base, tokenizer, inputs, **SHORT)
    adapted = generate_with_uncertainty(PeftModel.from_pretrained(base, folders["lora"]), tokenizer, inputs, **SHORT)
    found = [answer["uncertainty"] for answer in load(folders, "lora")(inputs)]
    assert found == [output.uncertainty for output in adapted]
    assert found != [output.uncertainty for output in plain]


@pytest.mark.parametrize("kind", ["t5", "gpt2"])
def test_it_is_one_of_transformers_pipelines(folders, kind):
    pipe = transformers.pipeline("text-uncertainty", model=folders[kind], device="cpu", **SHORT)
    ours, texts = load(folders, kind), SENTENCES[:5]
    assert pipe(texts) == ours(texts)
    assert pipe(texts[0], return_tokens=True) == ours(texts[0], return_tokens=True)
    streamed = pipe((text for text in texts), batch_size=2)
    for found, expected in zip(streamed, ours(texts), strict=True):
        assert_alike(found, expected)


# ---- classes ----


def plain_probabilities(folder, images):
    """By transformers alone, in float64."""
    model = ViTForImageClassification.from_pretrained(folder).double()
    pixels = make_processor()(images=[Image.fromarray(image) for image in images], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        return model(pixel_values=pixels.double()).logits.softmax(-1).numpy()


def assert_classes(answers, probabilities, uncertainty):
    best = probabilities.argmax(1)
    assert [answer["label"] for answer in answers] == [NAMES[number] for number in best]
    np.testing.assert_allclose([answer["score"] for answer in answers], probabilities.max(1), atol=1e-5)
    np.testing.assert_allclose([answer["uncertainty"] for answer in answers], uncertainty, atol=1e-5)


def test_classes_of_images(folders):
    images = inputs_for("image")
    p = plain_probabilities(folders["image"], images)
    assert_classes(load(folders, "image")(images), p, stats.entropy(p, axis=1) / math.log(3))


def test_an_image_may_be_given_in_many_ways(folders, tmp_path):
    pixels = image_rows(1)[0][0]
    Image.fromarray(pixels).save(tmp_path / "one.png")
    pipe = load(folders, "image")
    given = [pixels, Image.fromarray(pixels), str(tmp_path / "one.png"), tmp_path / "one.png",
             (tmp_path / "one.png").read_bytes(), pixels.tolist()]  # fmt: skip
    answers = [pipe(image) for image in given[:-1]] + pipe([given[-1]]) + pipe(pixels[None])
    assert all(answer == answers[0] for answer in answers)
    assert_alike(pipe(given)[3], answers[0])


def test_an_ensemble_of_classifiers_is_its_mean(folders):
    images, folder = inputs_for("image"), folders["image ensemble"]
    p = (plain_probabilities(folder, images) + plain_probabilities(f"{folder}/members/1", images)) / 2
    assert_classes(load(folders, "image ensemble")(images), p, stats.entropy(p, axis=1) / math.log(3))


def test_a_calibrator_and_an_error_predictor(folders):
    images, folder = inputs_for("image"), folders["image deup"]
    sharp = plain_probabilities(folder, images)
    p = np.sqrt(sharp) / np.sqrt(sharp).sum(1, keepdims=True)  # a temperature of 2
    second = ViTForImageClassification.from_pretrained(f"{folder}/error_predictor").double()
    pixels = make_processor()(images=[Image.fromarray(image) for image in images], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        errors = 1.5 + 0.5 * second(pixel_values=pixels.double()).logits[:, 0].numpy()
    assert ((errors > 1) & (errors < 2)).any()
    assert_classes(load(folders, "image deup")(images), p, np.clip(errors - 1, 0, 1))


def test_classes_of_texts_are_read_as_they_were_trained(folders):
    pipe = load(folders, "text classes", source_prefix="what a ", max_source_length=4)
    plain = load(folders, "text classes")
    tokenizer = plain.predictor.processing_class
    ids = tokenizer(["what a " + text for text in TEXTS[:3]], truncation=True, max_length=4, padding=True,
                    return_tensors="pt")  # fmt: skip
    with torch.no_grad():
        p = plain.predictor.model(**ids).logits.double().softmax(-1)
    np.testing.assert_allclose([answer["score"] for answer in pipe(TEXTS[:3])], p.max(1).values, atol=1e-5)
    assert plain(TEXTS[0])["score"] != pytest.approx(pipe(TEXTS[0])["score"], abs=1e-5)


# ---- numbers ----


def plain_moments(folder, rows):
    """Mean and variance of a model with a variance head, standardised, in float64."""
    preprocessor = TablePreprocessor.from_pretrained(str(folder).split("/members")[0].split("/error_pred")[0])
    tensors = preprocessor(pd.DataFrame(rows), target=False)
    model = CLUETabularResNetForRegression.from_pretrained(folder).double().eval()
    with torch.no_grad():
        out = model(numeric=tensors["numeric"].double(), categories=tensors["categories"]).logits.numpy()
    return preprocessor, out[:, 0], np.exp(out[:, -1])


def test_numbers_in_their_own_units(folders):
    rows = table_rows()
    preprocessor, mean, variance = plain_moments(folders["table"], rows)
    center, std = mean * preprocessor.target_std + preprocessor.target_mean, variance**0.5 * preprocessor.target_std
    low, high = stats.norm.interval(0.8, center, std)
    for number, answer in enumerate(load(folders, "table")(rows, level=0.8)):
        expected = {"mean": center[number], "std": std[number], "interval": [low[number], high[number]]}
        assert_alike({name: answer[name] for name in expected}, expected)
        assert answer["uncertainty"] == answer["std"]


def test_rows_may_be_given_in_many_ways(folders):
    rows, pipe = table_rows(), load(folders, "table")
    expected = pipe(rows)
    frame = pd.DataFrame(rows)
    assert pipe(frame) == pipe(frame.to_dict("list")) == expected
    assert pipe(frame[frame.columns[::-1]].assign(other="x")) == expected
    assert isinstance(pipe(rows[0]), dict)
    texts = [{name: value if name == "sex" else str(value) for name, value in row.items()} for row in rows]
    assert pipe(texts) == expected
    unknown = pipe({**rows[0], "bmi": None})  # a missing value is not an error
    assert unknown["mean"] != expected[0]["mean"]


def test_an_ensemble_of_regressors_adds_how_its_members_differ(folders):
    rows, folder = table_rows(), folders["table ensemble"]
    preprocessor, *first = plain_moments(folder, rows)
    _, *second = plain_moments(f"{folder}/members/1", rows)
    mean = (first[0] + second[0]) / 2
    variance = (first[1] + second[1]) / 2 + (first[0] - second[0]) ** 2 / 4
    found = load(folders, "table ensemble")(rows)
    np.testing.assert_allclose(
        [answer["mean"] for answer in found], preprocessor.target_mean + preprocessor.target_std * mean, rtol=1e-5
    )
    np.testing.assert_allclose([answer["std"] for answer in found], preprocessor.target_std * variance**0.5, rtol=1e-4)


def test_a_predicted_error_is_the_variance_and_the_calibrator_comes_last(folders):
    rows, folder = table_rows(), folders["table deup"]
    preprocessor, mean, _ = plain_moments(folder, rows)
    _, errors, _ = plain_moments(f"{folder}/error_predictor", rows)
    std = np.maximum(1.0 + 0.3 * errors, 1e-6) ** 0.5 * preprocessor.target_std
    mean = mean * preprocessor.target_std + preprocessor.target_mean
    calibrator = QuantileCalibrator.from_dict(read_uncertainty(folder)["calibrator"])
    low, high = calibrator.interval(mean, std, 0.95)
    for number, answer in enumerate(load(folders, "table deup")(rows)):
        assert answer["mean"] == pytest.approx(mean[number] + std[number] * calibrator.shift, rel=1e-5)
        assert answer["std"] == pytest.approx(std[number] * calibrator.factor, rel=1e-4)
        np.testing.assert_allclose(answer["interval"], [low[number], high[number]], rtol=1e-4)


def test_numbers_of_texts_and_a_model_without_any_uncertainty(folders, warnings_seen):
    pipe = load(folders, "text numbers")
    assert "standard deviations mean nothing" in warnings_seen.text
    ids = pipe.predictor.processing_class(TEXTS[:3], padding=True, return_tensors="pt")
    with torch.no_grad():
        means = 10 + 2 * pipe.predictor.model(**ids).logits[:, 0]
    np.testing.assert_allclose([answer["mean"] for answer in pipe(TEXTS[:3])], means, rtol=1e-5)


# ---- what an uncertainty means ----


@pytest.fixture(scope="module")
def calibrated_once(folders, tmp_path_factory):
    """A folder of texts with what a calibration found: qualities of 1 below a median, of 0.3 above."""
    folder = tmp_path_factory.mktemp("calibrated") / "t5"
    shutil.copytree(folders["t5"], folder)
    pipe = load(folders, "t5")
    uncertainty = np.tile([answer["uncertainty"] for answer in pipe(inputs_for("t5"))], 100)
    quality = np.where(uncertainty < np.median(uncertainty), 1.0, 0.3)
    Deployed.fit(
        "perplexity", pipe.predictor.settings, uncertainty, quality, (0.05, 0.2, 0.9), 0.1, "hoeffding-bentkus",
        data={"name": "d", "rows": 700}, weights=pipe.predictor.fingerprint(),
    ).write(folder)  # fmt: skip
    return folder


@pytest.fixture
def calibrated(calibrated_once, tmp_path):
    """A copy of it, to be changed."""
    return str(shutil.copytree(calibrated_once, tmp_path / "t5"))


@pytest.mark.parametrize("risk", [0.05, 0.2, 0.9])
def test_to_abstain_is_to_be_at_or_above_the_threshold(calibrated, risk):
    pipe = pipeline(calibrated, device="cpu")
    stored = Deployed.read(calibrated)
    threshold = stored.abstention.at(risk).threshold
    answers = pipe(inputs_for("t5"), abstain_at_risk=risk)
    uncertainty = np.array([answer["uncertainty"] for answer in answers])
    assert [answer["abstain"] for answer in answers] == (uncertainty >= threshold).tolist()
    assert pipe(inputs_for("t5"), min_quality=1 - risk) == answers
    assert {answer["abstain"] for answer in answers} == ({False} if risk == 0.9 else {True, False})
    for answer in answers:
        expected = np.interp(answer["uncertainty"], stored.confidence.uncertainty, stored.confidence.quality)
        assert answer["confidence"] == expected
        below = 100 * (uncertainty < answer["uncertainty"]).mean()  # the data were these, a hundred times
        assert answer["percentile"] == pytest.approx(below, abs=1)
    assert {answer["abstain"] for answer in pipe(inputs_for("t5"))} == {None}


def test_the_settings_of_the_calibration_are_those_of_the_pipeline(calibrated, warnings_seen):
    pipe = pipeline(calibrated, device="cpu")
    assert pipe.predictor.settings["max_new_tokens"] == SHORT["max_new_tokens"]
    assert warnings_seen.text == ""
    other = pipeline(calibrated, device="cpu", max_new_tokens=3)
    assert "max_new_tokens 3 instead of 6" in warnings_seen.text
    assert len(other(SENTENCES[0], return_tokens=True)["tokens"]) <= 3
    warnings_seen.clear()
    msp = pipeline(calibrated, device="cpu", scorer="msp")
    assert "calibrated for the uncertainty 'perplexity', not for 'msp'" in warnings_seen.text
    assert msp(SENTENCES[0])["confidence"] is None
    with pytest.raises(UserError, match="must be calibrated for this uncertainty: clue-hf calibrate"):
        msp(SENTENCES[0], abstain_at_risk=0.2)


def test_a_model_that_was_trained_further_says_so(calibrated, warnings_seen):
    model = AutoModelForSeq2SeqLM.from_pretrained(calibrated)
    with torch.no_grad():
        next(model.decoder.parameters()).mul_(1.001)
    model.save_pretrained(calibrated)
    pipeline(calibrated, device="cpu")
    assert "trained since it was calibrated" in warnings_seen.text


def test_a_risk_that_is_not_stored_names_those_that_are(calibrated, folders):
    pipe = pipeline(calibrated, device="cpu")
    with pytest.raises(UserError, match=r"`max_risk` 0.3; those stored are 0.05, 0.2, 0.9\..*clue-hf calibrate"):
        pipe(SENTENCES, abstain_at_risk=0.3)
    with pytest.raises(UserError, match=r"`min_quality` 0.7; those stored are 0.95, 0.8, 0.1"):
        pipe(SENTENCES, min_quality=0.7)
    with pytest.raises(UserError, match="not both"):
        pipe(SENTENCES, min_quality=0.8, abstain_at_risk=0.2)


def test_where_nothing_is_certified_nothing_is_answered(calibrated, warnings_seen):
    stored = Deployed.read(calibrated)
    worst = np.linspace(0, 1, 500)
    Deployed.fit("perplexity", stored.settings, worst, np.zeros(500), [0.05]).write(calibrated)
    answers = pipeline(calibrated, device="cpu")(SENTENCES, abstain_at_risk=0.05)
    assert all(answer["abstain"] for answer in answers)
    assert "All answers abstain at a risk of 0.05: The risk of the" in warnings_seen.text


@pytest.mark.parametrize("kind", ["t5", "image"])
def test_a_model_that_is_not_calibrated_says_so_once(folders, kind, warnings_seen):
    pipe = load(folders, kind)
    answers = pipe(inputs_for(kind))
    assert warnings_seen.text.count(f"clue-hf calibrate {folders[kind]} --config") == 1
    assert all(answer[name] is None for answer in answers for name in ("confidence", "percentile", "abstain"))


# ---- files that are damaged, and inputs that are none ----


DAMAGES = {
    "confidence": [{"name": "isotonic_confidence", "version": 1, "uncertainty": [1, 0], "quality": [1, 0]}, 3,
                   {"name": "isotonic_confidence", "version": 1, "uncertainty": [0, 1], "quality": [0.2, 0.4]},
                   {"name": "isotonic_confidence", "version": 1, "uncertainty": ["a"], "quality": [1]}],
    "reference_quantiles": [{"name": "reference_quantiles", "version": 2, "quantiles": [0, 1]}, None,
                            {"name": "reference_quantiles", "version": 1, "quantiles": [0]}],
    "abstention": [{"name": "abstention_thresholds", "version": 1, "thresholds": [{}]}, "x", []],
    "settings": [[1]],
    "scorer": [7, "sharpness"],
}  # fmt: skip


@pytest.mark.parametrize(("part", "value"), [(part, value) for part, values in DAMAGES.items() for value in values])
def test_a_damaged_part_is_named(calibrated, part, value):
    path = f"{calibrated}/{UNCERTAINTY_FILE}"
    with open(path) as file:
        content = json.load(file)
    content.pop(part)
    with open(path, "w") as file:
        json.dump(content if value is None else {**content, part: value}, file)
    pattern = "scorers.*sharpness" if value == "sharpness" else f"'{part}' in uncertainty.json .*clue-hf calibrate"
    with pytest.raises(UserError, match=pattern):
        pipeline(calibrated, device="cpu")


@pytest.mark.parametrize(("text", "message"), [
    ('{"version": 1, "scor', "is damaged .*clue-hf calibrate"),
    ('{"version": 0}', "write it anew: clue-hf calibrate"),
    ('{"version": 99}', "update clue_hf"),
])  # fmt: skip
def test_a_file_that_is_damaged_or_of_another_version(calibrated, text, message):
    with open(f"{calibrated}/{UNCERTAINTY_FILE}", "w") as file:
        file.write(text)
    with pytest.raises(UserError, match=message):
        pipeline(calibrated, device="cpu")


def test_a_damaged_calibrator_or_error_predictor(tmp_path):
    folder = make_folder(tmp_path, "image deup")
    write_uncertainty(folder, calibrator={"name": "temperature"})
    with pytest.raises(UserError, match="'calibrator' in uncertainty.json"):
        pipeline(str(folder))
    write_uncertainty(folder, calibrator=None, error_predictor={"folder": "error_predictor"})
    with pytest.raises(UserError, match="'error_predictor' in uncertainty.json"):
        pipeline(str(folder))


@pytest.mark.parametrize(("kind", "inputs", "message"), [
    ("t5", ["a", None], r"Row 1 \(counted from 0\) must be a text, but is empty"),
    ("t5", 7, "Give a text or a list of texts, not a int"),
    ("image", ["nowhere.png"], r"Row 0 \(counted from 0\) is no readable image.*nowhere"),
    ("image", [np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 0.5)], r"Row 1 .*uint8"),
    ("image", 3, "Give an image or a list of images"),
    ("table", [{"age": 1}], r"Row 0 \(counted from 0\) has no 'sex'"),
    ("table", [table_rows()[0], {**table_rows()[0], "bmi": "much"}], r"'bmi' must hold numbers.* row 1 "),
    ("table", "age", "Give a row as a dict"),
    ("table", ["age"], r"Row 0 \(counted from 0\) must be a dict"),
])  # fmt: skip
def test_inputs_that_are_none_are_named(folders, kind, inputs, message):
    pipe = load(folders, kind)
    with pytest.raises(UserError, match=message):
        pipe(inputs)


def test_rows_of_a_longer_file_keep_their_numbers(folders):
    bad = {**table_rows()[0], "bmi": "much"}
    with pytest.raises(UserError, match=r"row 41 \(counted from 0\) is 'much'"):
        load(folders, "table")([table_rows()[0], bad], first_row=40)
    with pytest.raises(UserError, match=r"Row 41 \(counted from 0\)"):
        load(folders, "image")([inputs_for("image")[0], "nowhere.png"], first_row=40)


@pytest.mark.parametrize(("kind", "settings", "options", "message"), [
    ("t5", {"scorer": "sharpness"}, {}, "sharpness"),
    ("t5", {"batch_size": 0}, {}, "`batch_size` must be at least 1"),
    ("t5", {"dtype": "float7"}, {}, "`dtype` must be one of"),
    ("t5", {}, {"num_alternatives": -1}, "must not be negative"),
    ("t5", {}, {"abstain_at_risk": 0.1}, "clue-hf calibrate"),
    ("image", {"scorer": "msp"}, {}, "for models that write texts"),
    ("image", {"num_beams": 2}, {}, "`num_beams` is no setting"),
    ("image", {}, {"return_tokens": True}, "for models that write texts"),
    ("table", {}, {"level": 1.5}, "`level` must lie between 0 and 1"),
])  # fmt: skip
def test_settings_that_do_not_suit(folders, kind, settings, options, message):
    with pytest.raises(UserError, match=message):
        load(folders, kind, **settings)(inputs_for(kind), **options)


def test_probabilities_that_are_not_finite_are_told_with_their_row(tmp_path):
    folder = make_folder(tmp_path, "image")
    model = ViTForImageClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.bias[0] = float("nan")
    model.save_pretrained(folder)
    with pytest.raises(UserError, match=r"row 5 \(counted from 0\) is nan. Has the training diverged"):
        pipeline(str(folder), device="cpu")(inputs_for("image"), first_row=5)


def test_without_this_package_the_model_is_a_plain_one(calibrated):
    code = (
        "import sys; sys.modules['clue_hf'] = None\n"
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer\n"
        f"model = AutoModelForSeq2SeqLM.from_pretrained({calibrated!r})\n"
        f"tokenizer = AutoTokenizer.from_pretrained({calibrated!r})\n"
        f"inputs = tokenizer({SENTENCES[1]!r}, return_tensors='pt')\n"
        "ids = model.generate(**inputs, max_new_tokens=6, do_sample=False)\n"
        "print(repr(tokenizer.decode(ids[0], skip_special_tokens=True).strip()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(pipeline(calibrated, device="cpu")(SENTENCES[1])["generated_text"])
