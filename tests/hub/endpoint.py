"""A Hub on this machine's loopback: what the Hub's client needs to push and load, kept in memory."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Literal

from hub.hub_protocol import Protocol, Refusal, Request


@dataclass
class Failure:
    matching: Callable[[Request], bool]
    passing: int  # how many matching requests still pass
    times: float  # how many fail then
    status: int
    cut: Literal["upload", "answer"] | None
    message: str = ""


class HubEndpoint:
    """
    A Hub that real clients can be pointed at with `HF_ENDPOINT`. Every file is announced as a regular one, so that
    its content comes with the commit and no other storage is asked for.

    Args:
        token (`str`, *optional*):
            The only token that is accepted; it belongs to the user `me`.
    """

    def __init__(self, token: str = "hf_of_the_tests") -> None:
        self.token = token
        self.requests: list[Request] = []
        self._failures: list[Failure] = []
        self._lock = Lock()
        self._server = _Server(self)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.protocol = Protocol(self.url)
        self.repos = self.protocol.repos  # those of data sets are called "datasets/me/name"
        self.errors = self.protocol.errors  # mistakes of this server, not of its clients

    def __enter__(self) -> HubEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def fail_after(
        self,
        n: int,
        matching: Callable[[Request], bool] = lambda request: True,
        *,
        status: int = 500,
        cut: Literal["upload", "answer"] | None = None,
        times: float = 1,
        message: str = "",
    ) -> None:
        """
        Makes the `n`-th request from now on fail, counted among those that match, and the `times - 1` after it
        (`float("inf")`: all).

        Args:
            n (`int`):
                1 for the next request.
            matching (`Callable`, *optional*):
                Takes a `Request` whose body has not been read yet.
            status (`int`, *optional*, defaults to 500):
                What is answered. Nothing that the request asked for is done.
            cut (`str`, *optional*):
                Cut the connection instead: `"upload"` in the middle of the request's body, so that nothing is done,
                `"answer"` in the middle of the answer, so that all is done and the client does not know.
            times (`float`, *optional*, defaults to 1):
                How many fail. The client tries some requests again.
            message (`str`, *optional*):
                What the answer says of the failure.
        """
        if n < 1:
            raise ValueError(f"n is {n}; the next request is number 1")
        with self._lock:
            self._failures.append(Failure(matching, n - 1, times, status, cut, message))

    def heal(self) -> None:
        """Forgets all failures that were asked for."""
        with self._lock:
            self._failures.clear()

    def uploaded_bytes(self) -> bytes:
        """
        All that was received but the token's own header: addresses, headers and bodies as they came, and what they
        hold in base64 also decoded.
        """
        parts = []
        for request in list(self.requests):
            head = [request.method, request.path, *(f"{key}: {text}" for key, text in request.headers.items())]
            encoded = re.findall(rb'"(?:content|sample)": ?"([A-Za-z0-9+/]+=*)', request.body)
            decoded = [base64.b64decode(text[: len(text) // 4 * 4]) for text in encoded]  # may have been cut
            parts += ["\n".join(head).encode(), request.body, *decoded]
        return b"\n".join(parts)

    def _fails(self, request: Request) -> Failure | None:
        """Takes a new request into the log; how it is to fail, if it is."""
        with self._lock:
            self.requests.append(request)
            for failure in self._failures:
                if failure.times <= 0 or not failure.matching(request):
                    continue
                if failure.passing == 0:
                    failure.times -= 1
                    return failure
                failure.passing -= 1
        return None


class _Handler(BaseHTTPRequestHandler):
    """HTTP itself: reads a request, lets the endpoint answer it, cuts the connection where that was asked for."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer waits for the acknowledgement of its headers
    server: _Server

    def _serve(self) -> None:
        hub = self.server.hub
        size = int(self.headers.get("Content-Length", 0))
        token = self.headers.get("Authorization")
        headers = {key.title(): value for key, value in self.headers.items() if key.lower() != "authorization"}
        request = Request(self.command, self.path, headers, size, token and token == f"Bearer {hub.token}")
        failure = hub._fails(request)
        cut = failure.cut if failure else None
        request.body = self.rfile.read(size // 2 if cut == "upload" else size)
        if cut == "upload" or len(request.body) < size:
            self.close_connection = True
            return
        # the client waits a second longer than it is told to before it tries again
        failed = failure and not failure.cut and Refusal(failure.status, failure.message).answer
        if failed:
            failed.headers["Retry-After"] = "0"
        answer = failed or hub.protocol.answer(request)
        self.send_response(answer.status)
        for key, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if cut == "answer":
            self.close_connection = True
            self.wfile.write(answer.body[: len(answer.body) // 2])
            return
        request.status = answer.status
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_CONNECT = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the endpoint has a log of its own."""


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them

    def __init__(self, hub: HubEndpoint) -> None:
        self.hub = hub
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self):
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Ends the connections that clients keep open for later requests."""
        for connection in list(self._open):
            with suppress(OSError):  # its client was faster
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address) -> None:
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, ConnectionError):  # a client may leave at any time
            self.hub.errors.append(error)


def run_client(
    code_or_args: str | list[str], hub: HubEndpoint, home: Path, *, timeout: float = 120, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """
    Runs Python in a process of its own whose Hub is the endpoint: the client reads the address when it is imported.
    Requests to any other host arrive at the endpoint as `CONNECT` and fail.

    Args:
        code_or_args (`str` or `list[str]`):
            A program, or the arguments of `python`.
        hub (`HubEndpoint`):
            A running endpoint.
        home (`Path`):
            A folder for the client's cache, in which the process also starts.
        timeout (`float`, *optional*, defaults to 120):
            Seconds after which the process is ended.
        environment (`str`, *optional*):
            Further environment variables; `None` takes one away, as in `HF_TOKEN=None`.
    """
    args = ["-c", code_or_args] if isinstance(code_or_args, str) else code_or_args
    home.mkdir(parents=True, exist_ok=True)
    kept = {
        name: value for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING")) and not name.upper().endswith(("_PROXY", "_OFFLINE"))
    }  # fmt: skip
    settings = {
        "HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_TOKEN": hub.token, "HF_HUB_DISABLE_TELEMETRY": "1",
        "HTTPS_PROXY": hub.url, "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[1:3])), **environment,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *args],
        env=kept | {name: value for name, value in settings.items() if value is not None},
        cwd=home, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
