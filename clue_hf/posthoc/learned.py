"""
A score learned from held-out outputs: their quality, predicted from the numbers of their tokens.

The prediction is the mean of a ridge regression on standardised features and of boosted trees, both fitted by
scikit-learn, kept as plain numbers, and evaluated by numpy. A learned score needs many rows: it is used only where it
ranks rows that did not fit it significantly better than the best single score, and else is that score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from transformers.utils import logging

from ..metrics import Measured, prediction_rejection_ratio, rejection_reports
from .stored import Stored


logger = logging.get_logger(__name__)
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
#: What is told of the log-probabilities, of the entropies, and of the sums of both, token by token.
STATISTICS = (
    "sum", "mean", "min", "max", "std", *(f"quantile_{level:g}" for level in QUANTILES), "mean_of_3_lowest",
    "mean_of_3_highest",
)  # fmt: skip
#: The features of every output, in their order.
TOKEN_FEATURES = (
    "tokens",
    "source_tokens",
    "tokens_per_source_token",
    *(f"{statistic}_of_{value}" for value in ("log_probability", "entropy", "both") for statistic in STATISTICS),
    "ended",
)
SOURCE_TOKENS = TOKEN_FEATURES.index("source_tokens")
#: Rounds, learning rate and leaves of the boosted trees.
ROUNDS, RATE, LEAVES = 200, 0.04, 8
#: Penalties that the ridge regression chooses among.
PENALTIES = tuple(10.0**power for power in range(-2, 5))
FOLDS = 5
#: With fewer rows to fit on there is no learned score; with fewer than `USUAL_ROWS` it is rarely the better one.
MIN_ROWS, USUAL_ROWS = 100, 1000
#: Probability that a gain is one, from which a learned score is used.
CERTAINTY = 0.9
#: Rows whose trees are evaluated at once.
CHUNK = 256


def token_features(log_probability: Any, entropy: Any, source_tokens: int, ended: bool) -> np.ndarray:
    """The [`TOKEN_FEATURES`] of one output, from the numbers of its tokens; all 0 where it has none."""
    count = len(log_probability)
    values = np.zeros((3, 1))
    if count:
        values = np.stack([log_probability, entropy, np.add(log_probability, entropy)]).astype(float)
    ascending = np.sort(values, axis=1)
    statistics = [
        values.sum(1),
        values.mean(1),
        ascending[:, 0],
        ascending[:, -1],
        values.std(1),
        *np.quantile(values, QUANTILES, axis=1),
        ascending[:, :3].mean(1),
        ascending[:, -3:].mean(1),
    ]
    lengths = [count, source_tokens, count / max(source_tokens, 1)]
    return np.concatenate([lengths, np.stack(statistics, 1).ravel(), [float(ended)]])


@dataclass(frozen=True)
class QualityRegressor(Stored):
    """
    Mean of a ridge regression on standardised features and of boosted trees, as plain numbers.

    Args:
        mean, scale, coefficients (`list[float]`):
            One for each feature: how it is standardised, and its weight in the ridge regression.
        intercept, baseline (`float`):
            Constants of the ridge regression and of the trees.
        feature, threshold, left, right (`list[list]`):
            For each split of each tree: it goes left where the feature is at most the threshold, to another split (a
            number from 0, above its own) or to the leaf `~number`. The first split is the root.
        leaves (`list[list[float]]`):
            What each tree adds. One without splits has one leaf.
    """

    name: ClassVar[str] = "quality_regressor"
    mean: list[float]
    scale: list[float]
    coefficients: list[float]
    intercept: float
    baseline: float
    feature: list[list[int]]
    threshold: list[list[float]]
    left: list[list[int]]
    right: list[list[int]]
    leaves: list[list[float]]

    @classmethod
    def fit(cls, features: np.ndarray, quality: np.ndarray) -> Self:
        """Fits both with scikit-learn."""
        from sklearn.ensemble import HistGradientBoostingRegressor
        from sklearn.linear_model import RidgeCV
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(features)
        ridge = RidgeCV(PENALTIES).fit(scaler.transform(features), quality)
        boosted = HistGradientBoostingRegressor(
            max_iter=ROUNDS, learning_rate=RATE, max_leaf_nodes=LEAVES, early_stopping=False, random_state=0
        ).fit(features, quality)
        return cls.from_fitted(scaler, ridge, boosted)

    @classmethod
    def from_fitted(cls, scaler: Any, ridge: Any, boosted: Any) -> Self:
        """The numbers of scikit-learn's `StandardScaler`, ridge regression and `HistGradientBoostingRegressor`."""
        trees = [_tree(predictor.nodes) for [predictor] in boosted._predictors]
        baseline = float(np.ravel(boosted._baseline_prediction)[0])
        linear = (scaler.mean_.tolist(), scaler.scale_.tolist(), ridge.coef_.tolist(), float(ridge.intercept_))
        return cls(*linear, baseline, *map(list, zip(*trees, strict=True)))

    def check(self) -> None:
        width = len(self.coefficients)
        if len(self.mean) != width or len(self.scale) != width or 0 in self.scale:
            raise ValueError("its lists do not fit the number of features")
        trees: list[list[Any]] = [self.feature, self.threshold, self.left, self.right, self.leaves]
        if any(len(column) != len(self.leaves) for column in trees):
            raise ValueError("its lists differ in length")
        for feature, threshold, left, right, leaves in zip(*trees, strict=True):
            splits = len(feature)
            if not len(threshold) == len(left) == len(right) == splits or len(leaves) != splits + 1:
                raise ValueError("a tree's lists differ in length")
            if any(type(number) is not int for number in (*feature, *left, *right)):
                raise ValueError("a number of a tree is not whole")
            if any(not 0 <= number < width for number in feature):
                raise ValueError("a tree asks for a feature that there is not")
            for split, children in enumerate(zip(left, right, strict=True)):
                if any(not (split < child < splits or -splits - 1 <= child < 0) for child in children):
                    raise ValueError("a tree leads nowhere")
        scalars = [self.intercept, self.baseline]
        lists = [self.mean, self.scale, self.coefficients, *self.threshold, *self.leaves, scalars]
        if any(type(number) not in (int, float) or not math.isfinite(number) for part in lists for number in part):
            raise ValueError("its numbers are not finite")

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The quality to expect of each row of features, from 0 to 1."""
        width = len(self.coefficients)
        if features.ndim != 2 or features.shape[1] != width:
            raise ValueError(f"There are features of shape {features.shape}, and the learned score has {width} each.")
        linear = (features - np.array(self.mean)) / np.array(self.scale) @ np.array(self.coefficients) + self.intercept
        chunks = [self._boosted(features[start : start + CHUNK]) for start in range(0, len(features), CHUNK)]
        return np.clip((linear + np.concatenate([np.empty(0), *chunks])) / 2, 0, 1)

    @cached_property
    def _trees(self) -> tuple[np.ndarray, ...]:
        """The trees side by side, filled up to the largest, and where each begins."""
        splits = max(1, *map(len, self.feature))

        def filled(rows: list[list[Any]], width: int) -> np.ndarray:
            return np.array([[*row, *[0] * (width - len(row))] for row in rows])

        columns = [filled(rows, splits) for rows in (self.feature, self.threshold, self.left, self.right)]
        return *columns, filled(self.leaves, splits + 1), np.where([len(row) > 0 for row in self.feature], 0, -1)

    def _boosted(self, features: np.ndarray) -> np.ndarray:
        feature, threshold, left, right, leaves, roots = self._trees
        rows, trees = np.arange(len(features))[:, None], np.arange(len(roots))
        place = np.broadcast_to(roots, (len(features), len(roots)))
        while (inside := place >= 0).any():
            split = np.maximum(place, 0)
            is_left = features[rows, feature[trees, split]] <= threshold[trees, split]
            place = np.where(inside, np.where(is_left, left[trees, split], right[trees, split]), place)
        return leaves[trees, ~place].sum(1) + self.baseline


def _tree(nodes: np.ndarray) -> tuple[list[int], list[float], list[int], list[int], list[float]]:
    """The splits and leaves of a tree of scikit-learn, whose children come after their parents."""
    is_leaf = nodes["is_leaf"].astype(bool)
    number = np.where(is_leaf, ~(np.cumsum(is_leaf) - 1), np.cumsum(~is_leaf) - 1)
    splits = nodes[~is_leaf]
    left, right = (number[splits[side].astype(int)].tolist() for side in ("left", "right"))
    feature, threshold = splits["feature_idx"].astype(int).tolist(), splits["num_threshold"].astype(float).tolist()
    return feature, threshold, left, right, nodes["value"][is_leaf].astype(float).tolist()


@dataclass(frozen=True)
class JudgedOutputs:
    """
    Outputs for held-out sources.

    Args:
        features (`np.ndarray` of shape `(outputs, features)`):
            The [`token_features`] of each.
        scores (`dict[str, np.ndarray]`):
            The single scores of each, by the name of the scorer.
        quality (`np.ndarray`):
            From 0 to 1.
        sources (`Sequence[str]`):
            Outputs of equal sources are never split into several folds.
    """

    features: np.ndarray
    scores: dict[str, np.ndarray]
    quality: np.ndarray
    sources: Sequence[str]


@dataclass(frozen=True)
class LearnedScore(Stored):
    """
    `1 - predicted quality`, or the best single score where that ranks as well.

    Args:
        scores (`list[str]`):
            Scorers whose scores are features beside those of the tokens.
        single (`str`):
            The single scorer with the highest prediction rejection ratio (PRR) on the rows that fitted.
        explanation (`str`):
            Whether the learned score is used, and why, in words.
        rows (`dict[str, int]`):
            Number of rows that fitted, and that chose.
        prr (`dict[str, float]`):
            PRR of each on the rows that fitted, that of the learned score by predictions of models fitted on others.
        gain, bound (`float`, *optional*):
            PRR of the learned score minus that of the single one on the rows that chose, and its lower bound.
        regressor ([`QualityRegressor`], *optional*):
            What predicts the quality; none where the single scorer is used.
    """

    name: ClassVar[str] = "learned_score"
    scores: list[str]
    single: str
    explanation: str
    rows: dict[str, int]
    prr: dict[str, float | None]
    gain: float | None = None
    bound: float | None = None
    regressor: QualityRegressor | None = None

    @classmethod
    def fit(
        cls,
        outputs: JudgedOutputs,
        fit: Sequence[int],
        choose: Sequence[int],
        scores: Sequence[str] = (),
        resamples: int = 2000,
        seed: int = 0,
    ) -> tuple[Self, np.ndarray]:
        """
        Fits on some rows and chooses on others; returns the score with that of every row. A row that fitted gets the
        score of a model that was fitted without its source.
        """
        fit, choose = list(fit), list(choose)
        features = np.column_stack([outputs.features, *(outputs.scores[name] for name in scores)])
        prr = {name: _prr(values[fit], outputs.quality[fit]) for name, values in outputs.scores.items()}
        single = max(prr, key=lambda name: _defined(prr[name]))
        rows = {"fit": len(fit), "choose": len(choose)}
        if len(fit) < MIN_ROWS:
            why = f"{len(fit):,} rows are too few to learn a score from (at least {MIN_ROWS})"
            return cls([*scores], single, _is_single(single, why), rows, prr), outputs.scores[single]
        if len(fit) < USUAL_ROWS:
            logger.warning(
                f"The learned score is fitted on {len(fit):,} rows: with fewer than {USUAL_ROWS:,} it rarely ranks "
                "better than the best single score."
            )
        regressor = QualityRegressor.fit(features[fit], outputs.quality[fit])
        uncertainty = 1 - regressor.predict(features)
        uncertainty[fit] = 1 - _out_of_fold(
            features[fit], outputs.quality[fit], [outputs.sources[row] for row in fit], seed
        )
        prr["learned"] = _prr(uncertainty[fit], outputs.quality[fit])
        gain = _gain(uncertainty[choose], outputs.scores[single][choose], outputs.quality[choose], resamples)
        measured = (rows, prr, _number(gain.value), _number(gain.low))
        judged = f"on {len(choose):,} rows that neither was fitted on, its PRR minus that of {single}"
        if not gain.low > 0:  # nan too
            why = f"{judged} cannot be told ({gain.reason or 'no resample has one'})"
            if not (math.isnan(gain.value) or math.isnan(gain.low)):
                why = f"{judged} is {gain.value:+.3f}, and at least {gain.low:+.3f} with probability {CERTAINTY:g}"
            explanation = _is_single(single, f"a learned score does not rank significantly better: {why}")
            return cls([*scores], single, explanation, *measured), outputs.scores[single]
        explanation = (
            f"learned is 1 - the quality predicted by a model of {features.shape[1]} features, fitted on {len(fit):,} "
            f"rows: {judged} is {gain.value:+.3f}, and at least {gain.low:+.3f} with probability {CERTAINTY:g}."
        )
        if not outputs.features[:, SOURCE_TOKENS].any():
            explanation += " It does not know the lengths of the sources."
        return cls([*scores], single, explanation, *measured, regressor), uncertainty

    @property
    def is_single(self) -> bool:
        """Whether the single scorer is used."""
        return self.regressor is None

    @property
    def reads_source_tokens(self) -> bool:
        """Whether the outputs that it was fitted on had sources of known length."""
        return self.regressor is not None and self.regressor.mean[SOURCE_TOKENS] > 0

    @property
    def used_scores(self) -> list[str]:
        """The scorers that it needs the scores of."""
        return [self.single] if self.is_single else self.scores

    def __call__(self, features: np.ndarray, scores: Sequence[float]) -> float:
        """The score of one output, from its [`token_features`] and its scores by [`used_scores`]."""
        if self.regressor is None:
            return float(scores[0])
        row = np.concatenate([features, scores])
        return 1 - float(self.regressor.predict(row[None])[0]) if np.isfinite(row).all() else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Name, version and numbers, as plain data."""
        return {**super().to_dict(), "regressor": None if self.regressor is None else self.regressor.to_dict()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Self:
        """The object that `to_dict` described; raises where the name, the version or a key is another."""
        regressor = content["regressor"]
        content = {**content, "regressor": None if regressor is None else QualityRegressor.from_dict(regressor)}
        return super().from_dict(content)

    def check(self) -> None:
        for value in (self.single, self.explanation, *self.scores):
            if not isinstance(value, str):
                raise ValueError(f"{value!r} is not a text")
        if self.regressor is not None:
            self.regressor.check()
            if len(self.regressor.coefficients) != len(TOKEN_FEATURES) + len(self.scores):
                raise ValueError("its number of features is another than that of outputs")


def _is_single(single: str, why: str) -> str:
    return f"learned is {single}, the best single scorer: {why}."


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _defined(value: float | None) -> float:
    return -math.inf if value is None else value


def _prr(uncertainty: np.ndarray, quality: np.ndarray) -> float | None:
    return _number(prediction_rejection_ratio(uncertainty, quality)) if len(quality) else None


def _gain(learned: np.ndarray, single: np.ndarray, quality: np.ndarray, resamples: int) -> Measured:
    """The difference of the PRR; the lower end of its interval is the one-sided bound."""
    if not len(quality):
        return Measured(math.nan, "there are none")
    both = {"learned": learned, "single": single}
    reports = rejection_reports(both, quality, resamples=resamples, metrics=["prr"])
    return reports["learned"]["prr"].minus(reports["single"]["prr"], level=2 * CERTAINTY - 1)


def _out_of_fold(features: np.ndarray, quality: np.ndarray, sources: Sequence[str], seed: int) -> np.ndarray:
    """The quality of each row as predicted by a model that was fitted on the rows of the other folds."""
    texts, number = np.unique(np.array(sources, dtype=object), return_inverse=True)
    fold = (np.random.default_rng(seed).permutation(len(texts)) % FOLDS)[number]
    predicted = np.empty(len(quality))
    for held_out in (fold == number for number in range(FOLDS)):
        if held_out.all():  # of a single source
            raise ValueError("A learned score needs outputs of several sources.")
        if held_out.any():
            fitted = QualityRegressor.fit(features[~held_out], quality[~held_out])
            predicted[held_out] = fitted.predict(features[held_out])
    return predicted
