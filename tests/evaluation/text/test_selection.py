import numpy as np
import pytest
from evaluation.page_reports import REPORT, make_example, make_report, status, usual_report

from clue_hf import EvaluationReport
from clue_hf.evaluation.text.selection import (
    GROUPS,
    best_scorer,
    choose_examples,
    grouped_scorers,
    page_data,
    readable_tokens,
)
from clue_hf.pages.palette import LIGHT
from clue_hf.scorers import SCORERS


@pytest.fixture(scope="module")
def many():
    """A report with every scorer, the last ones the best."""
    return usual_report(100, noises=[(name, 3.0 - place / 10) for place, name in enumerate(SCORERS)])


def test_many_scorers_are_grouped_by_what_they_need_the_best_first(many, tmp_path):
    groups = grouped_scorers(many)
    ratios = {name: many.metrics["scorers"][name]["prr"].value for name in many.scorers}
    assert sorted(name for group in groups.values() for name in group) == sorted(SCORERS)
    for group in groups.values():
        assert [ratios[name] for name in group] == sorted((ratios[name] for name in group), reverse=True)
    assert next(iter(groups.values()))[0] == best_scorer(many)
    assert "msp" in groups["The output alone"]
    assert "cocoa_msp" in groups["Samples"]
    assert groups["A pass without the source"] == sorted(["pmi", "cpmi"], key=lambda name: -ratios[name])
    # the best ones have colours of their own, and are those that are drawn at first
    data = page_data(many, "msp", 10)
    first = [scorer["name"] for scorer in data["scorers"]][: data["most_shown"]]
    assert first == sorted(ratios, key=lambda name: -ratios[name])[: len(LIGHT)]
    assert len({scorer["colour"] for scorer in data["scorers"][: len(LIGHT)]}) == len(LIGHT)
    many.write_page(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for group in groups:
        assert page.count(f">{group}</th>") == 2  # in the table of the main metrics, and in that of all
    assert grouped_scorers(REPORT) == {"": ["msp", "pmi", "own"]}


def test_the_best_of_many_scorers_are_shown_at_first(show, many):
    page = show(many)
    pressed = page.locator("#legend [aria-pressed=true]")
    assert pressed.count() == len(LIGHT)
    assert page.locator("#legend [aria-pressed=false]").count() == len(SCORERS) - len(LIGHT)
    assert page.locator("#rejection .line[class*=' s']").count() == len(LIGHT)


@pytest.mark.parametrize("n", [1, 2, 9])
def test_small_reports_have_pages_too(show, n):
    page = show(usual_report(n))
    assert page.locator("tr.row").count() == n
    page.locator(".toggle").first.click()
    assert page.locator("#detail-0 .token").count() == 7


def test_at_most_the_limit_is_chosen(show):
    report = usual_report(1300)
    chosen = choose_examples(report, "msp")
    assert len(chosen) == 500
    assert [example["row"] for example, _ in chosen] == sorted({example["row"] for example, _ in chosen})
    groups = {name: [example["row"] for example, names in chosen if name in names] for name in GROUPS}
    order = np.argsort(report.uncertainty("msp"))
    assert groups["most certain"] == sorted(order[:125])
    assert groups["least certain"] == sorted(order[-125:])
    gap = report.confidence("msp") - report.quality()
    assert groups["most overconfident"] == sorted(np.argsort(-gap)[:125])
    assert len(groups["random"]) > 125
    assert all(names for _, names in chosen)
    page = show(report)
    assert status(page) == "1 to 25 of 500 examples"
    assert "500 of 1,300 outputs" in page.inner_text("#examples-note")


def test_the_random_group_is_a_sample_of_all_examples():
    report, limit = usual_report(400), 100
    certain = set(np.argsort(report.uncertainty("msp"))[:25])
    drawn = []
    for seed in range(60):
        chosen = choose_examples(report, "msp", limit, seed)
        assert len(chosen) == limit
        drawn.append([example["row"] for example, names in chosen if "random" in names])
    assert drawn[0] != drawn[1]
    share = np.mean([row in certain for rows in drawn for row in rows])
    assert share == pytest.approx(25 / 400, abs=0.03)  # neither left out nor preferred for being in a group


def test_all_are_chosen_where_they_fit():
    chosen = choose_examples(REPORT, "pmi", limit=120)
    assert [example for example, _ in chosen] == list(REPORT.examples)
    assert sum("random" in names for _, names in chosen) == 12
    assert len(choose_examples(REPORT, "pmi", limit=119)) == 119
    assert len(choose_examples(REPORT, "pmi", limit=2)) == 2


def test_without_confidence_the_overconfident_are_found_by_rank(monkeypatch):
    monkeypatch.setattr(EvaluationReport, "confidence", lambda self, name: None)
    quality = np.linspace(0, 1, 30)
    scores = -quality
    scores[0] = -2.0  # the worst output is the surest
    report = make_report(
        [make_example(row, q, {"msp": s}, "x") for row, (q, s) in enumerate(zip(quality, scores, strict=True))]
    )
    chosen = choose_examples(report, "msp")
    [wrong] = [example["row"] for example, names in chosen if "most overconfident" in names]
    assert wrong == 0
    assert "most certain" in chosen[0][1]


def test_examples_are_read_once_and_never_all_kept():
    class Counted(list):
        passes = 0

        def __iter__(self):
            self.passes += 1
            return super().__iter__()

        def __getitem__(self, index):
            raise AssertionError("a file is slow to read out of order")

    report = usual_report(600)
    report.examples = Counted(report.examples)
    report.confidences()
    choose_examples(report, "msp")
    assert report.examples.passes <= 2


@pytest.mark.parametrize(
    ("tokens", "text", "expected"),
    [
        (["▁le", "▁chat", "s", "</s>"], "le chats", [" le", " chat", "s", "</s>"]),
        (["caf", "é"], "café", ["caf", "é"]),
        (["Hello", "Ġworld", "Ċ", "<|endoftext|>"], "Hello world\n", ["Hello", " world", "\n", "<|endoftext|>"]),
        (["ĠHello"], "Hello", [" Hello"]),
        (["caf", "Ã©"], "café", ["caf", "é"]),
        (["Ġð", "Ł", "ĺ", "Ģ", "!"], "😀!", [" ", "", "", "😀", "!"]),
        (["a", "日本"], "a b", ["a", "日本"]),
        (["ĠHi", "<a b>"], "Hi", [" Hi", "<a b>"]),
        (["</s>"], "", ["</s>"]),
        ([], "", []),
    ],
)
def test_tokens_are_readable(tokens, text, expected):
    assert readable_tokens(tokens, text) == expected


def test_byte_level_tokens_are_those_of_a_real_tokenizer():
    from tokenizers import pre_tokenizers

    text = "Größe und 日本語, naïve\tcafé 😀"
    pieces = [piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(text)]
    assert readable_tokens(pieces, text) != pieces
    assert "".join(readable_tokens(pieces, text)) == text
    letters = list("".join(pieces))
    assert "".join(readable_tokens(letters, text)) == text
