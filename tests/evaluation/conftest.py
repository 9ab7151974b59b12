"""A real browser that opens pages and notices what goes wrong in them."""

import pytest

from clue_hf.evaluation.text.page import write_page


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
def show(browse, tmp_path):
    """Opens the page of a report."""

    def open_page(report, comparison=None, **settings):
        path = tmp_path / f"page{len(list(tmp_path.iterdir()))}.html"
        write_page(report, path, comparison)
        return browse(path, **settings)

    return open_page
