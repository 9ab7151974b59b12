"""The Hub's own client, as it was installed, at work on the endpoint of the tests."""

import http.client
import json
import socket
import subprocess
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from helpers import SENTENCES, make_model, make_tokenizer
from hub.endpoint import HubEndpoint, run_client
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load, save
from transformers import AutoModelForSeq2SeqLM


PUSH_AND_LOAD = """
import json
from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData, hf_hub_download, snapshot_download
from peft import PeftModel
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

api = HfApi()
model = AutoModelForSeq2SeqLM.from_pretrained("model")
model.push_to_hub("me/tiny")
AutoTokenizer.from_pretrained("model").push_to_hub("me/tiny")
result = EvalResult(task_type="translation", dataset_type="opus_books", dataset_name="Books", dataset_config="en-fr",
                    metric_type="prr", metric_value=0.5, metric_name="PRR")
data = ModelCardData(model_name="tiny", language="fr", tags=["uncertainty"], eval_results=[result])
ModelCard(f"---\\n{data.to_yaml()}\\n---\\n# Tiny é\\n").push_to_hub("me/tiny")
PeftModel.from_pretrained(model, "adapter").push_to_hub("me/adapter")
api.create_repo("me/hidden", private=True)
api.upload_folder(repo_id="me/hidden", folder_path="model", path_in_repo="deep/er")

model = AutoModelForSeq2SeqLM.from_pretrained("me/tiny")
model.save_pretrained("loaded/model")
PeftModel.from_pretrained(model, "me/adapter").save_pretrained("loaded/adapter")
AutoModelForSeq2SeqLM.from_pretrained("me/hidden", subfolder="deep/er").save_pretrained("loaded/hidden")
card, info = ModelCard.load("me/tiny"), api.model_info("me/tiny")
print(json.dumps({
    "ids": AutoTokenizer.from_pretrained("me/tiny")(TEXTS)["input_ids"],
    "card": card.text, "tags": info.tags, "results": [vars(result) for result in card.data.eval_results],
    "results of the model": [vars(result) for result in info.card_data.eval_results],
    "snapshot": snapshot_download("me/tiny"), "file": hf_hub_download("me/hidden", "config.json", subfolder="deep/er"),
}))
"""
TRY = """
import json
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import HfHubHTTPError

def attempt(call, *args, **settings):
    try:
        return call(*args, **settings)
    except HfHubHTTPError as error:
        return f"{type(error).__name__} {error.response.status_code}"

api = HfApi()
"""


def ask(code, hub, home, **environment):
    """What a program prints as JSON in its last line; it must not fail."""
    done = run_client(code, hub, home, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout else None


def commits_sent(hub, name):
    return [request for request in hub.requests if request.path.startswith(f"/api/models/{name}/commit/")]


def of_commits(request):
    return "/commit/" in request.path


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A model, its tokenizer and an adapter in a folder."""
    folder = tmp_path_factory.mktemp("local")
    make_model("t5").save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    settings = LoraConfig(r=2, target_modules=["q"], init_lora_weights=False)
    get_peft_model(make_model("t5"), settings).save_pretrained(folder / "adapter")
    return folder


@pytest.fixture(scope="module")
def loaded(hub, local):
    """What was pushed from there and loaded again: a folder, and what the program printed."""
    printed = ask(PUSH_AND_LOAD.replace("TEXTS", repr(SENTENCES)), hub, local)
    return local / "loaded", printed


def test_weights_arrive_and_return_bit_by_bit(hub, local, loaded):
    folder, _ = loaded
    model = AutoModelForSeq2SeqLM.from_pretrained(local / "model").state_dict()
    arrived = load(hub.repos["me/tiny"].files()["model.safetensors"])
    assert arrived
    assert all(torch.equal(value, model[name]) for name, value in arrived.items())
    downloads = [request.path for request in hub.requests if request.method == "GET"]
    for name, path in {"model": "/me/tiny/resolve/", "hidden": "/me/hidden/resolve/"}.items():
        assert any(found.startswith(path) and found.endswith("/model.safetensors") for found in downloads)
        returned = AutoModelForSeq2SeqLM.from_pretrained(folder / name).state_dict()
        assert returned.keys() == model.keys()
        assert all(torch.equal(value, model[key]) for key, value in returned.items())


def test_an_adapter_returns_with_its_weights(local, loaded):
    folder, _ = loaded
    before, after = (
        PeftModel.from_pretrained(make_model("t5"), place / "adapter").state_dict() for place in (local, folder)
    )
    adapted = [name for name in before if "lora" in name]
    assert adapted
    assert all(torch.equal(before[name], after[name]) for name in adapted)


def test_a_tokenizer_returns(loaded):
    assert loaded[1]["ids"] == make_tokenizer()(SENTENCES)["input_ids"]


def test_the_results_in_a_card_are_parsed_back(hub, loaded):
    _, printed = loaded
    assert printed["card"].strip() == "# Tiny é"
    assert printed["tags"] == ["uncertainty"]
    for key in ("results", "results of the model"):
        (result,) = printed[key]
        assert (result["task_type"], result["dataset_config"], result["metric_type"], result["metric_value"]) == (
            "translation", "en-fr", "prr", 0.5)  # fmt: skip
    assert "# Tiny é" in hub.repos["me/tiny"].files()["README.md"].decode()


def test_a_snapshot_holds_all_files_of_the_newest_commit(hub, loaded):
    _, printed = loaded
    repo = hub.repos["me/tiny"]
    snapshot = Path(printed["snapshot"])
    assert {path.name: path.read_bytes() for path in snapshot.iterdir()} == repo.files()
    assert snapshot.name == repo.branches["main"]
    assert Path(printed["file"]).read_bytes() == hub.repos["me/hidden"].files()["deep/er/config.json"]


def test_every_push_is_one_commit_and_earlier_ones_stay(hub, loaded):
    repo = hub.repos["me/tiny"]
    kinds = ["Upload T5ForConditionalGeneration", "Upload tokenizer", "Upload README.md with huggingface_hub"]
    assert [commit.title for commit in repo.commits] == ["initial commit", *kinds]
    assert "tokenizer.json" not in repo.commits[1].files
    assert repo.commits[2].files["model.safetensors"] == repo.commits[1].files["model.safetensors"]


def test_private_repos_need_the_token(hub, loaded, tmp_path):
    code = TRY + (
        "def calls(token):\n"
        "    api, rest = HfApi(token=token), {'token': token, 'cache_dir': str(token)}\n"
        "    yield lambda: api.model_info('me/hidden').private\n"
        "    yield lambda: bool(hf_hub_download('me/hidden', 'deep/er/config.json', **rest))\n"
        "    yield lambda: bool(snapshot_download('me/tiny', **rest))\n"
        "    yield lambda: api.create_repo('me/mine').repo_id\n"
        "    if token is not False:\n"
        "        yield lambda: api.whoami()['name']\n"
        "print(json.dumps([[attempt(call) for call in calls(token)] for token in (None, 'hf_another', False)]))"
    )
    right, wrong, none = ask(code, hub, tmp_path)
    assert right == [True, True, True, "me/mine", "me"]
    assert wrong == ["HfHubHTTPError 401"] * 5
    assert none == ["RepositoryNotFoundError 401", "RepositoryNotFoundError 401", True, "HfHubHTTPError 401"]


def test_a_wrong_token_is_the_clients_own_error(hub, tmp_path):
    code = "import huggingface_hub\nhuggingface_hub.create_repo('me/refused')"
    done = run_client(code, hub, tmp_path, HF_TOKEN="hf_another")
    assert done.returncode == 1
    assert "401 Unauthorized" in done.stderr
    assert "Invalid credentials in Authorization header" in done.stderr
    assert "me/refused" not in hub.repos


def test_what_is_missing_is_named(hub, loaded, tmp_path):
    code = TRY + (
        "calls = [\n"
        "    lambda: api.model_info('me/nothing'),\n"
        "    lambda: hf_hub_download('me/nothing', 'config.json'),\n"
        "    lambda: hf_hub_download('nothing', 'config.json'),\n"
        "    lambda: api.upload_file(path_or_fileobj=b'', path_in_repo='a', repo_id='me/nothing'),\n"
        "    lambda: hf_hub_download('me/tiny', 'config.json', revision='v9'),\n"
        "    lambda: hf_hub_download('me/tiny', 'missing.json'),\n"
        "    lambda: list(api.list_repo_tree('me/tiny', 'no/where')),\n"
        "    lambda: api.delete_file('missing.json', 'me/tiny'),\n"
        "    lambda: api.create_repo('you/theirs'),\n"
        "]\n"
        "print(json.dumps([attempt(call) for call in calls]))"
    )
    assert ask(code, hub, tmp_path) == [
        *["RepositoryNotFoundError 404"] * 4, "RevisionNotFoundError 404", *["RemoteEntryNotFoundError 404"] * 3,
        "HfHubHTTPError 403",
    ]  # fmt: skip


def test_commits_add_copy_and_delete_and_stay_readable(hub, tmp_path):
    code = TRY + (
        "from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete\n"
        "api.create_repo('me/steps')\n"
        "def commit(*operations, **settings):\n"
        "    return api.create_commit('me/steps', operations, commit_message='step', **settings).oid\n"
        "one = commit(*[CommitOperationAdd(path, path.encode()) for path in ('a', 'f/b', 'f/c', 'g/é d')])\n"
        "copy = CommitOperationCopy('a', 'copy')\n"
        "two = commit(CommitOperationDelete('f/'), copy, CommitOperationAdd('a', b'new'))\n"
        "same = commit(CommitOperationAdd('a', b'new'))\n"
        "api.create_branch('me/steps', branch='side/way', revision=one)\n"
        "side = commit(CommitOperationDelete('a'), revision='side/way')\n"
        "late = attempt(commit, CommitOperationAdd('a', b'newer'), parent_commit=one)\n"
        "files = {rev: api.list_repo_files('me/steps', revision=rev) for rev in (one, two, 'side/way')}\n"
        "top = [entry.path for entry in api.list_repo_tree('me/steps', revision=one)]\n"
        "old = open(hf_hub_download('me/steps', 'a', revision=one)).read()\n"
        "odd = open(hf_hub_download('me/steps', 'g/é d')).read()\n"
        "print(json.dumps([one, two, same, side, late, list(files.values()), top, old, odd]))"
    )
    one, two, same, side, late, files, top, old, odd = ask(code, hub, tmp_path)
    first = [".gitattributes", "a", "f/b", "f/c", "g/é d"]
    assert files == [first, [".gitattributes", "a", "copy", "g/é d"], [".gitattributes", *first[2:]]]
    assert (top, old, odd, late) == ([".gitattributes", "a", "f", "g"], "a", "g/é d", "HfHubHTTPError 412")
    assert same == two  # nothing had changed
    repo = hub.repos["me/steps"]
    assert repo.branches == {"main": two, "side/way": side}
    assert repo.files()["copy"] == b"a" == repo.files(one)["a"]
    assert repo.files()["a"] == b"new"


def test_upload_folder_replaces_what_it_is_told_to(hub, tmp_path):
    code = TRY + (
        "from pathlib import Path\n"
        "folder = Path('folder')\nfolder.mkdir()\napi.create_repo('me/data', repo_type='dataset')\n"
        "for name in ('old', 'new'):\n"
        "    (folder / f'{name}.csv').write_text(name)\n"
        "    api.upload_folder(repo_id='me/data', folder_path=folder, repo_type='dataset', delete_patterns='*.csv')\n"
        "    (folder / f'{name}.csv').unlink()\n"
        "print(json.dumps(open(hf_hub_download('me/data', 'new.csv', repo_type='dataset')).read()))"
    )
    assert ask(code, hub, tmp_path) == "new"
    repo = hub.repos["datasets/me/data"]
    assert [set(commit.files) - {".gitattributes"} for commit in repo.commits] == [set(), {"old.csv"}, {"new.csv"}]


def test_a_card_that_cannot_be_read_is_refused(hub, tmp_path):
    code = TRY + (
        "api.create_repo('me/card')\n"
        "card = b'---\\na: [\\n---\\n'\n"
        "try:\n    api.upload_file(path_or_fileobj=card, path_in_repo='README.md', repo_id='me/card')\n"
        "except ValueError as error:\n    print(json.dumps(str(error)))"
    )
    assert "Invalid metadata in README.md" in ask(code, hub, tmp_path)
    assert commits_sent(hub, "me/card") == []


def test_a_large_file_comes_with_the_commit_and_a_cut_download_goes_on(hub, tmp_path):
    """24 MB of weights are no regular file to the real Hub; here they are, and no other storage is asked for."""
    hub.fail_after(1, lambda request: request.method == "GET" and request.path.endswith(".safetensors"), cut="answer")
    content = save({"weight": torch.rand(6_000_000)})
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "model.safetensors").write_bytes(content)
    code = TRY + (
        "api.create_repo('me/large')\napi.upload_folder(repo_id='me/large', folder_path='large')\n"
        "print(json.dumps(hf_hub_download('me/large', 'model.safetensors')))"
    )
    returned, kept = Path(ask(code, hub, tmp_path)).read_bytes(), hub.repos["me/large"].files()["model.safetensors"]
    assert [returned == content, kept == content] == [True, True]  # pytest would print 24 MB
    (commit,) = commits_sent(hub, "me/large")
    assert commit.size > len(content) * 4 / 3
    downloads = [request for request in hub.requests if request.method == "GET" and "/me/large/" in request.path]
    assert [request.status for request in downloads] == [None, 206]
    assert int(downloads[1].headers["Range"].removeprefix("bytes=").removesuffix("-")) > 0


STEP = TRY + (
    "api.create_repo('me/NAME', exist_ok=True)\n"
    "print(json.dumps(api.upload_file(path_or_fileobj=b'VALUE' * 99_999, path_in_repo='a', repo_id='me/NAME').oid))"
)


@pytest.mark.parametrize("failure", [{"status": 500}, {"status": 403}, {"cut": "upload"}])
def test_a_push_that_fails_midway_leaves_the_former_commit_and_can_be_repeated(hub, tmp_path, failure):
    name = f"me/half-{next(iter(failure.values()))}"
    code = TRY + (
        "api.create_repo('NAME')\n"
        "def push(value):\n"
        "    return api.upload_file(path_or_fileobj=value * 99_999, path_in_repo='a', repo_id='NAME').oid\n"
        "first = push(b'1')\n"
        "try:\n    push(b'2')\nexcept Exception as failure:\n    error = f'{type(failure).__module__} {failure}'\n"
        "print(json.dumps([first, error, api.model_info('NAME').sha, push(b'3')]))"
    )
    hub.fail_after(2, lambda request: of_commits(request) and name in request.path, **failure)
    first, error, kept, last = ask(code.replace("NAME", name), hub, tmp_path)
    assert str(failure["status"]) in error if "status" in failure else error.startswith("httpx")
    assert kept == first != last
    repo = hub.repos[name]
    assert [commit.files.get("a") for commit in repo.commits] == [None, b"1" * 99_999, b"3" * 99_999]
    assert [commit.oid for commit in repo.commits[1:]] == [first, last]


def test_a_lost_answer_is_an_error_although_the_commit_is_there(hub, tmp_path):
    hub.fail_after(1, of_commits, cut="answer")
    failed = run_client(STEP.replace("NAME", "lost").replace("VALUE", "1"), hub, tmp_path)
    assert failed.returncode != 0
    assert hub.repos["me/lost"].files()["a"] == b"1" * 99_999


def test_upload_folder_tries_again_until_it_gives_up(hub, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("a")
    code = TRY + (
        "api.create_repo('me/again')\n"
        "tries = [attempt(api.upload_folder, repo_id='me/again', folder_path='folder') for _ in range(2)]\n"
        "print(json.dumps([str(outcome) for outcome in tries]))"
    )
    hub.fail_after(1, of_commits, times=7)
    failed, done = ask(code, hub, tmp_path)
    assert failed == "HfHubHTTPError 500"
    assert "/me/again/commit/" in done
    assert [request.status for request in commits_sent(hub, "me/again")] == [500] * 7 + [200]
    assert [commit.files.get("a") for commit in hub.repos["me/again"].commits] == [None, b"a"]


def test_failures_are_counted_among_the_requests_that_match():
    with HubEndpoint() as hub:
        hub.fail_after(2, lambda request: request.method == "GET", status=418, times=2)

        def status(method):
            return fetch(hub, method, "/api/whoami-v2")[0].status

        assert [status(method) for method in ("GET", "HEAD", "GET", "HEAD", "GET", "GET")] == [
            200, 200, 418, 200, 418, 200]  # fmt: skip
        hub.fail_after(1, times=float("inf"))
        assert [status("GET") for _ in range(3)] == [500] * 3
        hub.heal()
        assert status("GET") == 200
        with pytest.raises(ValueError, match="number 1"):
            hub.fail_after(0)


def fetch(hub, method, path, **headers):
    """One request by hand; the answer and its body."""
    connection = http.client.HTTPConnection(urlsplit(hub.url).netloc, timeout=10)
    connection.request(method, path, headers={"Authorization": f"Bearer {hub.token}", **headers})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_files_can_be_asked_for_in_parts(hub, tmp_path):
    ask(STEP.replace("NAME", "parts").replace("VALUE", "0123456789"), hub, tmp_path)
    path, content = "/me/parts/resolve/main/a", b"0123456789" * 99_999
    head, nothing = fetch(hub, "HEAD", path)
    whole, body = fetch(hub, "GET", path)
    assert (nothing, body) == (b"", content)
    for name in ("ETag", "X-Repo-Commit", "Content-Length"):
        assert head.headers[name] == whole.headers[name]
    assert head.headers["X-Repo-Commit"] == hub.repos["me/parts"].branches["main"]
    (tmp_path / "a").write_bytes(content)
    git = subprocess.run(["git", "hash-object", "a"], cwd=tmp_path, capture_output=True, text=True)
    assert head.headers["ETag"] == f'"{git.stdout.strip()}"'
    for asked, expected in {"3-5": content[3:6], "999980-": content[999980:], "-7": content[-7:]}.items():
        answer, body = fetch(hub, "GET", path, Range=f"bytes={asked}")
        assert (answer.status, body) == (206, expected)
        assert answer.headers["Content-Range"].endswith(f"/{len(content)}")
    assert fetch(hub, "GET", path, Range="bytes=999990-")[0].status == 416
    missing, _ = fetch(hub, "HEAD", f"{path}/b")
    assert (missing.status, missing.headers["X-Error-Code"]) == (404, "EntryNotFound")
    assert missing.headers["X-Repo-Commit"] == head.headers["X-Repo-Commit"]


def test_the_log_holds_what_was_sent_but_the_token(hub, tmp_path):
    start = len(hub.requests)
    ask(STEP.replace("NAME", "logged").replace("VALUE", "a secret"), hub, tmp_path)
    log = hub.requests[start:]
    assert [(request.method, request.path.split("?")[0], request.status) for request in log] == [
        ("POST", "/api/repos/create", 200),
        ("POST", "/api/models/me/logged/preupload/main", 200),
        ("POST", "/api/models/me/logged/commit/main", 200),
    ]
    assert all(request.authorized and len(request.body) == request.size for request in log)
    assert all("hf_hub/" in request.headers["User-Agent"] for request in log)
    assert hub.token not in repr(log)
    hub.fail_after(1, of_commits, cut="upload")
    assert run_client(STEP.replace("NAME", "logged").replace("VALUE", "half of it"), hub, tmp_path).returncode != 0
    assert hub.requests[-1].status is None
    assert len(hub.requests[-1].body) == hub.requests[-1].size // 2 > 0
    received = hub.uploaded_bytes()
    # the first two came in base64; pytest would print all that was received
    found = [text in received for text in (b"a secreta secret", b"half of ithalf of it", hub.token.encode())]
    assert found == [True, True, False]


def test_other_hosts_are_noticed_and_not_reached(tmp_path):
    with HubEndpoint() as hub:
        code = "import urllib.request\nurllib.request.urlopen('https://huggingface.co')"
        assert run_client(code, hub, tmp_path).returncode != 0
    assert [(request.method, request.path) for request in hub.requests] == [("CONNECT", "huggingface.co:443")]


def test_arguments_are_those_of_python(tmp_path):
    (tmp_path / "program.py").write_text("import os, sys\nprint(sys.argv[1:], os.environ.get('HF_HUB_OFFLINE'))")
    with HubEndpoint() as hub:
        done = run_client(["program.py", "--push", "me/name"], hub, tmp_path)
    assert done.stdout == "['--push', 'me/name'] None\n"


def test_it_closes_even_while_a_client_stays_connected():
    before = threading.active_count()
    with HubEndpoint() as hub:
        connection = http.client.HTTPConnection(urlsplit(hub.url).netloc, timeout=10)
        connection.request("GET", "/me/nothing/resolve/main/a")
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, answer.headers["X-Error-Code"]) == (401, "RepoNotFound")
        assert threading.active_count() > before
    assert threading.active_count() == before
    connection.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(hub.url).port), timeout=5)
    assert hub.errors == []


def test_many_clients_at_once_lose_no_commit(hub, tmp_path):
    code = TRY + (
        "from concurrent.futures import ThreadPoolExecutor\napi.create_repo('me/crowd')\n"
        "def add(number):\n"
        "    text = str(number)\n"
        "    return api.upload_file(path_or_fileobj=text.encode(), path_in_repo=text, repo_id='me/crowd').oid\n"
        "with ThreadPoolExecutor(8) as pool:\n    oids = list(pool.map(add, range(24)))\n"
        "print(json.dumps(len(set(oids))))"
    )
    assert ask(code, hub, tmp_path) == 24
    files = hub.repos["me/crowd"].files()
    assert {name: files[name] for name in map(str, range(24))} == {str(n): b"%d" % n for n in range(24)}
