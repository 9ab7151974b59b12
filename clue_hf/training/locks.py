"""One run at a time in a folder: a lock, which a process that is killed lets go of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import UserError
from ..processes import on_main_process


LOCK = ".lock"


@contextmanager
def claimed(file: Path) -> Iterator[bool]:
    """
    Whether this run has a lock: that of a file, whose folder is made if needed. Of several processes the main one asks
    for it and holds it, and all learn the answer.
    """
    lock = FileLock(file, is_singleton=True)  # what a run has claimed, its parts may claim too

    def acquire() -> bool:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=False)
        except Timeout:  # another run has it, and that is the answer
            return False
        except OSError as error:
            raise UserError(f"{file.parent} cannot be written to: {error.strerror or error}.") from error
        return True

    mine = on_main_process(acquire)
    try:
        yield mine
    finally:
        lock.release()


@contextmanager
def alone(output: str | Path, run: str, option: str, lock: Path | None = None) -> Iterator[None]:
    """Refuses to go on where another run writes to the same place."""
    with claimed(lock or Path(output) / LOCK) as mine:
        if not mine:
            raise UserError(f"Another {run} writes to {output}. Wait for it, or choose another {option}.")
        yield
