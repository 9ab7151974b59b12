"""Do prediction sets and intervals hold the truth as often as they promise? Simulated on synthetic data."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from measure import Ratio, write_table
from scipy.special import softmax

from clue_hf.posthoc import (
    CONFORMAL,
    Conformal,
    IsotonicCalibrator,
    PredictionSets,
    QuantileCalibrator,
    ScaledIntervals,
    TemperatureCalibrator,
)


SIZES, COVERAGES, CLASSES = (50, 500), (0.8, 0.9, 0.95), 10
#: New rows for each calibration set, and other rows that a calibrator is fitted on.
NEW_ROWS, OTHER_ROWS = 500, 200
#: Standard errors that a mean stays within with a probability of 99.9 %, on one side.
ERRORS = 3.09

Rows = tuple[np.ndarray, ...]
Law = Callable[[np.random.Generator, int], Rows]
#: Calibration rows, as many as asked for, and new rows.
Trial = Callable[[np.random.Generator, int], tuple[Rows, Rows]]


def class_rows(generator: np.random.Generator, n: int) -> Rows:
    """Probabilities of a model that is too certain and not quite right, and labels."""
    logits = 2 * generator.standard_normal((n, CLASSES))
    labels = (softmax(logits, axis=1).cumsum(axis=1) < generator.random((n, 1))).sum(axis=1)
    told = softmax(1.5 * logits + generator.standard_normal((n, CLASSES)), axis=1)
    return told, np.minimum(labels, CLASSES - 1)


def tied_rows(generator: np.random.Generator, n: int) -> Rows:
    """The same with coarse probabilities, many of them equal."""
    told, labels = class_rows(generator, n)
    coarse = np.floor(16 * told) + 1
    return coarse / coarse.sum(axis=1, keepdims=True), labels


def number_rows(generator: np.random.Generator, n: int) -> Rows:
    """Mean and std of a model that is a little off and far too certain, and targets with heavy tails."""
    place = generator.random(n)
    target = np.sin(6 * place) + (0.2 + place) * generator.standard_t(4, n)
    return 0.9 * np.sin(6 * place), 0.1 + 0.4 * place + 0.1 * generator.random(n), target


def trial(law: Law, calibrator: Any = None, same_rows: bool = False) -> Trial:
    """Draws of a law, after a calibrator that was fitted on other rows or on the calibration rows themselves."""

    def after(fitted: Any, rows: Rows) -> Rows:
        if isinstance(fitted, QuantileCalibrator):
            return fitted.mean(*rows[:2]), fitted.std(*rows[:2]), rows[2]
        return fitted(rows[0]), rows[1]

    def draw(generator: np.random.Generator, n: int) -> tuple[Rows, Rows]:
        rows, new = law(generator, n), law(generator, NEW_ROWS)
        if calibrator is None:
            return rows, new
        fitted = calibrator.fit(*(rows if same_rows else law(generator, OTHER_ROWS)))
        return after(fitted, rows), after(fitted, new)

    return draw


#: By name: the method, what is drawn, whether its scores have no ties, and whether the guarantee holds.
CASES: dict[str, tuple[str, Trial, bool, bool]] = {
    "lac": ("lac", trial(class_rows), True, True),
    "lac, temperature fitted on other rows": ("lac", trial(class_rows, TemperatureCalibrator), True, True),
    "lac, tied probabilities": ("lac", trial(tied_rows), False, True),
    "lac, isotonic fitted on the same rows": ("lac", trial(class_rows, IsotonicCalibrator, True), False, False),
    "aps": ("aps", trial(class_rows), False, True),
    "aps, temperature fitted on other rows": ("aps", trial(class_rows, TemperatureCalibrator), False, True),
    "aps, tied probabilities": ("aps", trial(tied_rows), False, True),
    "scaled": ("scaled", trial(number_rows), True, True),
    "scaled, quantile fitted on other rows": ("scaled", trial(number_rows, QuantileCalibrator), True, True),
}


def judge(fitted: Conformal, rows: Rows) -> tuple[float, float, float]:
    """The share of new rows whose truth is held, by the score alone and as it is answered, and the mean size."""
    if isinstance(fitted, PredictionSets):
        probabilities, labels = rows
        place = np.arange(len(labels)), labels
        sets = fitted(probabilities)
        return (fitted.scores(probabilities)[place] <= fitted.quantile).mean(), sets[place].mean(), sets.sum(1).mean()
    assert isinstance(fitted, ScaledIntervals)
    mean, std, target = rows
    low, high = fitted(mean, std)
    held = ((low <= target) & (target <= high)).mean()
    return held, held, (high - low).mean()


def table_rows(name: str, n: int, draws: int) -> Iterator[tuple[list[str], float]]:
    """The rows of the table, one for each coverage, and by how many standard errors each is outside its bounds."""
    method, draw, has_no_ties, is_guaranteed = CASES[name]
    judged = np.zeros((len(COVERAGES), draws, 3))
    for number in range(draws):
        known, new = draw(np.random.default_rng([n, number]), n)
        for place, coverage in enumerate(COVERAGES):
            judged[place, number] = judge(CONFORMAL[method].fit(*known, coverage), new)  # type: ignore[attr-defined]
    for coverage, measured in zip(COVERAGES, judged, strict=True):
        by_score, answered, size = measured.mean(axis=0)
        error = measured[:, 0].std(ddof=1) / draws**0.5
        least, most = coverage, coverage + 1 / (n + 1)
        outside = max(is_guaranteed * (least - by_score), has_no_ties * (by_score - most), 0.0) / error
        bounds = f"{least:g}", f"{most:.3f}" if has_no_ties else "-"
        numbers = [*(f"{number:.4f}" for number in (by_score, error, answered)), f"{size:.2f}"]
        yield [name, f"{n:,}", *bounds, *numbers], outside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000, help="calibration sets for each row")
    draws = parser.parse_args().draws
    found = [row for name in CASES for n in SIZES for row in table_rows(name, n, draws)]
    what = "prediction sets and intervals: coverage outside the bounds of theory, at worst, in standard errors"
    write_table(
        "conformal",
        "Prediction sets and intervals with a guarantee",
        ["method", "rows", "asked for", "at most", "by the score", "standard error", "answered", "size"],
        [cells for cells, _ in found],
        f"Synthetic data. Each row: {draws:,} calibration sets, each judged on {NEW_ROWS:,} new rows. `by the score`: "
        "the share of new rows whose truth has a score of at most the quantile. The theory bounds it: at least the "
        "coverage that was asked for and, where scores have no ties, at most 1 / (rows + 1) more. The bar is "
        f"{ERRORS:g} standard errors outside of that. `answered`: the share that is held by the sets as they "
        "are answered, which always contain the most probable class. `size`: the mean number of classes of "
        f"{CLASSES}, or the mean width of the intervals. A calibrator that is fitted on other rows has {OTHER_ROWS} "
        "of them. `isotonic fitted on the same rows` is what must not be done: rows that fitted something certify "
        "nothing.",
        ratios=[Ratio(what, max(outside for _, outside in found), at_most=ERRORS, unit="")],
    )


if __name__ == "__main__":
    main()
