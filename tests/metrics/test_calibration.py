import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.metrics import alignment_error, confidence_calibration_error


rows = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=60)


def ece_by_the_book(confidence, correct, bins=15):
    """A loop over the bins (low, high], as Guo et al. write it."""
    total = 0.0
    for low, high in zip(np.arange(bins) / bins, np.arange(1, bins + 1) / bins, strict=True):
        inside = (confidence > low) & (confidence <= high)
        if low == 0:
            inside |= confidence == 0
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return total


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=80))
def test_ece_against_a_loop(pairs):
    confidence, correct = np.array(pairs, dtype=float).T
    # away from the borders of the bins, where rounding decides
    if (np.abs(confidence * 15 - np.round(confidence * 15)) < 1e-9).any():
        return
    expected = ece_by_the_book(confidence, correct)
    assert confidence_calibration_error(confidence, correct) == pytest.approx(expected, abs=1e-12)


def test_ece_of_known_cases():
    assert confidence_calibration_error([0.8] * 10, [1] * 8 + [0] * 2) == pytest.approx(0)
    assert confidence_calibration_error([1.0, 1.0], [0, 0]) == 1
    assert confidence_calibration_error([0.0, 0.0], [1, 1]) == 1


@given(rows, st.randoms())
def test_alignment_error_has_bounds_and_no_order(pairs, random):
    error, uncertainty = np.array(pairs).T
    value = alignment_error(error, uncertainty)
    assert abs((error - uncertainty).mean()) - 1e-9 <= value <= np.abs(error - uncertainty).mean() + 1e-9
    shuffled = pairs.copy()
    random.shuffle(shuffled)
    assert alignment_error(*np.array(shuffled).T) == pytest.approx(value, abs=1e-9)


def test_alignment_error_of_known_cases():
    generator = np.random.default_rng(0)
    uncertainty = generator.uniform(0, 2, 200_000)
    calibrated = generator.exponential(uncertainty)  # mean error = uncertainty
    assert alignment_error(calibrated, uncertainty) == pytest.approx(0, abs=0.02)
    assert alignment_error(calibrated + 0.5, uncertainty) == pytest.approx(0.5, abs=0.02)
    # two groups that are wrong in opposite directions do not cancel
    error, uncertainty = [1.0] * 32 + [3.0] * 28, [2.0] * 32 + [2.5] * 28  # eight bins and seven
    assert alignment_error(error, uncertainty) == pytest.approx((32 * 1 + 28 * 0.5) / 60)
    assert alignment_error([0.0, 4.0] * 30, [2.0] * 60) == 0


def test_bad_input_is_located():
    with pytest.raises(ValueError, match="`uncertainty` is nan at position 1"):
        alignment_error([1, 2], [1, float("nan")])
    with pytest.raises(ValueError, match="differ in length"):
        confidence_calibration_error([0.1], [1, 0])
    assert np.isnan(alignment_error([], []))
    assert np.isnan(confidence_calibration_error([], []))
