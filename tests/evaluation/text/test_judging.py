"""Outputs that are judged by a column of the data, by right or wrong, or by functions from elsewhere."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from clue_hf import EvaluationReport, UncertaintyEvaluator
from clue_hf.cli.main import main
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.errors import UserError
from clue_hf.hub.card_results import card_metrics


pytestmark = pytest.mark.usefixtures("without_pictures")
PICTURES = "clue_hf.evaluation.text.plots"
MODEL = Path(__file__).parents[2] / "fixtures/lm_polygraph/model"
ROWS = [
    {**row, "right": number % 3 > 0, "score": number % 5 / 4} for number, row in enumerate(phrase_rows("test", 20))
]


@pytest.fixture(scope="module")
def parts():
    return AutoModelForSeq2SeqLM.from_pretrained(MODEL, dtype="float32"), AutoTokenizer.from_pretrained(MODEL)


def evaluate(parts, rows, **settings):
    settings = {"max_new_tokens": 8, "resamples": 20, "scorers": ["msp", "perplexity"], **settings}
    return UncertaintyEvaluator(*parts, **settings).evaluate(rows)


@pytest.fixture(scope="module")
def right(parts):
    return evaluate(parts, ROWS, quality=["column:right", "bleu", "column:score"])


def test_verdicts_of_the_data_are_the_quality(right):
    assert right.quality().tolist() == [float(row["right"]) for row in ROWS]
    assert right.examples[3]["qualities"]["column:score"] == 3 / 4
    entries = right.metrics["quality"]
    assert entries["column:right"]["corpus"].value == pytest.approx(100 * right.quality().mean())
    assert right.description["quality"]["column:right"] == "column 'right' of the data"
    assert list(right.metrics["other_qualities"]) == ["bleu", "column:score"]
    assert "Judged by column:right" in right.summary()


def test_right_or_wrong_adds_metrics_to_report_table_page_and_card(right, parts, tmp_path):
    for name, metrics in right.metrics["scorers"].items():
        expected = roc_auc_score(1 - right.quality(), right.uncertainty(name))
        assert metrics["auroc"].value == pytest.approx(expected)
        assert metrics["auroc"].low <= expected <= metrics["auroc"].high
        confidence = right.confidence(name)
        assert metrics["confidence_brier"].value == pytest.approx(np.mean((confidence - right.quality()) ** 2))
    headings = ("AUROC", "AUPR", "confidence Brier", "confidence ECE")
    assert all(heading in right.table() for heading in headings)
    assert {"auroc", "aupr", "confidence_brier"} <= right.description["metrics"].keys()
    right.save(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert all(f">{heading} " in page for heading in headings)
    labels = {metric.label for metric in card_metrics(EvaluationReport.load(tmp_path))}
    assert labels.issuperset(headings)
    other = evaluate(parts, ROWS, quality="column:score")
    assert "auroc" not in other.metrics["scorers"]["msp"]
    assert "AUROC" not in other.table()
    assert "AUROC" not in other.summary()


def test_another_quality_that_is_right_or_wrong_is_reported_as_well(right, parts):
    both = evaluate(parts, ROWS, quality=["column:score", "column:right"])
    mine, main = both.metrics["other_qualities"]["column:right"], right.metrics["scorers"]
    assert mine["msp"]["auroc"] == main["msp"]["auroc"]
    assert both.table("column:right") == right.table()
    assert "Judged by column:right, right or wrong:\n\n" + right.table() in both.summary()


@pytest.mark.parametrize("value", [None, 1.5, -0.1, "yes", float("nan"), [1]])
def test_a_verdict_that_is_none_names_its_row(parts, value):
    rows = [dict(row) for row in ROWS]
    rows[7]["right"] = value
    with pytest.raises(
        UserError, match=r"quality_column 'right': row 7 \(counted from 0\) has .*from 0 to 1 is needed"
    ):
        evaluate(parts, rows, quality="column:right")
    with pytest.raises(UserError, match="quality_column 'wright' is not in the data"):
        evaluate(parts, ROWS, quality="column:wright")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(MODEL, "model")
    rows = [dict(row) for row in ROWS]
    rows[4]["score"] = 4
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


OPTIONS = ["--max_target_length", "8", "--test_file", "rows.jsonl", "--split", "test"]


def test_the_commands_take_a_column(here, capsys):
    words = ["evaluate", "model", *OPTIONS, "--resamples", "5", "--scorers", "msp", "--report_dir", "report"]
    assert main([*words, "--quality_column", "score"]) == 2
    assert "quality_column 'score': row 4 (counted from 0) has 4" in capsys.readouterr().err
    assert main([*words, "--quality_column", "score", "--on_bad_row", "skip"]) == 0
    assert "(test, 1 of 20 rows skipped): 19 outputs" in capsys.readouterr().out
    assert main([*words, "--quality_column", "right", "--quality", "chrf"]) == 0
    assert list(EvaluationReport.load("report").metrics["quality"]) == ["column:right", "chrf"]
    assert main(["calibrate", "model", *OPTIONS, "--quality_column", "right", "--token_calibrator", "none"]) == 0
    stored = json.loads(Path("model/uncertainty.json").read_text())
    assert "column 'right' of the data" in stored["definitions"]["quality"]
    assert np.mean([row["right"] for row in ROWS]) == pytest.approx(np.mean(stored["confidence"]["quality"]), abs=0.4)


def test_an_own_function_judges(here, capsys):
    Path("short_judge.py").write_text(
        "def short(texts, references):\n    '''1 where a text is short.'''\n    return [len(t) < 30 for t in texts]\n"
    )
    words = ["evaluate", "model", *OPTIONS, "--resamples", "5", "--scorers", "msp", "--report_dir", "report"]
    assert main([*words, "--quality", "short_judge:short"]) == 0
    report = EvaluationReport.load("report")
    assert report.quality().tolist() == [float(len(example["output"]) < 30) for example in report.examples]
    assert "1 where a text is short" in capsys.readouterr().out
