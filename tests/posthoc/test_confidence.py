"""The confidence in an answer on held-out data whose true quality is known."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from clue_hf.metrics.calibration import confidence_calibration_error
from clue_hf.posthoc.confidence import IsotonicConfidence, cross_fitted_confidence


ROWS = st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), min_size=1, max_size=40)


def make_data(seed, n, ties=False):
    """Uncertainties on no scale of a quality; the quality to expect falls with them by a known law."""
    generator = np.random.default_rng(seed)
    uncertainty = generator.gamma(2.0, size=n)
    if ties:
        uncertainty = np.round(uncertainty)
    expected = 0.15 + 0.8 * np.exp(-uncertainty)
    return uncertainty, generator.beta(3 * expected, 3 * (1 - expected)), expected


@pytest.mark.parametrize("ties", [False, True])
def test_confidence_is_the_quality_to_expect(ties):
    confidence = IsotonicConfidence.fit(*make_data(0, 4000, ties)[:2])
    uncertainty, quality, expected = make_data(1, 4000, ties)
    found = confidence(uncertainty)
    assert np.abs(found - expected).mean() < 0.02
    calibrated = confidence_calibration_error(found, quality)
    raw = confidence_calibration_error(np.exp(-uncertainty), quality)
    assert calibrated < 0.02
    assert calibrated < raw / 4


def test_each_item_by_the_map_of_the_others():
    uncertainty, quality, expected = make_data(2, 2000)
    found = cross_fitted_confidence(uncertainty, quality)
    assert np.abs(found - expected).mean() < 0.03
    # a quality has no say in its own confidence
    quality[7] = 1 - quality[7]
    assert cross_fitted_confidence(uncertainty, quality)[7] == found[7]
    assert cross_fitted_confidence(uncertainty[:9], quality[:9]) is None


@given(ROWS)
def test_it_is_the_decreasing_map_of_scikit_learn(rows):
    uncertainty, quality = map(np.array, zip(*rows, strict=True))
    confidence = IsotonicConfidence.fit(uncertainty, quality)
    new = np.linspace(-1, 10, 56)
    found = confidence(new)
    assert (np.diff(found) <= 1e-12).all()
    assert 0 <= found.min() <= found.max() <= 1
    theirs = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(uncertainty.astype(float), quality)
    assert found == pytest.approx(theirs.predict(new), abs=1e-12)
    assert confidence(uncertainty).mean() == pytest.approx(quality.mean(), abs=1e-12)


def test_little_to_learn_from():
    assert IsotonicConfidence.fit([2.0] * 4, [0, 1, 1, 1])([0.0, 2.0, 5.0]).tolist() == [0.75] * 3
    assert IsotonicConfidence.fit([3.0], [0.4])([0.0, 9.0]).tolist() == [0.4] * 2
    assert IsotonicConfidence.fit([1.0, 2.0], [0.9, 0.1])([0.0, 1.0, 1.5, 3.0]) == pytest.approx([0.9, 0.9, 0.5, 0.1])
    assert IsotonicConfidence.fit([1.0, 2.0], [0.1, 0.9])([0.0, 1.5, 3.0]) == pytest.approx([0.5] * 3)
    with pytest.raises(ValueError, match="no items"):
        IsotonicConfidence.fit([], [])
    with pytest.raises(ValueError, match="`quality` is nan at position 1"):
        IsotonicConfidence.fit([1.0, 2.0], [0.5, np.nan])


def test_saved_and_loaded_it_is_the_same(tmp_path):
    uncertainty, quality, _ = make_data(3, 500)
    confidence = IsotonicConfidence.fit(uncertainty, quality)
    confidence.save(tmp_path / "confidence.json")
    loaded = IsotonicConfidence.load(tmp_path / "confidence.json")
    assert loaded == confidence
    assert (loaded(uncertainty) == confidence(uncertainty)).all()
    content = json.loads((tmp_path / "confidence.json").read_text())
    assert sorted(content) == ["name", "quality", "uncertainty", "version"]
    assert (content["name"], content["version"]) == ("isotonic_confidence", 1)
