import pytest

from clue_hf.errors import UserError
from clue_hf.experiments.cells import Method
from clue_hf.models.loading import parse_overrides
from clue_hf.settings import parse_settings


def test_values_have_the_type_that_they_look_like():
    found = parse_settings("x", "a=1, b=1e-4,c=.5,d=True,e=false,f=None,g=null,h=gelu,i=a=b,j=-2,k=")
    expected = {"a": 1, "b": 1e-4, "c": 0.5, "d": True, "e": False, "f": None, "g": None, "h": "gelu", "i": "a=b",
                "j": -2, "k": ""}  # fmt: skip
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]


@pytest.mark.parametrize("text", ["", "a", "a=1,", "=1", "a=1,b"])
def test_what_is_no_assignment_is_named(text):
    with pytest.raises(UserError, match="optim_args: .* is not of the form name=value"):
        parse_settings("optim_args", text)


def test_everything_that_takes_settings_reads_them_alike():
    assert parse_overrides("d_model=192,tie=True") == parse_overrides('{"d_model": 192, "tie": true}')
    assert Method.parse("clue:alpha=0.5:mc_samples=1e1").settings == {"alpha": 0.5, "mc_samples": 10}
    assert Method.parse("clue").settings == {}
    with pytest.raises(ValueError, match="form name=value"):
        Method.parse("clue:")
