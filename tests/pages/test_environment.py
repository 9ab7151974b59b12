import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError

import clue_hf
from clue_hf.metrics import Measured
from clue_hf.pages.environment import ENVIRONMENT, FOLDER, GRADIO, best_value, excludes_zero, metric_tile
from clue_hf.pages.selection import evenly_spaced, plain, rows_in_groups


HOSTILE = "<b a=\"1\" c='2'>&</script>_x"


def macro(name, *values):
    return getattr(ENVIRONMENT.get_template("macros.html").module, name)(*values)


def test_every_text_is_escaped_and_a_missing_value_is_an_error():
    assert "<b" not in ENVIRONMENT.from_string("{{ text }}").render(text=HOSTILE)
    assert macro("breakable", HOSTILE).replace("_<wbr>", "").count("<") == 0
    assert macro("breakable", "a_b") == "a_<wbr>b"
    with pytest.raises(UndefinedError):
        ENVIRONMENT.from_string("{{ text }}").render()
    with pytest.raises(UndefinedError):
        GRADIO.from_string("{{ text }}").render()


def test_descriptions_of_any_depth_are_lists():
    html = str(
        macro("definitions", {"a": {HOSTILE: [1, HOSTILE]}, "none": None, "empty": "", "code": "x `y` `z", "": {}})
    )
    assert "<b a" not in html
    assert "</script>" not in html
    assert "x <code>y</code> `z" in html
    assert html.count("<dl>") == html.count("</dl>") == 2
    assert '<dt>none</dt><dd><span dir="auto">-</span></dd>' in html
    assert '<dt>empty</dt><dd><span dir="auto">(empty)</span></dd>' in html
    assert html.endswith("<dt></dt><dd>-</dd></dl>")


def test_json_cannot_end_its_element():
    value = {"text": f"{HOSTILE}<!-- \u2028", "array": np.array([[0.1234567, np.nan], [np.inf, 2]]), "n": np.int64(3)}
    html = ENVIRONMENT.from_string("{{ data | plain | tojson }}").render(data=value)
    assert not set("<>&'\u2028") & set(html)
    assert json.loads(html) == {"text": value["text"], "array": [[0.123457, None], [None, 2.0]], "n": 3}


def test_values_are_plain():
    assert plain({"a": (1, 2.0, True, None, "x"), "b": [np.float32(0.5), np.bool_(False)]}) == {
        "a": [1, 2.0, True, None, "x"],
        "b": [0.5, False],
    }
    assert plain(123456789) == 123456789
    assert plain(1.23456789e-20) == 1.23457e-20


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [("prr", [0.1, 0.3], 0.3), ("aurc", [0.1, 0.3], 0.1), ("aurc", [0.1, None], None), ("aurc", [0.1, 0.1], None),
     ("random_area", [0.1, 0.3], None), ("prr", [-0.1, -0.3, None], -0.1)],
)  # fmt: skip
def test_the_best_value_is_that_of_the_better_direction(name, values, expected):
    columns = {str(place): {name: {"value": value}} for place, value in enumerate(values)}
    assert best_value({**columns, "without": {}}, name, "text") == expected


def test_cells_show_interval_or_reason():
    measured = Measured(-0.25, None, 10, low=-0.5, high=0.125, has_interval=True)
    assert macro("metric_cell", measured, "prr", "text", True) == (
        '<td class="number best">−0.250<span class="interval">−0.500 to 0.125</span></td>'
    )
    assert macro("metric_cell", Measured(float("nan"), HOSTILE), "prr", "text").count("<") == 4
    assert "not computed" in macro("metric_cell", None)
    assert not excludes_zero(measured)
    assert excludes_zero({"value": 0.2, "low": 0.1, "high": 0.3})
    assert not excludes_zero({"value": 0.2, "low": None, "high": None})
    assert metric_tile({"value": None, "reason": "all equal"}, "PRR", "prr", "text") == ("-", "PRR", "all equal")


def test_rows_are_spaced_and_grouped():
    assert evenly_spaced(0, 5).tolist() == []
    assert evenly_spaced(3, 5).tolist() == [0, 1, 2]
    assert evenly_spaced(101, 5).tolist() == [0, 25, 50, 75, 100]
    groups = {"one": np.array([3, 0]), "two": np.array([3])}
    assert rows_in_groups(groups, 5, 4) == {0: ["one"], 3: ["one", "two"]}
    assert list(rows_in_groups(groups, 5, 4)) == [0, 3]
    assert rows_in_groups(groups, 4, 4) == {0: ["one"], 1: [], 2: [], 3: ["one", "two"]}


def test_html_is_written_by_templates_only():
    tag = re.compile(r"</?(?:a|b|code|details|div|dl|figure|h\d|img|li|p|section|span|table|t[dhr]|ul)(?: [a-z-]+=|>)")
    assert all(tag.search((FOLDER / name).read_text()) for name in ENVIRONMENT.list_templates(extensions=["html"]))
    for path in Path(clue_hf.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not tag.search(node.value), (path, node.value)
