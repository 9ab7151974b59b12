"""Pipelines of models that are calibrated, damaged files, and inputs that are none."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from deploy.deployed_models import inputs_for, make_folder, table_rows
from deploy.pipelines import SHORT, load
from helpers import SENTENCES
from transformers import AutoModelForSeq2SeqLM, ViTForImageClassification

from clue_hf import pipeline
from clue_hf.errors import UserError
from clue_hf.models.uncertainty_file import UNCERTAINTY_FILE, write_uncertainty
from clue_hf.posthoc.calibration_file import UncertaintyCalibration


@pytest.fixture(scope="module")
def calibrated_once(folders, tmp_path_factory):
    """A folder of texts with what a calibration found: qualities of 1 below a median, of 0.3 above."""
    folder = tmp_path_factory.mktemp("calibrated") / "t5"
    shutil.copytree(folders["t5"], folder)
    pipe = load(folders, "t5")
    uncertainty = np.tile([answer["uncertainty"] for answer in pipe(inputs_for("t5"))], 100)
    quality = np.where(uncertainty < np.median(uncertainty), 1.0, 0.3)
    UncertaintyCalibration.fit(
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
    stored = UncertaintyCalibration.read(calibrated)
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
    stored = UncertaintyCalibration.read(calibrated)
    worst = np.linspace(0, 1, 500)
    UncertaintyCalibration.fit("perplexity", stored.settings, worst, np.zeros(500), [0.05]).write(calibrated)
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
    ("image", {"num_beams": 2}, {}, "`num_beams` is not a setting"),
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
    with pytest.raises(UserError, match=r"row 5 \(counted from 0\) is not finite. Has the training diverged"):
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
