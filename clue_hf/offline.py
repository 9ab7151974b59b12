"""Noticing that there is no network, instead of waiting a minute for retries."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from threading import Thread
from urllib.parse import urlparse

import datasets
from huggingface_hub import constants
from transformers.utils import logging


logger = logging.get_logger(__name__)
SECONDS = 4


@cache
def notice_missing_network() -> None:
    """
    Called before something is asked of the Hub. Where it cannot be reached, the Hub's libraries are set to offline
    mode: what was downloaded before still loads, and what was not fails at once.
    """
    behind_proxy = any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    if constants.is_offline_mode() or behind_proxy or _answers(constants.ENDPOINT):
        return
    logger.warning(f"{constants.ENDPOINT} cannot be reached: only local folders and earlier downloads are used.")
    os.environ["HF_HUB_OFFLINE"] = "1"  # for processes started from here
    constants.HF_HUB_OFFLINE = True
    datasets.config.HF_HUB_OFFLINE = True


def _answers(address: str) -> bool:
    """Whether a connection can be made within a few seconds; looking up a name may itself take longer."""
    parts = urlparse(address)
    answers: list[bool] = []

    def connect() -> None:
        with suppress(OSError):
            port = parts.port or (80 if parts.scheme == "http" else 443)
            socket.create_connection((parts.hostname, port), timeout=SECONDS).close()
            answers.append(True)

    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return bool(answers)
