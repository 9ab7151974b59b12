"""Names and numbers of classes from every kind of column, what is said of bad ones, and splits by class."""

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clue_hf.data.labels import check_classes, class_names, label_numbers, split_by_label
from clue_hf.errors import UserError


@pytest.mark.parametrize(
    ("values", "names", "numbers"),
    [
        (["b", "a", "b"], ["a", "b"], [1, 0, 1]),
        ([2, 0, 2], ["0", "1", "2"], [2, 0, 2]),
        ([True, False, True], ["0", "1"], [1, 0, 1]),
        ([1.0, 0.0, 1.0], ["0", "1"], [1, 0, 1]),
    ],
)
def test_labels_of_every_kind(values, names, numbers):
    data = datasets.Dataset.from_dict({"label": values})
    assert class_names(data, "label") == names
    assert label_numbers(data, "label", names).tolist() == numbers
    if isinstance(values[0], str):
        encoded = data.cast_column("label", datasets.ClassLabel(names=["z", "b", "a"]))
        assert class_names(encoded, "label") == ["z", "b", "a"]
        assert label_numbers(encoded, "label", ["z", "b", "a"]).tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, None, 1], "Row 1 .counted from 0. of the test data has no 'label'"),
        ([0, 1, 7], "Row 2 .* has the label 7, but there are only the 3 classes 0 to 2"),
        ([0, -1], "Row 1 .* has the 'label' -1, which is not a class number .no label: choose a labelled split"),
        ([0.0, float("inf")], "Row 1 .* has the 'label' inf, which is not a class number"),
        ([0.5], "Row 0 .* has the 'label' 0.5, which is not a class number"),
        (["a", "d"], "Row 1 .* has the label 'd', which the training data does not have: a, b, c"),
        ([[1], [2]], "must hold class numbers or names"),
    ],
)
def test_bad_labels_are_named(values, message):
    with pytest.raises(UserError, match=message):
        label_numbers(datasets.Dataset.from_dict({"label": values}), "label", ["a", "b", "c"], "test")


@pytest.mark.parametrize(
    ("names", "values", "numbers"),
    [
        (["1", "10+", "2", "3"], [3, 1], [3, 0]),
        (sorted(map(str, range(12))), [2, 10], [4, 2]),
        (["neg", "pos"], [1, 0], [1, 0]),
    ],
)
def test_numbers_are_names_where_names_are_numbers(names, values, numbers):
    data = datasets.Dataset.from_dict({"label": values})
    assert label_numbers(data, "label", names).tolist() == numbers
    encoded = data.cast_column("label", datasets.ClassLabel(names=names))
    assert label_numbers(encoded, "label", names).tolist() == values  # these are positions


def test_a_class_that_only_the_test_data_has():
    feature = datasets.Features(label=datasets.ClassLabel(names=["cat", "dog", "emu"]))
    train = datasets.Dataset.from_dict({"label": [0, 1, 1]}, feature)
    test = datasets.Dataset.from_dict({"label": [0, 1, 2]}, feature)
    check_classes({"train": train, "test": train}, "label")
    with pytest.raises(UserError, match="Row 2 .* of the test data has the class 'emu', of which"):
        check_classes({"train": train, "test": test}, "label")


# ---- splits ----


@settings(max_examples=30, deadline=None)
@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_splits_have_the_same_shares_of_the_classes(counts, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    data = datasets.Dataset.from_dict({"label": labels, "row": np.arange(len(labels))})
    fractions = {"validation": 0.2, "test": 0.3}
    if len(labels) < 4:
        return
    splits = split_by_label(data, fractions, seed, "label")
    rows = [row for split in splits.values() for row in split["row"]]
    assert sorted(rows) == list(range(len(labels)))
    for name, fraction in fractions.items():
        assert len(splits[name]) == max(1, round(fraction * len(labels)))
        found = np.bincount(splits[name]["label"], minlength=len(counts))
        assert (abs(found - fraction * np.array(counts)) <= 2).all()
    again = split_by_label(data, fractions, seed, "label")
    assert {name: split["row"][:] for name, split in again.items()} == {
        name: split["row"][:] for name, split in splits.items()
    }


def test_splits_that_cannot_be():
    data = datasets.Dataset.from_dict({"label": [0, 1]})
    with pytest.raises(UserError, match="leave nothing to train on"):
        split_by_label(data, {"validation": 0.5, "test": 0.5}, 0, "label")
    with pytest.raises(UserError, match="too few to split"):
        split_by_label(data, {"validation": 0.1, "test": 0.1}, 0, "label")
