"""Real patients that need no download: 442 rows with ten measurements each, which scikit-learn carries."""

from __future__ import annotations

import datasets
import pyarrow as pa

from ..splits import split_by_source


SEED = 0
TARGET = "progression"


def load_diabetes_splits() -> dict[str, datasets.Dataset]:
    """
    The splits `train` (310 rows), `validation` (44) and `test` (88). The columns are `age`, `sex` (1 or 2), `bmi`,
    `bp` (blood pressure) and the blood serum measurements `s1` to `s6`, as they were measured; `progression`, a
    measure of the disease a year later, from 25 to 346, is the target.
    """
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    columns = dict(zip(bunch.feature_names, bunch.data.T, strict=True))
    table = pa.table({name: pa.array(values) for name, values in {**columns, TARGET: bunch.target}.items()})
    return dict(split_by_source(datasets.Dataset(table), {"validation": 0.1, "test": 0.2}, SEED, None))
