"""
torch-uncertainty's numbers, recorded by tests/fixtures/torch_uncertainty/record.py.

Its areas are trapezoids over the coverages 1/n..1, divided by that width: the first and the last point count half.
Ours are plain means over the n points, as the papers write them, so

    (n - 1) * theirs = n * ours - (first point + last point) / 2.

Its coverage at a risk is nan where no coverage is that safe (ours: 0), and it breaks ties by position (ours: by their
mean); the recorded cases have neither. It computes in single precision.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from clue_hf.metrics import augrc, aurc, coverage_at_risk, rejection_curve, risk_at_coverage


RECORDED = json.loads((Path(__file__).parents[1] / "fixtures/torch_uncertainty/recorded.json").read_text())


@pytest.fixture(params=RECORDED["cases"], ids=lambda case: str(len(case["correct"])))
def case(request):
    return -np.array(request.param["confidence_rank"]), np.array(request.param["correct"]), request.param["metrics"]


def as_trapezoid(mean, points):
    n = len(points)
    return (n * mean - (points[0] + points[-1]) / 2) / (n - 1)


def test_areas(case):
    uncertainty, correct, recorded = case
    risks = 1 - rejection_curve(uncertainty, correct)[::-1]
    coverages = np.arange(1, len(risks) + 1) / len(risks)
    assert as_trapezoid(aurc(uncertainty, correct), risks) == pytest.approx(recorded["aurc"], abs=1e-6)
    assert as_trapezoid(augrc(uncertainty, correct), risks * coverages) == pytest.approx(recorded["augrc"], abs=1e-6)
    # and so they hardly differ where there are many answers
    assert aurc(uncertainty, correct) == pytest.approx(recorded["aurc"], abs=1 / len(risks))
    assert augrc(uncertainty, correct) == pytest.approx(recorded["augrc"], abs=1 / len(risks))


def test_points(case):
    uncertainty, correct, recorded = case
    assert coverage_at_risk(uncertainty, correct, 0.05) == pytest.approx(recorded["coverage_at_risk_0.05"], abs=1e-6)
    assert risk_at_coverage(uncertainty, correct, 0.8) == pytest.approx(recorded["risk_at_coverage_0.8"], abs=1e-6)


def test_the_cases_tell_something():
    assert len(RECORDED["cases"]) == 4
    assert all(0 < value < 1 for entry in RECORDED["cases"] for value in entry["metrics"].values())
