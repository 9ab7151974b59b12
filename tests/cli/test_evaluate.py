import json
import shutil
from pathlib import Path

import pytest

from clue_hf.cli.main import main
from clue_hf.data.embedded.phrases import phrase_rows


MODEL = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A model, thirty phrases, and the YAML file of a training on them."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(MODEL, "model")
    Path("rows.jsonl").write_text("\n".join(json.dumps(row) for row in phrase_rows("test", 30)) + "\n")
    Path("run.yaml").write_text(
        "model_type: t5\ntokenizer_vocab_size: 100\ntrain_file: rows.jsonl\ntest_file: rows.jsonl\nalpha: 0.9\n"
        "max_target_length: 16\nlearning_rate: 1e-4\noutput_dir: out\nquality: chrf\nuse_peft: false\n"
    )
    return tmp_path


WORDS = ["evaluate", "model", "--config", "run.yaml", "--num_samples", "2", "--resamples", "20"]


def test_the_file_of_a_training_serves_the_evaluation(here, capsys):
    assert main([*WORDS, "--scorers", "msp,perplexity"]) == 0
    assert "corpus chrf" in capsys.readouterr().out
    report = json.loads(Path("model/uncertainty_report/report.json").read_text())
    assert list(report["metrics"]["scorers"]) == ["msp", "perplexity"]
    assert report["metrics"]["n"] == 30
    assert report["description"]["generation"]["max_new_tokens"] == 16
    examples = Path("model/uncertainty_report/examples.jsonl").read_text().splitlines()
    assert [json.loads(line)["source"] for line in examples] == [row["source"] for row in phrase_rows("test", 30)]


def test_a_model_compared_with_itself_does_not_differ(here, capsys):
    assert main([*WORDS, "--compare", "model", "--report_dir", "report", "--max_eval_samples", "20"]) == 0
    comparison = json.loads(Path("report/comparison.json").read_text())
    assert len(comparison) == 7
    for entry in comparison.values():
        assert entry["prr"]["value"] == 0
        assert entry["prr"]["p_value"] == 1
        assert entry["area"] == {"difference": 0, "ranking": 0, "quality": 0}
    assert "model minus model" in capsys.readouterr().out
    assert Path("report/compared_with/report.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "--config", "run.yaml"], "Which model?"),
        (["evaluate", "nobody/nothing", "--config", "run.yaml"], "hf download nobody/nothing"),
        ([*WORDS, "--scorers", "mps"], "`scorers` must be among msp"),
        ([*WORDS, "--quality", "blue"], "`quality` must be one of"),
        ([*WORDS, "--split", "dev"], "'dev' is not in the data"),
        ([*WORDS, "--source_column", "x", "--target_column", "y"], "source_column 'x' is not in the data"),
        ([*WORDS, "--num_sample", "2"], "Did you mean 'num_samples'"),
    ],
)
def test_mistakes_are_explained(here, words, message, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_key_that_no_command_knows_is_an_error(here, capsys):
    Path("run.yaml").write_text("alhpa: 1\n")
    assert main(WORDS) == 2
    assert "no option 'alhpa'" in capsys.readouterr().err
