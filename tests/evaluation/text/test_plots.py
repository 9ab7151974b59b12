import math
import xml.etree.ElementTree as ElementTree

import matplotlib
import numpy as np
import pytest
from evaluation.figures import check_figure
from PIL import Image

from clue_hf import EvaluationReport
from clue_hf.evaluation.text.plots import plot_report
from clue_hf.evaluation.text.selection import (
    best_scorer,
    colour_index,
    good_examples,
    reliability_bins,
    thinned_curves,
)
from clue_hf.metrics import rejection_reports
from clue_hf.pages.palette import DARK, LIGHT
from clue_hf.pages.selection import curve_limits, score_histogram
from clue_hf.scorers import DEFAULT_SCORERS


PICTURES = ("rejection_curves", "risk_coverage", "score_histograms", "reliability")


def make_report(quality, **scores):
    """A report with nothing but numbers."""
    quality, scores = np.asarray(quality, float), {name: np.asarray(values, float) for name, values in scores.items()}
    examples = [
        {"row": row, "quality": float(value), "scores": {name: float(values[row]) for name, values in scores.items()}}
        for row, value in enumerate(quality)
    ]
    metrics = {"n": len(quality), "quality": {"bleu": {}}, "scorers": rejection_reports(scores, quality)}
    return EvaluationReport(examples, metrics, {})


def noisy_report(n, seed=0):
    """Three scorers that know less and less of the quality."""
    rng = np.random.default_rng(seed)
    quality = rng.beta(2, 1, n)
    scores = {name: noise * rng.normal(size=n) - quality for name, noise in (("msp", 0.1), ("pmi", 0.5), ("own", 2.0))}
    return make_report(quality, **scores)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plots") / "new" / "folder"
    return folder, plot_report(noisy_report(300), folder)


def test_every_picture_is_an_image_in_both_formats(written):
    folder, files = written
    assert {file.name for file in files} == {f"{name}.{ending}" for name in PICTURES for ending in ("png", "svg")}
    assert set(files) == set(folder.iterdir())
    for file in files:
        if file.suffix == ".png":
            with Image.open(file) as image:
                image.load()
                assert image.size[0] > 1000
                assert len(image.convert("RGB").getcolors(maxcolors=10**6)) > 20
        else:
            root = ElementTree.parse(file).getroot()
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert not list(root.iter("{http://purl.org/dc/elements/1.1/}date"))


def test_the_same_report_gives_the_same_bytes_and_another_does_not(written, tmp_path):
    before = dict(matplotlib.rcParams)
    again = plot_report(noisy_report(300), tmp_path / "again")
    assert dict(matplotlib.rcParams) == before
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in written[1]]
    other = plot_report(noisy_report(300, seed=1), tmp_path / "other")
    assert all(one.read_bytes() != two.read_bytes() for one, two in zip(again, other, strict=True))


def test_the_colours_of_the_scorers_are_in_the_picture(written):
    text = (written[0] / "rejection_curves.svg").read_text()
    for name, index in colour_index(["msp", "pmi", "own"]).items():
        assert f"stroke: {LIGHT[index]}" in text, name


@pytest.mark.parametrize(
    ("report", "reliable"),
    [
        (make_report([0.4], msp=[1.0]), False),
        (make_report([0.4, 0.5, 0.9], msp=[1, 2, 3]), False),
        (make_report(np.linspace(0, 1, 40), msp=np.ones(40), pmi=np.arange(40)), True),
        (make_report(np.full(40, 0.5), msp=np.arange(40)), True),
        (make_report(np.full(40, 0.0), msp=np.full(40, 1e9)), True),
    ],
    ids=["one example", "too few for a confidence", "constant score", "constant quality", "all constant"],
)
def test_odd_reports_are_drawn(report, reliable, tmp_path):
    files = plot_report(report, tmp_path)
    assert {file.stem for file in files} == set(PICTURES if reliable else PICTURES[:3])
    titles = ("Rejecting the least certain outputs", "Risk of the outputs kept", "Uncertainty of good and bad outputs",
              "Is the confidence calibrated?")  # fmt: skip
    for name, title in zip(PICTURES, titles, strict=True):
        if reliable or name != "reliability":
            check_figure(tmp_path, name, title)
    prr = report.metrics["scorers"]["msp"]["prr"]["value"]
    check_figure(tmp_path, "rejection_curves", f"{'-' if prr is None else f'{prr:.3f}'.replace('-', '−'):^5}  msp")


def test_a_scorer_may_have_no_confidence(tmp_path, monkeypatch):
    report = noisy_report(40)
    original = report.confidence
    monkeypatch.setattr(report, "confidence", lambda name: None if name == "pmi" else original(name), raising=False)
    files = plot_report(report, tmp_path / "two")
    assert set(report.confidences()) == {"msp", "own"}
    monkeypatch.setattr(report, "confidence", lambda name: None)
    fewer = plot_report(report, tmp_path / "none")
    assert len(fewer) == len(files) - 2


def test_pictures_of_many_examples_stay_small(tmp_path):
    files = plot_report(noisy_report(100_000), tmp_path)
    assert max(file.stat().st_size for file in files if file.suffix == ".svg") < 300_000


def test_curves_are_the_mean_quality_of_what_is_kept():
    report = noisy_report(1000)
    quality, scores = report.quality(), report.uncertainty("pmi")
    curves = thinned_curves(report, points=90)
    assert len(curves["share"]) == 90
    assert (curves["share"][0], curves["share"][-1]) == (0, 0.999)
    for share, kept, best in zip(curves["share"], curves["scorer:pmi"], curves["oracle"], strict=True):
        rejected = round(share * 1000)
        assert kept == pytest.approx(quality[np.argsort(scores)[: 1000 - rejected]].mean())
        assert best == pytest.approx(np.sort(quality)[rejected:].mean())
    assert curves["random"] == pytest.approx(np.full(90, quality.mean()))


def test_limits_show_all_but_the_last_few():
    curve = np.concatenate([np.linspace(0.5, 0.9, 99), [0.0]])
    low, high = curve_limits({"share": np.linspace(0, 1, 100), "random": curve})
    assert 0.4 < low < 0.5
    assert 0.85 < high < 1


def test_reliability_bins_have_equal_mass_and_keep_ties_together():
    rng = np.random.default_rng(0)
    confidence = rng.random(1000)
    quality = np.clip(confidence**2 + 0.01 * rng.normal(size=1000), 0, 1)
    found = reliability_bins(confidence, quality)
    assert [entry["count"] for entry in found] == [100] * 10
    for entry in found:
        assert entry["quality"] == pytest.approx(entry["confidence"] ** 2, abs=0.01)
        assert entry["low"] <= entry["quality"] <= entry["high"]
    rounded = confidence.round(1)
    order = rng.permutation(1000)
    tied, moved = reliability_bins(rounded, quality), reliability_bins(rounded[order], quality[order])
    assert [entry["count"] for entry in tied] == [entry["count"] for entry in moved]
    assert [entry["quality"] for entry in tied] == pytest.approx([entry["quality"] for entry in moved])
    assert len(reliability_bins(np.full(50, 0.3), np.linspace(0, 1, 50))) == 1
    assert reliability_bins(np.empty(0), np.empty(0)) == []


def test_the_interval_of_a_bin_is_that_of_its_mean():
    [entry] = reliability_bins(np.full(4, 0.5), np.array([0.2, 0.4, 0.6, 0.8]))
    half = 1.96 * math.sqrt(0.2 / 3) / 2
    assert (entry["low"], entry["high"]) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))


def test_histograms_count_every_example_once():
    values = np.concatenate([np.linspace(0, 1, 998), [1e6, -1e6]])
    good = np.arange(1000) % 4 == 0
    found = score_histogram(values, good)
    assert (found["good"].sum(), found["bad"].sum()) == (250, 750)
    assert found["edges"][0] > -1
    assert found["edges"][-1] < 2
    constant = score_histogram(np.full(10, 3.0), np.ones(10, bool))
    assert constant["good"].sum() == 10
    assert np.ptp(constant["edges"]) > 0


def test_good_examples_are_those_from_the_median_up():
    assert good_examples(np.array([0.1, 0.5, 1.0, 1.0])).tolist() == [False, False, True, True]
    assert good_examples(np.array([0.3, 1.0, 1.0, 1.0])).tolist() == [False, True, True, True]
    assert good_examples(np.full(3, 0.7)).all()


def test_a_scorer_has_its_own_colour_in_every_report():
    every = colour_index(list(DEFAULT_SCORERS))
    assert len(set(every.values())) == len(DEFAULT_SCORERS)
    assert colour_index(["pmi"]) == {"pmi": every["pmi"]}
    assert colour_index(["own", "pmi"])["own"] not in every.values()
    assert (
        colour_index(["own", "learned", "pmi"])["learned"]
        == colour_index(["learned"])["learned"]
        not in (
            *every.values(),
            colour_index(["own", "learned"])["own"],
        )
    )


@pytest.mark.parametrize(("colours", "background"), [(LIGHT, "#ffffff"), (DARK, "#161b22")])
def test_lines_stand_out_from_the_background(colours, background):
    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    for colour in colours:
        low, high = sorted([luminance(colour), luminance(background)])
        assert (high + 0.05) / (low + 0.05) >= 3  # what WCAG asks of drawings


def test_the_best_scorer_has_the_highest_ratio():
    assert best_scorer(noisy_report(200)) == "msp"
    assert best_scorer(make_report([0.5, 0.5], pmi=[1, 2], msp=[2, 1])) == "pmi"
