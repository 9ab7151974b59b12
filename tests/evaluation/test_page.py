import json
import re

import numpy as np
import pytest

from clue_hf import EvaluationReport
from clue_hf.evaluation.page import write_page
from clue_hf.evaluation.selection import GROUPS, choose_examples, read_numbers, readable_tokens
from clue_hf.metrics import rejection_reports


HOSTILE = {
    "image": "<img src=x onerror=\"window.hacked='image'\">",
    "script": "</script><script>window.hacked='script'</script>",
    "comment": "<!--<script>--> ]]> &lt;b&gt; <b>bold</b>",
    "placeholder": "{{data}} {{title}} {{x}} ${1+1} \\1 %s",
    "separators": "line\u2028and\u2029paragraph\x00\x07\ttab\nnewline",
    "direction": "שלום עולם \u202e right to left",
    "word": "w" * 3000,
    "long": "many words " * 1000,
    "quotes": "\"double\" 'single' `back` \\slash",
    "unpaired": "half \ud83d a pair",
    "empty": "",
}
HOSTILE_NAME = "<img/src=x/onerror=window.hacked=1>"


def make_example(row, quality, scores, output="", source="a source", reference="a reference"):
    """An example whose tokens are its words; later words are less certain."""
    tokens = [*(f"▁{word}" for word in output.split(" ") if word), "</s>"]
    entropies = np.linspace(0, 2, len(tokens)).tolist()
    return {
        "row": row, "source": source, "reference": reference, "output": output, "quality": quality,
        "qualities": {"bleu": quality, "chrf": quality / 2}, "scores": scores, "tokens": tokens,
        "token_log_probabilities": [-entropy / 2 for entropy in entropies], "token_entropies": entropies,
    }  # fmt: skip


def make_report(examples, **description):
    scores = {name: [example["scores"][name] for example in examples] for name in examples[0]["scores"]}
    quality = [example["quality"] for example in examples]
    metrics = {
        "n": len(examples),
        "empty_outputs": sum(not example["output"] for example in examples),
        "quality": {"bleu": {"mean": {"value": 0.5}, "corpus": {"value": 51.25, "low": 48.5, "high": 54.75}}},
        "references": {"tokens": 12345, "error": {"value": 0.5}, "uncertainty": {"value": 0.375}},
        "scorers": rejection_reports(scores, quality, resamples=20),
    }
    return EvaluationReport(examples, metrics, {"model": "a model", "data": "some data", **description})


def usual_report(n=120, seed=0):
    rng = np.random.default_rng(seed)
    quality = rng.beta(2, 1, n).round(6)
    scores = {name: noise * rng.normal(size=n) - quality for name, noise in (("msp", 0.2), ("pmi", 0.8), ("own", 3.0))}
    words = ["red", "green", "blue", "old", "new", "house", "garden", "river", "walks", "sleeps"]
    texts = [[" ".join(rng.choice(words, 6)) for _ in range(3)] for _ in range(n)]
    return make_report(
        [
            make_example(row, float(quality[row]), {name: float(scores[name][row]) for name in scores}, *texts[row])
            for row in range(n)
        ]
    )


REPORT = usual_report()


@pytest.fixture
def show(browse, tmp_path):
    """Opens the page of a report."""

    def open_page(report, comparison=None, **settings):
        path = tmp_path / f"page{len(list(tmp_path.iterdir()))}.html"
        write_page(report, path, comparison)
        return browse(path, **settings)

    return open_page


def column(page, name):
    """The texts of a column of the table of examples, without the unknown ones."""
    place = page.locator("#table thead th").evaluate_all("cells => cells.map(cell => cell.dataset.key)").index(name)
    return page.locator(f"#table tr.row > td:nth-child({place + 2})").all_inner_texts()


def numbers(texts):
    return [float(text.replace("−", "-")) for text in texts]


def every_page(page, name):
    """A column of all pages."""
    found = column(page, name)
    while page.locator("#next").is_enabled():
        page.click("#next")
        found += column(page, name)
    return found


def status(page):
    return page.inner_text("#status")


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
    assert "too sure by 0.125" in page.inner_text("#summary")
    assert "48.5 to 54.8" in page.inner_text(".tiles")
    assert "a model" in page.inner_text("header")
    assert "switched off" in page.inner_text("main")
    assert not page.locator("#examples").is_visible()
    assert not page.locator("#curves").is_visible()


def test_the_same_report_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        write_page(usual_report(), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    write_page(usual_report(seed=1), tmp_path / "other")
    assert (tmp_path / "one").read_bytes() != (tmp_path / "other").read_bytes()


def test_an_undefined_metric_is_a_dash_with_its_reason(show):
    page = show(make_report([make_example(row, 0.5, {"msp": float(row)}, "same") for row in range(4)]))
    cell = page.locator("#scorers table").first.locator("tbody td.number").first
    assert cell.inner_text().startswith("-")
    assert cell.get_attribute("title") == "all qualities are equal"
    assert "No scorer can be judged: all qualities are equal." in page.inner_text("#summary")


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
    assert status(page) == "No example fits."


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
    assert about in page.inner_text("#detail-0 .told")
    assert about in tokens.nth(1).get_attribute("title")
    assert tokens.evaluate_all("all => all.filter(one => one.tabIndex === 0).length") == 1
    tokens.nth(3).hover()
    assert first["output"].split()[3] in page.inner_text("#detail-0 .told")
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


def hostile_report():
    texts = list(HOSTILE.values())
    examples = [
        make_example(row, row / 20, {"msp": float(-row), HOSTILE_NAME: float(row)}, text, text, text)
        for row, text in enumerate(texts)
    ]
    for example in examples:
        example["tokens"] = [HOSTILE["image"], HOSTILE["script"], "\u2028", "\n", ""]
        for name in ("token_log_probabilities", "token_entropies"):
            example[name] = [0.0, -0.5, float("nan"), float("-inf"), 1e300]
    return make_report(
        examples, model=HOSTILE["image"], data=HOSTILE["script"], odd={HOSTILE["image"]: HOSTILE["script"]}
    )


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


# ---- looks ----


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out_of_the_page(show, width):
    for report in (REPORT, hostile_report()):
        page = show(report, width=width)
        for number in range(10):
            page.locator(".toggle").nth(number).click()
        for details in page.locator("summary").all():
            details.click()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_on_a_phone_rows_are_cards_that_still_sort(show):
    page = show(REPORT, width=360)
    page.locator("th[data-key=quality] button").click()
    found = page.locator("tr.row td[data-label=Quality]").all_inner_texts()
    assert numbers(found) == sorted(numbers(found))
    card = page.locator("tr.row").first.bounding_box()
    assert card["x"] >= 0
    assert card["x"] + card["width"] <= 360


CONTRAST = """one => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const paint = (colour) => { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); };
    const layers = [];
    for (let at = one; at; at = at.parentElement) layers.unshift(getComputedStyle(at).backgroundColor);
    const read = () => [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    const linear = (part) => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4;
    const weights = [.2126, .7152, .0722];
    const light = (colour) => colour.reduce((sum, part, index) => sum + weights[index] * linear(part / 255), 0);
    layers.forEach(paint);
    const below = light(read());
    paint(getComputedStyle(one).color);
    const above = light(read());
    return (Math.max(above, below) + .05) / (Math.min(above, below) + .05);
}"""


READABLE = (
    "#summary .lead p", "header p", "nav a", ".tiles .value", ".tiles .more", "#scorers td", "#scorers .interval",
    "summary", "#legend button", "#legend [aria-pressed=false]", "#groups label:has(:checked)", "#groups label",
    "#table th button", "#table .clamp", "#detail-0 h4", ".told", ".token", ".token.special", ".heat", ".tag",
    "#status", "dt", "footer", "figcaption p",
)  # fmt: skip


def test_light_and_dark_differ_and_both_can_be_read(show):
    seen = {}
    for scheme in ("light", "dark"):
        page = show(REPORT, color_scheme=scheme)
        seen[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator(".toggle").first.click()
        page.get_by_role("button", name="pmi", exact=True).click()
        for selector in READABLE:
            assert page.locator(selector).last.evaluate(CONTRAST) >= 4.5, (scheme, selector)
    assert len(set(seen.values())) == 2


def test_the_page_can_be_used_without_a_mouse(show):
    page = show(REPORT)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator(".toggle").first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert page.get_attribute("html", "lang") == "en"


# ---- which examples ----


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
    assert groups["most wrongly sure"] == sorted(np.argsort(-gap)[:125])
    assert len(groups["random"]) > 125
    assert all(names for _, names in chosen)
    page = show(report)
    assert status(page) == "1 to 25 of 500 examples"
    assert "500 of 1,300 outputs" in page.inner_text("#examples-note")


def test_the_random_group_is_a_sample_of_all_examples():
    report, limit = usual_report(400), 100
    numbers = read_numbers(report)
    certain = set(np.argsort(report.uncertainty("msp"))[:25])
    drawn = []
    for seed in range(60):
        chosen = choose_examples(report, "msp", limit, seed, numbers)
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


def test_without_confidence_the_wrongly_sure_are_found_by_rank(monkeypatch):
    monkeypatch.setattr(EvaluationReport, "confidence", lambda self, name: None)
    quality = np.linspace(0, 1, 30)
    scores = -quality
    scores[0] = -2.0  # the worst output is the surest
    report = make_report(
        [make_example(row, q, {"msp": s}, "x") for row, (q, s) in enumerate(zip(quality, scores, strict=True))]
    )
    chosen = choose_examples(report, "msp")
    [wrong] = [example["row"] for example, names in chosen if "most wrongly sure" in names]
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
    numbers = read_numbers(report)
    choose_examples(report, "msp", numbers=numbers)
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
