import json
import shutil
from pathlib import Path

import pytest
from deploy.deployed_models import make_folder
from processes import run_on_two_processes

from clue_hf import EvaluationReport, UncertaintyEvaluator, pipeline
from clue_hf.cli.main import main
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.metrics import sentence_quality


pytestmark = pytest.mark.usefixtures("without_pictures")
PICTURES = "clue_hf.evaluation.text.plots"
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
    assert "chrf: corpus" in capsys.readouterr().out
    report = json.loads(Path("model/uncertainty_report/report.json").read_text())
    assert list(report["metrics"]["scorers"]) == ["msp", "perplexity"]
    assert report["metrics"]["n"] == 30
    assert report["description"]["generation"]["max_new_tokens"] == 16
    examples = Path("model/uncertainty_report/examples.jsonl").read_text().splitlines()
    assert [json.loads(line)["source"] for line in examples] == [row["source"] for row in phrase_rows("test", 30)]


def test_rows_with_equal_sources_are_judged_together(here, capsys):
    rows = [
        {**row, "target": target} for row in phrase_rows("test", 8) for target in ("le chat dort .", row["target"])
    ]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    words = ["evaluate", "model", "--test_file", "rows.jsonl", "--scorers", "msp", "--max_target_length", "16",
             "--resamples", "0", "--quality", "bleu,exact_match", "--merge_references", "true"]  # fmt: skip
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "rows.jsonl (test, equal sources merged): 8 outputs" in printed
    assert "nrefs:2" in printed
    assert "Outputs are judged against 2 references each (16 in all)" in printed
    examples = list(EvaluationReport.load("model/uncertainty_report").examples)
    assert [row["source"] for row in examples] == [row["source"] for row in phrase_rows("test", 8)]
    for example, row in zip(examples, phrase_rows("test", 8), strict=True):
        assert example["reference"] == "le chat dort ."
        assert example["references"] == ["le chat dort .", row["target"]]
        assert example["qualities"] == {
            name: sentence_quality(name, [example["output"]], [example["references"]])[0]
            for name in ("bleu", "exact_match")
        }
    make_folder("table", "table")
    assert main(["evaluate", "table", "--dataset_name", "embedded:diabetes", "--merge_references", "true"]) == 2
    assert "merge_references is for models that write texts" in capsys.readouterr().err


def test_a_file_of_its_own_needs_no_training_data(here, capsys):
    words = ["evaluate", "model", "--scorers", "msp", "--max_target_length", "4", "--report_dir", "report",
             "--resamples", "20"]  # fmt: skip
    assert main([*words, "--test_file", "rows.jsonl"]) == 0
    assert EvaluationReport.load("report").metrics["n"] == 30
    assert main([*words, "--split", "validation", "--validation_file", "rows.jsonl"]) == 0
    assert main([*words, "--test_file", "nowhere.jsonl"]) == 2
    assert "test_file 'nowhere.jsonl' does not exist" in capsys.readouterr().err


def test_a_model_compared_with_itself_does_not_differ(here, capsys):
    assert main([*WORDS, "--compare", "model", "--report_dir", "report", "--max_eval_samples", "20"]) == 0
    comparison = json.loads(Path("report/comparison.json").read_text())
    assert len(comparison) == 7
    for entry in comparison.values():
        assert entry["prr"]["value"] == 0
        assert entry["prr"]["p_value"] == 1
        assert entry["area"] == {"difference": 0, "ranking": 0, "quality": 0}
    printed = capsys.readouterr().out
    assert "model minus model" in printed
    assert "report.html" in printed
    assert Path("report/compared_with/report.json").exists()
    assert 'Compared with <span dir="auto">model</span>' in Path("report/report.html").read_text()


def test_an_evaluation_that_was_interrupted_is_continued(here, capsys, monkeypatch):
    whole = [*WORDS, "--scorers", "msp", "--per_device_eval_batch_size", "4", "--report_dir", "report"]
    judged, batches = UncertaintyEvaluator._judged, []

    def interrupted(self, batch, *rest):
        batches.append(batch)
        if len(batches) == 4:
            raise KeyboardInterrupt
        return judged(self, batch, *rest)

    monkeypatch.setattr(UncertaintyEvaluator, "_judged", interrupted)
    assert main(whole) == 130
    assert "kept in report; --resume true continues" in capsys.readouterr().err
    assert main(whole) == 2
    assert "Continue it with --resume" in capsys.readouterr().err
    assert main([*whole, "--resume", "true"]) == 0
    assert len(batches) == 8 + 1  # the interrupted one twice
    monkeypatch.setattr(UncertaintyEvaluator, "_judged", judged)
    assert main([*whole[:-1], "fresh"]) == 0
    resumed, fresh = (json.loads(Path(name, "report.json").read_text())["metrics"] for name in ("report", "fresh"))
    assert resumed == fresh


def test_every_way_to_decode_and_to_score(here):
    words = [*WORDS, "--max_eval_samples", "6", "--scorers", "msp,pmi", "--quality", "rouge2,bleu"]
    outputs = {}
    for name, options in {
        "beams": ["--generation_num_beams", "3"],
        "sampled": ["--do_sample", "true", "--temperature", "2", "--top_k", "20"],
        "compat": ["--compat", "lm-polygraph"],
    }.items():
        assert main([*words, *options, "--report_dir", name]) == 0
        report = EvaluationReport.load(name)
        assert list(report.metrics["quality"]) == ["rouge2", "bleu"]
        outputs[name] = [example["output"] for example in report.examples]
    assert outputs["sampled"] != outputs["beams"]
    assert "compat mode" in Path("compat/summary.md").read_text()


def test_two_processes_from_one_command(here, monkeypatch):
    """The launcher itself is started by tests/cli/test_train.py."""
    monkeypatch.setattr(
        "clue_hf.cli.evaluate.launch",
        lambda name, words, number: run_on_two_processes([name, *words], missing=PICTURES) or 0,
    )
    words = ["evaluate", "model", "--config", "run.yaml", "--resamples", "20", "--scorers", "msp,mc_sequence_entropy",
             "--num_samples", "2", "--per_device_eval_batch_size", "4"]  # fmt: skip
    assert main([*words, "--report_dir", "two", "--num_processes", "2"]) == 0
    assert main([*words, "--report_dir", "one"]) == 0
    one, two = (EvaluationReport.load(name) for name in ("one", "two"))
    for name in ("msp", "mc_sequence_entropy"):
        assert one.uncertainty(name) == pytest.approx(two.uncertainty(name), abs=1e-4)
    assert [example["output"] for example in one.examples] == [example["output"] for example in two.examples]


def test_an_adapter_is_evaluated_with_its_base_model(here):
    adapter = make_folder(here, "lora")
    words = [*WORDS[2:], "--scorers", "perplexity", "--max_eval_samples", "5", "--compare", "base"]
    assert main(["evaluate", "adapter", *words]) == 0
    folder = Path("adapter/uncertainty_report")
    adapted, plain = (EvaluationReport.load(place) for place in (folder, folder / "compared_with"))
    answers = pipeline(str(adapter), device="cpu", max_new_tokens=16)(
        [row["source"] for row in phrase_rows("test", 5)]
    )
    assert [example["output"] for example in adapted.examples] == [answer["generated_text"] for answer in answers]
    assert adapted.uncertainty("perplexity") == pytest.approx([answer["uncertainty"] for answer in answers], rel=1e-5)
    assert adapted.uncertainty("perplexity") != pytest.approx(plain.uncertainty("perplexity"), rel=1e-3)
    assert json.loads(Path("adapter/adapter_config.json").read_text())["base_model_name_or_path"] == str(here / "base")


def test_what_an_adapter_left_is_not_continued_by_its_base(here, capsys):
    make_folder(here, "lora")
    words = [*WORDS[2:], "--scorers", "msp", "--max_eval_samples", "3", "--report_dir", "report"]
    assert main(["evaluate", "adapter", *words]) == 0
    assert main(["evaluate", "base", *words, "--resume", "true"]) == 2
    assert "begun with another model: 'adapter', now 'base'" in capsys.readouterr().err


def test_an_adapter_without_its_base_model_is_explained(here, capsys):
    adapter = make_folder(here, "lora")
    shutil.rmtree("base")
    assert main(["evaluate", str(adapter), *WORDS[2:]]) == 2
    error = capsys.readouterr().err
    assert f"The model folder '{here / 'base'}' does not exist." in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "--config", "run.yaml"], "Which model?"),
        (["evaluate", "nobody/nothing", "--config", "run.yaml"], "hf download nobody/nothing"),
        ([*WORDS, "--scorers", "mps"], "`scorers` must be among msp"),
        ([*WORDS, "--quality", "blue"], "`quality` must be among"),
        ([*WORDS, "--mc_samples", "2"], "no dropout"),
        ([*WORDS, "--compat", "lm_polygraph"], "`compat` must be"),
        ([*WORDS, "--per_device_eval_batch_size", "0"], "must be at least 1"),
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
