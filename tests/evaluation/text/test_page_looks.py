import pytest
from evaluation.page_reports import REPORT, hostile_report, numbers


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out_of_the_page(show, width):
    for report in (REPORT, hostile_report()):
        page = show(report, width=width)
        page.locator(".toggle").evaluate_all("all => all.slice(0, 10).forEach(one => one.click())")
        page.locator("summary").evaluate_all("all => all.forEach(one => one.click())")
        assert page.locator(".toggle[aria-expanded=true]").count() == 10
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
    "#table th button", "#table .clamp", "#detail-0 h4", ".token-text", ".token", ".token.special", ".heat", ".tag",
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
