"""A Hub for the tests of this folder."""

import pytest
import transformers
from hub.deployed_models import KINDS, make_folder
from hub.endpoint import HubEndpoint


@pytest.fixture(scope="module")
def hub():
    """A running endpoint; in the end it made no mistake, and no client asked for anything elsewhere."""
    with HubEndpoint() as endpoint:
        yield endpoint
    assert endpoint.errors == []
    assert [request.path for request in endpoint.requests if request.method == "CONNECT"] == []


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each kind."""
    return {kind: str(make_folder(tmp_path_factory.mktemp(kind.replace(" ", "_")), kind)) for kind in KINDS}


@pytest.fixture
def warnings_seen(caplog):
    transformers.utils.logging.enable_propagation()
    yield caplog
    transformers.utils.logging.disable_propagation()
