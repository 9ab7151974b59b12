import subprocess
import sys

import pytest


def modules_after(statement):
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    loaded = modules_after("import clue_hf")
    assert not {"torch", "transformers", "datasets", "matplotlib", "peft"} & loaded
    assert "torch" in modules_after("import clue_hf; clue_hf.functional.clue_loss")


def test_the_trainer_does_not_need_the_extras():
    loaded = modules_after("import clue_hf; clue_hf.CLUETrainer")
    assert not {"matplotlib", "gradio", "tensorboard", "sacrebleu"} & loaded


def test_public_names():
    import clue_hf

    assert {"CLUEConfig", "CLUETrainer", "functional", "objectives"} <= set(dir(clue_hf))
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = clue_hf.nothing_here
