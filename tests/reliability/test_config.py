"""Config files with mistakes, given to every command, and files that try to be more than settings."""

import re
import tracemalloc

import pytest

from clue_hf.cli.main import main


#: Each command as far as its config file, and one of its options with a letter too many.
COMMANDS = {
    "train": (["train"], "learning_ratte", "learning_rate"),
    "compare": (["compare"], "metthods", "methods"),
    "evaluate": (["evaluate", "model"], "scorrers", "scorers"),
    "calibrate": (["calibrate", "model"], "tolerence", "tolerance"),
    "predict": (["predict", "model"], "innput", "input"),
    "score": (["score"], "quality_columm", "quality_column"),
    "card": (["card", "model"], "licence", "license"),
    "push": (["push", "model", "me/name"], "commit_mesage", "commit_message"),
    "demo": (["demo", "model"], "prot", "port"),
}


@pytest.fixture
def given(tmp_path, monkeypatch, capsys):
    """Runs a command with a config file; what it says in its one line."""
    monkeypatch.chdir(tmp_path)

    def run(command, text):
        (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
        words = COMMANDS[command][0]
        code = main([*words, "--config", "config.yaml"])
        error = capsys.readouterr().err
        assert code == 2
        assert "Traceback" not in error
        [line] = [line for line in error.splitlines() if line.startswith("clue-hf: error: ")]
        return line

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_a_key_that_does_not_exist_names_the_nearest(given, command):
    _, wrong, right = COMMANDS[command]
    line = given(command, f"{wrong}: 1\n")
    assert f"config.yaml: there is no option {wrong!r}" in line
    assert f"Did you mean {right!r}?" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_key_that_is_there_twice(given, command):
    key = COMMANDS[command][2]
    line = given(command, f"{key}: a\n# more\n{key}: b\n")
    assert f"the key {key!r} is there twice (line 3)" in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alpha: high", "argument --alpha: invalid float value: 'high'"),
        ("alpha: [0.1, 0.2]", "config.yaml: 'alpha' takes one value, not a list"),
        ("alpha: .nan", "`alpha` must be a number from 0 to 1"),
        ("alpha: .inf", "`alpha` must be a number from 0 to 1"),
        ("alpha: -0.1", "`alpha` must be a number from 0 to 1"),
        ("alpha: 1.0001", "`alpha` must be a number from 0 to 1"),
        ("alpha: {a: 1}", "argument --alpha: invalid float value"),
        ("alpha: true", "argument --alpha: invalid float value: 'True'"),
        ("max_steps: 1.5", "--max_steps/--max-steps: invalid int value: '1.5'"),
        ("bf16: perhaps", "argument --bf16"),
        ("label_smoothing_factor: 0.1", "`label_smoothing_factor` is not supported by the objective 'clue'"),
    ],
)
def test_values_of_the_wrong_kind_name_their_key(given, text, said):
    assert said in given("train", f"model_name_or_path: model\noutput_dir: out\n{text}\n")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "value",
    [
        "2001-99-99", "9" * 5000, "!!int x", "!!float x", "!!bool x", "!!timestamp x", "[" * 5_000, "{a: " * 5_000,
    ],
)  # fmt: skip
def test_values_that_are_not_what_they_say(given, command, value):
    key = COMMANDS[command][2]
    assert re.search("config.yaml (is not valid YAML|is nested too deeply)", given(command, f"{key}: {value}\n"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("text", ["? [a]\n: b", "{[a]: b}", "? {a: 1}\n: b"])
def test_keys_that_are_no_words(given, command, text):
    assert "config.yaml: a key must be a word (line 1)" in given(command, text)


WRONG = {"train": "seed", "compare": "seeds", "evaluate": "num_samples", "calibrate": "delta", "predict": "batch_size",
         "score": "resamples", "card": "license", "push": "private", "demo": "port"}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_list_in_the_place_of_one_value_names_its_key(given, command):
    assert f"config.yaml: {WRONG[command]!r} takes one value, not a list" in given(
        command, f"{WRONG[command]}: [a, b]"
    )


def bomb(levels=12, width=10):
    """Ten lists of ten lists of ... : 10^12 words in a few lines."""
    lines = ["a0: &a0 [lol]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_would_grow_is_refused_at_once(given, command):
    tracemalloc.start()
    assert "aliases (*name) are not supported" in given(command, bomb())
    assert "aliases" in given(command, "base: &base {alpha: 1}\nmore:\n  <<: *base\n")
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['touch ran']", "!!python/name:os.system", "!!python/object:os.system {}"]
)
def test_no_file_can_run_anything(given, command, tag, tmp_path):
    key = COMMANDS[command][2]
    assert re.search(r"not valid YAML: could not determine a constructor", given(command, f"{key}: {tag}\n"))
    assert not (tmp_path / "ran").exists()
