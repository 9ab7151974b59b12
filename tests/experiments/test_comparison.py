import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clue_hf.experiments.comparison import write_comparison_page
from clue_hf.experiments.comparison_results import SHARES, ComparedView, compare_methods, mean_curves, pareto_front
from clue_hf.metrics import Measured, rejection_curve


NUMBERS = st.integers(0, 6).map(float)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12))
def test_the_front_is_what_nobody_beats(found):
    points = {str(number): point for number, point in enumerate(found)}
    front = pareto_front(points)
    for name, (x, y) in points.items():
        beaten = any((a <= x and b < y) or (a < x and b <= y) for a, b in points.values())
        assert (name in front) == (not beaten)
    for one, other in itertools.pairwise(front):  # from left to right it falls
        assert points[one][0] <= points[other][0]
        assert points[one][1] >= points[other][1]


def test_the_curve_of_several_seeds_is_the_mean_of_theirs():
    generator = np.random.default_rng(0)
    judged = [({"u": generator.random(101)}, generator.random(101)) for _ in range(3)]
    expected = np.mean([rejection_curve(uncertainty["u"], quality) for uncertainty, quality in judged], axis=0)
    assert mean_curves(judged)["u"] == pytest.approx(expected)
    [curve] = mean_curves([({"u": np.arange(7.0)}, np.arange(7.0, 0, -1))]).values()
    assert len(curve) == len(SHARES)
    assert (curve[0], curve[-1]) == (4.0, 7.0)


def view(name="test", method="<b>clue</b>"):
    """Two methods whose names and words are not to be trusted."""
    generator = np.random.default_rng(0)

    def measured(value):
        return Measured(value, None, 50, value + 0.05 * generator.standard_normal(100))

    runs = {
        "ce": [{"error": measured(1.0), "ece": measured(0.3)}] * 2,
        method: [{"error": measured(1.1), "ece": measured(0.1)}] * 2,
        "undefined": [{"error": Measured(float("nan"), "no items", 0, np.full(100, np.nan))} | {"ece": measured(1.0)}],
    }
    compared = compare_methods(runs, "ce", ["error", "ece"])
    curves = {name: {"msp": np.linspace(0, 1, 101), "pmi": np.linspace(1, 0.5, 101)} for name in runs}
    return ComparedView(
        name, "ce", compared, {"": {"error": "error", "ece": "ECE"}, "More <i>": {"ece": "ECE"}},
        {"ce": {"time": 1.0}, method: {"time": 1.25}}, curves, "Mean quality", [("error", "ece"), ("ece", "error")],
        (), "Read <it>.", {"ece": "a <script>alert(1)</script>"}, 2, "clue-hf compare <x>", "2026-11-16",
    )  # fmt: skip


def test_the_page_shows_every_table_and_picture_and_nothing_is_run_in_it(tmp_path, browse):
    path = tmp_path / "comparison.html"
    write_comparison_page([view(), view("shifted")], path)
    page = browse(path, allowed=["data:"])
    assert page.locator("table").count() == 4
    assert page.locator("section#shifted tbody th").first.inner_text() == "ce"
    assert page.locator("section#test tbody tr").nth(1).inner_text().startswith("<b>clue</b>")
    assert "1.25x" in page.locator("section#test").inner_text()
    assert page.locator("img").count() == 4
    assert page.evaluate("[...document.images].every(image => image.naturalWidth > 500 && image.alt)")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    narrow = browse(path, width=380, allowed=["data:"])
    assert narrow.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for name in ("test_tradeoff", "shifted_rejection_curves"):
        assert (tmp_path / f"{name}.svg").exists()


def test_the_same_comparison_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_comparison_page([view()], tmp_path / name / "comparison.html")
    assert (tmp_path / "a/comparison.html").read_bytes() == (tmp_path / "b/comparison.html").read_bytes()


def test_tables_in_markdown_and_latex():
    found = view(method="clue_0.9 & 5 %")
    assert "**More <i>**" in found.markdown()
    assert "Made by `clue-hf compare <x>` (2026-11-16)." in found.markdown()
    assert r"clue\_0.9 \& 5 \%" in found.latex()
    assert found.latex().count(r"\toprule") == 2
    assert found.content()["methods"]["ce"]["error"]["value"] == 1.0
