"""Texts of a server that speaks OpenAI's protocol (vLLM, SGLang, TGI, llama.cpp), as rows of outputs in a file."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from socket import gaierror
from threading import Event
from time import time
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from transformers.utils import logging
from transformers.utils.logging import tqdm

from ..errors import UserError
from ..files import ResumableLog
from ..settings import check_choice, check_minimum, setting


logger = logging.get_logger(__name__)
#: Where the key is looked for; it is in no file, log or message.
KEYS = ("CLUE_HF_API_KEY", "OPENAI_API_KEY")
APIS = {"chat": "chat/completions", "completions": "completions"}
#: Answers after which a request is sent again, beside those from 500 on.
RETRIED = (408, 409, 425, 429)
#: Answers that every other request would get, too.
REFUSALS = (401, 403, 404, 405)
#: First and longest pause before a request is sent again, in seconds.
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_RETRY_AFTER = 0.5, 60.0, 600.0


@dataclass
class EndpointArguments:
    """A server, and how it is asked."""

    endpoint: str | None = setting(
        None,
        "Instead of MODEL: address of a server of OpenAI's protocol, such as http://127.0.0.1:8000/v1. Its key is "
        "read from CLUE_HF_API_KEY or OPENAI_API_KEY.",
    )
    model: str | None = setting(None, "Name of the model on the server.")
    endpoint_api: str = setting("chat", "How the server is asked: chat, completions.")
    concurrent_requests: int = setting(8, "Number of requests at the same time.")
    request_timeout: float = setting(120.0, "Seconds to wait for an answer.")
    max_retries: int = setting(6, "How often a request that failed is sent again.")
    top_log_probabilities: int = setting(5, "Number of the most probable tokens to ask for at each position.")

    def __post_init__(self) -> None:
        check_choice("endpoint_api", self.endpoint_api, APIS)
        check_minimum(1, concurrent_requests=self.concurrent_requests)
        check_minimum(0, max_retries=self.max_retries, top_log_probabilities=self.top_log_probabilities)
        if not self.request_timeout > 0:
            raise ValueError(f"`request_timeout` must be positive, but is {self.request_timeout}.")
        if (self.endpoint is None) != (self.model is None):
            raise ValueError("`endpoint`, a server, and `model`, the name of a model there, go together: give both.")
        if self.endpoint is None:
            return
        address = urlsplit(self.endpoint)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError("`endpoint` must be the address of a server, such as http://127.0.0.1:8000/v1.")
        if address.username or address.password or address.query:
            raise ValueError(f"`endpoint` must not hold a key: put it into the environment as {KEYS[0]}.")


class Unanswered(UserError):
    """A request that got no usable answer, however often it was sent."""


class ServerRefused(UserError):
    """What the server answers to any request, or that there is no server."""


class _NoRedirect(HTTPRedirectHandler):
    """The key goes to no other server."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


class Endpoint:
    """
    A model on a server.

    Args:
        arguments ([`EndpointArguments`]):
            Where it is, and how often and how long it is asked.
        output (`dict`):
            Fields of the requests for outputs: `max_tokens`, `temperature` ...
        sampling (`dict`):
            Fields of the requests for samples.
        num_samples (`int`):
            Number of samples for each source; 0 for none.
        prefix (`str`):
            Text put before every source.
    """

    def __init__(
        self,
        arguments: EndpointArguments,
        output: dict[str, Any],
        sampling: dict[str, Any],
        num_samples: int,
        prefix: str = "",
    ) -> None:
        self.arguments, self.output, self.sampling = arguments, output, sampling
        self.num_samples, self.prefix = num_samples, prefix
        self.url = f"{str(arguments.endpoint).rstrip('/')}/{APIS[arguments.endpoint_api]}"
        self.stopped = Event()
        self._key = next((os.environ[name].strip() for name in KEYS if os.environ.get(name)), None)
        if self._key and not (self._key.isascii() and self._key.isprintable()):
            raise UserError("The key of the server holds characters that no key has.")
        self._opener = build_opener(_NoRedirect)

    def signature(self) -> dict[str, Any]:
        """What the answers depend on."""
        asked = {name: getattr(self.arguments, name) for name in ("model", "endpoint_api", "top_log_probabilities")}
        return {
            **asked,
            "output": self.output,
            "sampling": self.sampling,
            "num_samples": self.num_samples,
            "source_prefix": self.prefix,
        }

    def answer(self, source: str) -> dict[str, Any]:
        """The output for a source and its samples, as the fields of a row of outputs."""
        [output, *_] = self._ask(source, self.output, 1)
        row = {"output": output.pop("text"), **output}
        samples: list[dict[str, Any]] = []
        while len(samples) < self.num_samples:  # some servers give one for each request, whatever `n` says
            seed = self.sampling.get("seed", 0) + len(samples)
            answers = self._ask(source, {**self.sampling, "seed": seed}, self.num_samples - len(samples))
            kept = ("text", "token_log_probabilities")
            samples += [{name: answer[name] for name in kept if name in answer} for answer in answers]
        return {**row, "samples": samples[: self.num_samples]} if samples else row

    def _ask(self, source: str, fields: dict[str, Any], count: int) -> list[dict[str, Any]]:
        text, top = self.prefix + source, self.arguments.top_log_probabilities
        if self.arguments.endpoint_api == "chat":
            asked = {"messages": [{"role": "user", "content": text}], "logprobs": True, "top_logprobs": top}
        else:
            asked = {"prompt": text, "logprobs": top}
        body = {"model": self.arguments.model, **asked, **fields, "n": count}
        return self._post(json.dumps(body).encode())

    def _post(self, body: bytes) -> list[dict[str, Any]]:
        """Sends a request until it is answered; raises where it is not."""
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        for attempt in range(self.arguments.max_retries + 1):
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1.5)
            is_down = False
            try:
                request = Request(self.url, body, headers, method="POST")
                with self._opener.open(request, timeout=self.arguments.request_timeout) as response:
                    return _read_choices(json.loads(response.read()))
            except HTTPError as error:
                problem = f"it answered {error.code}: {self._detail(error)}"
                if error.code in REFUSALS or 300 <= error.code < 400:
                    raise ServerRefused(self._message(problem)) from None
                if error.code < 500 and error.code not in RETRIED:
                    raise Unanswered(self._message(problem)) from None
                pause = max(pause, _retry_after(error.headers.get("Retry-After")))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                problem = f"its answer cannot be read ({type(error).__name__}: {error})"
            except (OSError, HTTPException) as error:  # no connection, none any more, or too slow
                reason = error.reason if isinstance(error, URLError) else error
                is_down = isinstance(reason, ConnectionRefusedError | gaierror)
                problem = f"no answer ({type(reason).__name__}: {reason})"
            if attempt < self.arguments.max_retries and self.stopped.wait(pause):
                break
        raise (ServerRefused if is_down else Unanswered)(self._message(problem))

    def _message(self, problem: str) -> str:
        problem = problem.replace(self._key, "***") if self._key else problem
        return f"The server at {self.arguments.endpoint} cannot be used: {problem[:500]}"

    @staticmethod
    def _detail(error: HTTPError) -> str:
        try:
            return " ".join(error.read(2000).decode("utf-8", "replace").split()) or str(error.reason)
        except (OSError, HTTPException):
            return str(error.reason)


def _read_choices(answer: Any) -> list[dict[str, Any]]:
    """The texts of an answer with what it says of their tokens; raises where it is not such an answer."""
    choices = sorted(answer["choices"], key=lambda choice: choice.get("index") or 0)
    if not choices:
        raise ValueError("it has no choices")
    return [_read_choice(choice) for choice in choices]


def _read_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    if text is not None and not isinstance(text, str):
        raise ValueError(f"its text is a {type(text).__name__}")
    entry: dict[str, Any] = {"text": text or "", "ended": choice.get("finish_reason") != "length"}
    told = choice.get("logprobs") or {}
    if content := told.get("content"):  # of chats, and of newer servers
        entry["tokens"] = [token["token"] for token in content]
        entry["token_log_probabilities"] = [token["logprob"] for token in content]
        tops = [[top["logprob"] for top in token.get("top_logprobs") or ()] for token in content]
    elif told.get("token_logprobs"):
        entry["tokens"], entry["token_log_probabilities"] = told["tokens"], told["token_logprobs"]
        tops = [list((top or {}).values()) for top in told.get("top_logprobs") or ()]
    else:
        tops = []
        if not text and told:  # no tokens
            entry["token_log_probabilities"] = entry["token_entropies"] = []
    if tops and all(tops):
        entry["top_log_probabilities"] = tops
    return entry


def _retry_after(value: str | None) -> float:
    """The seconds that a server asks to wait, in numbers or as a date."""
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except ValueError:
            return 0.0
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER) if seconds == seconds else 0.0


def write_outputs(
    endpoint: Endpoint, rows: Iterable[dict[str, Any]], count: int, path: Path, resume: bool, skip_failures: bool
) -> None:
    """
    Asks for the output of every row, which has a `source`, and writes them to a jsonl file in the order of the rows,
    with all that the rows hold. What is answered is kept in a log beside, from which `resume` goes on.

    A row that gets no usable answer raises; with `skip_failures` it is written with an `error` and no output.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    if resume and path.exists() and not unfinished.exists():
        logger.warning(f"{path} is finished: its outputs are used.")
        return
    workers = endpoint.arguments.concurrent_requests
    with (
        ResumableLog(path, unfinished, endpoint.signature(), resume) as log,
        ThreadPoolExecutor(workers) as pool,
        tqdm(total=count, desc="Asking", unit=" texts") as bar,
    ):
        done, asked = log.done, dict[Future[dict[str, Any]], tuple[int, dict[str, Any]]]()

        def keep(finished: Iterable[Future[dict[str, Any]]], skip: bool) -> None:
            for future in finished:
                number, row = asked.pop(future)
                try:
                    answer = future.result()
                except (Unanswered, ServerRefused) as error:
                    if not skip or isinstance(error, ServerRefused):
                        raise UserError(f"Row {number} (counted from 0): {error}. {_advice(unfinished)}") from error
                    answer = {"error": str(error)}
                log.add([row], [{"row": number, **row, **answer}])
                bar.update()

        try:
            for number, row in enumerate(rows):
                if number in done:
                    log.check(number, row)
                    bar.update()
                    continue
                while len(asked) >= 2 * workers:
                    keep(wait(asked, return_when=FIRST_COMPLETED).done, skip_failures)
                asked[pool.submit(endpoint.answer, row["source"])] = number, row
            while asked:
                keep(wait(asked, return_when=FIRST_COMPLETED).done, skip_failures)
        except BaseException:  # what is on its way is waited for, and kept
            endpoint.stopped.set()
            for future in [future for future in asked if future.cancel()]:
                del asked[future]
            wait(asked)
            keep([future for future in asked if future.exception() is None], skip=False)
            raise
        log.finish(count)


def _advice(unfinished: Path) -> str:
    return (
        f"Finished rows are kept in {unfinished}: --resume true continues, --on_bad_row skip leaves out rows without "
        "an answer."
    )
