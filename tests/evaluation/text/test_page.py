import json
import re

import numpy as np
import pytest
from evaluation.page_reports import (
    HOSTILE,
    HOSTILE_NAME,
    REPORT,
    column,
    every_page,
    hostile_report,
    make_example,
    make_report,
    numbers,
    status,
    usual_report,
)

from clue_hf import EvaluationReport
from clue_hf.evaluation.text.page import write_page
from clue_hf.evaluation.text.selection import GROUPS, page_data


# ---- tables and words ----


def test_the_page_says_what_was_found_without_scripts(show):
    page = show(REPORT, java_script_enabled=False)
    scorers = page.locator("#scorers table").first
    entry = REPORT.metrics["scorers"]["msp"]["prr"]
    cell = scorers.locator("tbody tr").first.inner_text()
    assert cell.startswith("msp")
    assert f"{entry['value']:.3f}" in cell
    assert f"{entry['low']:.3f} to {entry['high']:.3f}" in cell
    assert "msp ranks the outputs best" in page.inner_text("#summary")
    assert "12,345 reference tokens" in page.inner_text("#summary")
    assert "overconfident by 0.125" in page.inner_text("#summary")
    assert "48.5 to 54.8" in page.inner_text(".tiles")
    assert "a model" in page.inner_text("header")
    assert "JavaScript, which is disabled" in page.inner_text("main")
    assert not page.locator("#examples").is_visible()
    assert not page.locator("#curves").is_visible()


def test_the_same_report_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write_page(usual_report(), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    write_page(usual_report(seed=1), tmp_path / "other")
    assert (tmp_path / "one").read_bytes() != (tmp_path / "other").read_bytes()


@pytest.fixture
def several():
    """A report with an example that has three references."""
    examples = [make_example(row, row / 4, {"msp": float(row)}, "same") for row in range(4)]
    examples[1]["references"] = ["a reference", "one more", "the last one"]
    return make_report(examples)


def test_the_script_gets_all_references(several):
    entries = page_data(several, "msp", 9)["examples"]
    assert [entry["references"] for entry in entries] == [[], several.examples[1]["references"], [], []]


def test_several_references(show, several):
    page = show(several)
    rows = page.locator("tr.row")
    assert "and 2 more" in rows.nth(1).inner_text()
    assert "more" not in rows.nth(0).inner_text()
    rows.nth(1).locator("button").click()
    passages = page.locator("#detail-1 [data-part=reference]")
    assert passages.all_inner_texts() == ["a reference", "one more", "the last one"]
    page.fill("#filter-text", "the last one")
    assert page.locator("tr.row").count() == 1


def test_an_undefined_metric_is_a_dash_with_its_reason(show):
    page = show(make_report([make_example(row, 0.5, {"msp": float(row)}, "same") for row in range(4)]))
    cell = page.locator("#scorers table").first.locator("tbody td.number").first
    assert cell.inner_text().startswith("-")
    assert cell.get_attribute("title") == "all qualities are equal"
    assert "The scorers cannot be ranked: all qualities are equal." in page.inner_text("#summary")


def test_a_comparison_has_its_table(show):
    mine, other = usual_report(seed=0), usual_report(seed=0)
    for example in other.examples:
        example["scores"] = {**example["scores"], "msp": -example["scores"]["msp"]}
    comparison = mine.compare(other, resamples=20)
    page = show(mine, comparison=comparison)
    row = page.locator("#comparison tbody tr").first
    assert f"+{comparison['msp']['prr']['value']:.3f}" in row.inner_text()
    assert row.locator(".best").count() == 1
    assert page.locator("#comparison tbody tr").nth(1).locator(".best").count() == 0
    assert show(mine).locator("#comparison").count() == 0


def test_the_description_is_shown_at_any_depth(show):
    report = make_report(REPORT.examples, generation={"deep": {"er": [1, 2]}}, nothing=None, scorers={"msp": "`sum`"})
    definitions = show(report).locator("#definitions")
    assert "1, 2" in definitions.inner_text()
    assert definitions.locator("code").inner_text() == "sum"
    assert definitions.locator("dl dl dl").count() == 1


# ---- examples ----


@pytest.mark.parametrize("key", ["row", "source", "reference", "output", "quality", "score", "confidence", "groups"])
def test_every_column_sorts_both_ways(show, key):
    page = show(REPORT)
    heading = page.locator(f"#table th[data-key={key}]")
    if key == "row":
        heading.locator("button").click()  # it is the order to begin with
        assert heading.get_attribute("aria-sort") == "descending"
    for direction in ("ascending", "descending"):
        heading.locator("button").focus()
        page.keyboard.press("Enter")
        assert heading.get_attribute("aria-sort") == direction
        assert page.locator("#table [aria-sort=none]").count() == 7
        found = every_page(page, key)
        assert len(found) == 120
        if key == "groups":
            found = [text for text in found if text]
        elif key not in ("source", "reference", "output"):
            found = numbers(found)
        assert len(set(found)) > 3
        assert found == sorted(found, reverse=direction == "descending")


def test_text_quality_and_group_filter_together(show):
    page = show(REPORT)
    assert status(page) == "1 to 25 of 120 examples"

    def expected(text="", low=0.0, high=1.0, rows=range(120)):
        return [
            e["row"]
            for e in REPORT.examples
            if e["row"] in rows
            and low <= e["quality"] <= high
            and any(text in e[k] for k in ("source", "reference", "output"))
        ]

    page.fill("#filter-text", "GREEN River")
    assert [int(row) for row in every_page(page, "row")] == expected("green river")
    assert 0 < len(expected("green river")) < 60
    page.fill("#filter-text", "")
    page.fill("#filter-low", "0.4")
    page.fill("#filter-high", "0.6")
    middle = expected(low=0.4, high=0.6)
    assert [int(row) for row in every_page(page, "row")] == middle
    assert f"of {len(middle)} examples" in status(page)
    page.fill("#filter-low", "")
    page.fill("#filter-high", "")
    sure = [int(row) for row in np.argsort([e["scores"]["msp"] for e in REPORT.examples])[:12]]
    page.get_by_label("most certain").check()
    assert sorted(int(row) for row in every_page(page, "row")) == sorted(sure)
    page.fill("#filter-text", "garden")
    assert sorted(int(row) for row in every_page(page, "row")) == expected("garden", rows=sure)
    page.fill("#filter-text", "no such text")
    assert status(page) == "No example matches."


def test_groups_can_be_chosen_by_keyboard(show):
    page = show(REPORT)
    page.locator("#groups input").first.focus()
    for group in GROUPS:
        page.keyboard.press("ArrowRight")
        assert page.locator("#groups input:checked").get_attribute("value") == group
        assert len(every_page(page, "row")) == 12
        assert all(group in text for text in column(page, "groups"))


def test_the_score_shown_can_be_changed(show):
    page = show(REPORT)
    for name in ("msp", "own"):
        page.select_option("#score", label=name)
        expected = [example["scores"][name] for example in REPORT.examples[:25]]
        assert numbers(column(page, "score")) == pytest.approx(expected, abs=1e-3)
        confidence = REPORT.confidence(name)[:25]
        assert numbers(column(page, "confidence")) == pytest.approx(confidence, abs=1e-3)


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_row_opens_by_keyboard_and_shows_everything(show, key):
    page = show(REPORT)
    button, example = page.locator(".toggle").nth(2), REPORT.examples[2]
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    page.keyboard.press(key)
    assert button.get_attribute("aria-expanded") == "true"
    detail = page.locator(f"#{button.get_attribute('aria-controls')}")
    for part in ("source", "reference", "output"):
        assert detail.locator(f"[data-part={part}]").inner_text() == example[part]
    text = detail.inner_text()
    for value in (*example["scores"].values(), *example["qualities"].values()):
        assert f"{value:.3f}".replace("-", "−") in text
    rank = np.mean(REPORT.uncertainty("pmi") < example["scores"]["pmi"])
    assert f"{100 * rank:.0f} %" in detail.locator("tr", has_text="pmi").inner_text()
    page.keyboard.press(key)
    assert button.get_attribute("aria-expanded") == "false"
    assert detail.count() == 0


def test_an_open_row_stays_open_when_the_table_is_sorted(show):
    page = show(REPORT)
    page.locator("tr.row").nth(4).locator("td").nth(2).click()
    assert page.locator("#detail-4").is_visible()
    page.fill("#filter-low", "0")
    assert page.locator("#detail-4").is_visible()


def test_tokens_are_shaded_by_entropy_and_tell_their_numbers(show):
    page = show(REPORT)
    page.locator(".toggle").first.click()
    tokens = page.locator("#detail-0 .token")
    assert tokens.all_inner_texts() == [*REPORT.examples[0]["output"].split(), "</s>"]
    heats = tokens.evaluate_all("all => all.map(one => Number(one.style.getPropertyValue('--heat')))")
    assert heats == sorted(heats)
    assert (heats[0], heats[-1]) == (0, 1)
    colours = tokens.evaluate_all("all => all.map(one => getComputedStyle(one).backgroundColor)")
    assert len(set(colours)) == len(heats)
    first = REPORT.examples[0]
    probability, entropy = np.exp(first["token_log_probabilities"][1]), first["token_entropies"][1]
    about = f"probability {probability:.3f}, entropy {entropy:.3f} nats"
    tokens.first.focus()
    page.keyboard.press("ArrowRight")
    assert tokens.nth(1).evaluate("one => document.activeElement === one")
    assert about in page.inner_text("#detail-0 .token-text")
    assert about in tokens.nth(1).get_attribute("title")
    assert tokens.evaluate_all("all => all.filter(one => one.tabIndex === 0).length") == 1
    tokens.nth(3).hover()
    assert first["output"].split()[3] in page.inner_text("#detail-0 .token-text")
    assert "nats or more" in page.inner_text("#detail-0 .heat")


def test_pages_of_examples(show):
    page = show(REPORT)
    assert page.locator("tr.row").count() == 25
    assert not page.locator("#previous").is_enabled()
    page.click("#next")
    assert status(page) == "26 to 50 of 120 examples"
    assert column(page, "row")[0] == "25"
    page.click("#previous")
    assert column(page, "row")[0] == "0"


# ---- curves ----


def test_scorers_can_be_switched_off_and_on(show):
    page = show(REPORT)

    def counts():
        return [page.locator(f"#{chart} path.line").count() for chart in ("rejection", "risk")] + [
            page.locator(f"#{chart} h4").count() for chart in ("reliability", "histograms")
        ]

    assert counts() == [5, 5, 3, 3]
    button = page.get_by_role("button", name="pmi", exact=True)
    button.focus()
    page.keyboard.press("Space")
    assert button.get_attribute("aria-pressed") == "false"
    assert counts() == [4, 4, 2, 2]
    assert page.locator("#rejection path[data-name=pmi]").count() == 0
    page.get_by_role("button", name="Show all").click()
    assert button.get_attribute("aria-pressed") == "true"
    assert counts() == [5, 5, 3, 3]


def test_curves_are_read_by_keyboard_and_pointer(show):
    page = show(REPORT)
    quality = REPORT.quality()
    page.locator("#rejection").focus()
    page.keyboard.press("Home")
    told = page.locator("#rejection").get_attribute("aria-valuetext")
    assert told.startswith("0 % rejected")
    assert all(f"{name} {quality.mean():.3f}" in told for name in ("oracle", "random", "msp", "pmi", "own"))
    page.keyboard.press("End")
    told = page.locator("#rejection").get_attribute("aria-valuetext")
    assert f"oracle {quality.max():.3f}" in told
    assert f"msp {quality[REPORT.uncertainty('msp').argmin()]:.3f}" in told
    box = page.locator("#risk").bounding_box()
    page.locator("#risk").hover(position={"x": box["width"] / 2, "y": 100})
    tip = page.locator("#risk .tip")
    assert tip.is_visible()
    share, risk = re.search(r"(\d+) % kept[\s\S]*msp\s+([\d.]+)", tip.inner_text()).groups()
    kept = np.sort(REPORT.uncertainty("msp")).searchsorted(
        np.quantile(REPORT.uncertainty("msp"), int(share) / 100), side="right"
    )
    assert float(risk) == pytest.approx(1 - quality[REPORT.uncertainty("msp").argsort()[:kept]].mean(), abs=0.01)
    page.mouse.move(0, 0)
    assert not tip.is_visible()


def test_bins_and_bars_are_read_too(show):
    page = show(REPORT)
    panel = page.locator("#reliability > div").first
    panel.locator(".frame").focus()
    page.keyboard.press("ArrowRight")
    assert re.search(r"confidence 0\.\d+, quality 0\.\d+ \(.*\), \d+ outputs", panel.locator("output").inner_text())
    panel = page.locator("#histograms > div").first
    panel.locator(".frame").focus()
    assert re.search(r"\d+ good, \d+ bad", panel.locator("output").inner_text())


def test_without_confidence_there_is_no_reliability(show, monkeypatch):
    monkeypatch.setattr(EvaluationReport, "confidence", lambda self, name: None)
    page = show(usual_report(30))
    assert not page.locator("#reliability-card").is_visible()
    assert page.locator("th[data-key=confidence]").count() == 0
    page.locator(".toggle").first.click()
    assert page.locator("#detail-0 .token").count() == 7


# ---- safety ----


def test_hostile_texts_are_shown_and_never_run(show):
    page = show(hostile_report())
    for row, text in enumerate(HOSTILE.values()):
        page.locator(".toggle").nth(row).click()
        for part in ("source", "reference", "output"):
            shown = page.locator(f"#detail-{row} [data-part={part}]").evaluate("one => one.textContent")
            assert shown == text
        assert HOSTILE["script"] in page.locator(f"#detail-{row} .tokens").evaluate("one => one.textContent")
        assert page.locator(f"#detail-{row} [data-part=output]").get_attribute("dir") == "auto"
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, main script, #table b").count() == 0
    assert HOSTILE["image"] in page.inner_text("header")
    assert HOSTILE["script"] in page.inner_text("#definitions")
    assert page.locator("#legend button").nth(1).inner_text() == HOSTILE_NAME
    page.fill("#filter-text", "שלום")
    assert column(page, "row") == [str(list(HOSTILE).index("direction"))]
    direction = "one => getComputedStyle(one).direction"
    assert page.locator("tr.row .clamp").first.evaluate(direction) == "rtl"


def test_the_data_cannot_leave_its_element(tmp_path):
    write_page(hostile_report(), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert not set("<>&\u2028\u2029") & set(data)
    assert [example["output"] for example in json.loads(data)["examples"]] == list(HOSTILE.values())
    assert len(re.findall("<script", page)) == 2
    assert not re.findall(r"\son\w+\s*=", re.sub(r"<script.*?</script>|&lt;.*?&gt;", "", page, flags=re.DOTALL))


def test_the_policy_stops_what_is_not_of_the_page(browser, tmp_path):
    write_page(REPORT, tmp_path / "page.html")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.body.append(script);
            const box = document.createElement("div");
            box.innerHTML = "<img src=x onerror='window.hacked = 2'>";
            document.body.append(box);
        }"""
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.locator("#legend button").count() == 4  # its own script ran
    page.close()
