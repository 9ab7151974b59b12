import json

import numpy as np
import pytest

from clue_hf.posthoc.ensembles import ensemble_probabilities
from clue_hf.posthoc.error_predictor import ErrorNormalizer


def test_an_ensemble_says_the_mean():
    members = [[[1.0, 0.0], [0.2, 0.8]], [[0.5, 0.5], [0.4, 0.6]], [[0.0, 1.0], [0.6, 0.4]]]
    assert ensemble_probabilities(members) == pytest.approx(np.array([[0.5, 0.5], [0.4, 0.6]]))
    assert (ensemble_probabilities(members[:1]) == np.array(members[0])).all()
    with pytest.raises(ValueError, match=r"of one shape, got \[\(1, 2\), \(2, 2\)\]"):
        ensemble_probabilities([members[0], members[1][:1]])
    with pytest.raises(ValueError, match="got no members"):
        ensemble_probabilities([])
    with pytest.raises(ValueError, match="sums to 1.5 at position 0"):
        ensemble_probabilities([members[0], [[1.0, 0.5], [0.5, 0.5]]])


def test_predicted_errors_become_uncertainties():
    normalizer = ErrorNormalizer.fit([3.0, 1.0, 2.0])
    assert normalizer([1.0, 1.5, 3.0, 0.0, 9.0]).tolist() == [0, 0.25, 1, 0, 1]
    assert ErrorNormalizer.fit([2.0, 2.0])([1.0, 2.0, 2.1]).tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="no errors"):
        ErrorNormalizer.fit([])
    for method in (ErrorNormalizer.fit, normalizer):
        with pytest.raises(ValueError, match="`predicted_error` is nan at position 1"):
            method([1.0, np.nan])


def test_bounds_saved_and_loaded_are_the_same(tmp_path):
    normalizer = ErrorNormalizer.fit(np.random.default_rng(0).normal(size=10))
    normalizer.save(tmp_path / "bounds.json")
    assert ErrorNormalizer.load(tmp_path / "bounds.json") == normalizer
    content = json.loads((tmp_path / "bounds.json").read_text())
    assert content == {"name": "error_normalizer", "version": 1, "low": normalizer.low, "high": normalizer.high}
