import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from class_models import make_bert

from clue_hf.cli.main import main
from clue_hf.posthoc import LeastAmbiguousSets, ScaledIntervals, TemperatureCalibrator
from clue_hf.posthoc.error_predictor import halves


pytestmark = pytest.mark.usefixtures("without_pictures")
CONFIG = str(Path(__file__).parents[2] / "configs/quickstart/resnet_digits.yaml")
WORDS = ["compare", CONFIG, "--num_train_epochs", "1", "--max_train_samples", "256", "--max_eval_samples", "120",
         "--eval_strategy", "no", "--output_dir", "out", "--resamples", "40", "--disable_tqdm", "true"]  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_cells_are_run_once_and_the_table_is_the_same_after_an_interruption(here, capsys):
    words = [*WORDS, "--methods", "ce,clue,temperature,ensemble", "--seeds", "2", "--alpha", "0.5,0.9"]
    assert main(words) == 0
    first = Path("out/test.json").read_text()
    methods = json.loads(first)["methods"]
    assert list(methods) == ["ce", "clue:alpha=0.5", "clue:alpha=0.9", "ce + temperature", "ensemble of 2"]
    assert methods["ce + temperature"]["error"]["value"] == methods["ce"]["error"]["value"]
    assert "6 trainings, " in Path("out/test.md").read_text()
    for name in ("md", "tex", "csv"):
        assert "ensemble of 2" in Path(f"out/shifted.{name}").read_text()
    capsys.readouterr()

    kept = Path("out/cells/ce/seed-42/cell.json").stat().st_mtime_ns
    shutil.rmtree("out/cells/clue,alpha=0.9/seed-43/model")  # as if it had been killed on the way
    Path("out/cells/clue,alpha=0.9/seed-43/cell.json").unlink()
    assert main(words) == 0
    assert capsys.readouterr().out.count("already finished") == 5
    assert Path("out/cells/ce/seed-42/cell.json").stat().st_mtime_ns == kept
    again, before = (json.loads(text)["methods"] for text in (Path("out/test.json").read_text(), first))
    assert again == before


def test_prediction_sets_of_every_method(here, capsys):
    words = [*WORDS, "--methods", "ce,temperature,deup", "--seeds", "1", "--report_splits", "test"]
    assert main([*words, "--conformal", "lac", "--coverage", "0.8"]) == 0
    text = Path("out/test.md").read_text()
    assert "conformal coverage" in text
    assert "lac, fitted on half of the validation rows for a coverage of 0.8" in text
    methods = json.loads(Path("out/test.json").read_text())["methods"]
    outcomes = {view: dict(np.load(f"out/cells/ce/seed-42/{view}.npz")) for view in ("validation", "test")}
    known, new = (np.exp(outcomes[view]["log_probabilities"]) for view in ("validation", "test"))
    labels = outcomes["validation"]["labels"]
    fit, certify = halves(len(labels))
    temperature = TemperatureCalibrator.fit(known[fit], labels[fit])
    for name, mapped in {"ce": np.asarray, "ce + temperature": temperature, "ce + deup": np.asarray}.items():
        sets = LeastAmbiguousSets.fit(mapped(known[certify]), labels[certify], 0.8)(mapped(new))
        held = sets[np.arange(len(new)), outcomes["test"]["labels"]]
        assert methods[name]["conformal_coverage"]["value"] == pytest.approx(held.mean())
        assert methods[name]["prediction_set_size"]["value"] == pytest.approx(sets.sum(axis=1).mean())
    assert main([*words, "--conformal", "scaled"]) == 2
    assert "'scaled' is not supported for models that predict classes" in capsys.readouterr().err
    assert main(words) == 0  # without: as before
    assert "conformal_coverage" not in json.loads(Path("out/test.json").read_text())["methods"]["ce"]


def test_intervals_of_every_method_but_the_one_that_was_fitted_on_all_validation_rows(here):
    config = str(Path(CONFIG).with_name("tabular_diabetes.yaml"))
    words = ["compare", config, "--num_train_epochs", "2", "--output_dir", "out", "--resamples", "20", "--seeds", "1",
             "--disable_tqdm", "true", "--methods", "mse,quantile,deup", "--conformal", "scaled"]  # fmt: skip
    assert main(words) == 0
    methods = json.loads(Path("out/test.json").read_text())["methods"]
    outcomes = {view: dict(np.load(f"out/cells/mse/seed-42/{view}.npz")) for view in ("validation", "test")}
    _, certify = halves(len(outcomes["validation"]["labels"]))
    known = {name: values[certify] for name, values in outcomes["validation"].items()}
    intervals = ScaledIntervals.fit(known["mean"], known["variance"] ** 0.5, known["labels"], 0.9)
    low, high = intervals(outcomes["test"]["mean"], outcomes["test"]["variance"] ** 0.5)
    assert methods["mse"]["interval_width"]["value"] == pytest.approx((high - low).mean())
    held = (low <= outcomes["test"]["labels"]) & (outcomes["test"]["labels"] <= high)
    assert methods["mse"]["conformal_coverage"]["value"] == pytest.approx(held.mean())
    assert methods["mse + quantile"]["conformal_coverage"]["value"] is not None
    assert methods["mse + deup"]["conformal_coverage"]["value"] is None
    assert methods["mse + deup"]["mse"]["value"] is not None


@pytest.mark.pictures
def test_rows_that_were_left_out_are_told_in_the_tables(here):
    rows = [{"text": f"the cat {row}", "label": row % 2} for row in range(40)]
    lines = [json.dumps(row) for row in rows]
    lines[4] = '{"text": null, "label": 1}'
    Path("rows.jsonl").write_text("\n".join(lines) + "\n")
    make_bert(Path("model"))
    words = ["compare", "--model_name_or_path", "model", "--train_file", "rows.jsonl", "--task", "classification",
             "--on_bad_row", "skip", "--methods", "ce", "--seeds", "1", "--max_steps", "1", "--output_dir", "out",
             "--resamples", "5", "--disable_tqdm", "true", "--use_cpu", "true", "--save_strategy", "no"]  # fmt: skip
    assert main(words) == 0
    said = "train_file 'rows.jsonl': 1 of 40 rows skipped."
    assert said in Path("out/test.md").read_text()
    assert json.loads(Path("out/test.json").read_text())["left_out"] == [said]
    assert "rows skipped" in Path("out/comparison.html").read_text()
    assert "bad_rows" not in json.loads(Path("out/settings.json").read_text())["data"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "ce,cule"], "there is no objective 'cule'"),
        (["--methods", "ce,clue:learning_rate=1"], "'clue:learning_rate=1' must be like clue:alpha=0.5"),
        (["--methods", "ce,clue:alpha=2"], "alpha"),
        (["--methods", "ce,ce"], "names 'ce' twice"),
        (["--methods", "clue"], "The baseline 'ce' must be among the methods"),
        (["--alpha", "0.5,high"], "`alphas` must be numbers from 0 to 1, like 0.5,0.9, but there is 'high'"),
        (["--alphas", "0.5", "2"], "alpha"),
        (["--seeds", "0"], "`seeds` must be at least 1"),
    ],
)
def test_mistakes_are_explained(here, options, message, capsys):
    assert main([*WORDS, *options]) == 2
    assert message in capsys.readouterr().err
