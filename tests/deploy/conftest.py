"""Models of every kind for the tests of this folder."""

import pytest
import transformers
from deploy.deployed_models import KINDS, make_folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each kind."""
    return {kind: str(make_folder(tmp_path_factory.mktemp(kind.replace(" ", "_")), kind)) for kind in KINDS}


@pytest.fixture
def warnings_seen(caplog):
    transformers.utils.logging.enable_propagation()
    yield caplog
    transformers.utils.logging.disable_propagation()
