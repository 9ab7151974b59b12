"""The density of a language model's texts, fitted on training rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from transformers.utils.logging import tqdm

from ..predictors.text import TextPredictor
from ..scorers.density import Density


#: Rows that it is fitted on: more change it little.
MAX_ROWS = 5000


def fit_density(
    predictor: TextPredictor, sources: Sequence[str], references: Sequence[str], batch_size: int, seed: int
) -> Density:
    """The density of the references, as the model sees them with and without their sources."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(sources))[:MAX_ROWS]).tolist()
    batches = predictor.collector.plan([sources[row] for row in rows], batch_size=batch_size)
    parts = [
        predictor.collector.pooled_references(batch, [references[rows[place]] for place in batch.rows])
        for batch in tqdm(batches, desc="Fitting the density", unit=" batches")
    ]
    vectors, background = map(np.concatenate, zip(*parts, strict=True))
    # in the order of the rows, which the batches do not keep
    order = np.argsort([place for batch in batches for place in batch.rows])
    return Density.fit(vectors[order], background[order], seed)
