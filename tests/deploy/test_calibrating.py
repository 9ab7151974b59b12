"""`clue_hf.calibrate` is `clue-hf calibrate` in Python."""

import json
import shutil
from pathlib import Path

import pytest
from datasets import Dataset

from clue_hf import UserError, calibrate, pipeline
from clue_hf.cli.main import main
from clue_hf.data.embedded.phrases import phrase_rows


MODEL = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"


@pytest.fixture(scope="module")
def rows():
    return [{"en": row["source"], "fr": row["target"]} for row in phrase_rows("validation", 40)]


def without_data_name(folder):
    content = json.loads((folder / "uncertainty.json").read_text())
    content["data"].pop("name")
    return content


def test_it_writes_what_the_command_writes(rows, tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = {"source_column": "en", "target_column": "fr", "max_target_length": 8, "token_calibrator": "none"}
    options = [word for name, value in common.items() for word in (f"--{name}", str(value))]
    file = ["--validation_file", str(tmp_path / "rows.jsonl"), "--risks", "0.4,0.8"]
    assert main(["calibrate", str(MODEL), *file, *options, "--output_dir", str(tmp_path / "command")]) == 0

    copy = str(tmp_path / "copy")
    calibration = calibrate(str(MODEL), rows, copy, risks=[0.4, 0.8], **common)
    assert without_data_name(tmp_path / "copy") == without_data_name(tmp_path / "command")
    assert calibration.data["rows"] == len(rows)
    answer = pipeline(copy)(rows[0]["en"], abstain_at_risk=0.8)
    assert answer["abstain"] is not None
    assert 0 <= answer["confidence"] <= 1

    shutil.copytree(MODEL, tmp_path / "in_place")
    calibrate(str(tmp_path / "in_place"), Dataset.from_list(rows[:20]), **common)
    assert without_data_name(tmp_path / "in_place")["data"]["rows"] == 20


def test_a_setting_that_does_not_exist_names_the_nearest(rows, tmp_path):
    with pytest.raises(UserError, match="no setting 'qualty'. Did you mean 'quality'"):
        calibrate(str(MODEL), rows, str(tmp_path / "model"), qualty="chrf")
