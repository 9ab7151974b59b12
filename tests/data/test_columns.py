import pytest

from clue_hf.data.columns import check_texts, column_values, find_pair
from clue_hf.errors import UserError


def test_named_columns_win_and_known_pairs_are_found():
    assert find_pair(["document", "summary", "a", "b"], "a", "b") == ("a", "b")
    assert find_pair(["id", "document", "summary"], None, None) == ("document", "summary")
    assert find_pair(["translation"], "translation.en", "translation.fr") == ("translation.en", "translation.fr")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (None, None, "the columns are english, french"),
        ("english", None, "target_column is not"),
        ("englisch", "french", "Did you mean 'english'?"),
    ],
)
def test_columns_that_are_not_there(source, target, message):
    with pytest.raises(UserError, match=message):
        find_pair(["english", "french"], source, target)


def test_dots_reach_into_columns():
    rows = {"translation": [{"en": "cat", "fr": "chat"}, {"en": "dog", "fr": "chien"}], "a.b": ["plain"]}
    assert column_values(rows, "translation.fr", "target_column") == ["chat", "chien"]
    assert column_values(rows, "a.b", "target_column") == ["plain"]
    with pytest.raises(UserError, match="no 'de' in 'translation', which holds the keys en, fr"):
        column_values(rows, "translation.de", "target_column")


@pytest.mark.parametrize(("value", "found"), [(None, r"empty \(null\)"), (3, "a int: '3'")])
def test_the_row_that_holds_no_text_is_named(value, found):
    with pytest.raises(UserError, match=f"row 11 .counted from 0. is {found}"):
        check_texts(["fine", value], "fr", "target_column", 10)
