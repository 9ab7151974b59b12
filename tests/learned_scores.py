"""Learned scores whose formula is known."""

from clue_hf.posthoc.learned import TOKEN_FEATURES, LearnedScore, QualityRegressor


def linear_score(weights, scores=(), single=None):
    """
    Quality `(1 + sum of weight * feature) / 2`, clipped to [0, 1]: the trees say 0. With `single` the score is that
    scorer instead.
    """
    names = [*TOKEN_FEATURES, *scores]
    coefficients = [float(weights.get(name, 0.0)) for name in names]
    leaf_only = {"feature": [[]], "threshold": [[]], "left": [[]], "right": [[]], "leaves": [[0.0]]}
    regressor = QualityRegressor(
        [0.0] * len(names), [1.0] * len(names), coefficients, intercept=1.0, baseline=0.0, **leaf_only
    )
    regressor.check()
    return LearnedScore(
        [*scores],
        single or "perplexity",
        f"learned is {single}." if single else "learned is 1 - the quality predicted.",
        {"fit": 500, "choose": 200},
        {"perplexity": 0.5, "learned": 0.6},
        0.1,
        -0.1 if single else 0.05,
        None if single else regressor,
    )
