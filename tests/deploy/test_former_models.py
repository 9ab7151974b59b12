"""
Models and reports that clue_hf 0.1.0 saved: they load, and answer as they did then. They are in
tests/fixtures/former, where record.py made them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard

import clue_hf
from clue_hf.evaluation import ClassificationReport, EvaluationReport, RegressionReport
from clue_hf.hub import write_card


FORMER = Path(__file__).resolve().parents[1] / "fixtures" / "former"
REPORT = "uncertainty_report"
CALIBRATED = ("seq2seq", "image_classifier", "table_regressor")
MODELS = (
    *CALIBRATED, "causal", "lora", "image_classifier_deup", "text_classifier", "table_regressor_deup",
    "text_regressor", "image_regressor",
)  # fmt: skip
#: Its evaluation and its pipeline did not agree: there is nothing to compare with.
INCONSISTENT = "table_regressor_quantile_deup"


def copy_of(name: str, place: Path) -> Path:
    """The folder of a model as its owner has it; that of an adapter names the folder of its base model."""
    folder = Path(shutil.copytree(FORMER / name, place / name))
    adapter = folder / "adapter_config.json"
    if adapter.exists():
        text = adapter.read_text(encoding="utf-8")
        assert '"__BASE__"' in text
        base = json.dumps(str(copy_of("causal", place)))
        adapter.write_text(text.replace('"__BASE__"', base), encoding="utf-8")
    return folder


def calls_of(name: str) -> list[dict[str, Any]]:
    """How the model was used, and what it answered."""
    return json.loads((FORMER / name / "answers.json").read_text(encoding="utf-8"))["calls"]


def inputs_of(call: dict[str, Any]) -> list[Any]:
    inputs = call["inputs"]
    return [np.array(image, np.uint8) for image in inputs["images"]] if isinstance(inputs, dict) else inputs


def assert_same(found: Any, recorded: Any) -> None:
    """Raises where answers are not those that were recorded. They may tell more."""
    if isinstance(recorded, dict):
        assert recorded.keys() <= found.keys()
        for key, value in recorded.items():
            assert_same(found[key], value)
    elif isinstance(recorded, list):
        assert len(found) == len(recorded)
        for one, other in zip(found, recorded, strict=True):
            assert_same(one, other)
    elif isinstance(recorded, float):
        assert found == pytest.approx(recorded, rel=1e-5, abs=1e-5)
    else:
        assert found == recorded


@pytest.mark.parametrize("name", MODELS)
def test_a_model_answers_as_it_did(name, tmp_path):
    folder, pipelines = copy_of(name, tmp_path), {}
    for call in calls_of(name):
        settings = json.dumps(call["settings"])
        if settings not in pipelines:
            pipelines[settings] = clue_hf.pipeline(str(folder), device="cpu", **call["settings"])
        assert_same(pipelines[settings](inputs_of(call), **call["options"]), call["answers"])


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_calibrated_model_is_the_one_that_was_calibrated(name, tmp_path, caplog):
    clue_hf.pipeline(str(copy_of(name, tmp_path)), device="cpu")
    told = [record.getMessage() for record in caplog.records if record.name.startswith("clue_hf")]
    assert told == []  # neither other weights nor other settings


def test_a_model_with_quantiles_and_predicted_errors_loads(tmp_path):
    [call] = calls_of(INCONSISTENT)
    assert call["inconsistent"]
    answers = clue_hf.pipeline(str(copy_of(INCONSISTENT, tmp_path)), device="cpu")(inputs_of(call))
    assert len(answers) == len(call["answers"])
    for answer, recorded in zip(answers, call["answers"], strict=True):
        assert recorded.keys() <= answer.keys()
        low, high = answer["interval"]
        assert low < answer["mean"] < high
        assert answer["std"] > 0


# ---- reports ----


def report_of(name: str) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """The folder of a report, its metrics, and its rows."""
    folder = FORMER / name / REPORT
    metrics = json.loads((folder / "report.json").read_text(encoding="utf-8"))["metrics"]
    rows = folder / ("examples.jsonl" if name == "seq2seq" else "predictions.jsonl")
    return folder, metrics, [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]


def test_a_report_about_texts_loads():
    folder, metrics, rows = report_of("seq2seq")
    report = EvaluationReport.load(folder)
    assert len(report.examples) == len(rows) == metrics["n"] == 40
    assert report.scorers == list(metrics["scorers"])
    np.testing.assert_allclose(report.quality(), [row["quality"] for row in rows])
    for scorer in report.scorers:
        np.testing.assert_allclose(report.uncertainty(scorer), [row["scores"][scorer] for row in rows])
    assert "embedded:phrases (test)" in report.summary()


def test_a_report_about_classes_loads():
    folder, metrics, rows = report_of("image_classifier")
    report = ClassificationReport.load(folder)
    assert len(rows) == metrics["n"] == 40
    assert report.names == [str(digit) for digit in range(10)]
    assert report.calibrator.name == "temperature"
    for predicted, found in ((report.raw, rows), (report.calibrated, [row["calibrated"] for row in rows])):
        np.testing.assert_allclose(predicted.probabilities, [row["probabilities"] for row in found], atol=1e-5)
        np.testing.assert_allclose(predicted.uncertainty, [row["uncertainty"] for row in found], atol=1e-5)
        np.testing.assert_array_equal(predicted.labels, [row["label"] for row in rows])
    assert "embedded:digits (test)" in report.summary()


def test_a_report_about_numbers_loads():
    folder, metrics, rows = report_of("table_regressor")
    report = RegressionReport.load(folder)
    assert len(rows) == metrics["n"] == 40
    assert report.calibrator.name == "quantile"
    for predicted, found in ((report.raw, rows), (report.calibrated, [row["calibrated"] for row in rows])):
        np.testing.assert_allclose(predicted.mean, [row["mean"] for row in found], rtol=1e-5)
        np.testing.assert_allclose(predicted.std, [row["std"] for row in found], rtol=1e-5)
        np.testing.assert_array_equal(predicted.target, [row["target"] for row in rows])
    assert "embedded:diabetes (test)" in report.summary()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("seq2seq", ("scorers", "perplexity", "prr")),
        ("image_classifier", ("calibrated", "ece")),
        ("table_regressor", ("raw", "mse")),
    ],
)
def test_a_card_is_written_from_a_report(name, place, tmp_path):
    entry = report_of(name)[1]
    for key in place:
        entry = entry[key]
    text = write_card(copy_of(name, tmp_path)).read_text(encoding="utf-8")
    listed = [(result.metric_type, result.metric_value) for result in ModelCard(text).data.eval_results]
    assert (place[-1], entry["value"]) in listed
    # beside it what it was compared with, or how it was trained
    assert ("seq2seq_ce" if name == "seq2seq" else "clue-hf train") in text
