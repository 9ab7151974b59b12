"""A server of OpenAI's protocol on loopback that fails in every way: nothing is lost, and rows keep their order."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from learned_scores import linear_score

from clue_hf import EvaluationReport
from clue_hf.cli.main import main
from clue_hf.models.uncertainty_file import write_uncertainty
from clue_hf.predictors import endpoint as module


pytestmark = pytest.mark.usefixtures("without_pictures")
PICTURES = "clue_hf.evaluation.text.plots"
KEY = "sk-very-secret-1234"
FAILURES = ("500", "429", "cut", "closed", "not json", "no choices", "wrong types", "slow")


class Server(ThreadingHTTPServer):
    """Answers with the last word of the text; `fails(text, attempt)` says how it does not."""

    daemon_threads, request_queue_size = True, 128

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.fails, self.log_probabilities, self.choices_per_request = (lambda text, attempt: None), True, None
        self.attempts, self.bodies, self.keys, self.waits = Counter(), [], set(), []
        self.busy, self.most_busy, self.lock = 0, 0, threading.Lock()

    def handle_error(self, request, client_address):
        pass  # clients that hung up

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_POST(self):
        server, body = self.server, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        kind = (text, body.get("temperature"), body["n"])
        with server.lock:
            server.busy += 1
            server.most_busy = max(server.most_busy, server.busy)
            server.attempts[kind] += 1
            attempt = server.attempts[kind]
            server.bodies.append(body)
            server.keys.add(self.headers.get("Authorization"))
        try:
            failure = server.fails(text, attempt)
        finally:
            with server.lock:  # before the answer, after which its client may send the next request
                server.busy -= 1
        self.answer(server, body, text, failure)

    def answer(self, server, body, text, failure):
        content = json.dumps({"choices": [choice(server, body, text, n) for n in range(body["n"])]}).encode()
        if server.choices_per_request:
            content = json.dumps({"choices": json.loads(content)["choices"][: server.choices_per_request]}).encode()
        status, headers = 200, {}
        if failure == "slow":
            time.sleep(1.0)
        elif failure == "closed":
            self.connection.close()
            return
        elif failure in ("not json", "no choices", "wrong types"):
            content = {"not json": b"<html>", "no choices": b'{"choices": []}', "wrong types": b'{"choices": [1]}'}[
                failure
            ]
        elif failure and failure.isdigit():
            status, content = int(failure), f"the key {KEY} is at fault".encode()
            headers = {"Retry-After": "0.05"} if failure == "429" else {}
            headers |= {"Location": "http://127.0.0.1:1/"} if failure == "302" else {}
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if failure == "cut" else content)


def choice(server, body, text, number):
    word = text.split()[-1]
    output = word if body["temperature"] == 0 else f"{word} {body['seed'] + number}"
    told = [{"token": token, "logprob": -0.25, "top_logprobs": [{"token": "x", "logprob": -0.25}]} for token in "ab"]
    chat = "messages" in body
    logprobs = {"content": told} if chat else {
        "tokens": ["a", "b"], "token_logprobs": [-0.25, -0.25], "top_logprobs": [{"a": -0.25, "x": -2}, {"b": -0.25}],
    }  # fmt: skip
    entry = {"message": {"role": "assistant", "content": output}} if chat else {"text": output}
    return {
        "index": number,
        "finish_reason": "stop",
        "logprobs": logprobs if server.log_probabilities else None,
        **entry,
    }


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.001)
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in module.KEYS:
        monkeypatch.delenv(name, raising=False)
    rows = [{"source": f"say {number}", "target": f"{number if number % 3 else 'no'}"} for number in range(24)]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return rows


def words(server, *more):
    return ["evaluate", "--endpoint", server.url, "--model", "some/model", "--test_file", "rows.jsonl", "--quality",
            "exact_match", "--resamples", "5", "--report_dir", "report", "--num_samples", "2", "--scorers",
            "msp,mean_token_entropy,mc_sequence_entropy,pmi", *more]  # fmt: skip


def outputs():
    return [json.loads(line) for line in Path("report/outputs.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_texts_of_a_server_are_evaluated(server, here, capsys, api):
    assert main(words(server, "--endpoint_api", api, "--source_prefix", "Please ", "--max_target_length", "7")) == 0
    assert [row["output"] for row in outputs()] == [str(number) for number in range(24)]
    assert outputs()[3]["samples"] == [
        {"text": f"3 {seed}", "token_log_probabilities": [-0.25, -0.25]} for seed in (42, 43)
    ]
    report = EvaluationReport.load("report")
    assert report.quality().tolist() == [float(number % 3 > 0) for number in range(24)]
    assert report.uncertainty("msp").tolist() == [0.5] * 24
    assert report.uncertainty("mc_sequence_entropy").tolist() == [0.5] * 24
    assert [example["source"] for example in report.examples] == [row["source"] for row in here]
    assert list(report.unavailable) == ["pmi"]
    assert {body["max_tokens"] for body in server.bodies} == {7}
    assert {body["model"] for body in server.bodies} == {"some/model"}
    assert all(("messages" in body) == (api == "chat") for body in server.bodies)
    assert server.keys == {None}
    printed = capsys.readouterr().out
    assert "some/model on rows.jsonl (test): 24 outputs" in printed
    assert "Entropies are over the " in printed


def test_all_scores_that_a_server_allows(server, here, capsys):
    assert main(words(server, "--scorers", "all")) == 0
    assert len(outputs()[0]["samples"]) == 2
    scorers = EvaluationReport.load("report").scorers
    assert {"msp", "semantic_entropy", "cocoa_msp", "degree_matrix"} <= set(scorers)
    # a learned score may be one that needs samples
    write_uncertainty(".", learned_score=linear_score({}, single="degree_matrix").to_dict())
    learned = ["--scorers", "learned", "--calibration", ".", "--report_dir", "learned"]
    assert main(words(server, *learned)) == 0
    assert EvaluationReport.load("learned").scorers == ["learned", "degree_matrix"]


def test_every_failure_is_survived_in_order(server, here):
    """Each of eight ways to fail hits some rows, once or twice, and 64 requests run at once."""
    server.fails = lambda text, attempt: FAILURES[int(text.split()[1]) % 8] if attempt <= 2 else None
    assert main(words(server, "--concurrent_requests", "64", "--request_timeout", "0.5")) == 0
    assert [row["output"] for row in outputs()] == [str(number) for number in range(24)]
    assert all(
        [sample["text"] for sample in row["samples"]] == [f"{row['output']} 42", f"{row['output']} 43"]
        for row in outputs()
    )
    assert set(server.attempts.values()) == {3}
    assert not list(Path("report").glob("*.unfinished"))


def test_64_requests_at_once_keep_their_order(server, here):
    rows = [{"source": f"say {number}", "target": "1"} for number in range(200)]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    together = threading.Barrier(64)

    def wait_for_64(text, attempt):
        number = int(text.split()[1])
        if number < 64:
            together.wait(60)
            time.sleep(0.001 * (64 - number))  # the last ones are answered first

    server.fails = wait_for_64
    assert main(words(server, "--concurrent_requests", "64", "--scorers", "msp")) == 0
    assert [row["output"] for row in outputs()] == [str(number) for number in range(200)]
    assert server.most_busy == 64
    assert server.attempts.total() == 200


def test_a_server_that_gives_one_choice_is_asked_again(server, here):
    server.choices_per_request = 1
    assert main(words(server)) == 0
    assert [sample["text"] for sample in outputs()[5]["samples"]] == ["5 42", "5 43"]


def test_without_log_probabilities_the_reason_is_said(server, here, capsys):
    server.log_probabilities = False
    assert main(words(server)) == 2
    error = capsys.readouterr().err
    assert "msp: it needs token_log_probabilities, and no row has them" in error
    assert "pmi: it needs the probabilities of the output without its source" in error
    assert len(outputs()) == 24  # and the texts are there


def test_an_interrupted_run_goes_on(server, here, capsys):
    server.fails = lambda text, attempt: "500" if text == "say 15" else None
    assert main(words(server, "--max_retries", "2", "--concurrent_requests", "2")) == 2
    error = capsys.readouterr().err
    assert "Row 15 (counted from 0): The server at http://127.0.0.1" in error
    assert "it answered 500" in error
    assert "--resume true continues" in error
    asked = server.attempts.copy()
    assert main(words(server, "--max_retries", "2")) == 2
    assert "Continue it with --resume true" in capsys.readouterr().err
    server.fails = lambda text, attempt: None
    assert main(words(server, "--max_target_length", "5", "--resume", "true")) == 2
    assert "was begun with another output" in capsys.readouterr().err
    assert main(words(server, "--resume", "true")) == 0
    assert [row["output"] for row in outputs()] == [str(number) for number in range(24)]
    again = {text for (text, *_), count in (server.attempts - asked).items() if count}
    assert not again & {f"say {number}" for number in range(12)}  # whose answers were kept
    assert main(words(server, "--resume", "true")) == 0


def test_rows_without_an_answer_are_skipped_and_counted(server, here, capsys):
    server.fails = lambda text, attempt: "400" if text == "say 15" else None
    assert main(words(server, "--on_bad_row", "skip")) == 0
    assert "(1 of 24 rows skipped): 23 outputs" in capsys.readouterr().out
    assert server.attempts[("say 15", 0.0, 1)] == 1  # 400 is final
    assert "it answered 400" in outputs()[15]["error"]


@pytest.mark.parametrize("status", ["401", "404", "302"])
def test_a_refusal_ends_the_run_at_once(server, here, capsys, status, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.fails = lambda text, attempt: status
    assert main(words(server, "--on_bad_row", "skip", "--concurrent_requests", "2")) == 2
    assert f"it answered {status}" in capsys.readouterr().err
    assert max(server.attempts.values()) == 1
    assert server.attempts.total() < 24


def test_the_key_is_in_no_file_log_or_message(server, here, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("CLUE_HF_API_KEY", f"{KEY}\n")
    server.fails = lambda text, attempt: "403" if text == "say 20" else "500" if attempt == 1 else None
    assert main(words(server)) == 2
    assert server.keys == {f"Bearer {KEY}"}
    printed = capsys.readouterr()
    assert "the key *** is at fault" in printed.err
    server.fails = lambda text, attempt: None
    assert main(words(server, "--resume", "true")) == 0
    printed_again = capsys.readouterr()
    texts = [printed.out, printed.err, printed_again.out, printed_again.err]
    texts += [path.read_text(errors="replace") for path in Path(".").rglob("*") if path.is_file()]
    assert not [text for text in texts if KEY in text]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--endpoint", "http://user:pass@127.0.0.1/v1"], "must not hold a key"),
        (["--endpoint", "http://127.0.0.1/v1?key=1"], "must not hold a key"),
        (["--endpoint", "file:///etc/passwd"], "must be the address of a server"),
        (["--endpoint", "http://127.0.0.1:9/v1", "--max_retries", "0"], "ConnectionRefusedError"),
        (["--quality_column", "target"], "--quality_column is not for texts of a server"),
        (["--outputs", "rows.jsonl"], "--outputs is not for texts of a server"),
        (["--request_timeout", "0"], "`request_timeout` must be positive"),
        (["--endpoint_api", "grpc"], "`endpoint_api` must be one of chat, completions"),
        (["--compare", "other"], "--compare needs a model"),
    ],
)
def test_mistakes_are_explained(server, here, capsys, more, message):
    assert main(words(server, *more)) == 2
    assert message in capsys.readouterr().err


def test_server_and_model_go_together(here, capsys):
    for option in (["--endpoint", "http://127.0.0.1:9/v1"], ["--model", "some/model"]):
        assert main(["evaluate", *option, "--test_file", "rows.jsonl"]) == 2
        assert "go together: give both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3), ("0.5", 0.5), ("-1", 0), ("nan", 0), ("soon", 0), (None, 0), ("1e9", module.LONGEST_RETRY_AFTER)],
)
def test_how_long_a_server_asks_to_wait(value, seconds):
    assert module._retry_after(value) == seconds
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    assert 25 < module._retry_after(date) <= 30
