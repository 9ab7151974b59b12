import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.posthoc.reference import ReferenceQuantiles, reference_quantiles


NUMBERS = st.lists(st.integers(-5, 5) | st.floats(-10, 10), min_size=1, max_size=60)


@given(NUMBERS, NUMBERS, st.sampled_from([2, 5, 101]))
def test_percentiles_are_shares_of_lower_uncertainties(uncertainty, new, num):
    reference = reference_quantiles(uncertainty, num)
    new = np.array([*new, *uncertainty], float)
    share = (np.array(uncertainty)[:, None] < new).mean(axis=0)
    found = reference.percentile_of(new)
    assert found / 100 == pytest.approx(share, abs=1 / (num - 1) + 1 / len(uncertainty) + 1e-9)
    assert (np.diff(found[np.argsort(new)]) >= -1e-9).all()
    assert ((found[new > max(uncertainty)] == 100).all(), (found[new <= min(uncertainty)] == 0).all()) == (True, True)


def test_it_is_the_inverse_of_the_quantiles():
    uncertainty = np.random.default_rng(0).gamma(2.0, size=5000)
    reference = reference_quantiles(uncertainty)
    assert len(reference.quantiles) == 101
    shares = np.arange(0, 100.5, 0.5)
    at = np.interp(shares, np.arange(101), reference.quantiles)
    assert reference.percentile_of(at) == pytest.approx(shares, abs=1e-9)
    assert reference.percentile_of(np.quantile(uncertainty, 0.93)) == pytest.approx([93])


def test_ties_and_bad_input():
    reference = reference_quantiles([2.0] * 10)
    assert reference.percentile_of([1.0, 2.0, 2.1]).tolist() == [0, 0, 100]
    # 40 % lie below 1
    assert reference_quantiles([0.0] * 4 + [1.0] * 6).percentile_of([1.0]) == pytest.approx([40], abs=10)
    with pytest.raises(ValueError, match="no uncertainties"):
        reference_quantiles([])
    with pytest.raises(ValueError, match="`num` is 1; it must be at least 2"):
        reference_quantiles([1.0], num=1)
    with pytest.raises(ValueError, match="`uncertainty` is nan at position 1"):
        reference.percentile_of([1.0, np.nan])


def test_saved_and_loaded_it_is_the_same(tmp_path):
    reference = reference_quantiles(np.random.default_rng(1).normal(size=300))
    reference.save(tmp_path / "reference.json")
    assert ReferenceQuantiles.load(tmp_path / "reference.json") == reference
    content = json.loads((tmp_path / "reference.json").read_text())
    assert content == {"name": "reference_quantiles", "version": 1, "quantiles": reference.quantiles}
