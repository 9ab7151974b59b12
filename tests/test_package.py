import json
import subprocess
import sys

import pytest


LOADED = """
import json, sys, clue_hf
loaded = [list(sys.modules)]
for name in ("functional.clue_loss", "CLUETrainer"):
    eval(f"clue_hf.{name}")
    loaded.append(list(sys.modules))
print(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded():
    """The modules that there are after importing the package, after using a function of it, and the trainer."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    return [set(names) for names in json.loads(done.stdout)]


def test_importing_the_package_loads_nothing_heavy(loaded):
    assert not {"torch", "transformers", "datasets", "matplotlib", "peft"} & loaded[0]
    assert "torch" in loaded[1]


def test_the_trainer_does_not_need_the_extras(loaded):
    assert not {"matplotlib", "gradio", "tensorboard", "sacrebleu"} & loaded[2]


def test_public_names():
    import clue_hf

    assert {"CLUEConfig", "CLUETrainer", "functional", "objectives"} <= set(dir(clue_hf))
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = clue_hf.nothing_here
