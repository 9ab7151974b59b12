"""Tiny real models and tokenizers, built on the spot."""

import gc
import os
import shutil
import signal
import sys
from pathlib import Path


# before torch is imported: the workers of one machine share its cores, and nothing may ask the network
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if os.access("/dev/shm", os.W_OK):  # in memory nothing waits for a disk
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

import pytest


# started in the background of a script, all would ignore Ctrl-C, which some tests send
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """The process that only hands out tests to others imports no libraries, which take ten seconds."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        from hypothesis import settings

        settings.register_profile("unhurried", deadline=None)  # a busy machine is not a bug
        settings.load_profile("unhurried")


#: The files that take longest, first: a worker that ends with one of them leaves the other without anything to do.
LONG = ("test_commands_of_docs", "distributed/test_distributed", "evaluation/text/test_page",
        "reliability/test_mangled_files", "cli/test_compare_texts", "cli/test_train", "test_classification_training",
        "hub/test_endpoint", "hub/test_push", "cli/test_evaluate_classes", "evaluation/classes/test_class_page",
        "test_trainer",
        "evaluation/text/test_plots", "reliability/test_secrets", "evaluation/text/test_page_looks",
        "evaluation/text/test_evaluator", "reliability/test_kinds")  # fmt: skip


def pytest_collection_modifyitems(items):
    places = {f"{Path(__file__).parent}/{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


PICTURES = ("evaluation.text.plots", "evaluation.classes.plots", "evaluation.numbers.plots",
            "experiments.plots")  # fmt: skip


@pytest.fixture(autouse=True)
def seeded():
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """Every training begins by collecting garbage: a third of a second where it looks through all that is imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def browser():
    """A real browser, where there is one."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def browse(browser):
    """Opens a page; in the end nothing may have gone wrong, and nothing but itself and `allowed` may be asked for."""
    contexts, troubles = [], []

    def open_page(path, width=1280, height=900, allowed=(), **settings):
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, reduced_motion="reduce", **settings)
        contexts.append(context)

        def check(request):
            if request.url != path.as_uri() and not request.url.startswith(tuple(allowed)):
                troubles.append(request.url)

        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("request", check)
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def without_pictures(request, monkeypatch):
    """As if the extra `plots` were not installed, for tests that are not marked `pictures`: nobody looks at theirs."""
    if request.node.get_closest_marker("pictures") is None:
        for module in PICTURES:
            monkeypatch.setitem(sys.modules, f"clue_hf.{module}", None)


@pytest.fixture(scope="session")
def tokenizer():
    from helpers import make_tokenizer

    return make_tokenizer()


@pytest.fixture(params=["t5", "gpt2"])
def kind(request):
    """One sequence-to-sequence and one causal architecture."""
    return request.param


@pytest.fixture
def model(kind):
    from helpers import make_model

    return make_model(kind)
