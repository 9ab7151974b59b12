"""The embedded patients: real, fixed, as they were measured."""

import hashlib

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

from clue_hf.data.embedded.diabetes import TARGET, load_diabetes_splits
from clue_hf.inputs.table_preprocessor import TablePreprocessor


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes_splits()


def values(split):
    return np.ascontiguousarray(split.to_pandas().to_numpy())


def test_every_patient_is_in_one_split(diabetes):
    assert {name: len(split) for name, split in diabetes.items()} == {"train": 310, "validation": 44, "test": 88}
    assert diabetes["train"].column_names == ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6", TARGET]
    found = np.concatenate([values(split) for split in diabetes.values()])
    raw = load_diabetes(scaled=False)
    expected = np.column_stack([raw.data, raw.target])
    np.testing.assert_array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])


def test_the_splits_never_change(diabetes):
    found = hashlib.sha256(b"".join(values(split).tobytes() for split in diabetes.values()))
    assert found.hexdigest()[:16] == "5b7a49b854b3920a"


def test_the_measurements_tell_the_progression(diabetes):
    preprocessor = TablePreprocessor.fit(diabetes["train"], TARGET)
    assert preprocessor.num_numeric == 10
    assert preprocessor.category_sizes == []
    train, test = preprocessor(diabetes["train"]), preprocessor(diabetes["test"])
    assert "categories" not in train
    model = LinearRegression().fit(train["numeric"], train["labels"])
    assert 0.3 < model.score(test["numeric"], test["labels"]) < 0.6
