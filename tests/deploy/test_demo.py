"""The page of a model in a real browser: what it shows, what it keeps to itself, and how it ends."""

import json
import re
import signal
import socket
import time

import numpy as np
import psutil
import pytest
from classifiers import image_rows
from deploy.deployed_models import inputs_for, make_folder, table_rows
from helpers import SENTENCES
from PIL import Image
from processes import Forked, free_port, run_command
from transformers import AutoConfig

from clue_hf import pipeline
from clue_hf.cli.main import main
from clue_hf.deploy.demo import Demo, _launch, build_page, check_address, import_gradio, part_html
from clue_hf.errors import UserError
from clue_hf.models.uncertainty_file import write_uncertainty
from clue_hf.pages.environment import inert
from clue_hf.posthoc import AdaptiveSets, ScaledIntervals
from clue_hf.posthoc.calibration_file import UncertaintyCalibration


HOSTILE = '<script>hacked=1</script><img src=x onerror="hacked=1">\'"`**a**`${hacked=1} {{hacked=1}} </textarea>'


@pytest.fixture(autouse=True, scope="module")
def gradio():
    """Not where the tests are collected: it takes seconds to import."""
    pytest.importorskip("gradio", reason="gradio is not installed")


@pytest.fixture
def show(browser):
    """Serves the page of a folder and opens it; in the end no script ran and no other host was asked for anything."""
    pages, requests = [], []

    def open_demo(folder, **settings):
        served = build_page(Demo(pipeline(str(folder), device="cpu", **settings), str(folder)))
        port = free_port()
        _launch(served, import_gradio(), "127.0.0.1", port, False)
        page = browser.new_page(viewport={"width": 1100, "height": 760})
        pages.append((served, page))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"http://127.0.0.1:{port}")
        page.locator("#run").wait_for(timeout=30_000)
        return page

    yield open_demo
    for served, page in pages:
        assert page.evaluate("typeof hacked") == "undefined"
        page.close()
        served.close(verbose=False)
    assert requests
    others = [url for url in requests if not url.startswith(("http://127.0.0.1:", "data:", "blob:http://127.0.0.1:"))]
    assert others == []


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """A T5 with thresholds: at a risk of 0.05 the more uncertain half is not answered, at 0.9 everything is."""
    folder = make_folder(tmp_path_factory.mktemp("t5"), "t5")
    pipe = pipeline(str(folder), device="cpu", max_new_tokens=6)
    uncertainty = np.tile([answer["uncertainty"] for answer in pipe(inputs_for("t5"))], 100)
    quality = np.where(uncertainty < np.median(uncertainty), 1.0, 0.3)
    UncertaintyCalibration.fit("perplexity", {**pipe.predictor.settings}, uncertainty, quality, (0.05, 0.9), 0.1,
                 "hoeffding-bentkus", data={"name": "d", "rows": 700}).write(folder)  # fmt: skip
    return folder


def most_uncertain(folder):
    answers = pipeline(str(folder), device="cpu")(inputs_for("t5"))
    return inputs_for("t5")[int(np.argmax([answer["uncertainty"] for answer in answers]))]


def test_a_text_its_tokens_and_whether_to_abstain(show, calibrated, tmp_path):
    text = most_uncertain(calibrated)
    expected = pipeline(str(calibrated), device="cpu")(text, return_tokens=True, num_alternatives=5)
    page = show(calibrated)
    page.locator("#input textarea").fill(text)
    page.locator("#run").click()
    page.locator("#text").wait_for()
    assert page.locator("#text").inner_text().strip() == (expected["generated_text"].strip() or "(empty)")
    assert float(page.locator("#uncertainty").inner_text()) == pytest.approx(expected["uncertainty"], abs=0.06)
    assert float(page.locator("#confidence").inner_text()) == pytest.approx(expected["confidence"], abs=6e-4)
    assert page.locator(".token").count() == len(expected["tokens"])
    token, tip = page.locator(".token").first, page.locator(".tip").first
    assert not tip.is_visible()
    token.click()
    assert tip.is_visible()
    names = tip.locator(".alternative span:first-child").all_inner_texts()
    assert names == [other["token"] for other in expected["tokens"][0]["alternatives"]]
    assert page.locator("#verdict").inner_text().startswith("Abstain at a risk of 0.05")
    page.locator("#risk input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#verdict:not(.abstain)").wait_for()
    assert page.locator("#verdict").inner_text().startswith("Answer at a risk of 0.9")
    page.screenshot(path=tmp_path / "text.png")


def test_hostile_text_stays_text(show, calibrated):
    page = show(calibrated)
    page.locator("#input textarea").fill(HOSTILE)
    page.locator("#run").click()
    page.locator("#text").wait_for()
    token = {"token": HOSTILE, "probability": 0.5, "entropy": 1.0,
             "alternatives": [{"token": HOSTILE, "probability": 0.5}]}  # fmt: skip
    page.evaluate("html => document.querySelector('#answer').innerHTML = html", part_html("token", token, 3.0))
    page.wait_for_timeout(200)
    assert page.locator("#answer .token").count() == 1
    assert page.locator("#answer script, #answer img").count() == 0
    assert page.locator("#answer .alternative span").first.text_content() == HOSTILE


def test_an_image_and_a_hostile_label(show, tmp_path):
    folder = make_folder(tmp_path / "vit", "image")
    config = AutoConfig.from_pretrained(folder)
    count = len(config.id2label)
    config.id2label = {number: f"{HOSTILE} {number}" for number in range(count)}
    config.label2id = {name: number for number, name in config.id2label.items()}
    config.save_pretrained(folder)
    path = tmp_path / "image.png"
    pixels = image_rows(7)[0][0]
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(np.asarray(pixels))
    image.save(path)
    expected = pipeline(str(folder), device="cpu")(str(path))
    page = show(folder)
    assert "clue-hf calibrate" in page.locator("#uncalibrated").inner_text()
    page.locator("#input input[type=file]").set_input_files(path)
    page.locator("#input img").wait_for()
    page.locator("#run").click()
    page.locator("#label").wait_for()
    assert page.locator("#label").text_content() == expected["label"]
    assert page.locator("#confidence").inner_text() == "-"
    assert page.locator("#verdict").count() == 0


# ---- without a browser ----


@pytest.mark.parametrize("kind", ["table", "text classes", "text numbers", "gpt2"])
def test_every_kind_of_model_has_a_page(tmp_path, kind):
    short = {"max_new_tokens": 6} if kind == "gpt2" else {}
    demo = Demo(pipeline(str(make_folder(tmp_path / "model", kind)), device="cpu", **short), "model")
    build_page(demo)
    row = table_rows(1)[0]
    given = [row[column.name] for column in demo.columns] if kind == "table" else [SENTENCES[0]]
    shown, uncertainty, verdict = demo.answer(0.8, 0, *given)
    expected = demo.pipe(row if kind == "table" else SENTENCES[0], **demo._options(0.8))
    assert uncertainty == expected["uncertainty"]
    assert verdict == ""
    assert demo.answer_html(expected) == shown
    if kind in ("table", "text numbers"):
        low, high = expected["interval"]
        assert f"{low:.4g} to {high:.4g}" in shown
    else:
        assert 'role="alert"' in demo.answer(0.8, 0, " ")[0]


@pytest.mark.parametrize(("kind", "fitted"), [
    ("text classes", AdaptiveSets(0.8, 1.0, 50)), ("table", ScaledIntervals(0.8, 3.0, 50)),
])  # fmt: skip
def test_prediction_sets_and_conformal_intervals_are_shown(tmp_path, kind, fitted):
    folder = make_folder(tmp_path / "model", kind)
    write_uncertainty(folder, conformal=fitted.to_dict())
    demo = Demo(pipeline(str(folder), device="cpu"), "model")
    build_page(demo)
    row = table_rows(1)[0]
    given = [row[column.name] for column in demo.columns] if kind == "table" else [SENTENCES[0]]
    shown, _, _ = demo.answer(0.99, 0, *given)
    answer = demo.pipe(row if kind == "table" else SENTENCES[0])
    assert "with a probability of at least 0.8" in shown
    if kind == "table":
        assert answer["interval"][1] == pytest.approx(answer["mean"] + 3 * answer["std"])
        assert "{:.4g} to {:.4g}".format(*answer["interval"]) in shown
    else:
        assert len(answer["prediction_set"]) > 1
        assert ", ".join(answer["prediction_set"]) in shown


def test_what_is_escaped():
    assert not set("<>\"'`${}") & set(re.sub(r"&#?\w+;", "", inert(HOSTILE)))


def test_a_port_in_use_is_told(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port} .*--port"):
            check_address("127.0.0.1", port)
        assert main(["demo", "nowhere", "--port", str(port)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_without_gradio_one_line_says_what_to_install(tmp_path):
    process = Forked(run_command, ["demo", "nowhere"], "", "gradio")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.strip() == "clue-hf: error: The demo needs gradio: pip install 'clue-hf[demo]'"


def test_the_command_listens_here_only_and_ends_with_ctrl_c(calibrated, tmp_path):
    port = free_port()
    (tmp_path / "out").touch()
    process = Forked(main, ["demo", str(calibrated), "--port", str(port)], log=tmp_path / "out")
    try:
        until = time.time() + 120
        while f":{port} (Ctrl-C" not in (tmp_path / "out").read_text() and process.poll() is None:
            assert time.time() < until
            time.sleep(0.2)
        listening = [c for c in psutil.Process(process.pid).net_connections("inet") if c.status == "LISTEN"]
        assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        process.kill()
    assert "Traceback" not in (tmp_path / "out").read_text()


def test_the_api_is_not_documented(calibrated):
    page = build_page(Demo(pipeline(str(calibrated), device="cpu"), "model"))
    assert json.loads(json.dumps(page.get_api_info()))["named_endpoints"] == {}
