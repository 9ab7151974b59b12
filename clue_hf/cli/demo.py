"""`clue-hf demo`: a local page to try a model and see how uncertain it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..deploy.demo import check_address, import_gradio, serve
from ..deploy.pipeline import UncertaintyPipeline
from ..predictors.loading import read_config
from ..settings import setting
from .parser import ConfigParser


@dataclass
class DemoArguments:
    """Where the page is."""

    port: int = setting(7860, "Port of the page.")
    host: str = setting("127.0.0.1", "Address to listen at; by default only this machine reaches it.")
    open: bool = setting(False, "Open the page in a browser.")

    def __post_init__(self) -> None:
        if not 1 <= self.port <= 65535:
            raise ValueError(f"`port` must lie between 1 and 65535, but is {self.port}.")


DESCRIPTION = """MODEL is a Hub id or a folder. Serves a page on this machine: write a text, upload an image or fill in
a row of a table, and see the answer, its uncertainty (for texts token by token) and, once the model is calibrated, its
confidence and whether it abstains at a target risk. Nothing is stored or sent elsewhere. Ctrl-C ends it."""

EXAMPLES = """
clue-hf demo out/quickstart/clue
clue-hf demo out/quickstart_digits/clue --port 7861 --open true"""


def command(argv: Sequence[str]) -> int:
    """Runs `clue-hf demo`; returns its exit code."""
    parser = ConfigParser("clue-hf demo MODEL", (DemoArguments,), DESCRIPTION, EXAMPLES, has_result=False)
    model, arguments = parser.parse(argv)
    import_gradio()  # mistakes show before the model is loaded
    check_address(arguments.host, arguments.port)
    read_config(model)
    pipe = UncertaintyPipeline.from_pretrained(model)
    serve(pipe, model, arguments.host, arguments.port, arguments.open)
    return 0
