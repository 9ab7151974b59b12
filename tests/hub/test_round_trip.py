"""Every kind of model: pushed with the Hub's own client, and loaded by somebody else with its uncertainty."""

import json

import numpy as np
import pytest
from deploy.deployed_models import KINDS, inputs_for, make_folder
from hub.endpoint import run_client

from clue_hf import pipeline
from clue_hf.posthoc.calibration_file import UncertaintyCalibration


CALIBRATED = ("t5", "image", "table")
PUSH_AND_LOAD = """
import json
from clue_hf import pipeline
from clue_hf.hub.push import push_folder
from deploy.deployed_models import inputs_for
for name, folder in json.loads({folders!r}).items():
    push_folder(folder, f"me/{{name}}")
answers = {{}}
for name, kind in json.loads({kinds!r}).items():
    short = dict(max_new_tokens=6) if kind in ("t5", "gpt2", "lora") else dict()
    answers[name] = pipeline(f"me/{{name}}", **short)(inputs_for(kind))
print(json.dumps(answers, default=lambda value: value.tolist()))
"""


def load(folder, kind):
    return pipeline(str(folder), **({"max_new_tokens": 6} if kind in ("t5", "gpt2", "lora") else {}))


def repo_name(kind):
    return kind.replace(" ", "-")


@pytest.fixture(scope="module")
def answers(hub, tmp_path_factory):
    """By kind: the answers of the model in its folder, and of the one that is loaded from the Hub."""
    home = tmp_path_factory.mktemp("home")
    folders, here = {}, {}
    for kind in KINDS:
        folder = make_folder(tmp_path_factory.mktemp("models") / repo_name(kind), kind)
        if kind in CALIBRATED:
            calibrate(folder, kind)
        folders[repo_name(kind)] = str(folder)
        here[kind] = load(folder, kind)(inputs_for(kind))
    kinds = {repo_name(kind): kind for kind in KINDS}
    loaded = run_client(PUSH_AND_LOAD.format(folders=json.dumps(folders), kinds=json.dumps(kinds)), hub, home)
    assert loaded.returncode == 0, loaded.stderr
    there = json.loads(loaded.stdout.splitlines()[-1])
    return {kind: (here[kind], there[repo_name(kind)]) for kind in KINDS}


def calibrate(folder, kind):
    """Confidence and percentile from made-up qualities: what matters is that they arrive."""
    used = load(folder, kind)
    uncertainty = np.array([answer["uncertainty"] for answer in used(inputs_for(kind))])
    quality = np.arange(len(uncertainty)) % 2 * 1.0
    UncertaintyCalibration.fit(used.predictor.scorer, {}, uncertainty, quality, risks=[0.5]).write(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_the_answers_are_the_same_from_the_hub(answers, kind):
    here, there = answers[kind]
    assert len(here) == len(there) == 7
    for mine, theirs in zip(here, there, strict=True):
        assert list(mine) == list(theirs)
        for key, value in mine.items():
            expected = list(value) if isinstance(value, tuple) else value
            number = isinstance(value, float | tuple | list)
            assert theirs[key] == (pytest.approx(expected, abs=1e-6, rel=1e-6) if number else expected), key
        assert (mine["confidence"] is not None) == (kind in CALIBRATED)
