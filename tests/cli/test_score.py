import json
from pathlib import Path

import numpy as np
import pytest

from clue_hf.cli.main import main
from clue_hf.metrics import metric_info, prediction_rejection_ratio, rejection_report


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    quality = generator.uniform(0, 1, 60)
    rows = [
        {
            "scores": {"good": float(1 - q + 0.1 * generator.normal()), "random": float(generator.normal())},
            "bleu": float(q),
        }
        for q in quality
    ]
    Path("rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return rows


def test_the_ratio_is_that_of_the_metric(here, capsys):
    words = ["score", "--file", "rows.jsonl", "--uncertainty_columns", "scores.good", "scores.random"]
    assert main([*words, "--quality_column", "bleu", "--resamples", "200", "--output", "out.json"]) == 0
    written = json.loads(Path("out.json").read_text())
    found = written["scores"]
    assert written["definitions"].keys() == found["scores.good"]["metrics"].keys()
    assert written["definitions"]["prr_0.5"] == metric_info("prr_0.5").definition
    quality = [row["bleu"] for row in here]
    for name in ("good", "random"):
        report = found[f"scores.{name}"]
        value = report["metrics"]["prr"]["value"]
        assert value == pytest.approx(prediction_rejection_ratio([row["scores"][name] for row in here], quality))
        for metric, entry in report["metrics"].items():
            assert entry["low"] <= entry["value"] <= entry["high"], metric
            assert entry["n"] == report["n"] == 60
    assert found["scores.good"]["metrics"]["prr"]["value"] > 0.7
    ratio = found["scores.good"]["metrics"]["prr"]
    cell = f"{ratio['value']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
    assert f"| scores.good   | 60 | {cell}" in capsys.readouterr().out


def test_rows_without_a_number(here, capsys):
    lines = [json.dumps({"uncertainty": None if i == 3 else i, "quality": -i}) for i in range(10)]
    Path("gaps.jsonl").write_text("\n".join(lines) + "\n")
    words = ["score", "--file", "gaps.jsonl", "--resamples", "0", "--output", "out.json"]
    assert main(words) == 2
    assert "row 3" in capsys.readouterr().err
    uncertainty, quality = [np.nan if i == 3 else i for i in range(10)], [-i for i in range(10)]
    for policy, n in (("drop", 9), ("reject_last", 10)):
        assert main([*words, "--nan_policy", policy]) == 0
        report = json.loads(Path("out.json").read_text())["scores"]["uncertainty"]
        assert (report["n"], report["not_finite"]) == (n, 1)
        assert report["metrics"] == rejection_report(uncertainty, quality, nan_policy=policy)
    assert "aurc is not defined: a quality lies outside [0, 1]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "`file` is missing"),
        (["--file", "nothing.csv"], "does not exist"),
        (["--file", "rows.jsonl"], "quality_column 'quality' is not in the data"),
        (["--file", "rows.jsonl", "--quality_column", "bleu"], "uncertainty_columns 'uncertainty' is not in the data"),
        (["--file", "rows.jsonl", "--quality_column", "scores"], "must hold numbers, but row 0"),
        (["--file", "rows.jsonl", "--nan_policy", "ignore"], "`nan_policy` must be"),
        (["--fil", "rows.jsonl"], "Did you mean 'file'"),
    ],
)
def test_mistakes_are_explained(here, words, message, capsys):
    assert main(["score", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_help(capsys):
    with pytest.raises(SystemExit):
        main(["score", "--help"])
    assert "--uncertainty_columns" in capsys.readouterr().out


def test_bad_rows_are_named_or_left_out_and_counted(here, capsys):
    lines = [json.dumps({"uncertainty": i, "quality": -i}) for i in range(10)]
    lines[2], lines[5] = '{"uncertainty": 2, "quality": null}', '{"uncertainty": 5, "qua'
    Path("bad.jsonl").write_text("\n".join(lines) + "\n")
    words = ["score", "--file", "bad.jsonl", "--resamples", "0", "--output", "out.json"]
    assert main(words) == 2
    assert "row 5 (counted from 0) on line 6" in capsys.readouterr().err
    assert main([*words, "--on_bad_row", "skip"]) == 0
    assert "file 'bad.jsonl': 2 of 10 rows skipped." in capsys.readouterr().out
    written = json.loads(Path("out.json").read_text())
    assert written["scores"]["uncertainty"]["n"] == 8
    assert written["skipped_rows"]["file 'bad.jsonl'"]["skipped"] == 2
    assert main([*words, "--on_bad_row", "ignore"]) == 2


def test_whole_numbers_of_any_size(here):
    Path("large.csv").write_text("uncertainty,quality\n1,1\n99999999999999999999999,0\n2,1\n")
    assert main(["score", "--file", "large.csv", "--resamples", "0", "--output", "out.json"]) == 0
    assert json.loads(Path("out.json").read_text())["scores"]["uncertainty"]["metrics"]["prr"]["value"] == 1
