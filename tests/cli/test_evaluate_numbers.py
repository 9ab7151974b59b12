import contextlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import make_model
from number_models import (
    TARGET,
    make_number_bert,
    make_number_vit,
    make_tabular,
    number_images,
    number_texts,
    train_tabular,
)
from processes import run_on_two_processes

from clue_hf.cli.main import main
from clue_hf.data.embedded.diabetes import load_diabetes_splits
from clue_hf.data.targets import TargetScale
from clue_hf.evaluation.numbers.evaluator import RegressionEvaluator
from clue_hf.evaluation.numbers.report import RegressionReport
from clue_hf.inputs.processing import load_processing_class
from clue_hf.models.ensemble import Ensemble
from clue_hf.models.kind import config_kind
from clue_hf.models.loading import load_config, load_regressor
from clue_hf.models.uncertainty_file import write_uncertainty
from clue_hf.posthoc import ErrorPredictor, QuantileCalibrator
from clue_hf.posthoc.error_predictor import halves


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models of tables, images and texts, with the YAML files of their trainings."""
    folder = tmp_path_factory.mktemp("regressors")
    for name, split in load_diabetes_splits().items():
        split.to_csv(folder / f"{name}.csv")
    (folder / "tables.yaml").write_text(
        "train_file: train.csv\nvalidation_file: validation.csv\ntest_file: test.csv\n"
        f"target_column: {TARGET}\ncategorical_columns: [sex]\nmodel_type: clue_tabular_resnet\nalpha: 0.9\n"
        "per_device_eval_batch_size: 64\n"
    )
    _, preprocessor = train_tabular(folder / "clue")
    train_tabular(folder / "mse", objective="mse", dropout=0.0, steps=10)
    make_number_vit(folder / "vit")
    make_number_bert(folder / "bert")
    for name, data in (("images", number_images()), ("texts", number_texts())):
        data.to_parquet(folder / f"{name}.parquet")
    _stored_model(folder, preprocessor)
    return folder


def _stored_model(folder, preprocessor):
    """A model that was saved with members and a calibrator, and one with a second model for its errors."""
    for number in range(2):
        member = make_tabular(preprocessor, seed=number)
        member.save_pretrained(folder / "stored" / (f"members/{number}" if number else ""))
    preprocessor.save_pretrained(folder / "stored")
    calibrator = QuantileCalibrator([-3.0, 0.5, 4.0], [0.2, 0.5, 0.8]).to_dict()
    write_uncertainty(folder / "stored", task="regression", mc_samples=3, members=["members/1"], calibrator=calibrator)
    make_tabular(preprocessor).save_pretrained(folder / "deup")
    preprocessor.save_pretrained(folder / "deup")
    second = make_tabular(preprocessor, seed=3)
    TargetScale(0.5, 0.1).store(second.config)
    second.save_pretrained(folder / "deup/error_predictor")
    write_uncertainty(
        folder / "deup", mc_samples=0, calibrator=calibrator, error_predictor={"folder": "error_predictor"}
    )


#: The pictures take longer than all else: they are drawn once, and then not, as without the extra `plots`.
PICTURES = "clue_hf.evaluation.numbers.plots"


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, PICTURES, None)
    return folder


OPTIONS = ["--config", "tables.yaml", "--resamples", "5"]
CLUE = ["evaluate", "clue", *OPTIONS]
VIT = ["evaluate", "vit", "--train_file", "images.parquet", "--test_file", "images.parquet", "--resamples", "5"]
BERT = ["evaluate", "bert", "--train_file", "texts.parquet", "--test_file", "texts.parquet", "--resamples", "5"]


def splits():
    return load_diabetes_splits()


def directly(name, mc_samples=None, model=None, **settings):
    """The evaluator on the model that the command takes."""
    model = load_regressor(name) if model is None else model
    settings = {"resamples": 5, "batch_size": 64, **settings}
    return RegressionEvaluator(model, load_processing_class(name, load_config(name)), mc_samples, **settings)


@pytest.fixture(scope="module")
def whole(folder):
    """The report of one command that asks for everything."""
    with contextlib.chdir(folder):
        assert main([*CLUE, "--calibrator", "quantile", "--compare", "mse", "--report_dir", "all"]) == 0
        return folder / "all"


def test_one_command_makes_the_whole_report(whole):
    content, summary = json.loads((whole / "report.json").read_text()), (whole / "summary.md").read_text()
    entry = content["metrics"]["raw"]["nll"]
    digits = 1 if entry["high"] >= 100 else 3  # of numbers of this size
    assert f"{entry['value']:.{digits}f} [{entry['low']:.{digits}f}, {entry['high']:.{digits}f}]" in summary
    for word in ("MSE", "ENCE", "AUSE", "corr(error, PE)", "coverage of 95 %", "clue minus mse"):
        assert word in summary
    assert content["description"]["data"] == "test.csv (test)"
    assert content["description"]["settings"]["mc_samples"] == 4  # as it was trained
    for name in ("predictions.jsonl", "report.html", "calibrator.json", "sparsification.png", "comparison.json",
                 "std_against_error.svg", "compared_with/report.json"):  # fmt: skip
        assert (whole / name).stat().st_size > 0
    plain = json.loads((whole / "compared_with/report.json").read_text())
    assert plain["description"]["settings"]["mc_samples"] == 0
    assert plain["metrics"]["clamped"] == plain["metrics"]["n"] == 88


def test_the_command_and_the_evaluator_agree(here, whole):
    report = directly("clue", 4, calibrator="quantile").evaluate(splits()["test"], splits()["validation"])
    assert json.loads((whole / "report.json").read_text())["metrics"] == json.loads(json.dumps(report.metrics))


def test_intervals_are_fitted_on_validation_rows_that_fitted_nothing_else(here, capsys):
    assert main([*CLUE, "--calibrator", "quantile", "--conformal", "scaled", "--report_dir", "intervals"]) == 0
    assert "scaled, fitted on 22 calibration rows" in capsys.readouterr().out
    known, new = (directly("clue", 4).evaluate(splits()[name]).raw for name in ("validation", "test"))
    fit, certify = halves(len(known))
    calibrator = QuantileCalibrator.fit(known.mean[fit], known.std[fit], known.target[fit])
    report = RegressionReport.load("intervals")
    for kind in ("raw", "calibrated"):
        one, two = (found if kind == "raw" else found.calibrated(calibrator) for found in (known, new))
        scores = np.sort(np.abs(one.target - one.mean)[certify] / one.std[certify])
        half = scores[int(np.ceil(0.9 * 23)) - 1] * two.std
        measured = report.metrics["conformal"][kind]
        assert measured["all"]["interval_width"]["value"] == pytest.approx(2 * half.mean(), rel=1e-6)
        held = np.abs(two.target - two.mean) <= half
        assert measured["all"]["conformal_coverage"]["value"] == pytest.approx(held.mean())
        assert measured["wide"]["conformal_coverage"]["value"] == pytest.approx(
            held[two.std > np.sort(two.std)[int(np.ceil(2 / 3 * 88)) - 1]].mean()
        )
        low, high = report.kinds[kind].conformal_interval()  # after a reload
        assert (high - low) / 2 == pytest.approx(half, rel=1e-6)
    line = json.loads(Path("intervals/predictions.jsonl").read_text().splitlines()[0])
    assert line["conformal_high"] - line["mean"] == pytest.approx(line["mean"] - line["conformal_low"])
    assert 'id="conformal"' in Path("intervals/report.html").read_text()
    assert report.summary() == Path("intervals/summary.md").read_text()


def test_what_was_saved_with_the_model_is_used(here, capsys):
    assert main(["evaluate", "stored", *OPTIONS]) == 0
    assert "stored/uncertainty_report" in capsys.readouterr().out
    found = RegressionReport.load("stored/uncertainty_report")
    assert found.calibrator == QuantileCalibrator([-3.0, 0.5, 4.0], [0.2, 0.5, 0.8])
    members = Ensemble([load_regressor("stored"), load_regressor("stored", subfolder="members/1")])
    expected = directly("stored", 3, members).evaluate(splits()["test"])
    assert found.raw.std == pytest.approx(expected.raw.std, rel=1e-6)
    assert main(["evaluate", "stored", *OPTIONS, "--mc_samples", "0", "--min_variance", "0.01"]) == 0
    found = RegressionReport.load("stored/uncertainty_report")
    plain = directly("stored", 0, members, min_variance=0.01).evaluate(splits()["test"])
    assert found.raw.std == pytest.approx(plain.raw.std, rel=1e-6)
    assert found.metrics["clamped"] == plain.metrics["clamped"] > 0


def test_a_second_model_gives_the_variance_and_its_own_calibrator(here):
    assert main(["evaluate", "deup", *OPTIONS, "--report_dir", "errors"]) == 0
    found = RegressionReport.load("errors")
    assert found.calibrated is None  # the saved one is for another variance
    second = ErrorPredictor(load_regressor("deup", subfolder="error_predictor"))
    expected = directly("deup", 0, error_predictor=second).evaluate(splits()["test"])
    assert found.raw.std == pytest.approx(expected.raw.std, rel=1e-6)
    assert np.ptp(found.raw.std) > 0


def test_images_and_texts(here):
    assert main([*VIT, "--target_column", "brightness", "--report_dir", "images"]) == 0
    assert RegressionReport.load("images").raw.target == pytest.approx(number_images()["brightness"][:])
    assert main([*BERT, "--mc_samples", "2", "--calibrator", "quantile", "--report_dir", "texts"]) == 0
    first = json.loads(Path("texts/predictions.jsonl").read_text().splitlines()[0])
    assert (first["text"], first["target"]) == ("a good film", number_texts()["score"][0])
    assert Path("texts/calibrator.json").exists()
    assert Path("texts/report.html").exists()
    assert not Path("texts/sparsification.png").exists()


@pytest.mark.distributed
def test_two_processes_report_the_same(here):
    words = [*CLUE, "--per_device_eval_batch_size", "16", "--calibrator", "quantile", "--report_dir", "two"]
    run_on_two_processes(words, "clue_hf.cli.evaluate", missing=PICTURES)
    two = RegressionReport.load("two")
    one = directly("clue", 4, batch_size=16, calibrator="quantile").evaluate(splits()["test"], splits()["validation"])
    assert two.raw.mean == pytest.approx(one.raw.mean, rel=1e-6)
    assert two.raw.std == pytest.approx(one.raw.std, rel=1e-5)
    for kind in ("raw", "calibrated"):
        for name, entry in one.metrics[kind].items():
            assert two.metrics[kind][name]["value"] == pytest.approx(entry["value"], rel=1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*CLUE, "--calibrator", "isotonic"], "'isotonic' is not supported for models that predict numbers"),
        ([*CLUE, "--calibrator", "magic"], "`calibrator` must be one of isotonic"),
        ([*CLUE, "--calibrator", "quantile", "--split", "validation"], "choose another --split"),
        ([*CLUE, "--split", "nowhere"], "'nowhere' is not in the data"),
        ([*CLUE, "--scorers", "msp"], "--scorers is for language models"),
        ([*CLUE, "--corruption", "fog"], "--corruption is for classifiers"),
        ([*CLUE, "--ood_split", "train"], "--ood_split is for classifiers"),
        ([*CLUE, "--binary_task", "3,8"], "--binary_task is for classifiers"),
        ([*CLUE, "--image_column", "age"], "--image_column is for images"),
        ([*BERT, "--image_column", "text"], "--image_column is for images"),
        ([*VIT, "--source_column", "image"], "--source_column is for texts"),
        ([*VIT, "--target_column", "brigtness"], "Did you mean 'brightness'?"),
        ([*CLUE, "--target_column", "bmi"], "was trained to predict 'progression'"),
        (
            [*CLUE, "--compare", "bert"],
            "bert is a regressor of texts, and cannot be compared with a regressor of tables",
        ),
        ([*CLUE, "--mc_samples", "-1"], "must not be negative"),
        ([*CLUE, "--min_variance", "0"], "must be above 0"),
        ([*CLUE, "--per_device_eval_batch_size", "0"], "at least 1"),
        (["evaluate", "mse", *OPTIONS, "--mc_samples", "2"], "no dropout"),
        ([*BERT, "--calibrator", "quantile", "--validation_fraction", "0"], "needs validation data"),
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
        ("calibrator", {"name": "quantile"}),
        ("calibrator", {"name": "temperature", "version": 1, "temperature": 2.0}),
        ("calibrator", {"name": "quantile", "version": 1, "scores": ["a"], "values": [0.5]}),
        ("calibrator", {"name": "quantile", "version": 1, "scores": [0.0, 1.0], "values": [0.5]}),
        ("calibrator", [1, 2]),
        ("error_predictor", {}),
        ("error_predictor", "error_predictor"),
        ("members", ["members/1", None]),
        ("mc_samples", -1),
    ],
)
def test_a_damaged_part_of_the_model_is_named(here, part, value, capsys):
    shutil.copytree("clue", "damaged", dirs_exist_ok=True)
    write_uncertainty("damaged", **{part: value})
    assert main(["evaluate", "damaged", *OPTIONS]) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith(f"clue-hf: error: {part!r} in uncertainty.json of 'damaged' is damaged")
    assert "Traceback" not in error
    shutil.rmtree("damaged")


def test_a_language_model_with_one_label_is_none(tmp_path):
    make_model("gpt2", num_labels=1).save_pretrained(tmp_path / "lm")
    assert config_kind(load_config(str(tmp_path / "lm"))).family == "text"
    make_number_bert(tmp_path / "bert")
    assert config_kind(load_config(str(tmp_path / "bert"))).task == "regression"


def test_a_test_file_alone_will_do(here):
    words = ["evaluate", "clue", "--target_column", TARGET, "--test_file", "test.csv", "--resamples", "5"]
    assert main([*words, "--report_dir", "alone"]) == 0
    assert (
        main([*words, "--train_file", "train.csv", "--validation_file", "validation.csv", "--report_dir", "two"]) == 0
    )
    alone, two = (Path(name, "predictions.jsonl").read_text() for name in ("alone", "two"))
    assert alone == two
