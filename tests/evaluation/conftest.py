"""Pages of reports in a real browser."""

import pytest

from clue_hf.evaluation.text.page import write_page


@pytest.fixture
def show(browse, tmp_path):
    """Opens the page of a report."""

    def open_page(report, comparison=None, **settings):
        path = tmp_path / f"page{len(list(tmp_path.iterdir()))}.html"
        write_page(report, path, comparison)
        return browse(path, **settings)

    return open_page
