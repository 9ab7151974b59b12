"""The command as users run it, mistakes included."""

import json
import re
from pathlib import Path

import pytest
from helpers import SENTENCES, TRANSLATIONS, make_model, make_tokenizer
from processes import Forked, run_script
from transformers import utils

from clue_hf.cli.main import main
from clue_hf.experiments.text import TextExperiment
from clue_hf.models.uncertainty_file import read_uncertainty


pytestmark = pytest.mark.usefixtures("without_pictures")
ROOT = Path(__file__).parents[2]
TINY = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a file of pairs, a model, and nothing else."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"en": f"{s} {i}", "fr": t, "n": i} for i in range(5) for s, t in zip(SENTENCES, TRANSLATIONS, strict=True)
    ]
    Path("pairs.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    make_model("t5").save_pretrained("model")
    make_tokenizer().save_pretrained("model")
    return tmp_path


def words(*more, **settings):
    defaults = {
        "model_name_or_path": "model", "train_file": "pairs.jsonl", "source_column": "en", "target_column": "fr",
        "max_steps": "2", "per_device_train_batch_size": "4", "output_dir": "out", "use_cpu": "true",
        "disable_tqdm": "true", "save_strategy": "no", "max_target_length": "8", "logging_steps": "1",
    }  # fmt: skip
    chosen = {name: value for name, value in {**defaults, **settings}.items() if value is not None}
    return ["train", *(word for name, value in chosen.items() for word in (f"--{name}", value)), *more]


@pytest.mark.pictures
def test_two_objectives_one_table(here, capsys):
    assert main(words(baseline="ce", alpha="0.7", eval_strategy="steps", eval_steps="1")) == 0
    shown = capsys.readouterr().out
    assert "| ce " in shown
    assert "| clue (alpha 0.7)" in shown
    following = shown.splitlines()[-1].split()
    assert following[:3] == ["clue-hf", "evaluate", "out/clue"]
    assert following[-2:] == ["--compare", "out/ce"]
    assert main([*following[1:], "--resamples", "0", "--scorers", "msp", "--quiet"]) == 0  # it can be typed as it is
    printed, errors = capsys.readouterr()
    assert printed.startswith("| scorer | PRR ")
    assert "| msp " in printed
    assert "Written to" not in printed
    assert "%|" not in errors
    results = json.loads(Path("out/results.json").read_text())
    assert [row["objective"] for row in results["rows"]] == ["ce", "clue"]
    for row in results["rows"]:
        assert row["gap"] == pytest.approx(row["error"] - row["uncertainty"])
        assert row["tokens"] > 0
        assert 0 <= row["bleu"] <= 100
        assert row["seconds_per_step"] > 0
    starts = [history[0]["error"] for history in results["history"].values()]
    assert starts[0] == starts[1]
    assert Path("out/training_curves.png").stat().st_size > 0
    assert Path("out/ce/model.safetensors").exists()
    assert Path("out/clue/tokenizer.json").exists()


def test_label_smoothing_beside_the_plain_objective(here):
    assert main(words(objective="label_smoothing", baseline="ce", quality="none", max_steps="1")) == 0
    rows = json.loads(Path("out/results.json").read_text())["rows"]
    assert [row["objective"] for row in rows] == ["ce", "label_smoothing"]
    assert rows[0]["alpha"] == 1.0
    assert rows[1]["alpha"] is None


def test_from_scratch_with_its_own_tokenizer_and_a_yaml_file(here):
    Path("run.yaml").write_text(
        f"model_type: t5\ntokenizer_vocab_size: 80\nconfig_overrides: {json.dumps(TINY)}\ntrain_file: pairs.jsonl\n"
        "source_column: en\ntarget_column: fr\nmax_steps: 2\noutput_dir: scratch\nuse_cpu: true\nsave_strategy: 'no'\n"
        "learning_rate: 1e-3\ndisable_tqdm: true\nquality: chrf\nmax_target_length: 8\n"
    )
    assert main(["train", "run.yaml", "--objective", "ce"]) == 0
    [row] = json.loads(Path("scratch/results.json").read_text())["rows"]
    assert row["objective"] == "ce"
    assert "chrf" in row


def test_lora_and_resume(here):
    run = words(use_peft="true", lora_r="2", quality="none", max_steps="3", save_strategy="steps", save_steps="1")
    assert main(run) == 0
    assert Path("out/adapter_model.safetensors").exists()
    assert main([*run, "--resume_from_checkpoint", "out/checkpoint-2", "--output_dir", "again"]) == 0
    logs = [json.loads(Path(f"{name}/trainer_state.json").read_text())["log_history"] for name in ("out", "again")]
    assert [line["loss"] for line in logs[0] if "loss" in line] == [line["loss"] for line in logs[1] if "loss" in line]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source_column": "eng"}, "source_column 'eng' is not in the data, whose columns are en, fr, n"),
        ({"target_column": "n"}, "target_column 'n' must hold text, but row"),
        ({"train_file": "missing.jsonl"}, "does not exist"),
        ({"train_file": "empty.jsonl"}, "is empty"),
        ({"model_name_or_path": "nobody/nothing"}, "hf download nobody/nothing"),
        ({"model_name_or_path": "./nothing"}, "folder './nothing' does not exist"),
        ({"config_overrides": "dropout=0.1"}, "'dropout' is not a setting"),
        ({"config_overrides": "{"}, "not valid JSON"),
        ({"alpha": "1.5"}, "`alpha` must be a number from 0 to 1"),
        ({"alpha": "x"}, "invalid float value: 'x'"),
        ({"alhpa": "1"}, "Did you mean 'alpha'"),
        ({"resume_from_checkpoint": "nowhere"}, "Can't find a valid checkpoint at nowhere"),
        ({"eval_strategy": "steps", "validation_fraction": "0"}, "eval_strategy needs validation data"),
        ({"test_fraction": "0"}, "report_splits 'test' is not in the data"),
        ({"task": "causal"}, "cannot do the task 'causal'"),
        ({"lora_target_modules": "nothing", "use_peft": "true"}, "LoRA cannot be added"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(here, settings, message, capsys):
    Path("empty.jsonl").touch()
    assert main(words(**settings)) == 2
    error = capsys.readouterr().err
    [line] = [line for line in error.splitlines() if line.startswith("clue-hf: error:")]
    assert message in line
    assert "Traceback" not in error


def test_commands_that_do_not_exist(capsys):
    assert main(["trian"]) == 2
    assert "there is no command 'trian'. Did you mean 'train'?" in capsys.readouterr().err
    assert main([]) == 0
    assert "clue-hf COMMAND" in capsys.readouterr().out


def test_train_py_offline_says_what_to_do_in_seconds(here):
    process = Forked(run_script, ROOT / "train.py", str(ROOT / "configs/t5_small_opus_books.yaml"))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "hf download" in errors
    assert "Traceback" not in errors


@pytest.mark.distributed
def test_two_processes(here, capfd, monkeypatch):
    """They find each other where there is no accelerator, without being told of it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(words(num_processes="2", model_name_or_path="nobody/nothing")) == 2
    capfd.readouterr()
    code = main(words(num_processes="2", quality="bleu", use_cpu=None))
    output, errors = capfd.readouterr()
    assert code == 0, errors[-3000:]
    assert output.count("| clue (alpha 0.9) | test") == 1
    assert main(words(per_device_train_batch_size="8", output_dir="alone", quality="bleu")) == 0
    together, alone = (json.loads(Path(f"{name}/results.json").read_text())["rows"][0] for name in ("out", "alone"))
    for name in ("error", "uncertainty", "token_ece", "bleu", "tokens"):
        assert together[name] == pytest.approx(alone[name], rel=1e-3), name


@pytest.mark.parametrize("path", sorted(ROOT.glob("configs/**/*.yaml")), ids=lambda path: path.stem)
def test_every_config_is_understood(path):
    from clue_hf.cli.parser import read_yaml
    from clue_hf.cli.train import make_parser

    if path.parent.name == "accelerate":
        from accelerate.commands.config.config_args import load_config_from_file

        assert load_config_from_file(str(path)).num_processes == 2
        return
    *_, config = make_parser().parse([str(path)])
    assert config.output_dir == read_yaml(str(path))["output_dir"]


def test_tokens_are_calibrated_after_training(here, capsys):
    rows = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]
    more = [{**row, "en": f"{row['en']} {number}"} for row in rows for number in range(6)]
    Path("pairs.jsonl").write_text("\n".join(json.dumps(row) for row in more) + "\n")
    assert main(words(token_calibrator="temperature", validation_fraction="0.4", max_eval_samples="60")) == 0
    printed = capsys.readouterr().out
    rows = json.loads((here / "out/results.json").read_text())["rows"]
    assert [row["objective"] for row in rows] == ["clue", "clue + temperature"]
    before, after = rows
    assert before["bleu"] == after["bleu"]
    assert before["token_accuracy"] == after["token_accuracy"]
    assert before["uncertainty"] != pytest.approx(after["uncertainty"], rel=1e-3)
    temperature = read_uncertainty("out")["token_calibrator"]["temperature"]
    assert f"Token calibrator: temperature, T = {temperature:.3f}, fitted on" in printed
    assert re.search("clue.* on test: ((over|under)confident by|error and uncertainty agree)", printed)
    # evaluate finds the same
    options = [
        "--scorers",
        "msp",
        "--validation_fraction",
        "0.4",
        "--max_eval_samples",
        "60",
        "--report_dir",
        "report",
    ]
    assert main(["evaluate", "out", "--train_file", "pairs.jsonl", *options]) == 0
    found = json.loads((here / "report/report.json").read_text())["metrics"]
    for row, part in ((before, "uncalibrated_references"), (after, "references")):
        for name in ("error", "uncertainty", "token_ece"):
            assert row[name] == pytest.approx(found[part][name]["value"], abs=1e-5)


@pytest.mark.parametrize(("gap", "objective", "answer"), [
    (0.5, "ce", "overconfident by 0.500 nats per token, 50% of its error. A temperature .* Training with CLUE"),
    (0.5, "clue", "overconfident .* A temperature fitted after training"),
    (-0.5, "clue", "underconfident .* would increase it"),
    (0.01, "ce", "There is nothing to calibrate"),
    (-0.5, "ce + temperature", "underconfident .* which differs from this split"),
])  # fmt: skip
def test_what_a_gap_means(gap, objective, answer):
    rows = [{"objective": objective, "split": "test", "gap": gap, "error": 1.0}]
    assert re.search(answer, TextExperiment.advice(None, rows))


def test_too_few_validation_rows_to_calibrate_tokens_lose_nothing(here, caplog):
    utils.logging.enable_propagation()
    try:
        assert main(words(token_calibrator="auto")) == 0
    finally:
        utils.logging.disable_propagation()
    assert "tokens are not calibrated: " in caplog.text
    assert [row["objective"] for row in json.loads(Path("out/results.json").read_text())["rows"]] == ["clue"]
    assert "token_calibrator" not in read_uncertainty("out")
