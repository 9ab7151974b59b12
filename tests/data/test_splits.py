import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.data.columns import text_pairs
from clue_hf.data.splits import merge_references, split_by_source
from clue_hf.errors import UserError


def make(sources):
    return datasets.Dataset.from_dict({"source": list(sources), "row": list(range(len(sources)))})


@given(st.lists(st.text("abc", max_size=3), min_size=30, max_size=80), st.integers(0, 5))
def test_every_row_is_on_one_side_and_no_source_on_two(sources, seed):
    if len(set(sources)) < 10:
        return
    parts = split_by_source(make(sources), {"validation": 0.2, "test": 0.1}, seed, "source")
    rows = [row for part in parts.values() for row in part["row"]]
    assert sorted(rows) == list(range(len(sources)))
    sides = [set(part["source"]) for part in parts.values()]
    assert sum(map(len, sides)) == len(set().union(*sides))


def test_fractions_are_met_and_the_order_of_rows_does_not_matter():
    sources = [f"sentence {i}" for i in range(1000)]
    parts = split_by_source(make(sources), {"validation": 0.05, "test": 0.1}, 0, "source")
    assert {name: len(part) for name, part in parts.items()} == {"train": 850, "validation": 50, "test": 100}
    again = split_by_source(make(sources[::-1]), {"validation": 0.05, "test": 0.1}, 0, "source")
    other = split_by_source(make(sources), {"validation": 0.05, "test": 0.1}, 1, "source")
    assert set(again["test"]["source"]) == set(parts["test"]["source"]) != set(other["test"]["source"])


def test_nested_sources_and_no_source():
    nested = datasets.Dataset.from_dict({"translation": [{"en": str(i // 2), "fr": "x"} for i in range(20)]})
    parts = split_by_source(nested, {"test": 0.2}, 0, "translation.en")
    english = [{row["translation"]["en"] for row in part} for part in parts.values()]
    assert not english[0] & english[1]
    assert len(split_by_source(nested, {"test": 0.2}, 0, None)["test"]) == 4


def test_what_cannot_be_split():
    with pytest.raises(UserError, match="leave nothing to train on"):
        split_by_source(make("abcd"), {"validation": 0.5, "test": 0.5}, 0, "source")
    with pytest.raises(UserError, match="too few to split"):
        split_by_source(make("aaaa"), {"test": 0.1}, 0, "source")


def test_rows_with_equal_sources_become_one_with_all_their_references():
    rows = datasets.Dataset.from_dict(
        {"source": ["b", "a", "b", "c", "a", "b"], "row": range(6), "target": ["1", "2", "3", "4", "5", "1"]}
    )
    merged = merge_references(rows)
    assert merged.column_names == ["source", "row", "target"]
    assert merged["source"][:] == ["b", "a", "c"]
    assert merged["row"][:] == [0, 1, 3]
    assert merged["target"][:] == [["1", "3"], ["2", "5"], ["4"]]
    assert merge_references(merged)[:] == merged[:]


def test_merged_references_of_nested_columns_and_of_lists():
    pairs = [("a", ["x", "y"]), ("b", ["z"]), ("a", ["y", "w"])]
    nested = datasets.Dataset.from_list([{"translation": {"en": en, "fr": fr}} for en, fr in pairs])
    merged = merge_references(nested, "translation.en", "translation.fr")
    sources, references = text_pairs(merged[:], "translation.en", "translation.fr")
    assert (sources, references) == (["a", "b"], [["x", "y", "w"], ["z"]])


def test_what_is_merged_must_be_texts():
    chats = datasets.Dataset.from_dict({"prompt": [[{"role": "user", "content": "a"}]], "completion": ["b"]})
    with pytest.raises(UserError, match="source_column 'prompt' must hold text"):
        merge_references(chats)
