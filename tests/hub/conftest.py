"""A Hub for the tests of this folder."""

import pytest
from hub.endpoint import HubEndpoint


@pytest.fixture(scope="module")
def hub():
    """A running endpoint; in the end it made no mistake, and no client asked for anything elsewhere."""
    with HubEndpoint() as endpoint:
        yield endpoint
    assert endpoint.errors == []
    assert [request.path for request in endpoint.requests if request.method == "CONNECT"] == []
