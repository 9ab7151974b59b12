"""`clue-hf push`: a model with its uncertainty, its card and its report, onto the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..hub.push import push_folder
from ..settings import setting
from ..terminal import Result
from .parser import ConfigParser


@dataclass
class PushArguments:
    """Where to, and what of the user's data."""

    private: bool = setting(False, "Make a new repository private.")
    revision: str | None = setting(None, "Branch, created if needed (default: main).")
    commit_message: str | None = setting(None, "Message of the commit.")
    include_examples: bool = setting(False, "Also upload the report's examples, which hold the rows of your data.")


DESCRIPTION = """DIR is the folder of a model, REPO_ID its name on the Hub. Uploads, in one commit, the model
(safetensors), its tokenizer or processor, uncertainty.json and what it names, README.md (made if there is none) and
the report without its examples; nothing else: no training_args.bin, no optimizer states, no checkpoints, no logs.
Files that hold a token are refused. A push that fails leaves the repository as it was."""

EXAMPLES = """
clue-hf push out/quickstart/clue me/phrases --private
clue-hf push out/quickstart/clue me/phrases --revision v2 --commit_message "alpha 0.5"
"""


def command(argv: Sequence[str]) -> Result:
    """Runs `clue-hf push`."""
    parser = ConfigParser("clue-hf push DIR REPO_ID", (PushArguments,), DESCRIPTION, EXAMPLES)
    folder, repo_id, arguments = parser.parse(argv)
    options = {**vars(arguments), "private": arguments.private or None}
    commit = push_folder(folder, repo_id, **options, verbose=True)
    return Result({"url": str(commit.repo_url), "commit": commit.oid}, f"Uploaded: {commit.repo_url}")
