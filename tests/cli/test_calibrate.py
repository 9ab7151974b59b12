"""What `clue-hf calibrate` finds, made again by hand from the answers of plain parts."""

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from class_models import digit_splits, make_bert, text_data, train_resnet
from deploy.deployed_models import TARGET, make_folder
from sklearn.isotonic import IsotonicRegression
from transformers import pipeline as transformers_pipeline
from transformers import utils

from clue_hf import generate_with_uncertainty, pipeline
from clue_hf.cli.main import main
from clue_hf.data.embedded.diabetes import load_diabetes_splits
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.evaluation import ClassificationEvaluator
from clue_hf.metrics import sentence_quality
from clue_hf.models.loading import load_classifier, load_image_processor, load_text_model, load_tokenizer
from clue_hf.models.uncertainty_file import UNCERTAINTY_FILE, read_uncertainty, write_uncertainty
from clue_hf.posthoc import AbstentionThresholds, TemperatureCalibrator, reference_quantiles
from clue_hf.posthoc.calibration_file import UncertaintyCalibration
from clue_hf.posthoc.token_temperature import TemperatureHead, TokenTemperature
from clue_hf.predictors.text import TextPredictor


MODEL = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"
ROWS = 130
MODEL_OPTIONS = ["calibrate", "model", "--config", "run.yaml"]
TEXTS = [*MODEL_OPTIONS, "--token_calibrator", "none"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models of each kind and the YAML files of their trainings."""
    folder = tmp_path_factory.mktemp("calibrate")
    shutil.copytree(MODEL, folder / "model")
    for split, count in (("train", 20), ("validation", ROWS)):
        lines = [json.dumps(row) for row in phrase_rows(split, count)]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "run.yaml").write_text(
        "model_type: t5\ntokenizer_vocab_size: 100\ntrain_file: train.jsonl\nvalidation_file: validation.jsonl\n"
        "test_file: validation.jsonl\nmax_target_length: 16\nlearning_rate: 1e-4\noutput_dir: elsewhere\n"
        "quality: chrf\nalpha: 0.9\n"
    )
    train_resnet(folder / "resnet")
    (folder / "digits.yaml").write_text("dataset_name: embedded:digits\nmodel_type: clue_resnet\nmc_samples: 2\n")
    make_bert(folder / "bert")
    text_data().to_json(folder / "texts.jsonl")
    text_data().select(range(12)).to_json(folder / "held_out.jsonl")
    (folder / "texts.yaml").write_text(
        "train_file: texts.jsonl\nvalidation_file: held_out.jsonl\nlabel_column: label\nsource_column: text\n"
    )
    make_folder(folder / "table", "table")
    (folder / "table.yaml").write_text("dataset_name: embedded:diabetes\nmodel_type: clue_tabular_resnet\n")
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def warnings_seen(caplog):
    utils.logging.enable_propagation()
    yield caplog
    utils.logging.disable_propagation()


def assert_fitted(found, uncertainty, quality, risks, test):
    """Each part against scikit-learn, numpy and the function that has tests of its own."""
    isotonic = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(uncertainty, quality)
    places = np.linspace(uncertainty.min() - 1, uncertainty.max() + 1, 50)
    np.testing.assert_allclose(found.confidence(places), isotonic.predict(places), atol=1e-6)
    np.testing.assert_allclose(
        found.reference_quantiles.quantiles, reference_quantiles(uncertainty).quantiles, rtol=1e-4
    )
    expected = AbstentionThresholds.fit(uncertainty, 1 - quality, risks, 0.1, test=test)
    for one, other in zip(found.abstention.thresholds, expected.thresholds, strict=True):
        assert one.max_risk == other.max_risk
        assert one.coverage == other.coverage
        assert one.threshold == (
            other.threshold if other.threshold is None else pytest.approx(other.threshold, rel=1e-4)
        )


@pytest.fixture(scope="module")
def texts(folder):
    """A model of texts, calibrated."""
    with contextlib.chdir(folder):
        assert main([*TEXTS, "--risks", "0.2,0.6", "0.9"]) == 0
    return folder / "model"


def test_texts(here, texts, capsys):
    rows = phrase_rows("validation", ROWS)
    outputs = generate_with_uncertainty(
        load_text_model(str(MODEL)), load_tokenizer(str(MODEL)), [row["source"] for row in rows], max_new_tokens=16
    )
    quality = sentence_quality("chrf", [output.text for output in outputs], [row["target"] for row in rows])
    found = UncertaintyCalibration.read("model")
    uncertainty = np.array([output.uncertainty for output in outputs])
    assert_fitted(found, uncertainty, quality, (0.2, 0.6, 0.9), "hoeffding-bentkus")
    assert found.data == {"name": "validation.jsonl (validation)", "rows": ROWS}
    assert "chrf" in found.definitions["quality"]
    assert found.definitions["loss"] == "1 - quality"
    assert set(found.versions) == {"clue_hf", "torch", "transformers"}
    answer = pipeline("model", device="cpu")(rows[3]["source"], min_quality=0.4)
    assert answer["uncertainty"] == pytest.approx(uncertainty[3], rel=1e-4)
    assert answer["confidence"] == pytest.approx(float(found.confidence(answer["uncertainty"])))
    assert not Path("elsewhere").exists()  # where the training wrote


def test_equal_sources_are_one_row_with_all_their_references(here, texts):
    rows = phrase_rows("validation", 40)
    other = [{**row, "target": "le chat dort ."} for row in rows]
    Path("twice.jsonl").write_text("\n".join(map(json.dumps, [*rows, *other])) + "\n")
    assert main([*TEXTS, "--validation_file", "twice.jsonl", "--output_dir", "merged"]) == 0
    found = UncertaintyCalibration.read("merged")
    assert found.data["rows"] == 40
    assert "nrefs:var" in found.definitions["quality"] or "nrefs:2" in found.definitions["quality"]


def test_the_table_says_what_is_certified_and_why_not(here, texts, capsys, warnings_seen):
    assert main([*TEXTS, "--risks", "0.001,0.9", "--max_eval_samples", "100", "--output_dir", "copy"]) == 0
    captured = capsys.readouterr()
    assert "| 0.9          | 0.1              | any          | 100%" in captured.out
    assert "yes, with probability 0.9" in captured.out
    assert "0.001: Too few rows" in captured.out
    assert "Only 100 rows" in warnings_seen.text
    assert UncertaintyCalibration.read("copy").data["rows"] == 100
    one, other = (pipeline(name, device="cpu")("the cat sleeps .") for name in ("copy", "model"))
    assert one["generated_text"] == other["generated_text"]
    assert one["uncertainty"] == pytest.approx(other["uncertainty"], rel=1e-5)
    assert main([*TEXTS, "--output_dir", "copy"]) == 2
    assert "holds a model already. To calibrate that one: clue-hf calibrate copy" in capsys.readouterr().err


def test_classes_of_images(here):
    assert main(["calibrate", "resnet", "--config", "digits.yaml", "--mc_samples", "0"]) == 0
    validation = digit_splits()["validation"]
    answers = pipeline("resnet", device="cpu")(list(validation.pixels()))
    right = [
        answer["label"] == validation.names[label] for answer, label in zip(answers, validation.labels, strict=True)
    ]
    uncertainty = np.array([answer["uncertainty"] for answer in answers])
    found = UncertaintyCalibration.read("resnet")
    risks = [entry.max_risk for entry in found.abstention.thresholds]
    assert_fitted(found, uncertainty, np.array(right, float), risks, "binomial")
    assert found.settings == {"mc_samples": 0}
    assert found.data["name"] == "embedded:digits (validation)"


def test_classes_of_texts_by_their_names(here, warnings_seen):
    assert main(["calibrate", "bert", "--config", "texts.yaml", "--mc_samples", "0"]) == 0
    rows = text_data().select(range(12))
    answers = pipeline("bert", device="cpu")(rows["text"][:])
    right = np.array([answer["label"] == label for answer, label in zip(answers, rows["label"], strict=True)], float)
    found = UncertaintyCalibration.read("bert")
    uncertainty = np.array([answer["uncertainty"] for answer in answers])
    assert_fitted(found, uncertainty, right, [e.max_risk for e in found.abstention.thresholds], "binomial")
    assert "Only 12 rows" in warnings_seen.text


def test_numbers_with_and_without_a_tolerance(here, capsys):
    words = ["calibrate", "table", "--config", "table.yaml"]
    assert main(words) == 0
    assert "No --tolerance says when a number is right" in capsys.readouterr().out
    found = UncertaintyCalibration.read("table")
    assert found.confidence is None
    assert found.abstention is None
    row = load_diabetes_splits()["test"][0]
    pipe = pipeline("table", device="cpu")
    assert pipe(row)["percentile"] is not None
    with pytest.raises(ValueError, match="--tolerance"):
        pipe(row, abstain_at_risk=0.5)
    assert main([*words, "--tolerance", "90", "--risks", "0.7"]) == 0
    rows = load_diabetes_splits()["validation"]
    answers = pipe(rows)
    quality = np.abs(np.array(rows[TARGET][:]) - [answer["mean"] for answer in answers]) <= 90
    assert 0 < quality.mean() < 1
    found = UncertaintyCalibration.read("table")
    uncertainty = np.array([answer["std"] for answer in answers])
    assert_fitted(found, uncertainty, quality.astype(float), [0.7], "binomial")
    assert found.definitions["quality"] == "1 where |target - mean| <= 90, else 0"


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_prediction_sets_of_images(here, method, capsys):
    shutil.copytree("resnet", method)
    words = ["calibrate", method, "--config", "digits.yaml", "--mc_samples", "0", "--conformal", method]
    assert main([*words, "--coverage", "0.85"]) == 0
    assert f"Conformal: {method}, coverage 0.85" in capsys.readouterr().out
    validation = digit_splits()["validation"]
    report = ClassificationEvaluator(load_classifier(method), load_image_processor(method), 0).evaluate(validation)
    probabilities = report.raw.probabilities
    of_label = probabilities[np.arange(len(probabilities)), validation.labels]
    above = np.where(probabilities > of_label[:, None], probabilities, 0).sum(axis=1)
    scores = np.sort(1 - of_label if method == "lac" else above + of_label)
    quantile = scores[int(np.ceil(0.85 * (len(scores) + 1))) - 1]
    stored = read_uncertainty(method)["conformal"]
    assert stored == {"name": method, "version": 1, "coverage": 0.85, "quantile": stored["quantile"], "n": len(scores)}
    assert stored["quantile"] == pytest.approx(quantile, abs=1e-6)
    answers = pipeline(method, device="cpu")(list(validation.pixels()[:40]))
    for answer, row in zip(answers, probabilities, strict=False):
        order = np.argsort(-row)
        badness = 1 - row[order] if method == "lac" else np.cumsum(row[order])
        if np.abs(badness - quantile).min() > 1e-4:  # no class stands on the edge
            count = max(1, int((badness <= quantile).sum()))
            assert answer["prediction_set"] == [validation.names[number] for number in order[:count]]


def test_conformal_intervals_with_and_without_a_level(here):
    shutil.copytree("table", "scaled")
    assert main(["calibrate", "scaled", "--config", "table.yaml", "--conformal", "scaled"]) == 0
    plain, pipe = pipeline("table", device="cpu"), pipeline("scaled", device="cpu")
    rows = load_diabetes_splits()["validation"]
    known = plain(rows)
    scores = [abs(y - answer["mean"]) / answer["std"] for y, answer in zip(rows[TARGET][:], known, strict=True)]
    quantile = sorted(scores)[int(np.ceil(0.9 * (len(scores) + 1))) - 1]
    assert read_uncertainty("scaled")["conformal"]["quantile"] == pytest.approx(quantile, rel=1e-5)
    row = load_diabetes_splits()["test"][0]
    answer = pipe(row)
    half = quantile * answer["std"]
    assert answer["interval"] == pytest.approx([answer["mean"] - half, answer["mean"] + half], rel=1e-4)
    assert pipe(row, level=0.95)["interval"] == plain(row)["interval"] == plain(row, level=0.95)["interval"]
    with pytest.raises(ValueError, match="`level` must lie between 0 and 1"):
        pipe(row, level=1.5)


def test_what_else_stands_in_the_file_stays(here, warnings_seen):
    shutil.copytree("bert", "kept")
    calibrator = TemperatureCalibrator(3.0).to_dict()
    write_uncertainty("kept", calibrator=calibrator, mc_samples=0)
    plain = UncertaintyCalibration.read("bert")
    assert main(["calibrate", "kept", "--config", "texts.yaml"]) == 0
    content = read_uncertainty("kept")
    assert content["calibrator"] == calibrator
    assert content["mc_samples"] == 0
    assert min(UncertaintyCalibration.read("kept").reference_quantiles.quantiles) > min(
        plain.reference_quantiles.quantiles
    )
    assert "calibrator may have been fitted on the validation data too" in warnings_seen.text


@pytest.mark.parametrize(("content", "code"), [("{", 0), ('{"version": 0}', 0), ('{"version": 9}', 2)])
def test_a_file_that_cannot_be_read_is_put_aside(here, tmp_path, content, code, capsys):
    shutil.copytree("bert", tmp_path / "bert")
    path = tmp_path / "bert" / UNCERTAINTY_FILE
    path.write_text(content)
    assert main(["calibrate", str(tmp_path / "bert"), "--config", "texts.yaml"]) == code
    if code:
        assert path.read_text() == content
        assert "update clue_hf" in capsys.readouterr().err
    else:
        assert UncertaintyCalibration.read(str(tmp_path / "bert")) is not None
        assert path.with_name(f"{UNCERTAINTY_FILE}.damaged").read_text() == content


@pytest.mark.parametrize(("words", "message"), [
    (["calibrate"], "Which model?"),
    ([*TEXTS, "--split", "train"], "The split 'train' is the training data"),
    ([*TEXTS, "--validation_file", "train.jsonl"], "is the training data"),
    ([*TEXTS, "--split", "extra"], "'extra' is not in the data"),
    ([*TEXTS, "--scorer", "sharpness"], "`scorer` must be one of"),
    ([*TEXTS, "--quality", "none"], "`quality` must be among"),
    ([*TEXTS, "--risks", "0.1,1.5"], "`risks` must lie between 0 and 1, but is 1.5"),
    ([*TEXTS, "--risks", "low"], "`risks` must be numbers"),
    ([*TEXTS, "--delta", "0"], "`delta` must lie between 0 and 1"),
    ([*TEXTS, "--tolerance", "1"], "--tolerance is for models that predict numbers"),
    (["calibrate", "bert", "--config", "texts.yaml", "--scorer", "msp"], "--scorer is for models that write texts"),
    ([*TEXTS, "--conformal", "lac"], "conformal is not supported for language models"),
    (["calibrate", "bert", "--config", "texts.yaml", "--conformal", "scaled"], "models that predict classes: use lac"),
    (["calibrate", "table", "--config", "table.yaml", "--conformal", "lac"], "that predict numbers: use scaled"),
    (["calibrate", "bert", "--config", "texts.yaml", "--conformal", "magic"], "`conformal` must be one of lac"),
    (["calibrate", "bert", "--config", "texts.yaml", "--coverage", "0.8"], "give `conformal` too"),
    (["calibrate", "bert", "--config", "texts.yaml", "--conformal", "lac", "--coverage", "90"], "`coverage` must lie"),
    (["calibrate", "bert", "--config", "texts.yaml", "--conformal", "aps", "--coverage", "0.95"],
     "at least 19 are needed to calibrate it, and there are 12"),
    (["calibrate", "someone/model", "--config", "run.yaml"], "give --output_dir"),
    (["calibrate", "./nowhere", "--config", "run.yaml", "--output_dir", "x"], "does not exist"),
    ([*TEXTS, "--output_dir", "run.yaml"], "is a file"),
])  # fmt: skip
def test_mistakes(here, words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_validation_file_alone_will_do(here):
    words = ["calibrate", "bert", "--source_column", "text", "--label_column", "label"]
    assert main([*words, "--validation_file", "held_out.jsonl", "--output_dir", "alone"]) == 0
    assert (
        main([*words, "--train_file", "texts.jsonl", "--validation_file", "held_out.jsonl", "--output_dir", "two"])
        == 0
    )
    alone, two = (UncertaintyCalibration.read(name) for name in ("alone", "two"))
    assert alone.data["rows"] == two.data["rows"] == 12
    assert [found.reason for found in alone.abstention.thresholds] == [
        found.reason for found in two.abstention.thresholds
    ]


def test_tokens_are_calibrated_and_everything_uses_it(here, capsys):
    shutil.copytree(MODEL, "tokens")
    sources = [row["source"] for row in phrase_rows("validation", ROWS)]
    before = pipeline("tokens", scorer="msp", max_new_tokens=16)(sources[:8])
    assert main(["calibrate", "tokens", "--config", "run.yaml", "--token_calibrator", "temperature"]) == 0
    printed = capsys.readouterr().out
    stored = read_uncertainty("tokens")
    temperature = stored["token_calibrator"]["temperature"]
    assert f"T = {temperature:.3f}" in printed
    rows = stored["token_calibration"]["rows"]
    assert sum(rows.values()) == ROWS
    assert rows["fit"] == pytest.approx(ROWS / 2, abs=12)
    assert stored["data"]["rows"] == rows["certify"]  # no row that fitted anything certifies
    after = pipeline("tokens", scorer="msp")(sources[:8])
    for one, two in zip(before, after, strict=True):
        assert one["generated_text"] == two["generated_text"]
        assert one["uncertainty"] != pytest.approx(two["uncertainty"], rel=1e-6)
    # the same numbers by hand, from the model alone
    predictor = TextPredictor(load_text_model("tokens"), load_tokenizer("tokens"), "msp", max_new_tokens=16)
    entry = predictor.collector.collect(sources[:1])[0]
    raw = predictor.collector.output_logits(predictor.collector.plan(sources[:1])[0].prompts[0], entry.output.tokens)
    tokens = torch.tensor(entry.output.tokens).unsqueeze(1)
    by_hand = -(raw / temperature).log_softmax(-1).gather(1, tokens).sum().item()
    assert after[0]["uncertainty"] == pytest.approx(by_hand, rel=1e-4)
    assert main(["evaluate", "tokens", "--config", "run.yaml", "--scorers", "msp", "--resamples", "0"]) == 0
    report = json.loads(Path("tokens/uncertainty_report/report.json").read_text())
    assert report["description"]["signature"]["token_calibrator"]["temperature"] == temperature
    with open("tokens/uncertainty_report/examples.jsonl") as file:
        scores = {(example := json.loads(line))["source"]: example["scores"]["msp"] for line in file}
    assert scores[sources[0]] == pytest.approx(after[0]["uncertainty"], rel=1e-4)


def test_a_token_calibrator_of_choice_or_none(here, capsys):
    shutil.copytree(MODEL, "chosen")
    assert main(["calibrate", "chosen", "--config", "run.yaml", "--token_calibrator", "auto"]) == 0
    stored = read_uncertainty("chosen")
    before, after = (stored["token_calibration"][when] for when in ("before", "after"))
    assert stored["token_calibration"]["name"] in capsys.readouterr().out
    assert after["error"]["value"] <= before["error"]["value"] + 0.05
    assert main(["calibrate", "chosen", "--config", "run.yaml", "--token_calibrator", "none"]) == 0
    assert "token_calibrator" not in read_uncertainty("chosen")


def test_mistakes_with_token_calibrators(here, capsys):
    assert main(["calibrate", "resnet", "--config", "digits.yaml", "--token_calibrator", "auto"]) == 2
    assert "--token_calibrator is for models that write texts" in capsys.readouterr().err
    assert main([*TEXTS, "--token_calibrator", "temperature", "--max_eval_samples", "6"]) == 2
    assert "too few to fit a temperature" in capsys.readouterr().err
    shutil.copytree(MODEL, "damaged_tokens")
    write_uncertainty("damaged_tokens", token_calibrator={"name": "temperature", "version": 1, "temperature": "hot"})
    assert main(["evaluate", "damaged_tokens", "--config", "run.yaml"]) == 2
    assert "'token_calibrator' in uncertainty.json of 'damaged_tokens' is damaged" in capsys.readouterr().err


def test_a_token_calibrator_of_another_model(here, capsys, warnings_seen):
    shutil.copytree(MODEL, "other_tokens")
    head = TemperatureHead([0.0] * 7, [0.0] * 7, [1.0] * 7, 0.0, 4)
    write_uncertainty("other_tokens", token_calibrator=head.to_dict())
    assert main(["evaluate", "other_tokens", "--config", "run.yaml"]) == 2
    assert "it was fitted to hidden states of size 4" in capsys.readouterr().err
    calibrator = TokenTemperature(2.0).to_dict()
    write_uncertainty("other_tokens", token_calibrator=calibrator, token_calibration={"weights": "00000000"})
    pipeline("other_tokens", device="cpu")
    assert "The token calibrator of other_tokens was fitted to other weights" in warnings_seen.text


def test_tokens_are_calibrated_by_default_where_there_are_rows_for_it(here, capsys, warnings_seen):
    shutil.copytree(MODEL, "default_tokens")
    words = ["calibrate", "default_tokens", "--config", "run.yaml"]
    assert main(words) == 0
    assert read_uncertainty("default_tokens")["token_calibration"]["rows"]["certify"] < ROWS
    assert "rows are left for thresholds" in warnings_seen.text
    text = "the cat sleeps ."
    ours = pipeline("default_tokens", device="cpu")(text)["uncertainty"]
    theirs = transformers_pipeline("text-uncertainty", model="default_tokens", dtype="float32", device="cpu")(text)[
        "uncertainty"
    ]
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert main([*words, "--max_eval_samples", "6"]) == 0
    assert "not calibrated: " in warnings_seen.text
    assert main([*words, "--max_eval_samples", "6", "--token_calibrator", "auto"]) == 0
    assert read_uncertainty("default_tokens").get("token_calibrator") is None
    assert UncertaintyCalibration.read("default_tokens").data["rows"] == 6
