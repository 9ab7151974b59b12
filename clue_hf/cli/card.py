"""`clue-hf card`: the README.md of a model, from its report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..hub.card import CardOptions, write_card
from ..settings import setting
from ..terminal import Result
from .parser import ConfigParser


@dataclass
class CardArguments:
    """What the card should tell."""

    report: str | None = setting(
        None, "Folder of the model's report (default: uncertainty_report inside DIR); it is copied there."
    )
    baseline: str | None = setting(
        None, "Folder of a report to show beside it, or none (default: what it was compared with)."
    )
    model_id: str | None = setting(None, "Its name on the Hub: me/name.")
    license: str | None = setting(None, "License of the model: apache-2.0.")
    language: str | None = setting(None, "Language of its texts: fr.")
    datasets: list[str] = setting([], "Hub ids of its training data (default: that of the report).")
    overwrite: bool = setting(False, "Replace a README.md that somebody wrote.")


DESCRIPTION = """DIR is the folder of a model. Writes its README.md for the Hub: what it is, how to use it with its
uncertainty, what the report of clue-hf evaluate found (also in the form that the Hub reads), how it was trained, what
every number means, and what limits it. A README.md that somebody wrote or edited is kept."""

EXAMPLES = """
clue-hf card out/quickstart/clue --report out/quickstart/uncertainty
clue-hf card out/quickstart/clue --model_id me/phrases --license apache-2.0 --language fr --baseline none"""


def command(argv: Sequence[str]) -> Result:
    """Runs `clue-hf card`."""
    parser = ConfigParser("clue-hf card DIR", (CardArguments,), DESCRIPTION, EXAMPLES)
    folder, arguments = parser.parse(argv)
    options = CardOptions(arguments.model_id, arguments.license, arguments.language, tuple(arguments.datasets))
    path = write_card(folder, arguments.report, arguments.baseline, options, overwrite=arguments.overwrite)
    push = shlex.join(["clue-hf", "push", folder, arguments.model_id or "me/name"])
    return Result({"path": str(path)}, f"Written to {path}.", next_step=("upload the model with it", push))
