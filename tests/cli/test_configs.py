import json
from pathlib import Path

import pytest

from clue_hf.cli.configs import find_config, shipped_configs
from clue_hf.cli.main import main
from clue_hf.cli.parser import read_yaml
from clue_hf.errors import UserError


CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder without a repository."""
    monkeypatch.chdir(tmp_path)


def test_all_configs_of_the_repository_are_shipped():
    files = {path.resolve() for path in CONFIGS.rglob("*.yaml")}
    assert {path.resolve() for path in shipped_configs().values()} == files
    stems = [path.stem for path in files]
    assert len(stems) == len(set(stems))  # each is found by its name alone


@pytest.mark.parametrize("name", ["quickstart/t5_phrases", "t5_phrases", "configs/quickstart/t5_phrases.yaml"])
def test_a_config_is_found_by_its_name(name):
    assert Path(find_config(name)).samefile(CONFIGS / "quickstart/t5_phrases.yaml")
    assert read_yaml(name)["dataset_name"] == "embedded:phrases"


def test_a_file_of_that_path_wins():
    Path("boston").write_text("alpha: 0.25\n")
    assert find_config("boston") == "boston"
    assert read_yaml("boston") == {"alpha": 0.25}


@pytest.mark.parametrize("name", ["bostn", "boston.yaml", "mine/boston.yaml"])
def test_a_file_that_does_not_exist(name):
    with pytest.raises(UserError, match=r"The config file .* does not exist. Did you mean 'boston'\? clue-hf configs"):
        find_config(name)
    with pytest.raises(UserError, match="^accelerate_config 'ddpp' does not exist. Did you mean 'ddp'"):
        find_config("ddpp", "accelerate_config")


def test_the_list_has_a_line_for_each(capsys):
    assert main(["configs", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped_configs())
    assert lines[0].startswith("quickstart/")
    assert all(20 < len(line) < 150 for line in lines)
    assert main(["configs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["configs"]["boston"].startswith("The tabular ResNet on Boston Housing")


def test_one_is_printed_as_it_is(capsys):
    assert main(["configs", "boston"]) == 0
    assert capsys.readouterr().out == (CONFIGS / "boston.yaml").read_text()
    assert main(["configs", "nothing"]) == 2
    assert "clue-hf configs lists" in capsys.readouterr().err
