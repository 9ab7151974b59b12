"""One run at a time in a folder: a lock, which a process that is killed lets go of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accelerate.utils import broadcast_object_list
from filelock import FileLock, Timeout

from .errors import UserError
from .processes import process_state


LOCK = ".lock"


@contextmanager
def claimed(file: Path) -> Iterator[bool]:
    """
    Whether this run has a lock: that of a file, whose folder is made if needed. Of several processes the main one asks
    for it and holds it, and all learn the answer.
    """
    mine, lock = False, FileLock(file)
    if process_state().is_main_process:
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(Timeout):
            lock.acquire(blocking=False)
            mine = True
    [mine] = broadcast_object_list([mine])
    try:
        yield mine
    finally:
        lock.release()


@contextmanager
def alone(folder: str | Path, run: str, option: str) -> Iterator[None]:
    """
    Refuses to go on where another run writes to a folder.

    Args:
        folder (`str` or `Path`):
            Whose lock is held meanwhile.
        run (`str`):
            What writes there, in a word.
        option (`str`):
            Which option chooses another folder.
    """
    with claimed(Path(folder) / LOCK) as mine:
        if not mine:
            raise UserError(f"Another {run} writes to {folder}. Wait for it, or choose another {option}.")
        yield
