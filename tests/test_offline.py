import socket

from clue_hf.offline import _answers


def test_a_listening_port_answers_and_a_closed_one_does_not():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert _answers(address)
    assert not _answers(address)
