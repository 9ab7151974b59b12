"""What is read from `uncertainty.json`, and how it is said what of it is damaged."""

import pytest

from clue_hf.errors import UserError
from clue_hf.posthoc import CALIBRATORS, BetaCalibrator, IsotonicCalibrator, QuantileCalibrator, TemperatureCalibrator
from clue_hf.posthoc.saved import stored_calibrator, stored_error_predictor, stored_passes


def test_nothing_was_saved():
    assert stored_passes("a model", {}) is None
    assert stored_calibrator("a model", {}, numbers=False) is None
    assert stored_error_predictor("a model", {}, "float32", "cpu", numbers=True) is None


@pytest.mark.parametrize(
    "calibrator",
    [
        TemperatureCalibrator(2.0),
        BetaCalibrator([1, 2], [0.5, 1], [0, -1]),
        IsotonicCalibrator([[0.0, 1.0], [0.5]], [[0.2, 0.9], [0.5]]),
        QuantileCalibrator([-1.0, 2.0], [0.2, 0.9]),
    ],
)
def test_what_was_saved_comes_back(calibrator):
    numbers = calibrator.name not in CALIBRATORS
    stored = {"calibrator": calibrator.to_dict(), "mc_samples": 3}
    assert stored_calibrator("a model", stored, numbers) == calibrator
    assert stored_passes("a model", stored) == 3
    with pytest.raises(UserError, match="'calibrator' in uncertainty.json of 'a model' is damaged"):
        stored_calibrator("a model", stored, not numbers)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("temperature", "TypeError"),
        ({"version": 1, "temperature": 2.0}, "KeyError: 'name'"),
        ({"name": "temperature", "version": 2, "temperature": 2.0}, "version 2"),
        ({"name": "temperature", "version": 1, "temperature": None}, "None is not a number"),
        ({"name": "temperature", "version": 1, "temperature": float("nan")}, "nan is not a number"),
        ({"name": "isotonic", "version": 1, "knots": [[0, 1], [0]], "values": [[0, 1], [0, 1]]}, "differ in length"),
    ],
)
def test_a_damaged_calibrator_is_named(content, why):
    pattern = f"'calibrator' in uncertainty.json of 'a model' is damaged .*{why}.* delete this part"
    with pytest.raises(UserError, match=pattern):
        stored_calibrator("a model", {"calibrator": content}, numbers=False)


def test_other_damaged_parts_are_named():
    for passes in ("many", 2.5, -1):
        with pytest.raises(UserError, match="'mc_samples' in uncertainty.json"):
            stored_passes("a model", {"mc_samples": passes})
    for content in (7, {}, {"folder": None}, {"folder": "error_predictor"}):
        with pytest.raises(UserError, match="'error_predictor' in uncertainty.json"):
            stored_error_predictor("a model", {"error_predictor": content}, "float32", "cpu", numbers=False)
