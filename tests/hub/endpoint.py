"""A Hub on this machine's loopback: what the Hub's client needs to push and load, kept in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from threading import Lock, Thread
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

import yaml


USER = "me"
FIRST_FILES = {".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"}  # as in every repo of the Hub
FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
REPO = r"(?P<kind>models|datasets|spaces)/(?P<name>[^/]+(?:/[^/]+)?)"
REVISION = r"(?P<revision>[^/]+)"
ROUTES = [  # the first that matches; HEAD asks for the same as GET
    ("GET", "/api/whoami-v2", "_who"),
    ("POST", "/api/validate-yaml", "_validate_card"),
    ("POST", "/api/repos/create", "_create"),
    ("GET", rf"/api/{REPO}/tree/{REVISION}(?:/(?P<path>.+))?", "_tree"),
    ("POST", rf"/api/{REPO}/paths-info/{REVISION}", "_paths"),
    ("POST", rf"/api/{REPO}/preupload/{REVISION}", "_preupload"),
    ("POST", rf"/api/{REPO}/commit/{REVISION}", "_commit"),
    ("POST", rf"/api/{REPO}/branch/{REVISION}", "_branch"),
    ("GET", rf"/api/{REPO}(?:/revision/{REVISION})?", "_info"),
    ("GET", rf"/(?:(?P<kind>datasets|spaces)/)?(?P<name>[^/]+(?:/[^/]+)?)/resolve/{REVISION}/(?P<path>.+)", "_file"),
]


@dataclass
class Request:
    """One line of the log. The token is not in it, only whether the right one was sent."""

    method: str
    path: str
    headers: dict[str, str]
    size: int
    authorized: bool | None  # none where no token was sent
    body: bytes = field(default=b"", repr=False)
    status: int | None = None  # none where the connection was cut


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """An answer that the client turns into one of its errors."""

    def __init__(self, status: int, message: str, code: str | None = None, **body: object) -> None:
        super().__init__(message)
        headers = {"X-Error-Message": message.encode("ascii", "backslashreplace").decode()}
        if code is not None:
            headers["X-Error-Code"] = code
        self.answer = Answer(json.dumps({"error": message, **body}).encode(), status, headers)


@dataclass
class Commit:
    oid: str
    title: str
    date: str
    files: dict[str, bytes] = field(repr=False)


@dataclass
class Repo:
    """All commits of a repo, from the oldest to the newest, and the branches that point at them."""

    private: bool = False
    commits: list[Commit] = field(default_factory=list)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, revision: str = "main") -> Commit:
        """The commit that a branch or the hash of a commit stands for."""
        oid = self.branches.get(revision, revision)
        for commit in self.commits:
            if commit.oid == oid:
                return commit
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def files(self, revision: str = "main") -> dict[str, bytes]:
        """The files of a commit."""
        return self.commit(revision).files

    def add(self, branch: str, title: str, files: dict[str, bytes]) -> Commit:
        """Puts a new commit at the tip of a branch."""
        date = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        content = [blob_id(files[name]) + name for name in sorted(files)]
        seed = "\n".join([str(len(self.commits)), branch, title, date, *content])
        self.commits.append(Commit(hashlib.sha1(seed.encode()).hexdigest(), title, date, files))
        self.branches[branch] = self.commits[-1].oid
        return self.commits[-1]


def blob_id(content: bytes) -> str:
    """Git's hash of a file, which the client compares with its own to leave out what has not changed."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def card_data(card: str) -> dict:
    """The metadata at the head of a card; the Hub refuses what it cannot read."""
    found = FRONT_MATTER.match(card)
    try:
        data = yaml.safe_load(found.group(1)) if found else None
    except yaml.YAMLError as error:
        raise Refusal(400, "Invalid metadata in README.md", errors=[{"message": str(error)}]) from error
    if data is not None and not isinstance(data, dict):
        raise Refusal(400, "Invalid metadata in README.md", errors=[{"message": "YAML metadata must be an object"}])
    return data or {}


def _key(kind: str, name: str) -> str:
    return name if kind == "models" else f"{kind}/{name}"


def _entry(path: str, files: dict[str, bytes]) -> dict:
    """A file or a folder in a listing."""
    if path in files:
        return {"type": "file", "path": path, "size": len(files[path]), "oid": blob_id(files[path])}
    return {"type": "directory", "path": path, "size": 0, "oid": hashlib.sha1(path.encode()).hexdigest()}


def _apply(key: str, value: dict, files: dict[str, bytes]) -> None:
    """One operation of a commit; the client itself turns a copy into a file."""
    path = value["path"]
    if key == "file":
        if value["encoding"] != "base64":
            raise Refusal(400, f"{path}: unknown encoding {value['encoding']}")
        files[path] = base64.b64decode(value["content"], validate=True)
        return
    if key not in ("deletedFile", "deletedFolder"):
        raise Refusal(400, f"{path}: this Hub takes no {key}")
    inside = f"{path.strip('/')}/" if key == "deletedFolder" else None
    gone = [file for file in files if file == path or (inside and file.startswith(inside))]
    if not gone:
        raise Refusal(404, "A file with this name doesn't exist", "EntryNotFound")
    for file in gone:
        del files[file]


class Protocol:
    """What the Hub answers to each request, and the repos that come of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.repos: dict[str, Repo] = {}
        self.errors: list[Exception] = []
        self._lock = Lock()

    def answer(self, request: Request) -> Answer:
        """What a request gets; the lock makes one commit follow another."""
        address = urlsplit(request.path)
        try:
            with self._lock:
                if request.authorized is False:
                    raise Refusal(401, "Invalid credentials in Authorization header")
                for method, pattern, name in ROUTES:
                    found = re.fullmatch(pattern, address.path)
                    if found and method == request.method.replace("HEAD", "GET"):
                        parts = {key: unquote(part) for key, part in found.groupdict().items() if part is not None}
                        result = getattr(self, name)(request, parse_qs(address.query), **parts)
                        return (
                            result if isinstance(result, Answer) else Answer(json.dumps(result, default=str).encode())
                        )
            raise Refusal(404, f"This Hub does not know {request.method} {address.path}")
        except Refusal as refusal:
            return refusal.answer
        except Exception as error:
            self.errors.append(error)
            return Refusal(500, f"A mistake of the test's Hub: {error!r}").answer

    def _find(self, request: Request, kind: str, name: str, write: bool = False) -> Repo:
        """A repo that may be read or written with the request's token."""
        repo = self.repos.get(_key(kind, name))
        if repo is None or (repo.private and not request.authorized):
            # without a token the Hub answers 401 alone, from which the client concludes the same, but only over https
            raise Refusal(404 if request.authorized else 401, "Repository not found", "RepoNotFound")
        if write:
            self._check_writer(request, name)
        return repo

    def _check_writer(self, request: Request, name: str) -> None:
        if not request.authorized:
            raise Refusal(401, "Invalid username or password.")
        if not name.startswith(f"{USER}/"):
            raise Refusal(403, f"You don't have the rights to write to {name}")

    def _who(self, request, query):
        if not request.authorized:
            raise Refusal(401, "Invalid username or password.")
        return {"type": "user", "id": USER, "name": USER, "orgs": [], "auth": {"type": "access_token"}}

    def _validate_card(self, request, query):
        data = card_data(json.loads(request.body)["content"])
        return {"errors": [], "warnings": [] if data else [{"message": "empty or missing yaml metadata in repo card"}]}

    def _create(self, request, query):
        wanted = json.loads(request.body)
        name = f"{wanted.get('organization') or USER}/{wanted['name']}"
        self._check_writer(request, name)
        key = _key(wanted.get("type", "model") + "s", name)
        if key in self.repos:
            raise Refusal(409, "You already created this model repo", url=f"{self.url}/{key}")
        repo = self.repos[key] = Repo(private=wanted.get("visibility") == "private" or bool(wanted.get("private")))
        repo.add("main", "initial commit", dict(FIRST_FILES))
        return {"url": f"{self.url}/{key}", "name": name, "id": key}

    def _branch(self, request, query, kind, name, revision):
        repo = self._find(request, kind, name, write=True)
        if revision in repo.branches:
            raise Refusal(409, f"Reference already exists: {revision}")
        repo.branches[revision] = repo.commit(json.loads(request.body or b"{}").get("startingPoint", "main")).oid
        return {}

    def _info(self, request, query, kind, name, revision="main"):
        repo = self._find(request, kind, name)
        commit = repo.commit(revision)
        data = card_data(commit.files.get("README.md", b"").decode())
        siblings = [{"rfilename": path, "size": len(content), "blobId": blob_id(content)}
                    for path, content in sorted(commit.files.items())]  # fmt: skip
        return {
            "_id": name, "id": name, "author": name.split("/")[0], "sha": commit.oid, "private": repo.private,
            "gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": list(data.get("tags") or []),
            "createdAt": repo.commits[0].date, "lastModified": commit.date, "siblings": siblings, "cardData": data,
            "pipeline_tag": data.get("pipeline_tag"), "library_name": data.get("library_name"),
            "model-index": data.get("model-index"),
        }  # fmt: skip

    def _tree(self, request, query, kind, name, revision, path=""):
        files = self._find(request, kind, name).files(revision)
        start = f"{path.strip('/')}/" if path else ""
        inside = [file for file in files if file.startswith(start)]
        if start and not inside:
            raise Refusal(404, f"{path} does not exist on {revision}", "EntryNotFound")
        folders = {parent.as_posix() for file in inside for parent in PurePosixPath(file).parents}
        entries = sorted({*inside, *(folder for folder in folders if folder != "." and folder.startswith(start))})
        if query.get("recursive", ["false"])[0].lower() != "true":
            entries = [entry for entry in entries if "/" not in entry.removeprefix(start)]
        return [_entry(entry, files) for entry in entries]

    def _paths(self, request, query, kind, name, revision):
        files = self._find(request, kind, name).files(revision)
        wanted = [path.strip("/") for path in parse_qs(request.body.decode()).get("paths", [])]
        found = [path for path in wanted if path in files or any(file.startswith(f"{path}/") for file in files)]
        return [_entry(path, files) for path in found]

    def _preupload(self, request, query, kind, name, revision):
        files = self._find(request, kind, name, write=True).files(revision)
        wanted = [file["path"] for file in json.loads(request.body)["files"]]
        known = {path: {"oid": blob_id(files[path])} for path in wanted if path in files}
        return {"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False, **known.get(path, {})}
                          for path in wanted]}  # fmt: skip

    def _commit(self, request, query, kind, name, revision):
        repo = self._find(request, kind, name, write=True)
        if revision not in repo.branches:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        if "create_pr" in query:
            raise Refusal(400, "This Hub has no pull requests")
        lines = [json.loads(line) for line in request.body.splitlines() if line.strip()]
        header = lines[0]["value"]
        if not repo.branches[revision].startswith(header.get("parentCommit", "")):
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repo.files(revision))
        for line in lines[1:]:
            _apply(line["key"], line["value"], files)
        card_data(files.get("README.md", b"").decode())
        oid = repo.add(revision, header["summary"], files).oid
        url = f"{self.url}/{_key(kind, name)}/commit/{oid}"
        return {"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""}

    def _file(self, request, query, name, revision, path, kind="models"):
        commit = self._find(request, kind, name).commit(revision)
        about = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if path not in commit.files:
            refusal = Refusal(404, "Entry not found", "EntryNotFound")
            refusal.answer.headers.update(about)  # the client remembers at which commit a file was missing
            raise refusal
        content = commit.files[path]
        about |= {"ETag": f'"{blob_id(content)}"', "Content-Type": "application/octet-stream"}
        part = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
        if not part or part.groups() == ("", ""):
            return Answer(content, headers=about)
        first, last = part.groups()
        start = int(first) if first else max(0, len(content) - int(last))
        stop = min(int(last) + 1, len(content)) if first and last else len(content)
        if start >= stop:
            return Answer(b"", 416, {**about, "Content-Range": f"bytes */{len(content)}"})
        return Answer(content[start:stop], 206, {**about, "Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"})


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
        "HTTPS_PROXY": hub.url, "PYTHONPATH": str(Path(__file__).parents[1]), **environment,
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *args],
        env=kept | {name: value for name, value in settings.items() if value is not None},
        cwd=home, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
