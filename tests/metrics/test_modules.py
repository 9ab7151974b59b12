"""The metrics as modules of `evaluate`, loaded in a process with an empty home and no network."""

import json
import os
import subprocess
import sys

import pytest

from clue_hf.metrics import (
    alignment_error,
    confidence_calibration_error,
    module_path,
    prediction_rejection_ratio,
    rejection_report,
)


UNCERTAINTY = [0.3, 0.9, 0.1, 0.55, 0.7, 0.7, 0.2]
QUALITY = [0.8, 0.1, 0.6, 0.75, 0.0, 0.3, 1.0]
CORRECT = [1, 0, 1, 1, 0, 0, 1]

SCRIPT = """
import json, socket, sys

asked = []
def refuse(*arguments, **options):
    asked.append(str(arguments))
    raise OSError("no network here")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse

import evaluate
from clue_hf.metrics import module_path

uncertainty, quality, correct = json.load(sys.stdin)
load = lambda name, **options: evaluate.load(module_path(name), **options)
found = {}

ratio = load("prediction_rejection_ratio")
found["ratio"] = ratio.compute(predictions=uncertainty, references=quality)
found["half"] = ratio.compute(predictions=uncertainty, references=quality, max_rejection=0.5)
found["drop"] = ratio.compute(predictions=[float("nan"), *uncertainty[1:]], references=quality, nan_policy="drop")
found["alignment"] = load("alignment_error").compute(predictions=uncertainty, references=quality, num_bins=3)
found["confidence"] = load("confidence_calibration_error").compute(predictions=uncertainty, references=correct)

report = load("rejection")
for start in range(0, len(quality), 3):
    report.add_batch(predictions=uncertainty[start : start + 3], references=quality[start : start + 3])
found["batches"] = report.compute(resamples=20)
for u, q in zip(uncertainty, quality):
    report.add(prediction=u, reference=q)
found["one by one"] = report.compute()

both = evaluate.combine([module_path("prediction_rejection_ratio"), module_path("rejection")])
found["combined"] = both.compute(predictions=uncertainty, references=quality)
found["texts"] = [ratio.name, ratio.description, ratio.citation, ratio.inputs_description]
found["types"] = [feature.dtype for feature in ratio.features.values()]
found["asked"] = asked
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**kept, "HOME": str(home), "HF_HOME": str(home / "hf")},
        input=json.dumps([UNCERTAINTY, QUALITY, CORRECT]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert list(home.glob("hf/modules/evaluate_modules/metrics/rejection/*/rejection.py"))
    return json.loads(done.stdout.splitlines()[-1])


def test_values_are_those_of_the_functions(found):
    assert found["ratio"] == {"prediction_rejection_ratio": prediction_rejection_ratio(UNCERTAINTY, QUALITY)}
    assert found["half"] == {"prediction_rejection_ratio": prediction_rejection_ratio(UNCERTAINTY, QUALITY, 0.5)}
    assert found["drop"] == {"prediction_rejection_ratio": prediction_rejection_ratio(UNCERTAINTY[1:], QUALITY[1:])}
    assert found["alignment"] == {"alignment_error": alignment_error(QUALITY, UNCERTAINTY, num_bins=3)}
    expected = confidence_calibration_error(UNCERTAINTY, CORRECT)
    assert found["confidence"] == {"confidence_calibration_error": expected}


def test_the_report_comes_from_batches_or_single_rows(found):
    report = rejection_report(UNCERTAINTY, QUALITY, resamples=20)
    values = {name: entry["value"] for name, entry in report.items()}
    assert found["one by one"] == values
    ends = {f"{name}_{end}": entry[end] for name, entry in report.items() for end in ("low", "high")}
    assert found["batches"] == {**values, **ends}


def test_modules_combine(found):
    assert found["combined"] == {**found["ratio"], **found["one by one"]}


def test_they_say_what_they_are_and_ask_nobody(found):
    name, description, citation, inputs = found["texts"]
    assert name == "prediction_rejection_ratio"
    assert "gain from rejecting" in description
    assert "Learning Uncertainty-Error alignment" in citation
    assert "nan_policy" in inputs
    assert found["types"] == ["float64", "float64"]
    assert found["asked"] == []


def test_an_unknown_module_is_named():
    with pytest.raises(ValueError, match="prediction_rejection_ratio"):
        module_path("prediction_rejection")
