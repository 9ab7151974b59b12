"""Does the guarantee of abstention thresholds hold? 1,000 calibration sets from laws whose true risk is known."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from measure import Ratio, write_table
from scipy.stats import binom
from transformers.utils import logging

from clue_hf.deploy.token_calibration import Parts
from clue_hf.posthoc import abstention_threshold, learned


SIZES, RISKS, DELTA, MIN_COVERAGE = (200, 1000, 5000), (0.05, 0.1, 0.2), 0.1, 0.2
#: The shares of what is answered at which the best threshold is looked for.
FINE = 100_000
#: Rounds of boosting of a learned score here: a tenth of the usual, for a fraction of the time.
ROUNDS = 20


@dataclass(frozen=True)
class Law:
    """
    Uncertainties spread evenly over [0, 1), or over that many tied levels in it, and a loss whose mean at the
    uncertainty u is `mean_loss(u)`: 0 or 1, or (where `graded`) a beta variable.
    """

    mean_loss: Callable[[np.ndarray], np.ndarray]
    levels: int | None = None
    graded: bool = False

    def draw(self, generator: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        uncertainty = generator.random(n)
        if self.levels:
            uncertainty = np.floor(uncertainty * self.levels) / self.levels
        mean = self.mean_loss(uncertainty)
        if self.graded:
            return uncertainty, generator.beta(2 * mean + 1e-12, 2 * (1 - mean))
        return uncertainty, (generator.random(n) < mean).astype(float)

    def risks(self) -> tuple[np.ndarray, np.ndarray]:
        """Thresholds, ascending, and the true risk below each: exact at ties, else by the midpoint rule."""
        cells = self.levels or FINE
        middle = np.arange(cells) / cells + (0 if self.levels else 0.5 / cells)
        return np.arange(1, cells + 1) / cells, np.cumsum(self.mean_loss(middle)) / np.arange(1, cells + 1)


LAWS = {
    "0/1 loss, `u^2 / 2`": Law(lambda u: u**2 / 2),
    "0/1 loss, falls, then rises": Law(lambda u: 0.01 + 0.6 * (u - 0.3) ** 2),
    "0/1 loss, 10 tied levels": Law(lambda u: (u + 0.05) ** 2 / 2, levels=10),
    "0/1 loss, 8 tied levels, up and down": Law(lambda u: 0.105 - 0.095 * np.cos(np.pi * 8 * u), levels=8),
    "loss in [0, 1], `u^2 / 2`": Law(lambda u: u**2 / 2, graded=True),
}


def highest(uncertainty: np.ndarray, loss: np.ndarray, max_risk: float) -> float:
    """What one would do without a test: the highest threshold whose risk on the calibration rows is low enough."""
    order = np.argsort(uncertainty)
    candidates, rows = np.unique(uncertainty[order], return_index=True)
    candidates, rows = np.append(candidates, np.inf), np.append(rows, len(loss))
    safe = np.append(0, np.cumsum(loss[order]))[rows] <= max_risk * rows
    safe &= rows >= MIN_COVERAGE * len(loss)
    return float(candidates[safe][-1]) if safe.any() else -np.inf


@dataclass(frozen=True)
class LearnedLaw:
    """
    Synthetic outputs of a finite population, drawn with replacement, so that the true risk of any threshold is known
    exactly: six features, a single score that knows the first of them, and a beta-distributed loss whose mean depends
    on the first and, by `curvature`, on the square of the second.
    """

    curvature: float
    size: int = 2000

    def population(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features, single score and mean loss."""
        generator = np.random.default_rng(0)
        features = generator.normal(size=(self.size, 6))
        logit = 1.5 * features[:, 0] + self.curvature * (features[:, 1] ** 2 - 1) - 2
        return features, features[:, 0] + 0.3 * generator.normal(size=self.size), 1 / (1 + np.exp(-logit))

    def run(self, name: str, rows: int, draws: int) -> tuple[list[list[str]], float]:
        """
        As `clue-hf calibrate --scorer learned` does: fitted on half of the rows, chosen on a fifth, certified on the
        rest. Beside it what would come of certifying on the rows that fitted. Also gives the largest share of sets
        that exceed the risk.
        """
        features, single, mean_loss = self.population()
        generator, used = np.random.default_rng(rows), 0
        exceeded, answered = np.zeros((3, len(RISKS), draws), bool), np.zeros((3, len(RISKS), draws))
        for draw in range(draws):
            member = generator.integers(0, self.size, rows)
            loss = generator.beta(2 * mean_loss[member], 2 * (1 - mean_loss[member]))
            sources = [str(number) for number in range(rows)]
            parts = Parts.split(sources, draw)
            outputs = learned.JudgedOutputs(features[member], {"perplexity": single[member]}, 1 - loss, sources)
            score, uncertainty = learned.LearnedScore.fit(outputs, parts.fit, parts.choose, resamples=500)
            used += not score.is_single
            of_all = single if score.regressor is None else 1 - score.regressor.predict(features)
            certifying = (uncertainty[parts.certify], loss[parts.certify])
            fitting = (of_all[member][parts.fit], loss[parts.fit])
            for place, risk in enumerate(RISKS):
                found = [
                    abstention_threshold(*certifying, risk, DELTA, MIN_COVERAGE).threshold,
                    highest(*certifying, risk),
                    abstention_threshold(*fitting, risk, DELTA, MIN_COVERAGE).threshold,
                ]
                for way, threshold in enumerate(found):
                    kept = of_all < (-np.inf if threshold is None else threshold)
                    answered[way, place, draw] = kept.mean()
                    exceeded[way, place, draw] = kept.any() and mean_loss[kept].mean() > risk
        ascending = np.sort(mean_loss)
        lines, largest = [], 0.0
        for place, risk in enumerate(RISKS):
            shares = exceeded[:, place].mean(axis=1)
            largest = max(largest, float(shares[0]))
            best = np.mean(np.cumsum(ascending) / np.arange(1, self.size + 1) <= risk)
            coverage, none = answered[0, place].mean(), np.mean(answered[0, place] == 0)
            cells = [*shares, best, coverage, none]
            lines.append([name, f"{used / draws:.0%}", f"{risk:g}", *(f"{cell:.1%}" for cell in cells)])
        return lines, largest


LEARNED_LAWS = {
    "a learned score knows more": LearnedLaw(curvature=1.0),
    "a learned score knows no more": LearnedLaw(curvature=0.0),
}


def row(name: str, law: Law, n: int, max_risk: float, draws: int) -> tuple[list[str], float]:
    """A row of the table, and the share of sets that exceed the risk."""
    generator = np.random.default_rng(n)
    thresholds, risks = law.risks()
    certified, naive = np.zeros(draws), np.zeros(draws)
    for number in range(draws):
        rows = law.draw(generator, n)
        certified[number] = min(abstention_threshold(*rows, max_risk, DELTA, MIN_COVERAGE).threshold or 0.0, 1.0)
        naive[number] = np.clip(highest(*rows, max_risk), 0.0, 1.0)

    def exceeds(found: np.ndarray) -> float:
        """The share of draws in which something is answered at a true risk above the one asked for."""
        return float(np.mean((found > 0) & (np.interp(found, thresholds, risks) > max_risk)))

    safe = thresholds[risks <= max_risk]
    best = safe[-1] if len(safe) else 0.0
    cells = [
        name,
        f"{n:,}",
        f"{max_risk:g}",
        f"{exceeds(certified):.1%}",
        f"{exceeds(naive):.1%}",
        f"{best:.1%}",
        f"{certified.mean():.1%}",
        f"{np.mean(certified == 0):.1%}",
    ]
    return cells, exceeds(certified)


def guarantee(what: str, shares: list[float], draws: int) -> Ratio:
    """The largest share of sets that exceed the risk, and what a share of delta stays below in that many sets."""
    bound = binom.ppf(0.999, draws, DELTA) / draws
    return Ratio(f"{what}: largest share of sets above the risk", 100 * max(shares), 100 * bound, unit=" %")


def write_learned(draws: int) -> None:
    learned.ROUNDS = ROUNDS
    logging.get_logger("clue_hf.posthoc.learned").setLevel("ERROR")  # that the rows are few is known
    rows = 1000
    found = [law.run(name, rows, draws) for name, law in LEARNED_LAWS.items()]
    lines = [line for some, _ in found for line in some]
    bar = guarantee("abstention by a learned score", [share for _, share in found], draws)
    write_table(
        "abstention_learned",
        "Abstention with a guarantee, by a learned score",
        ["synthetic law", "learned is used", "risk asked for", "exceeded", "without a test",
         "certified on the rows that fitted", "best coverage", "coverage", "none found"],
        lines,
        f"Synthetic data. Each law: {draws:,} calibration sets of {rows:,} rows, of which half fit a learned score "
        f"({ROUNDS} rounds of boosting), a "
        f"fifth chooses between it and the single score, and 30 % certify; delta = {DELTA:g}. `exceeded`: the share "
        f"of sets whose threshold has a true risk above the one asked for; the guarantee is {DELTA:.0%}, and the bar "
        f"{bar.at_most:.1f}%, which a share of {DELTA:.0%} stays below with probability 99.9 % in {draws:,} "
        "sets. The next two columns are the same of what is not done: the highest threshold whose risk on the "
        "certifying rows is low enough, and thresholds certified on the very rows that fitted the score. "
        "`best coverage`: what could be answered if the law were known. `coverage`: what is answered on average, "
        "nothing where none is found.",
        command="abstention.py --learned",
        ratios=[bar],
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000, help="calibration sets for each row")
    parser.add_argument("--learned", action="store_true", help="with a learned score instead: ten minutes")
    arguments = parser.parse_args()
    (write_learned if arguments.learned else write_laws)(arguments.draws)


def write_laws(draws: int) -> None:
    found = [row(name, law, n, risk, draws) for name, law in LAWS.items() for n in SIZES for risk in RISKS]
    bar = guarantee("abstention", [share for _, share in found], draws)
    write_table(
        "abstention",
        "Abstention with a guarantee",
        ["law", "rows", "risk asked for", "exceeded", "without a test", "best coverage", "coverage", "none found"],
        [cells for cells, _ in found],
        f"Each row: {draws:,} calibration sets, delta = {DELTA:g}, sequences from {MIN_COVERAGE:.0%} of the rows. "
        "`exceeded`: the share of sets whose threshold has a true risk above the one asked for; the guarantee "
        f"is {DELTA:.0%}, and the bar {bar.at_most:.1f}%, which a share of {DELTA:.0%} stays below with "
        f"probability 99.9 % in {draws:,} sets. `without a test`: the same of the highest threshold whose risk on the "
        "calibration rows is low enough. `best coverage`: what could be answered if the law were known. `coverage`: "
        "what is answered on average, nothing where no threshold is found. `u^2 / 2` is the mean loss at the "
        "uncertainty u, which is spread evenly over [0, 1).",
        ratios=[bar],
    )


if __name__ == "__main__":
    main()
