import json
from pathlib import Path

import pytest

from clue_hf import pipeline
from clue_hf.cli.main import main


pytestmark = pytest.mark.usefixtures("without_pictures")
SMALL = [
    "--max_steps", "2", "--eval_strategy", "no", "--max_train_samples", "64", "--max_eval_samples", "20",
    "--report_splits", "test", "--config_overrides", "d_model=16,d_kv=8,d_ff=16,num_layers=1,num_heads=2",
    "--max_target_length", "8", "--use_cpu", "true",
]  # fmt: skip


def test_from_nothing_to_a_pipeline_that_abstains(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["quickstart", *SMALL, "--output_dir", "small", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["train"]["models"] == {"ce": "small/ce", "clue": "small/clue"}
    assert [row["split"] for row in result["train"]["rows"]] == ["test"] * len(result["train"]["rows"])
    assert result["evaluate"]["metrics"]["n"] == 20
    assert result["evaluate"]["description"]["generation"]["max_new_tokens"] == 8
    assert result["evaluate"]["comparison"].keys() == result["evaluate"]["metrics"]["scorers"].keys()
    assert result["calibrate"]["output_dir"] == "small/clue"
    assert Path("small/uncertainty/report.html").is_file()
    # what is printed on the way can be typed again
    assert "Step 1 of 3: clue-hf train quickstart/t5_phrases --max_steps 2" in err
    assert "Step 2 of 3: clue-hf evaluate small/clue --config quickstart/t5_phrases" in err
    assert "Step 3 of 3: clue-hf calibrate small/clue --config quickstart/t5_phrases" in err
    assert "--max_steps" not in err.split("Step 2 of 3")[1].splitlines()[0]
    answer = pipeline("small/clue", device="cpu")("the cat sleeps .", abstain_at_risk=0.05)
    assert answer["abstain"] is True  # nothing is certified for a model that has learned nothing


def test_mistakes_are_told_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["quickstart", "--alhpa", "1"]) == 2
    assert "There is no option --alhpa. Did you mean 'alpha'?" in capsys.readouterr().err
    assert main(["quickstart", "--report_dir", "x"]) == 2
    assert "There is no option --report_dir" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
