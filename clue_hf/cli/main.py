"""`clue-hf COMMAND ...`: finds the command, and turns a user's mistake into one line and exit code 2."""

from __future__ import annotations

import errno
import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

from ..errors import UserError, did_you_mean
from ..terminal import Result, run_command


#: Command -> what it does. Each is a module of this package.
COMMANDS = {
    "quickstart": "train, evaluate and calibrate a tiny model offline, to see what the commands do",
    "configs": "list the configs that come with clue-hf",
    "train": "train a model with CLUE or a baseline, and report on it",
    "evaluate": "how far the outputs of a model can be trusted: scorers, rejection metrics, report",
    "compare": "several methods and seeds on the same data: the table of a paper",
    "score": "how well uncertainties in a file tell good outputs from bad ones",
    "calibrate": "what a model's uncertainty means: confidence, percentiles, thresholds for abstention",
    "predict": "answers for a file of inputs, each with its uncertainty",
    "card": "write the model card: uncertainty, results with intervals, limits",
    "push": "upload a model with its uncertainty, card and report to the Hub",
    "demo": "a local page to try a model and see how uncertain it is",
}

#: A disk that is full, a place that is not there or may not be written to: nothing that a traceback would explain.
DISK_ERRORS = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR,
    errno.EISDIR, errno.ENAMETOOLONG,
)  # fmt: skip

HELP = """usage: clue-hf COMMAND [CONFIG] [--option value ...]

Train models whose uncertainty matches their error.

commands:
{commands}

CONFIG is a YAML file, or the name of one that comes with clue-hf (`clue-hf configs`).
`clue-hf COMMAND --help` shows the options of a command; `--quiet` prints only the result, `--json` as JSON.
New here? `clue-hf quickstart` needs no network, and takes a few minutes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code (0: success, 2: a user's mistake, 1: a bug)."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if not argv or argv[0] in ("-h", "--help"):
        listing = "\n".join(f"  {name:10s} {purpose}" for name, purpose in COMMANDS.items())
        return run(lambda _: print(HELP.format(commands=listing)) or 0, [])
    name = argv[0]
    if name not in COMMANDS:
        near = did_you_mean(name, COMMANDS)
        return _failed(2, f"clue-hf: error: there is no command {name!r}.{near} Commands: {', '.join(COMMANDS)}.")
    return run(import_module(f".{name}", __package__).command, argv[1:])


def run(command: Callable[[Sequence[str]], Result | int], argv: Sequence[str]) -> int:
    """Runs the function of a command, and prints its result; returns the exit code."""
    try:
        try:
            code = run_command(command, argv)
            if "torch" in sys.modules:  # not all commands need it, and it takes seconds
                from ..processes import leave_processes

                leave_processes()
            return code
        finally:
            sys.stdout.flush()
    except UserError as error:
        return _failed(2, f"clue-hf: error: {error}")
    except KeyboardInterrupt as interruption:
        return _failed(130, f"\nclue-hf: interrupted; {interruption}")
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_left():
            return 0
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            path = "" if error.filename is None else f": {str(error.filename)[:200]!r}"
            return _failed(2, f"clue-hf: error: {error.strerror}{path}")
        advice = "clue-hf: this is a bug in clue-hf; please report it with the lines above."
        return _failed(1, f"{traceback.format_exc()}{advice}")


def _reader_left() -> bool:
    """Whether the reader of stdout, such as `head`, has seen enough: then nothing more is written."""
    poll, stdout = select.poll(), sys.stdout.fileno()
    poll.register(stdout, 0)
    left = any(event & select.POLLERR for _, event in poll.poll(0))
    if left:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return left


def _failed(code: int, message: str) -> int:
    """Prints a message without the tokens of the Hub; returns the exit code."""
    from ..hub.escape import without_secrets

    print(without_secrets(message), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
