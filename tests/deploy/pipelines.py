"""What the tests of pipelines share."""

import numpy as np

from clue_hf import pipeline


SHORT = {"max_new_tokens": 6}
TEXT_KINDS = ("t5", "gpt2", "lora")


def load(folders, kind, **settings):
    return pipeline(folders[kind], device="cpu", **(SHORT if kind in TEXT_KINDS else {}), **settings)


def assert_alike(found, expected, **tolerance):
    """Equal words, nearly equal numbers."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, float) or name == "interval":
            np.testing.assert_allclose(found[name], value, **{"rtol": 1e-4, "atol": 1e-5, **tolerance}, err_msg=name)
        else:
            assert found[name] == value, name
