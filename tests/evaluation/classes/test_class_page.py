import base64
import re
from io import BytesIO

import numpy as np
import pytest
from evaluation.figures import check_figure
from PIL import Image

from clue_hf.data.image_dataset import ImageDataset
from clue_hf.evaluation.classes.evaluator import measure
from clue_hf.evaluation.classes.plots import plot_report
from clue_hf.evaluation.classes.report import ClassificationReport
from clue_hf.evaluation.classes.selection import (
    choose_rows,
    confidence_bins,
    confident_errors,
    kept_accuracy,
    page_data,
)
from clue_hf.inputs.image_rows import ImageRows
from clue_hf.inputs.images import ImageTransform
from clue_hf.inputs.text_rows import TextRows
from clue_hf.metrics import aurc, expected_calibration_error, ood_report
from clue_hf.posthoc import TemperatureCalibrator
from clue_hf.predictors.classes import ClassPredictions


HOSTILE = [
    "<img src=x onerror=\"window.hacked='image'\">",
    "</script><script>window.hacked=1</script>",
    "{{data}} $\\1$",
]
TRANSFORM = ImageTransform((8, 8), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def make_report(n=120, names=("cat", "dog", "bird"), seed=0, texts=None, shifted=False, calibrated=True):
    """A classifier that is right two times in three."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(names), n)
    logits = rng.normal(size=(n, len(names)))
    logits[np.arange(n), labels] += 1.2
    probabilities = np.exp(2 * logits) / np.exp(2 * logits).sum(1, keepdims=True)
    raw = ClassPredictions(probabilities, labels)
    kinds = {"raw": raw}
    if calibrated:
        kinds["calibrated"] = ClassPredictions(TemperatureCalibrator(2.0)(probabilities), labels)
    tau = dict.fromkeys(kinds, 0.5)
    metrics = {"n": n, "tau": tau, **{kind: measure(found, 0.5, 1, 20) for kind, found in kinds.items()}}
    if shifted:
        ood = {kind: ood_report(found.uncertainty, found.uncertainty, resamples=5) for kind, found in kinds.items()}
        both = {kind: {**metrics[kind], **ood[kind]} for kind in kinds}
        metrics["corruptions"] = {"fog": {"1": both, "3": both}, "snow": {"3": both}}
        metrics["ood"] = ood
    description = {"model": "a model", "data": "some data", "classes": list(names), "settings": {"mc_samples": 0},
                   "uncertainty": "entropy", "interval": "95 %"}  # fmt: skip
    if texts is None:
        dataset = ImageDataset(rng.integers(0, 256, (n, 8, 8, 3), np.uint8), labels, list(names))
        rows = ImageRows(dataset, TRANSFORM)
    else:
        rows = TextRows({}, None, [texts[row % len(texts)] for row in range(n)])
    return ClassificationReport(
        list(names),
        raw,
        kinds.get("calibrated"),
        metrics,
        description,
        TemperatureCalibrator(2.0) if calibrated else None,
        rows,
    )


REPORT = make_report(shifted=True)


@pytest.fixture
def show(browse, tmp_path):
    """Opens the page of a report, whose images are part of it."""

    def open_page(report, comparison=None, other="another", **settings):
        path = tmp_path / f"page{len(list(tmp_path.iterdir()))}.html"
        report.write_page(path, comparison, other)
        return browse(path, allowed=["data:"], **settings)

    return open_page


def shown_rows(page):
    return [int(row) for row in page.locator("#cards > li").evaluate_all("cards => cards.map(c => c.dataset.row)")]


def test_the_page_says_what_was_found_without_scripts(show):
    page = show(REPORT, java_script_enabled=False)
    row = page.locator("#metrics tbody tr").first.inner_text()
    entry = REPORT.metrics["raw"]["error"]
    assert row.startswith("error")
    assert f"{entry['low']:.3f} to {entry['high']:.3f}" in row
    assert f"{int((~REPORT.raw.right).sum())} of 120 answers are wrong" in page.inner_text("#summary")
    assert page.locator("#corruptions tbody tr").count() == 4
    assert page.locator("#ood tbody tr").count() == 2
    assert not page.locator("#examples").is_visible()


def test_the_most_wrongly_sure_come_first_with_their_images(show):
    page = show(REPORT)
    rows = shown_rows(page)
    wrong = confident_errors(REPORT.raw, 24)
    assert rows == wrong[:24].tolist()
    source = page.locator("#cards img").first.get_attribute("src")
    pixels = np.asarray(Image.open(BytesIO(base64.b64decode(source.split(",")[1]))))
    assert np.array_equal(pixels, REPORT.rows.images[rows[0]]["pixel_values"])
    assert page.locator("#cards img").first.evaluate("image => image.naturalWidth") == 8
    text = page.locator("#cards > li").first.inner_text()
    assert REPORT.names[REPORT.raw.answers[rows[0]]] in text
    assert REPORT.names[REPORT.raw.labels[rows[0]]] in text


def test_examples_are_filtered_sorted_and_paged(show):
    page = show(REPORT)
    page.select_option("#sort", "row")
    assert shown_rows(page) == list(range(24))
    page.click("#next")
    assert shown_rows(page) == list(range(24, 48))
    assert page.inner_text("#status") == "25 to 48 of 120 examples"
    page.select_option("#sort", "highest uncertainty")
    assert shown_rows(page) == np.argsort(-REPORT.raw.uncertainty, kind="stable")[:24].tolist()
    page.check("input[name=verdict][value=right]", force=True)
    assert page.locator("#cards .wrong").count() == 0
    assert f"of {int(REPORT.raw.right.sum())} examples" in page.inner_text("#status")
    page.check("input[name=verdict][value='']", force=True)
    page.fill("#filter-low", "0.9")
    assert f"of {int((REPORT.raw.confidence >= 0.9).sum())} examples" in page.inner_text("#status")
    page.fill("#filter-text", "no such class")
    assert page.inner_text("#status") == "No example matches."


def test_the_curves_can_be_read_with_the_keyboard(show):
    page = show(REPORT)
    page.focus("#rejection")
    page.keyboard.press("Home")
    told = page.get_attribute("#rejection", "aria-valuetext")
    accuracy = 1 - REPORT.metrics["raw"]["error"]["value"]
    assert told.startswith("0 % rejected")
    assert f"raw {accuracy:.3f}" in told
    frame = page.locator("#severity .frame").first
    frame.focus()
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert "severity 0: fog" in frame.get_attribute("aria-valuetext")
    assert page.locator("#reliability > div").count() == 2
    assert not show(make_report(n=30, calibrated=False)).locator("#severity-card").is_visible()


@pytest.mark.parametrize("texts", [None, HOSTILE])
def test_hostile_names_stay_text(show, texts):
    report = make_report(n=40, names=HOSTILE, texts=texts, shifted=texts is None)
    report.description["model"] = HOSTILE[0]
    page = show(report, comparison=report.compare(report, 5), other=HOSTILE[1])
    assert page.evaluate("window.hacked") is None
    assert page.locator("#cards > li").count() == 24
    assert HOSTILE[1] in page.inner_text("#comparison h2")
    assert HOSTILE[0] in page.inner_text("#cards")
    assert page.locator("#cards img").count() == (24 if texts is None else 0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(show, scheme):
    page = show(REPORT, width=360, color_scheme=scheme, comparison=REPORT.compare(REPORT, 5))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_page_loads_nothing_and_is_the_same_each_time(tmp_path):
    for name in ("one", "two"):
        make_report(shifted=True).write_page(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    page = (tmp_path / "one").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=[\"']?https?:", page)
    assert not re.search(r"\{\{(?!data)\w+\}\}", page)
    assert list(page_data(REPORT, 5)["kinds"][0]) == ["name", "colour", "error", "ece"]


# ---- what is drawn ----


def test_the_bins_of_the_diagram_are_those_of_the_ece():
    bins = confidence_bins(REPORT.raw)
    error = sum(entry["count"] * abs(entry["quality"] - entry["confidence"]) for entry in bins) / len(
        REPORT.raw.labels
    )
    assert error == pytest.approx(expected_calibration_error(REPORT.raw.probabilities, REPORT.raw.labels))
    assert all(
        entry["low"] <= entry["quality"] + 1e-12 and entry["quality"] - 1e-12 <= entry["high"] for entry in bins
    )


def test_the_curve_is_that_of_the_metric():
    curves = kept_accuracy(REPORT, 1000)
    right = REPORT.raw.right.astype(float)
    assert 1 - curves["raw"].mean() == pytest.approx(aurc(REPORT.raw.uncertainty, right))
    assert (curves["oracle"] >= curves["raw"] - 1e-12).all()


def test_examples_are_chosen_within_the_limit():
    chosen = choose_rows(REPORT.raw, 40)
    assert len(chosen) <= 40
    sure = [row for row, groups in chosen.items() if "most confident errors" in groups]
    assert sorted(confident_errors(REPORT.raw, 10).tolist()) == sure
    assert len(choose_rows(REPORT.raw, 120)) == 120


def test_every_picture_is_drawn(tmp_path):
    files = plot_report(REPORT, tmp_path / "one")
    names = {"reliability", "uncertainty_histograms", "rejection_curve", "severity", "wrongly_sure"}
    assert {file.stem for file in files} == names
    assert {file.suffix for file in files} == {".png", ".svg"}
    check_figure(tmp_path / "one", "reliability", "Is the confidence calibrated?", "raw   ECE 0.106", "Accuracy")
    check_figure(tmp_path / "one", "uncertainty_histograms", "coloured, up: 83 right answers", "calibrated")
    check_figure(tmp_path / "one", "rejection_curve", "raw  PRR 0.514", "oracle: best possible", "random: no skill")
    check_figure(tmp_path / "one", "severity", "OOD AUROC", "fog", "snow", "dashed: calibrated")
    first = confident_errors(REPORT.raw, 1)[0]
    answer, truth = (REPORT.names[classes[first]] for classes in (REPORT.raw.answers, REPORT.raw.labels))
    check_figure(tmp_path / "one", "wrongly_sure", f"{answer}  {REPORT.raw.confidence[first]:.0%}", f"is {truth}")
    perfect = make_report(n=5, names=HOSTILE, texts=["a text"], calibrated=False)
    assert {file.stem for file in plot_report(perfect, tmp_path / "two")} == names - {"severity", "wrongly_sure"}
