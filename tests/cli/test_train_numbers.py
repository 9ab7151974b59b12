"""The command on tables, as users run it, mistakes included."""

import json
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from classifiers import BAD, GOOD, image_rows, make_processor, make_text_classifier, make_vit

from clue_hf.cli.main import main


pytestmark = pytest.mark.usefixtures("without_pictures")
ROOT = Path(__file__).parents[2]
QUICKSTART = str(ROOT / "configs/quickstart/tabular_diabetes.yaml")
BOSTON = str(ROOT / "configs/boston.yaml")
QUICK = ["--num_train_epochs", "3", "--disable_tqdm", "true", "--output_dir", "out", "--save_strategy", "no"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a table: a time, a category, numbers, a hole, and a target in the thousands."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    rows = 160
    size, colour = generator.normal(size=rows), generator.choice(["red", "green"], rows)
    frame = pd.DataFrame(
        {
            "size": size,
            "colour": colour,
            "bought": pd.date_range("2024-01-01", periods=rows, freq="7h").astype(str),
            "price": 5000 + 1000 * size + 500 * (colour == "red") + 100 * generator.normal(size=rows),
        }
    )
    frame.loc[3, "size"] = None
    frame.to_csv("table.csv", index=False)
    return frame


def rows_of(path="out"):
    return json.loads(Path(path, "results.json").read_text())["rows"]


@pytest.mark.pictures
def test_the_quickstart_with_all_that_follows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    after = ["--calibrator", "quantile", "--ensemble", "2", "--error_predictor", "deup"]
    assert main(["train", QUICKSTART, *QUICK, *after]) == 0
    rows = rows_of()
    names = [row["objective"] for row in rows]
    assert names == [f"{name} x 2{more}" for name in ("mse", "clue") for more in ("", " + deup", " + deup + quantile")]
    assert all(row["mse"] > 100 for row in rows), "in the units of the target"
    assert rows[0]["mse"] == rows[1]["mse"]
    stored = json.loads(Path("out/clue/uncertainty.json").read_text())
    assert (stored["task"], stored["mc_samples"], stored["members"]) == ("regression", 20, ["members/1"])
    assert stored["calibrator"]["name"] == "quantile"
    assert Path("out/clue/table_preprocessor.json").exists()
    assert "Target 'progression'" in capsys.readouterr().out


def test_a_table_of_ones_own(here, capsys):
    words = ["train", BOSTON, "--train_file", "table.csv", "--target_column", "price", *QUICK, "--plain_epochs", "1"]
    assert main([*words, "--num_train_epochs", "20", "--learning_rate", "0.01"]) == 0
    told = capsys.readouterr().out
    assert "'size'" in told  # the hole is counted
    [row] = rows_of()
    assert row["mse"] < here["price"].var()


def test_a_trained_model_is_trained_on(here):
    words = ["train", BOSTON, "--train_file", "table.csv", "--target_column", "price", *QUICK]
    assert main([*words, "--objective", "mse", "--plain_epochs", "0"]) == 0
    first = rows_of()[0]["mse"]
    again = [*words, "--output_dir", "more", "--model_name_or_path", "out", "--plain_epochs", "0"]
    assert main([*again, "--learning_rate", "1e-9"]) == 0
    assert rows_of("more")[0]["mse"] == pytest.approx(first, rel=0.1)


@pytest.mark.parametrize("objective", ["nll", "mse_pe", "crps", "beta_nll"])
def test_other_objectives(here, objective):
    words = ["train", BOSTON, "--train_file", "table.csv", "--target_column", "price", *QUICK]
    assert main([*words, "--objective", objective, "--plain_epochs", "1", "--mc_samples", "3"]) == 0
    assert np.isfinite(rows_of()[0]["nll"])
    has_head = json.loads(Path("out/config.json").read_text())["variance_head"]
    assert has_head == (objective != "mse_pe")


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda table: table, ["--target_column", "prize"], "Did you mean 'price'"),
        (lambda table: table, ["--target_column", "colour"], "colour"),
        (lambda table: table.assign(price=1.0), [], "price"),
        (lambda table: table.assign(size=np.inf), [], "size"),
        (lambda table: table.head(1), [], ""),
        (lambda table: table[["price"]], [], "no column left"),
        (lambda table: table, ["--objective", "ce"], "'ce' is not for regression"),
        (
            lambda table: table,
            ["--calibrator", "isotonic"],
            "'isotonic' is not supported for models that predict numbers",
        ),
        (lambda table: table, ["--mc_samples", "1"], "needs a variance"),
        (lambda table: table, ["--config_overrides", "width=3"], "'width' is not a setting"),
    ],
)
def test_mistakes_are_explained(here, change, options, message, capsys):
    change(here).to_csv("table.csv", index=False)
    words = ["train", BOSTON, "--train_file", "table.csv", "--target_column", "price", *QUICK, *options]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told


def test_a_column_named_twice_is_an_error(here, capsys):
    text = Path("table.csv").read_text().replace("bought", "size", 1)
    Path("table.csv").write_text(text)
    assert main(["train", BOSTON, "--train_file", "table.csv", "--target_column", "price", *QUICK]) == 2
    assert "size" in capsys.readouterr().err


def test_a_comparison(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    methods = "mse,clue,nll:plain_epochs=0,clue:mc_samples=3,beta_nll:nll_beta=1,crps,quantile,ensemble,deup"
    words = ["compare", QUICKSTART, *QUICK, "--plain_epochs", "1", "--seeds", "2", "--resamples", "30"]
    assert main([*words, "--methods", methods]) == 0
    found = json.loads(Path("out/test.json").read_text())["methods"]
    objectives = ["mse", "clue", "nll:plain_epochs=0", "clue:mc_samples=3", "beta_nll:nll_beta=1", "crps"]
    assert list(found) == [*objectives, "mse + deup", "mse + quantile", "ensemble of 2"]
    assert found["mse + deup"]["mse"] == found["mse"]["mse"] or (
        found["mse + deup"]["mse"]["value"] == found["mse"]["mse"]["value"]
    )
    # one plain start per seed, for all but the one that does without
    assert sorted(path.name for path in Path("out/cells").iterdir() if "plain" in path.name and "," not in path.name)
    assert Path("out/cells/plain/seed-42/cell.json").exists()


def test_texts_and_images_with_a_number(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, tokenizer = make_text_classifier()
    model.save_pretrained("bert")
    tokenizer.save_pretrained("bert")
    make_vit().save_pretrained("vit")
    make_processor().save_pretrained("vit")
    texts = [(text, 5.0) for text in GOOD] + [(text, 1.0) for text in BAD]
    pd.DataFrame(texts * 5, columns=["text", "stars"]).to_json("texts.jsonl", orient="records", lines=True)
    images, classes = image_rows(40)
    rows = datasets.Dataset.from_dict(
        {"image": images, "size": 10.0 * classes},
        datasets.Features({"image": datasets.Array3D((8, 8, 3), "uint8"), "size": datasets.Value("float64")}),
    )
    rows.to_parquet("images.parquet")
    shared = [*QUICK, "--task", "regression", "--test_fraction", "0.2", "--validation_fraction", "0.2", "--use_cpu",
              "true", "--mc_samples", "3", "--calibrator", "quantile", "--error_predictor", "deup"]  # fmt: skip
    for name, file, target in (("bert", "texts.jsonl", "stars"), ("vit", "images.parquet", "size")):
        own = [
            "--model_name_or_path",
            name,
            "--train_file",
            file,
            "--target_column",
            target,
            "--output_dir",
            f"{name}-out",
        ]
        assert main(["train", *shared, *own, "--dropout", "0.2"]) == 0
        found = rows_of(f"{name}-out")
        assert [row["objective"] for row in found] == ["clue", "clue + deup", "clue + deup + quantile"]
        assert all(np.isfinite(row["mse"]) for row in found)
        words = ["evaluate", f"{name}-out", "--train_file", file, "--target_column", target, "--test_fraction", "0.2"]
        assert main([*words, "--validation_fraction", "0.2", "--resamples", "0", "--report_dir", "report"]) == 0
