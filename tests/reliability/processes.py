"""Processes that are asked to end."""

import time


def send_until_it_ends(process, number, seconds=60):
    """Sends a signal every 10 ms until the process has ended: all but the first are harmless."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        process.send_signal(number)
        time.sleep(0.01)
