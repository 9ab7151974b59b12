import re

import numpy as np
import pytest
from evaluation.figures import check_figure
from number_models import make_number_vit, number_images

from clue_hf.evaluation.numbers.evaluator import RegressionEvaluator, measure
from clue_hf.evaluation.numbers.plots import plot_report
from clue_hf.evaluation.numbers.report import RegressionReport
from clue_hf.evaluation.numbers.selection import (
    bands,
    coverage_curve,
    error_bins,
    error_points,
    most_overconfident,
    sparsification_curves,
)
from clue_hf.inputs.base import Rows
from clue_hf.metrics import (
    ause,
    ence,
    format_interval,
    format_metric,
    metric_definitions,
    metric_info,
    regression_calibration_error,
)
from clue_hf.posthoc import QuantileCalibrator
from clue_hf.predictors.numbers import RegressionPredictions


HOSTILE = [
    "<img src=x onerror=\"window.hacked='image'\">",
    "</script><script>window.hacked=1</script>",
    "{{data}} $\\1$",
]


class Texts(Rows):
    """Rows that are some texts, over and over."""

    def __len__(self):
        return len(HOSTILE)

    def batch(self, rows):
        raise AssertionError("no model asks for them")

    def labelled(self, labels, chosen):
        raise AssertionError("no trainer asks for them")

    def text(self, row):
        return HOSTILE[row % len(HOSTILE)]


def make_report(n=250, seed=0, calibrated=True, scale=1.0, std=None, name="price", rows=None):
    """A regressor that is twice as sure as it should be, of errors that differ from row to row."""
    rng = np.random.default_rng(seed)
    mean, noise = scale * rng.normal(20, 10, n), scale * rng.gamma(4, 0.5, n)
    target = mean + noise * rng.normal(size=n)
    raw = RegressionPredictions(mean, noise / 2 if std is None else np.full(n, std), target, clamped=3)
    kinds = {"raw": raw}
    calibrator = None
    if calibrated:
        calibrator = QuantileCalibrator.fit(mean, raw.std, mean + noise * rng.normal(size=n))
        kinds["calibrated"] = raw.calibrated(calibrator)
    metrics = {
        "n": n,
        "clamped": 3,
        "min_variance": 1e-6,
        **{kind: measure(found, 20) for kind, found in kinds.items()},
    }
    description = {
        "model": "a model", "data": "some data", "target": name, "uncertainty": "variance", "interval": "95 %",
        "notes": ["'area': 2 of 250 rows have no value."], "metrics": metric_definitions(metrics["raw"], "numbers"),
        "settings": {"mc_samples": 0, "members": 1, "min_variance": 1e-6},
    }  # fmt: skip
    return RegressionReport(raw, kinds.get("calibrated"), metrics, description, calibrator, rows=rows)


REPORT = make_report()


def test_rows_must_say_how_they_become_batches():
    with pytest.raises(TypeError, match="abstract methods? .*'?batch"):
        Rows()


# ---- what is drawn ----


@pytest.mark.parametrize("kind", ["raw", "calibrated"])
def test_what_is_drawn_is_what_is_measured(kind):
    predicted = REPORT.kinds[kind]
    mean, std, target = predicted.mean, predicted.std, predicted.target
    curve = coverage_curve(predicted)
    given = predicted.forecasts.calibrated_pit
    assert np.abs(curve["coverage"] - curve["level"]).mean() == pytest.approx(
        regression_calibration_error(mean, std, target, pit=given)
    )
    low, high = predicted.interval(float(curve["level"][60]))
    assert curve["coverage"][60] == pytest.approx(((low <= target) & (target <= high)).mean())
    bins = error_bins(predicted)
    assert sum(entry["count"] for entry in bins) == len(mean)
    gaps = [abs(entry["rmv"] - entry["rmse"]) / entry["rmv"] for entry in bins]
    assert np.mean(gaps) == pytest.approx(ence(mean, std, target))
    curves = sparsification_curves(REPORT.kinds, len(mean))
    area = np.trapezoid(curves[kind] - curves[f"{kind} oracle"], curves["share"])
    assert area == pytest.approx(ause(mean, std, target))


def test_rows_are_chosen_evenly():
    found = bands(REPORT.raw)
    assert len(found["mean"]) == 100
    assert (np.diff(found["mean"]) >= 0).all()
    assert (found["mean"][0], found["mean"][-1]) == (REPORT.raw.mean.min(), REPORT.raw.mean.max())
    assert np.ptp(np.diff(np.searchsorted(np.sort(REPORT.raw.mean), found["mean"]))) <= 1
    assert len(error_points(make_report(n=3000, calibrated=False).raw)["std"]) == 1000
    first = most_overconfident(REPORT.raw, 5)
    scores = np.abs(REPORT.raw.target - REPORT.raw.mean) / REPORT.raw.std
    assert scores[first].tolist() == sorted(scores, reverse=True)[:5]


NAMES = {"interval_calibration", "std_against_error", "sparsification", "prediction_intervals"}


def test_every_picture_is_drawn(tmp_path):
    files = plot_report(REPORT, tmp_path)
    assert {file.stem for file in files} == NAMES
    assert {file.suffix for file in files} == {".png", ".svg"}
    check_figure(tmp_path, "interval_calibration", "raw  ECE 0.163", "calibrated  ECE 0.051", "perfect")
    check_figure(tmp_path, "std_against_error", "raw   ENCE 0.810", "Standard deviation (of price)", "single rows")
    check_figure(tmp_path, "sparsification", "raw  AUSE 0.251", "oracle: best possible", "area: AUSE of raw")
    check_figure(tmp_path, "prediction_intervals", "raw   74.0% of all 250 targets within", "price", "target outside")


@pytest.mark.parametrize(
    "settings",
    [
        {"n": 1, "calibrated": False, "scale": 1e-7},
        {"std": 1e-3, "scale": 1e9, "calibrated": False, "name": HOSTILE[2] + " of a very long name"},
    ],
)
def test_odd_reports_are_written_too(tmp_path, settings):
    report = make_report(**settings)
    report.save(tmp_path)
    n, coverage = len(report.raw), report.metrics["raw"]["coverage_95"]["value"]
    for name in NAMES:
        check_figure(tmp_path, name)
    check_figure(tmp_path, "prediction_intervals", f"raw   {coverage:.1%} of all {n:,} targets within")
    page = (tmp_path / "report.html").read_text()
    assert page.endswith("</html>\n")
    assert f">{format_metric(report.metrics['raw']['mse'], 'mse', 'numbers', interval=None)}<" in page


def test_numbers_of_any_size_have_four_digits():
    entry = {"value": 1.23456e-9, "low": 1.2e-9, "high": 1.3e-9, "reason": None}
    assert format_metric(entry, "mse", "numbers") == "0.000000001235 [0.000000001200, 0.000000001300]"
    assert format_metric({"value": 123456.7, "reason": None}, "mse", "numbers") == "123457"
    assert format_metric({"value": 12.34567, "reason": None}, "ence", "numbers") == "12.346"
    assert format_metric({"value": None, "reason": "no rows"}, "mse", "numbers") == "-"
    assert format_metric({"value": 0.0}, "mean_std", "numbers") == "0.000"


# ---- the page ----


@pytest.fixture
def show(browse, tmp_path):
    """Opens the page of a report, whose images are part of it."""

    def open_page(report, comparison=None, other="another", **settings):
        path = tmp_path / f"page{len(list(tmp_path.iterdir()))}.html"
        report.write_page(path, comparison, other)
        return browse(path, allowed=["data:"], **settings)

    return open_page


def shown_rows(page):
    return [int(row) for row in page.locator("#table tbody tr").evaluate_all("rows => rows.map(r => r.dataset.row)")]


def test_the_page_says_what_was_found(tmp_path):
    REPORT.write_page(tmp_path / "page.html", REPORT.compare(make_report(calibrated=False), 5), "another")
    page = (tmp_path / "page.html").read_text()
    entry = REPORT.metrics["raw"]["mse"]
    assert f">{entry['value']:.3f}<" in page
    assert f"{entry['low']:.3f} to {entry['high']:.3f}" in page
    assert format_interval(REPORT.metrics["calibrated"]["mse"], "mse", "numbers") in page
    for words in (
        "3 of 250 variances were below the minimum",
        "2 of 250 rows have no value",
        "Compared with",
        "overconfident",
    ):
        assert words in page
    for name in REPORT.main_metrics:
        assert metric_info(name, "numbers").heading in page


def test_the_page_loads_nothing_and_is_the_same_each_time(tmp_path):
    for name in ("one", "two"):
        make_report().write_page(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    page = (tmp_path / "one").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=[\"']?https?:", page)
    assert not re.search(r"\{\{\w+\}\}", page)


def test_hostile_texts_cannot_leave_their_place(tmp_path):
    report = make_report(name=HOSTILE[1], rows=Texts())
    report.description["model"] = report.description["notes"][0] = HOSTILE[0]
    report.write_page(tmp_path / "page.html", report.compare(report, 5), HOSTILE[1])
    page = (tmp_path / "page.html").read_text()
    assert page.count("<script") == 2
    assert "<img" not in page
    assert 'onerror="' not in page


def test_hostile_texts_stay_text(show):
    report = make_report(name=HOSTILE[1], rows=Texts())
    page = show(report, comparison=report.compare(report, 5), other=HOSTILE[1])
    assert page.evaluate("window.hacked") is None
    assert HOSTILE[1] in page.inner_text("#comparison h2")
    assert HOSTILE[0] in page.inner_text("#table")


def test_rows_are_sorted_and_paged(show):
    page = show(REPORT)
    assert shown_rows(page) == most_overconfident(REPORT.raw, 25).tolist()
    page.click("#next")
    assert shown_rows(page) == most_overconfident(REPORT.raw, 50)[25:].tolist()
    assert page.inner_text("#status") == "26 to 50 of 200 rows"
    page.click("#table th[data-key=target] button")
    chosen = most_overconfident(REPORT.raw, 200)
    assert shown_rows(page) == chosen[np.argsort(-REPORT.raw.target[chosen])][:25].tolist()


def test_the_curves_can_be_read_with_the_keyboard(show):
    page = show(REPORT)
    page.focus("#coverage")
    page.keyboard.press("Home")
    assert page.get_attribute("#coverage", "aria-valuetext").startswith("0 % expected")
    frame = page.locator("#errors .frame").first
    frame.focus()
    assert f"{error_bins(REPORT.raw)[0]['count']} rows" in frame.get_attribute("aria-valuetext")
    assert page.locator("#bands > div").count() == 2
    assert show(REPORT, java_script_enabled=False).locator("#metrics tbody tr").count() == len(REPORT.metrics["raw"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(show, scheme):
    page = show(REPORT, width=360, color_scheme=scheme, comparison=REPORT.compare(REPORT, 5))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_images_are_part_of_the_page(tmp_path):
    model, processor = make_number_vit()
    report = RegressionEvaluator(model, processor, resamples=0, target_column="brightness").evaluate(number_images())
    report.write_page(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count("data:image/png;base64,") == 12
