"""Rejection metrics with intervals: sorted once for all resamples and metrics, against each metric on its own.

11,334 items and seven scorers (the XSum test set), 2,000 resamples; and a million items without resamples.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from measure import Ratio, interleaved, ratio, write_table

from clue_hf.metrics import (
    augrc,
    aurc,
    bootstrap_interval,
    coverage_at_risk,
    e_aurc,
    paired_bootstrap,
    paired_rejection_differences,
    prediction_rejection_ratio,
    rejection_area,
    rejection_area_minmax,
    rejection_curve,
    rejection_report,
    rejection_reports,
    risk_at_coverage,
)


ITEMS, SCORERS, RESAMPLES, MANY = 11_334, 7, 2000, 1_000_000
#: Resamples of the plain way, for one scorer; its time is scaled up.
PLAIN_RESAMPLES = 50
#: Seconds.
AT_MOST, AT_MOST_WITH_INTERVALS = 2, 30


def mean_quality(uncertainty: np.ndarray, quality: np.ndarray) -> float:
    return float(quality.mean())


def oracle_area(uncertainty: np.ndarray, quality: np.ndarray, max_rejection: float = 1.0) -> float:
    return rejection_area(-quality, quality, max_rejection)


AT_A_SHARE = {
    "prr": prediction_rejection_ratio,
    "rejection_area": rejection_area,
    "rejection_area_minmax": rejection_area_minmax,
    "oracle_area": oracle_area,
}
PLAIN: dict[str, Callable[..., float]] = {
    "mean_quality": mean_quality,
    "random_area": mean_quality,
    **AT_A_SHARE,
    **{f"{name}_0.5": partial(metric, max_rejection=0.5) for name, metric in AT_A_SHARE.items()},
    "aurc": aurc,
    "e_aurc": e_aurc,
    "augrc": augrc,
    **{f"risk_at_coverage_{share}": partial(risk_at_coverage, coverage=share) for share in (0.5, 0.8)},
    **{f"coverage_at_risk_{share}": partial(coverage_at_risk, risk=share) for share in (0.1, 0.2)},
}
PAIRED = ("prr", "prr_0.5", "rejection_area", "aurc", "augrc", "mean_quality")


def make_items(n: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Scores with a few ties, and qualities of which a fifth is 0, like sentence BLEU."""
    generator = np.random.default_rng(0)
    quality = generator.beta(1, 3, n) * (generator.uniform(size=n) > 0.2)
    return {f"scorer {i}": np.round(generator.normal(size=n) - quality, 4) for i in range(SCORERS)}, quality


def plain_intervals(uncertainty: np.ndarray, quality: np.ndarray) -> dict[str, tuple[float, float]]:
    """Every metric with a sort in every resample."""
    found = {}
    for name, metric in PLAIN.items():
        interval = bootstrap_interval(metric, uncertainty, quality, resamples=PLAIN_RESAMPLES)
        found[name] = (interval.low, interval.high)
    return found


def check_equal(uncertainty: np.ndarray, quality: np.ndarray) -> None:
    """Both ways give the same intervals, or their times say nothing."""
    report = rejection_report(uncertainty, quality, resamples=PLAIN_RESAMPLES)
    plain = plain_intervals(uncertainty, quality)
    assert report.keys() == plain.keys()
    for name, (low, high) in plain.items():
        np.testing.assert_allclose([report[name]["low"], report[name]["high"]], [low, high], atol=1e-9)


def compare(
    what: str, fast: Callable[[], object], plain: Callable[[], object], scale: float, rounds: int
) -> tuple[list[str], list[Ratio]]:
    """A row: the time of either way, the plain one scaled up, and their ratio; the last two with their bars."""
    seconds = interleaved({"fast": fast, "plain": plain}, rounds, warmup=0, clock=time.process_time)
    fast_seconds, plain_seconds = (statistics.median(seconds[name]) for name in ("fast", "plain"))
    cells = [f"{fast_seconds:.2f} s", f"{scale * plain_seconds:.2f} s"]
    share = ratio(seconds, "fast", "plain") / scale
    bars = [Ratio(f"{what} / each metric by itself, time", share, at_most=1.0)]
    if scale > 1:
        bars.append(Ratio(f"{what}, time", fast_seconds, at_most=AT_MOST_WITH_INTERVALS, unit=" s"))
    return [what, *cells, f"{share:.3f}x"], bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="interleaved rounds")
    rounds = parser.parse_args().rounds
    scorers, quality = make_items(ITEMS)
    others, other_quality = {name: np.roll(scores, 1) for name, scores in scorers.items()}, np.roll(quality, 2)
    first, other = scorers["scorer 0"], others["scorer 0"]
    check_equal(first, quality)
    many_scorers, many_quality = make_items(MANY)
    many = many_scorers["scorer 0"], many_quality
    scale = RESAMPLES / PLAIN_RESAMPLES * SCORERS
    compared = [
        compare(
            f"`rejection_reports`: {len(PLAIN)} metrics, {SCORERS} scorers, {RESAMPLES:,} resamples",
            lambda: rejection_reports(scorers, quality, resamples=RESAMPLES),
            lambda: plain_intervals(first, quality),
            scale,
            rounds,
        ),
        compare(
            f"`paired_rejection_differences`: {len(PAIRED)} metrics, {SCORERS} scorers, {RESAMPLES:,} resamples",
            lambda: paired_rejection_differences(scorers, quality, others, other_quality, resamples=RESAMPLES),
            lambda: [
                paired_bootstrap(PLAIN[name], (first, quality), (other, other_quality), resamples=PLAIN_RESAMPLES)
                for name in PAIRED
            ],
            scale,
            rounds,
        ),
        compare(
            f"`rejection_report` of {MANY:,} items",
            lambda: rejection_report(*many),
            lambda: [metric(*many) for metric in PLAIN.values()],
            1,
            rounds,
        ),
    ]
    both = {"one": lambda: (prediction_rejection_ratio(*many), rejection_curve(*many))}
    seconds = statistics.median(interleaved(both, rounds, warmup=0, clock=time.process_time)["one"])
    last = f"`prediction_rejection_ratio` and `rejection_curve` of {MANY:,} items"
    bars = [bar for _, found in compared for bar in found] + [Ratio(f"{last}, time", seconds, AT_MOST, unit=" s")]
    rows = [row for row, _ in compared] + [[last, f"{seconds:.2f} s", f"{seconds:.2f} s", "1x"]]
    write_table(
        "metrics",
        "Rejection metrics with intervals",
        ["what", "time", "each metric by itself", "ratio"],
        rows,
        f"{ITEMS:,} items where nothing else is said. Each metric by itself: `bootstrap_interval` or "
        f"`paired_bootstrap`, which sort in every resample; measured with {PLAIN_RESAMPLES} resamples of one scorer, "
        f"scaled up to {RESAMPLES:,} and {SCORERS}. The intervals of a report are the same either way to 1e-9, "
        f"checked in the run. Processor time, medians of {rounds} interleaved rounds.",
        ratios=bars,
    )


if __name__ == "__main__":
    main()
