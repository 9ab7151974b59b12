"""Taking the signals that ask a process to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def taking(numbers: Iterable[int], handler: Callable[[int, Any], None], ends: Callable[[], bool]) -> Iterator[None]:
    """
    Gives signals to a handler, and back in the end. Where they end the process (`ends`) they are ignored from then on:
    one more would end it before it can give its own exit code. Only the main thread can take signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, signal.SIG_IGN if ends() else earlier)
