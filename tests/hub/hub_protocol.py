"""What the Hub's client asks for and what it is answered: repositories in memory, without a server."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from threading import Lock
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
