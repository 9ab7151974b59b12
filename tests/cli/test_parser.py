import re

import pytest

from clue_hf.cli.parser import read_yaml
from clue_hf.cli.train import GROUPS, make_parser
from clue_hf.errors import UserError


@pytest.fixture
def parse(tmp_path):
    def run(yaml, *words):
        path = tmp_path / "config.yaml"
        path.write_text("model_name_or_path: some/model\noutput_dir: out\n" + yaml)
        return make_parser().parse([str(path), *words])

    return run


def test_the_command_line_wins_and_1e_4_is_a_number(parse):
    *_, config = parse("learning_rate: 1e-4\nalpha: 0.5\nbf16: false\nobjective: focal\n", "--alpha", "0.7")
    assert (config.learning_rate, config.alpha, config.objective, config.bf16) == (1e-4, 0.7, "focal", False)
    *_, config = parse("", "--learning-rate=3e-5", "--bf16")
    assert (config.learning_rate, config.bf16) == (3e-5, True)


def test_lists_maps_and_nothing(parse):
    _, model, lora, data, config = parse(
        "lora_target_modules: [q, v]\nreport_splits: [test, shifted]\nsource_column: null\n"
        "config_overrides: {dropout_rate: 0.3}\nlr_scheduler_kwargs: {num_cycles: 2}\nuse_peft: true\n"
    )
    assert lora.lora_target_modules == ["q", "v"]
    assert data.report_splits == ["test", "shifted"]
    assert model.config_overrides == '{"dropout_rate": 0.3}'
    assert config.lr_scheduler_kwargs == {"num_cycles": 2}
    assert config.source_column is None
    assert lora.use_peft


@pytest.mark.parametrize(
    ("yaml", "words", "message"),
    [
        ("learning_rte: 1", [], "there is no option 'learning_rte'. Did you mean 'learning_rate'?"),
        ("", ["--alhpa", "1"], "There is no option --alhpa. Did you mean 'alpha'?"),
        ("alpha: high", [], "config.yaml: argument --alpha: invalid float value: 'high'"),
        ("alpha: 2", [], "`alpha` must be a number from 0 to 1"),
        ("alpha: 0.5\nalpha: 0.6", [], "'alpha' is there twice"),
        ("max_steps: [1, 2]", [], "'max_steps' takes one value, not a list"),
        ("- a\n- b", [], "not valid YAML"),
        ("a: &x [1]\nb: *x", [], "aliases"),
        ("alpha: [", [], "not valid YAML"),
        ("objective: clu", [], "`objective` must be one of clue, ce"),
        ("model_type: t5", [], "one of the two"),
        ("tokenizer_vocab_size: 50", [], "goes with `model_type`"),
        ("baseline: cee", [], "`baseline` must be one of"),
        ("quality: blue", [], "`quality` must be one of"),
        ("num_processes: 0", [], "at least 1"),
        ("", ["--config"], "--config needs a file"),
        ("", ["stray"], "'stray' is neither an option"),
    ],
)
def test_mistakes_name_the_key(parse, yaml, words, message):
    with pytest.raises(UserError, match=re.escape(message)):
        parse(yaml, *words)


def test_another_source_on_the_command_line_replaces_the_one_in_the_file(parse):
    _, model, _, data, _ = parse(
        "dataset_name: a/b\ndataset_config: c\n", "--train_file", "x.csv", "--model_type=t5", "--tokenizer_name", "t"
    )
    assert (data.dataset_name, data.dataset_config, data.train_file) == (None, None, "x.csv")
    assert (model.model_name_or_path, model.model_type) == (None, "t5")


def test_other_yaml_mistakes(tmp_path):
    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "latin.yaml").write_bytes(b"alpha: \xff\xfe")
    with pytest.raises(UserError, match="not a list"):
        read_yaml(str(tmp_path / "list.yaml"))
    with pytest.raises(UserError, match="does not exist"):
        read_yaml(str(tmp_path / "missing.yaml"))
    with pytest.raises(UserError, match="not valid YAML"):
        read_yaml(str(tmp_path / "latin.yaml"))
    assert read_yaml(str(tmp_path / "empty.yaml")) == {}


def test_help_is_grouped_and_complete(capsys):
    for word, complete in (("--help", False), ("--help_all", True)):
        with pytest.raises(SystemExit) as left:
            make_parser().parse([word])
        assert left.value.code == 0
        shown = capsys.readouterr().out
        assert all(f"\n{heading}:" in shown for heading in GROUPS)
        assert "--alpha" in shown
        assert ("--fsdp" in shown) == complete
        assert len(shown.splitlines()) < (1000 if complete else 150)


def test_every_option_shown_in_a_group_exists_once():
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    known = {action.dest for action in make_parser()._actions}
    assert set(names) <= known
