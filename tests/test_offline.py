import os
import socket
import subprocess
import sys

from clue_hf.offline import _answers


def test_a_listening_port_answers_and_a_closed_one_does_not():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert _answers(address)
    assert not _answers(address)


def test_a_model_that_is_not_there_fails_at_once_without_a_network():
    """A Hub that refuses connections stands for no network."""
    code = (
        "from clue_hf import UserError\nfrom clue_hf.models.loading import load_text_model\n"
        "try:\n    load_text_model('nobody/nothing')\nexcept UserError as error:\n    print(error)"
    )
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert "hf download nobody/nothing" in done.stdout
    assert "only local folders and earlier downloads" in done.stderr
    assert "Retrying" not in done.stderr
