"""Prediction sets and intervals against loops by hand, numpy, and what exchangeability says exactly."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.errors import UserError
from clue_hf.posthoc import CONFORMAL, AdaptiveSets, Conformal, LeastAmbiguousSets, ScaledIntervals
from clue_hf.posthoc.calibration_file import UncertaintyCalibration
from clue_hf.posthoc.rules import check_posthoc


SETS = [LeastAmbiguousSets, AdaptiveSets]
#: Four rows of three classes, and their labels.
PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]])
LABELS = np.array([0, 1, 2, 0])
COVERAGES = st.sampled_from(["0.5", "0.6", "0.75", "0.8", "0.9"])


@st.composite
def labelled(draw, min_rows=12, max_rows=25):
    """Probabilities of three or four classes, often tied, and labels."""
    classes, rows = draw(st.integers(3, 4)), draw(st.integers(min_rows, max_rows))
    weights = draw(
        st.lists(st.lists(st.integers(1, 9), min_size=classes, max_size=classes), min_size=rows, max_size=rows)
    )
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    table = np.array(weights, float)
    return table / table.sum(axis=1, keepdims=True), np.array(labels)


def continuous(seed, rows=20, classes=5):
    """Probabilities without ties, and labels drawn from them."""
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet(np.ones(classes), rows)
    labels = np.array([generator.choice(classes, p=row) for row in probabilities])
    return probabilities, labels


def test_lac_by_hand():
    # the scores of the labels are 0.3, 0.6, 0.4, 0.8; the third smallest of four is ceil(5 * 0.6) = 3
    sets = LeastAmbiguousSets.fit(PROBABILITIES, LABELS, 0.6)
    assert sets.quantile == pytest.approx(0.6)
    assert (sets.coverage, sets.n) == (0.6, 4)
    new = [[0.45, 0.4, 0.15], [0.39, 0.31, 0.3]]  # at least 0.4; of the second none is, so that the top one is given
    assert sets(new).tolist() == [[True, True, False], [True, False, False]]
    assert LeastAmbiguousSets.fit(PROBABILITIES, LABELS, 0.8).quantile == pytest.approx(0.8)


def test_aps_by_hand():
    # the sums down to the labels are 0.7, 0.9, 0.6, 1.0; the third smallest is 0.9
    sets = AdaptiveSets.fit(PROBABILITIES, LABELS, 0.6)
    assert sets.quantile == pytest.approx(0.9)
    new = [[0.15, 0.6, 0.25], [0.02, 0.03, 0.95], [0.6, 0.3, 0.1]]
    assert sets(new).tolist() == [[False, True, True], [False, False, True], [True, True, False]]
    assert AdaptiveSets.fit(PROBABILITIES, LABELS, 0.8)(new).all()  # a label at the end asks for everything


def test_scaled_by_hand():
    mean, std = np.arange(19.0), np.linspace(1, 3, 19)
    target = mean + std * np.arange(1, 20) * np.where(np.arange(19) % 2, 1, -1)
    intervals = ScaledIntervals.fit(mean, std, target, 0.9)
    assert intervals.quantile == pytest.approx(18)  # of 1 to 19, the ceil(20 * 0.9)-th
    low, high = intervals([10.0, 0.0], [0.5, 2.0])
    assert low == pytest.approx([1, -36])
    assert high == pytest.approx([19, 36])
    with pytest.raises(ValueError, match=r"`\|target - mean\| / std` is inf at position 1"):
        ScaledIntervals.fit([0.0, 0.0], [1.0, 0.0], [1.0, 1.0], 0.5)


@pytest.mark.parametrize("method", SETS)
@given(rows=labelled(), coverage=COVERAGES)
def test_the_quantile_is_the_ceil_of_n_plus_1_coverage_smallest(method, rows, coverage):
    probabilities, labels = rows
    n = len(labels)
    fitted = method.fit(probabilities, labels, float(coverage))
    scores = []
    for row, label in zip(probabilities, labels, strict=True):
        before = [p for number, p in enumerate(row) if p > row[label] or (p == row[label] and number < label)]
        scores.append(1 - row[label] if method is LeastAmbiguousSets else math.fsum([*before, row[label]]))
    share = Fraction(math.ceil((n + 1) * Fraction(coverage)), n)
    assert fitted.quantile == pytest.approx(np.quantile(scores, float(share), method="inverted_cdf"), abs=1e-11)


@pytest.mark.parametrize("method", SETS)
@given(rows=labelled(), seed=st.integers(0, 99))
def test_sets_are_nested_hold_the_top_class_and_do_not_depend_on_the_order_of_rows(method, rows, seed):
    probabilities, labels = rows
    smaller = None
    for coverage in (0.5, 0.6, 0.75, 0.8, 0.9):
        fitted = method.fit(probabilities, labels, coverage)
        held = fitted(probabilities)
        assert held[np.arange(len(held)), probabilities.argmax(axis=1)].all()
        for row, kept in zip(probabilities, held, strict=True):  # nothing is left out that is more probable
            assert kept.all() or row[kept].min() >= row[~kept].max()
        assert smaller is None or (smaller <= held).all()
        smaller = held
        order = np.random.default_rng(seed).permutation(len(labels))
        assert method.fit(probabilities[order], labels[order], coverage) == fitted


@pytest.mark.parametrize("method", SETS)
@pytest.mark.parametrize("seed", range(5))
def test_the_names_of_classes_do_not_matter(method, seed):
    probabilities, labels = continuous(seed)
    order = np.random.default_rng(seed).permutation(5)
    one, other = method.fit(probabilities, labels), method.fit(probabilities[:, order], np.argsort(order)[labels])
    assert one.quantile == pytest.approx(other.quantile)
    assert (one(probabilities)[:, order] == other(probabilities[:, order])).all()


def held_out_one_by_one(fit, holds, n):
    """Of n + 1 rows, how many are held by what the other n give."""
    rows = np.arange(n + 1)
    return sum(holds(fit(rows[rows != row]), row) for row in rows)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("coverage", ["0.5", "0.75", "0.9", "0.95"])
@pytest.mark.parametrize("n", [19, 30])
def test_of_exchangeable_rows_exactly_as_many_are_held_as_the_theory_says(n, coverage, seed):
    """
    Without ties, `ceil((n + 1) coverage)` of n + 1 rows are held by the quantile of the others, whatever the rows are:
    that is the proof that the coverage is at least the one asked for, and at most 1 / (n + 1) more.
    """
    expected, level = math.ceil((n + 1) * Fraction(coverage)), float(coverage)
    probabilities, labels = continuous(seed, n + 1)
    generator = np.random.default_rng(seed)
    mean, std, target = generator.normal(size=n + 1), generator.random(n + 1) + 0.1, generator.standard_t(3, n + 1)

    def by_score(sets, row):
        return sets.scores(probabilities[[row]])[0, labels[row]] <= sets.quantile

    def within(intervals, row):
        low, high = intervals(mean[[row]], std[[row]])
        return bool((low <= target[row]) & (target[row] <= high))

    for method in SETS:
        held = held_out_one_by_one(lambda rows: method.fit(probabilities[rows], labels[rows], level), by_score, n)  # noqa: B023
        assert held == expected or (method is AdaptiveSets and held > expected)  # sums of 1 are ties
        answered = held_out_one_by_one(
            lambda rows: method.fit(probabilities[rows], labels[rows], level),  # noqa: B023
            lambda sets, row: sets(probabilities[[row]])[0, labels[row]],
            n,
        )
        assert answered >= held
    assert held_out_one_by_one(lambda r: ScaledIntervals.fit(mean[r], std[r], target[r], level), within, n) == expected


@pytest.mark.parametrize(("n", "coverage", "least"), [(8, 0.9, 9), (98, 0.99, 99), (0, 0.5, 1), (3, 0.8, 4)])
def test_too_few_rows_are_refused_with_the_number_that_is_needed(n, coverage, least):
    probabilities, labels = continuous(0, 100)
    with pytest.raises(UserError, match=rf"at least {least} are needed .* there are {n}\."):
        LeastAmbiguousSets.fit(probabilities[:n], labels[:n], coverage)
    assert LeastAmbiguousSets.fit(probabilities[:least], labels[:least], coverage).n == least


@pytest.mark.parametrize("coverage", [0, 1, -0.5, 90, float("nan")])
def test_a_coverage_is_a_probability(coverage):
    with pytest.raises(UserError, match="`coverage` must lie between 0 and 1"):
        LeastAmbiguousSets.fit(*continuous(0), coverage)


def test_sums_that_differ_by_rounding_are_ties():
    thirds = np.full((20, 3), 1 / 3)
    fitted = AdaptiveSets.fit(thirds, np.full(20, 2), 0.9)
    assert fitted([[0.1, 0.2, 0.7], [1 / 3, 1 / 3, 1 / 3]]).all()


@pytest.mark.parametrize("method", CONFORMAL.values())
def test_what_is_stored_comes_back_and_is_checked(method, tmp_path):
    fitted = method(0.9, 0.123456789012345678, 50)
    assert Conformal.from_checked_dict(json.loads(json.dumps(fitted.to_dict()))) == fitted
    fitted.save(tmp_path / "conformal.json")
    assert method.load(tmp_path / "conformal.json") == fitted
    for part, value in (("coverage", 1.5), ("quantile", "high"), ("quantile", -1.0), ("n", None)):
        with pytest.raises(ValueError, match="must lie|is not a number|the quantile is"):
            Conformal.from_checked_dict({**fitted.to_dict(), part: value})


def test_it_stands_in_the_calibration_file(tmp_path):
    arguments = ("normalized_entropy", {}, np.arange(30) / 30, None, ())
    fitted = AdaptiveSets(0.8, 0.95, 30)
    UncertaintyCalibration.fit(*arguments, conformal=fitted).write(tmp_path)
    assert UncertaintyCalibration.read(str(tmp_path)).conformal == fitted
    content = json.loads((tmp_path / "uncertainty.json").read_text())
    (tmp_path / "uncertainty.json").write_text(json.dumps({**content, "conformal": {"name": "magic"}}))
    with pytest.raises(UserError, match="'conformal' in uncertainty.json .* is damaged"):
        UncertaintyCalibration.read(str(tmp_path))
    UncertaintyCalibration.fit(*arguments).write(tmp_path)  # calibrated again, without
    assert "conformal" not in json.loads((tmp_path / "uncertainty.json").read_text())


@pytest.mark.parametrize(("family", "method", "message"), [
    ("numbers", "lac", "'lac' is not supported for models that predict numbers: use scaled"),
    ("numbers", "aps", "use scaled"),
    ("classes", "scaled", "'scaled' is not supported for models that predict classes: use lac, aps"),
    ("text", "lac", "conformal is not supported for language models"),
    ("text", "scaled", "conformal is not supported for language models"),
])  # fmt: skip
def test_one_rule_says_what_goes_with_what(family, method, message):
    with pytest.raises(UserError, match=message):
        check_posthoc(family, conformal=method)
    for known in {"classes": ("lac", "aps"), "numbers": ("scaled",)}.get(family, ()):
        check_posthoc(family, conformal=known)
