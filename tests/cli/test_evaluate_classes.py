import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from class_models import digit_splits, make_bert, make_vit, text_data, train_resnet
from processes import run_on_two_processes
from transformers import utils

from clue_hf.cli.main import main
from clue_hf.data.npz import load_ood_images
from clue_hf.evaluation.classes.evaluator import ClassificationEvaluator
from clue_hf.evaluation.classes.report import ClassificationReport
from clue_hf.experiments.arguments import parse_severities
from clue_hf.metrics import METRICS
from clue_hf.models.loading import load_classifier, load_image_processor
from clue_hf.models.uncertainty_file import write_uncertainty
from clue_hf.posthoc import LeastAmbiguousSets, TemperatureCalibrator
from clue_hf.posthoc.error_predictor import halves


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models for digits, for two of them, and for texts, with the YAML files of their trainings."""
    folder = tmp_path_factory.mktemp("classifiers")
    train_resnet(folder / "resnet")
    train_resnet(folder / "binary", "3,8", steps=4)
    make_vit(folder / "vit")
    make_bert(folder / "bert")
    (folder / "digits.yaml").write_text(
        "dataset_name: embedded:digits\nmodel_type: clue_resnet\nmodel_preset: resnet8\nmc_samples: 2\nalpha: 0.9\n"
        "per_device_eval_batch_size: 64\naugment: none\n"
    )
    text_data().to_json(folder / "texts.jsonl")
    (folder / "texts.yaml").write_text(
        "train_file: texts.jsonl\ntest_file: texts.jsonl\nvalidation_file: texts.jsonl\nlabel_column: label\n"
        "source_column: text\ntask: classification\nmax_source_length: 32\n"
    )
    np.savez(folder / "grey.npz", images=np.full((9, 8, 8), 100, np.uint8))
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


DIGITS = ["evaluate", "resnet", "--config", "digits.yaml", "--resamples", "5", "--max_eval_samples", "60"]
TEXTS = ["evaluate", "bert", "--config", "texts.yaml", "--resamples", "5"]


@pytest.fixture(scope="module")
def whole(folder):
    """The report of one command that asks for everything."""
    with contextlib.chdir(folder):
        words = [*DIGITS, "--calibrator", "isotonic", "--corruption", "gaussian_noise,contrast", "--severity", "1,5"]
        assert main([*words, "--ood_file", "grey.npz", "--compare", "vit", "--report_dir", "all"]) == 0
        return folder / "all"


def test_one_command_makes_the_whole_report(whole):
    content, summary = json.loads((whole / "report.json").read_text()), (whole / "summary.md").read_text()
    entry = content["metrics"]["raw"]["error"]
    assert f"{entry['value']:.3f} [{entry['low']:.3f}, {entry['high']:.3f}]" in summary
    for word in ("uAUC", "corr", "W1", "PRR", "ECE", "NLL", "contrast", "resnet minus vit"):
        assert word in summary
    assert content["description"]["settings"]["mc_samples"] == 2
    assert content["description"]["data"] == "embedded:digits (test)"
    assert content["metrics"]["ood"]["raw"]["ood_auroc"]["n"] == 60 + 9
    for name in ("predictions.jsonl", "summary.md", "report.html", "calibrator.json", "reliability.png",
                 "severity.svg", "wrongly_sure.png", "comparison.json", "compared_with/report.json"):  # fmt: skip
        assert (whole / name).stat().st_size > 0


def directly(**settings):
    """The evaluator on the rows that the command takes."""
    model, processor = load_classifier("resnet"), load_image_processor("resnet")
    return ClassificationEvaluator(model, processor, 2, resamples=5, **settings)


def test_the_command_and_the_evaluator_agree(here, whole):
    splits = {name: split.select(range(60)) for name, split in digit_splits().items()}
    report = directly(calibrator="isotonic", batch_size=64).evaluate(
        splits["test"], splits["validation"], ["gaussian_noise", "contrast"], [1, 5], load_ood_images("grey.npz")
    )
    assert json.loads((whole / "report.json").read_text())["metrics"] == json.loads(json.dumps(report.metrics))


@pytest.mark.usefixtures("without_pictures")
def test_prediction_sets_are_fitted_on_validation_rows_that_fitted_nothing_else(here, capsys):
    words = [*DIGITS, "--calibrator", "temperature", "--conformal", "lac", "--coverage", "0.8"]
    assert main([*words, "--report_dir", "sets"]) == 0
    summary = capsys.readouterr().out
    splits = {name: split.select(range(60)) for name, split in digit_splits().items()}
    known = directly(batch_size=64).evaluate(splits["validation"]).raw
    tested = directly(batch_size=64).evaluate(splits["test"]).raw
    fit, certify = halves(60)
    calibrator = TemperatureCalibrator.fit(known.probabilities[fit], known.labels[fit])
    content = json.loads(Path("sets/report.json").read_text())
    for kind, mapped in (("raw", np.asarray), ("calibrated", calibrator)):
        sets = LeastAmbiguousSets.fit(mapped(known.probabilities[certify]), known.labels[certify], 0.8)
        stored = content["description"]["conformal"][kind]
        assert stored == {**sets.to_dict(), "quantile": pytest.approx(sets.quantile, abs=1e-6)}
        held = sets(mapped(tested.probabilities))
        entries = content["metrics"]["conformal"][kind]
        entry = entries["all"]["conformal_coverage"]
        assert entry["value"] == pytest.approx(held[np.arange(60), tested.labels].mean())
        assert entry["n"] == 60
        assert entries["all"]["prediction_set_size"]["value"] == pytest.approx(held.sum(axis=1).mean())
        ones = held.sum(axis=1) == 1
        assert entries["1"]["group_share"]["value"] == pytest.approx(ones.mean())
        assert f"{entry['value']:.3f} [{entry['low']:.3f}, {entry['high']:.3f}]" in summary
    assert (
        content["description"]["metrics"]["prediction_set_size"]
        == METRICS["classes"]["prediction_set_size"].definition
    )
    assert "lac, fitted on 30 calibration rows" in summary
    assert 'id="conformal"' in Path("sets/report.html").read_text()
    first = json.loads(Path("sets/predictions.jsonl").read_text().splitlines()[0])
    assert first["prediction_set"][0] == first["prediction_name"]
    loaded = ClassificationReport.load("sets")
    assert loaded.summary() == Path("sets/summary.md").read_text()
    assert loaded.calibrated.conformal.quantile == content["description"]["conformal"]["calibrated"]["quantile"]


@pytest.mark.usefixtures("without_pictures")
def test_stored_prediction_sets_go_with_the_model_as_it_was_calibrated(here, capsys, caplog):
    shutil.copytree("resnet", "stored_sets")
    write_uncertainty("stored_sets", conformal=LeastAmbiguousSets(0.8, 0.9, 50).to_dict())
    words = ["evaluate", "stored_sets", *DIGITS[2:], "--report_dir", "stored_report"]
    assert main(words) == 0
    assert "lac, fitted on 50 calibration rows" in capsys.readouterr().out
    utils.logging.enable_propagation()
    try:
        assert main([*words, "--calibrator", "platt"]) == 0
        assert "they are left out" in caplog.text
        assert "conformal" not in json.loads(Path("stored_report/report.json").read_text())["metrics"]
        write_uncertainty("stored_sets", calibrator=TemperatureCalibrator(2.0).to_dict())
        assert main([*words, "--conformal", "aps"]) == 0
        assert "calibrator may have been fitted on the validation data too" in caplog.text
    finally:
        utils.logging.disable_propagation()


@pytest.mark.usefixtures("without_pictures")
def test_two_classes_have_their_flip(here, capsys):
    words = ["evaluate", "binary", "--config", "digits.yaml", "--resamples", "5", "--binary_task", "3,8"]
    assert main([*words, "--report_dir", "flipped"]) == 0
    printed = capsys.readouterr().out
    assert "error after flip" in printed
    assert "report.html" in printed
    report = ClassificationReport.load("flipped")
    assert report.description["positive_class"] == "3"
    assert report.metrics["raw"]["flip_error"]["n"] == len(digit_splits("3,8")["test"])


def test_texts_are_classified_too(here):
    assert main([*TEXTS, "--mc_samples", "3", "--calibrator", "platt", "--report_dir", "texts"]) == 0
    first = json.loads(Path("texts/predictions.jsonl").read_text().splitlines()[0])
    assert first["text"] == "a good film"
    assert first["label_name"] == "positive"
    assert not Path("texts/wrongly_sure.png").exists()


@pytest.mark.distributed
def test_two_processes_report_the_same(here):
    words = [*DIGITS, "--per_device_eval_batch_size", "16", "--report_dir", "two"]
    run_on_two_processes(words, "clue_hf.cli.evaluate", missing="clue_hf.evaluation.classes.plots")
    two = ClassificationReport.load("two")
    splits = {name: split.select(range(60)) for name, split in digit_splits().items()}
    one = directly(batch_size=16).evaluate(splits["test"], splits["validation"])
    assert two.raw.probabilities == pytest.approx(one.raw.probabilities, abs=2e-6)
    assert two.raw.labels.tolist() == one.raw.labels.tolist()
    for name, entry in one.metrics["raw"].items():
        assert two.metrics["raw"][name]["value"] == pytest.approx(entry["value"], abs=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*DIGITS, "--calibrator", "magic"], "`calibrator` must be one of isotonic"),
        ([*DIGITS, "--corruption", "gausian_noise"], "`corruption` must be among gaussian_noise"),
        ([*DIGITS, "--severity", "0-3"], "`severity` goes from 1 to 5"),
        ([*DIGITS, "--severity", "high"], "`severity` must be like"),
        ([*DIGITS, "--split", "nowhere"], "'nowhere' is not in the data"),
        ([*DIGITS, "--calibrator", "beta", "--split", "validation"], "choose another --split"),
        ([*DIGITS, "--conformal", "lac", "--split", "validation"], "--conformal is fitted on the validation split"),
        (
            [*DIGITS, "--conformal", "scaled"],
            "'scaled' is not supported for models that predict classes: use lac, aps",
        ),
        ([*DIGITS, "--conformal", "lac", "--coverage", "0.99"], "at least 99 are needed"),
        ([*DIGITS, "--coverage", "0.9"], "give `conformal` too"),
        ([*DIGITS, "--ood_split", "shifted", "--ood_file", "grey.npz"], "not both"),
        ([*DIGITS, "--ood_file", "nothing.npz"], "does not exist"),
        ([*DIGITS, "--binary_task", "3,8"], "needs a classifier of two classes"),
        ([*DIGITS, "--binary_task", "3,cat"], "must name one or two classes"),
        (
            [*DIGITS, "--compare", "bert"],
            "bert is a classifier of texts, and cannot be compared with a classifier of images",
        ),
        ([*DIGITS, "--scorers", "msp"], "--scorers is for language models"),
        ([*DIGITS, "--mc_samples", "-1"], "must not be negative"),
        ([*DIGITS, "--per_device_eval_batch_size", "0"], "at least 1"),
        (["evaluate", "vit", *DIGITS[2:], "--mc_samples", "2"], "no dropout"),
        ([*TEXTS, "--corruption", "fog"], "--corruption is for images"),
        ([*TEXTS, "--binary_task", "positive"], "--binary_task is for images"),
    ],
)
def test_mistakes_are_explained(here, words, message, capsys):
    assert main([*words, "--report_dir", "wrong"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("calibrator", {"name": "temperature"}),
        ("calibrator", {"name": "quantile", "version": 1, "scores": [0], "values": [1]}),
        ("calibrator", {"name": "temperature", "version": 1, "temperature": "hot"}),
        ("calibrator", {"name": "platt", "version": 1, "slopes": [1, 2], "intercepts": [1]}),
        ("calibrator", 7),
        ("error_predictor", {"folder": "error_predictor"}),
        ("error_predictor", {"normalizer": {"name": "error_normalizer", "version": 1, "low": 0, "high": 1}}),
        ("error_predictor", {"folder": 3, "normalizer": {}}),
        ("members", 3),
        ("conformal", {"name": "scaled", "version": 1, "coverage": 0.9, "quantile": 2.0, "n": 50}),
        ("conformal", {"name": "lac", "version": 1, "coverage": 0.9, "quantile": "high", "n": 50}),
    ],
)
def test_a_damaged_part_of_the_model_is_named(here, part, value, capsys):
    shutil.copytree("resnet", "damaged", dirs_exist_ok=True)
    write_uncertainty("damaged", **{part: value})
    assert main(["evaluate", "damaged", *DIGITS[2:]]) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith(f"clue-hf: error: {part!r} in uncertainty.json of 'damaged' is damaged")
    assert "Traceback" not in error
    shutil.rmtree("damaged")


def test_an_adapter_of_a_classifier_must_be_merged(here, capsys):
    Path("adapter").mkdir()
    Path("adapter/adapter_config.json").write_text('{"base_model_name_or_path": "bert"}')
    assert main(["evaluate", "adapter", *TEXTS[2:]]) == 2
    assert "'adapter' is an adapter of a model that writes no texts: merge the two" in capsys.readouterr().err


def test_options_of_classifiers_are_refused_by_language_models(here, capsys):
    model = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"
    assert main(["evaluate", str(model), "--dataset_name", "embedded:phrases", "--calibrator", "beta"]) == 2
    assert "--calibrator is for classifiers" in capsys.readouterr().err
    assert main(["evaluate", str(model), "--dataset_name", "embedded:phrases", "--conformal", "lac"]) == 2
    assert "conformal is not supported for language models" in capsys.readouterr().err


def test_severities_are_numbers_ranges_or_lists():
    assert parse_severities("3") == [3]
    assert parse_severities("2-4") == [2, 3, 4]
    assert parse_severities("5,1, 1-2") == [1, 2, 5]


@pytest.mark.usefixtures("without_pictures")
def test_a_test_file_alone_will_do(here):
    """Of some classes only: their names say which they are."""
    rows = list(map(json.loads, Path("texts.jsonl").read_text().splitlines()))
    few = [row for row in rows if row["label"] == rows[0]["label"]]
    Path("few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in few))
    for name, file in (("both", "texts.jsonl"), ("alone", "few.jsonl")):
        training = ["--train_file", "texts.jsonl"] if name == "both" else []
        words = ["--test_file", file, *training, "--source_column", "text", "--label_column", "label"]
        assert main(["evaluate", "bert", *words, "--resamples", "5", "--report_dir", name]) == 0
    both, alone = (
        [json.loads(line) for line in Path(name, "predictions.jsonl").read_text().splitlines()]
        for name in ("both", "alone")
    )
    assert [line["label"] for line in alone] == [line["label"] for line in both if line["label"] == both[0]["label"]]
