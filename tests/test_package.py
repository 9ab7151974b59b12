import json
import subprocess
import sys

import pytest

from clue_hf.metrics import METRICS, metric_definitions, regression_report


LOADED = """
import json, sys, clue_hf
loaded = [list(sys.modules)]
for name in ("functional.clue_loss", "CLUETrainer", "UncertaintyEvaluator"):
    eval(f"clue_hf.{name}")
    loaded.append(list(sys.modules))
print(json.dumps(loaded))
"""
#: What a process that only reads files runs: commands, then the modules that they loaded.
COMMANDS = """
import json, sys
from clue_hf.cli.main import main
codes = [main(arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([codes, list(sys.modules)]))
"""


@pytest.fixture(scope="module")
def loaded():
    """The modules after importing the package, after using a function of it, the trainer, and the evaluator."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    return [set(names) for names in json.loads(done.stdout)]


def test_importing_the_package_loads_nothing_heavy(loaded):
    assert not {"torch", "transformers", "datasets", "matplotlib", "peft"} & loaded[0]
    assert "torch" in loaded[1]


def test_the_trainer_does_not_need_the_extras(loaded):
    assert not {"matplotlib", "gradio", "tensorboard", "sacrebleu"} & loaded[2]


def test_evaluating_loads_nothing_that_only_some_reports_need(loaded):
    heavy = {"matplotlib", "gradio", "sacrebleu", "rouge_score", "nltk", "sklearn", "evaluate"}
    assert not (heavy | {"scipy.stats", "scipy.ndimage", "scipy.signal"}) & loaded[3]


def test_commands_that_read_files_do_without_torch(tmp_path):
    rows = [{"uncertainty": number / 10, "quality": 1 - number % 3 / 2} for number in range(10)]
    scores, model = tmp_path / "scores.jsonl", tmp_path / "model"
    scores.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (model / "uncertainty_report").mkdir(parents=True)
    (model / "config.json").write_text('{"architectures": ["CLUETabularResNetForRegression"], "model_type": "t"}')
    raw = regression_report([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [0.5, 0.5, 4.0], resamples=5)
    description = {"data": "taxi.csv (test)", "metrics": metric_definitions(METRICS["numbers"], "numbers")}
    report = {"metrics": {"n": 3, "raw": raw}, "description": description}
    (model / "uncertainty_report/report.json").write_text(json.dumps(report))
    commands = [["--help"], ["score", "--file", str(scores)], ["card", str(model)]]
    program = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    codes, modules = json.loads(done.stdout.splitlines()[-1])
    assert codes == [0, 0, 0], done.stderr
    assert (model / "README.md").exists()
    assert not {"torch", "accelerate", "peft", "sklearn", "scipy.stats", "matplotlib"} & set(modules)


def test_public_names():
    import clue_hf

    assert {"CLUEConfig", "CLUETrainer", "functional", "objectives"} <= set(dir(clue_hf))
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = clue_hf.nothing_here
