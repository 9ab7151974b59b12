"""`clue-hf COMMAND ...`: finds the command, and turns a user's mistake into one line and exit code 2."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

from ..errors import UserError


#: command -> (module, what it does)
COMMANDS = {
    "train": ("train", "train a model with CLUE or a baseline, and report on it"),
    "evaluate": ("evaluate", "how far the outputs of a model can be trusted: scorers, rejection metrics, report"),
    "compare": ("compare", "several methods and seeds on the same data: the table of a paper"),
    "score": ("score", "how well uncertainties in a file tell good outputs from bad ones"),
    "calibrate": ("calibrate", "what a model's uncertainty means: confidence, percentiles, thresholds for abstention"),
    "predict": ("predict", "answers for a file of inputs, each with its uncertainty"),
    "card": ("card", "write the model card: uncertainty, results with intervals, limits"),
    "push": ("push", "upload a model with its uncertainty, card and report to the Hub"),
    "demo": ("demo", "a local page to try a model and see how uncertain it is"),
}

#: A disk that is full, a place that is not there or may not be written to: nothing that a traceback would explain.
DISK_ERRORS = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR,
    errno.EISDIR, errno.ENAMETOOLONG,
)  # fmt: skip

HELP = """usage: clue-hf COMMAND [CONFIG.yaml] [--option value ...]

Train models whose uncertainty matches their error.

commands:
{commands}

`clue-hf COMMAND --help` tells more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code (0 done, 2 a user's mistake, 1 one of ours)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        listing = "\n".join(f"  {name:10s} {does}" for name, (_, does) in COMMANDS.items())
        print(HELP.format(commands=listing))
        return 0
    name = words[0]
    if name not in COMMANDS:
        print(f"clue-hf: error: there is no command {name!r}: use {', '.join(COMMANDS)}.", file=sys.stderr)
        return 2
    return run(import_module(f".{COMMANDS[name][0]}", __package__).command, words[1:])


def run(command: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """Runs a command's function with its words."""
    try:
        return command(words)
    except UserError as error:
        from ..hub.escape import without_secrets

        print(f"clue-hf: error: {without_secrets(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interruption:
        print(f"\nclue-hf: interrupted; {interruption}", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            return _unexpected()
        where = "" if error.filename is None else f": {str(error.filename)[:200]!r}"
        print(f"clue-hf: error: {error.strerror}{where}", file=sys.stderr)
        return 2
    except Exception:
        return _unexpected()


def _unexpected() -> int:
    """Tells all that is known of an error that is ours, or that of a library, but for tokens."""
    from ..hub.escape import without_secrets

    print(without_secrets(traceback.format_exc()), file=sys.stderr, end="")
    print("clue-hf: this is a bug in clue-hf; please report it with the lines above.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
