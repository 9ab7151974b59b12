"""A local web page to try a model: its answer to an input, the uncertainty, and whether it abstains."""

from __future__ import annotations

import math
import os
import socket
import tempfile
from collections.abc import Callable
from threading import Event
from typing import Any

from transformers.utils import logging

from ..errors import UserError
from ..inputs.image_rows import ImageInputs
from ..inputs.table_columns import TableColumn
from ..inputs.table_rows import TableInputs
from ..pages.environment import GRADIO, source
from ..posthoc import AbstentionThreshold
from ..predictors.base import Answer
from ..predictors.numbers import NumberPredictor
from ..predictors.text import TextPredictor
from .pipeline import CALIBRATE, UncertaintyPipeline


logger = logging.get_logger(__name__)
#: Number of alternatives shown for each token.
ALTERNATIVES = 5
#: Entropy (nats) from which a token is shaded fully.
FULL_HEAT = 3.0
#: Longest text and largest upload that are accepted.
MAX_CHARACTERS, MAX_UPLOAD = 20_000, "20mb"
#: Maximum number of queued inputs; one runs at a time.
MAX_WAITING = 16
LOCAL = ("127.0.0.1", "localhost", "::1")
MISSING = "The demo needs gradio: pip install 'clue-hf[demo]'"


class Demo:
    """The page of a model."""

    def __init__(self, pipe: UncertaintyPipeline, name: str) -> None:
        self.pipe, self.name = pipe, name
        abstention = None if pipe.deployed is None else pipe.deployed.abstention
        self.thresholds: tuple[AbstentionThreshold, ...] = () if abstention is None else abstention.thresholds
        inputs = getattr(pipe.predictor, "inputs", None)
        self.columns: list[TableColumn] = inputs.processing_class.columns if isinstance(inputs, TableInputs) else []
        self.takes_images = isinstance(inputs, ImageInputs)
        self.conformal = getattr(pipe.predictor, "conformal", None)
        #: Whether the probability of the interval can be chosen; that of a conformal one is given.
        self.asks_level = isinstance(pipe.predictor, NumberPredictor) and self.conformal is None

    def answer(self, level: float, risk: int, *values: Any) -> tuple[str, float | None, str]:
        """The answer to an input as HTML, its uncertainty, and whether to abstain as HTML."""
        try:
            answer = self.pipe(self._input(values), **self._options(level))
        except UserError as error:
            return part_html("alert", str(error)), None, ""
        return self.answer_html(answer), answer["uncertainty"], self.verdict_html(answer["uncertainty"], risk)

    def _input(self, fields: tuple[Any, ...]) -> Any:
        if self.columns:
            values = zip(self.columns, fields, strict=True)
            return {column.name: None if value == "" else value for column, value in values}
        [value] = fields
        if self.takes_images:
            if value is None:
                raise UserError("Choose an image first.")
            return value
        if not value or not value.strip():
            raise UserError("Write a text first.")
        if len(value) > MAX_CHARACTERS:
            raise UserError(f"The text has {len(value):,} characters; at most {MAX_CHARACTERS:,} are supported here.")
        return value

    def _options(self, level: float) -> dict[str, Any]:
        if isinstance(self.pipe.predictor, TextPredictor):
            return {"return_tokens": True, "num_alternatives": ALTERNATIVES}
        return {"level": level} if self.asks_level else {}

    def head_html(self) -> str:
        """The name of the model, and how to calibrate it if it is not."""
        data = None if self.pipe.deployed is None else self.pipe.deployed.data
        return part_html("head", self.name, data, CALIBRATE.replace("MODEL", self.name))

    def answer_html(self, answer: Answer) -> str:
        """An answer with its uncertainty."""
        coverage = None if self.conformal is None else self.conformal.coverage
        return part_html("answer", answer, self.pipe.predictor.definition, FULL_HEAT, coverage)

    def verdict_html(self, uncertainty: float | None, place: int) -> str:
        """Whether the model answers at the risk at this place of the slider."""
        if uncertainty is None or not self.thresholds:
            return ""
        entry = self.threshold(place)
        return part_html("verdict", uncertainty, entry, bool(entry.abstains([uncertainty])[0]))

    def risk_html(self, place: int) -> str:
        """The risk at this place of the slider."""
        if not self.thresholds:
            return ""
        return part_html("target_risk", self.threshold(place).max_risk, [entry.max_risk for entry in self.thresholds])

    def threshold(self, place: int) -> AbstentionThreshold:
        """The threshold at a place of the slider."""
        return self.thresholds[min(max(int(place), 0), len(self.thresholds) - 1)]


def part_html(part: str, *values: Any) -> str:
    """A part of the page (a macro of `demo.html`); every text in it is inert."""
    return str(getattr(GRADIO.get_template("demo.html").module, part)(*values))


# ---- gradio ----


def import_gradio() -> Any:
    """Imports gradio with its analytics disabled; raises if it is not installed."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        import gradio
    except ImportError as error:
        raise UserError(MISSING) from error
    return gradio


def build_page(demo: Demo) -> Any:
    """The page as gradio's `Blocks`."""
    gr = import_gradio()
    with gr.Blocks(title="clue-hf demo", analytics_enabled=False) as page:
        gr.HTML(demo.head_html())
        with gr.Row():
            with gr.Column():
                fields = _fields(gr, demo)
                label = "Probability of the interval"
                level = gr.Slider(0.5, 0.99, 0.95, step=0.01, label=label, visible=demo.asks_level)
                button = gr.Button("Answer", variant="primary", elem_id="run")
                risk, risk_text = _risk_slider(gr, demo)
            with gr.Column(elem_classes="overflowing"):
                shown = gr.HTML(elem_id="answer", elem_classes="overflowing")
                verdict = gr.HTML(elem_id="abstention")
        uncertainty = gr.State(None)
        hidden = {"api_visibility": "private", "show_progress": "minimal"}
        request = {
            "inputs": [level, risk, *fields],
            "outputs": [shown, uncertainty, verdict],
            "concurrency_id": "model",
        }
        button.click(demo.answer, **request, **hidden)
        if demo.asks_level:
            level.release(demo.answer, **request, **hidden)
        elif not demo.takes_images and not demo.columns:
            fields[0].submit(demo.answer, **request, **hidden)

        def moved(value: float | None, place: int) -> tuple[str, str]:
            return demo.risk_html(place), demo.verdict_html(value, place)

        risk.change(moved, [uncertainty, risk], [risk_text, verdict], **hidden)
    return page.queue(max_size=MAX_WAITING, default_concurrency_limit=1, api_open=False)


def _fields(gr: Any, demo: Demo) -> list[Any]:
    if demo.takes_images:
        return [gr.Image(type="pil", sources=["upload", "clipboard"], label="Image", elem_id="input")]
    if not demo.columns:
        return [gr.Textbox(lines=4, max_length=MAX_CHARACTERS, label="Text", elem_id="input")]
    return [_field(gr, column) for column in demo.columns]


def _field(gr: Any, column: TableColumn) -> Any:
    """The field of a column with a typical value; an empty one is a missing value."""
    if column.kind == "categorical":
        return gr.Dropdown(list(column.categories), value=next(iter(column.categories), None), label=column.name)
    if column.kind == "datetime":
        return gr.Textbox(label=column.name, placeholder="2024-05-31 14:30")
    typical = next((feature.fill for feature in column.features if feature.part == "value"), None)
    return gr.Number(typical, label=column.name)


def _risk_slider(gr: Any, demo: Demo) -> tuple[Any, Any]:
    """A slider over the calibrated risks, and the text of the selected one."""
    last = max(len(demo.thresholds) - 1, 0)
    finite = [place for place, entry in enumerate(demo.thresholds) if math.isfinite(entry.threshold or math.inf)]
    start = finite[-1] if finite else last  # some inputs are answered, some are not
    risk_text = gr.HTML(demo.risk_html(start), elem_id="risk-text")
    movable = len(demo.thresholds) > 1
    slider = gr.Slider(0, max(last, 1), start, step=1, label="Target risk", visible=movable, elem_id="risk")
    return slider, risk_text


def check_address(host: str, port: int) -> None:
    """Raises if the page cannot be served at an address."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise UserError(
            f"The page cannot be served at {host}:{port} ({error.strerror or error}). Is another program using the "
            "port? Choose another one with --port."
        ) from error


def serve(
    pipe: UncertaintyPipeline, name: str, host: str = "127.0.0.1", port: int = 7860, open_browser: bool = False
) -> None:
    """Serves the page of a model until Ctrl-C."""
    gr = import_gradio()
    check_address(host, port)
    if host not in LOCAL:
        logger.warning(f"Anyone who can reach {host}:{port} can use the model.")
    with tempfile.TemporaryDirectory(prefix="clue-hf-demo-") as uploads:
        os.environ["GRADIO_TEMP_DIR"] = uploads  # deleted when the demo ends
        page = build_page(Demo(pipe, name))
        _launch(page, gr, host, port, open_browser)
        print(f"{name} at http://{host}:{port} (Ctrl-C ends it)", flush=True)
        try:
            Event().wait()
        except KeyboardInterrupt:
            print("\nStopped.")
        finally:
            page.close(verbose=False)


def _launch(page: Any, gr: Any, host: str, port: int, open_browser: bool) -> None:
    """Starts the server; nothing leaves this machine: system fonts, no share link, no documented API."""
    launch: Callable[..., Any] = page.launch
    try:
        launch(
            server_name=host, server_port=port, share=False, inbrowser=open_browser, quiet=True, ssr_mode=False,
            prevent_thread_lock=True, footer_links=[], run_history=False, enable_monitoring=False, mcp_server=False,
            pwa=False, max_file_size=MAX_UPLOAD, css=source("demo.css"),
            theme=gr.themes.Base(font=["Segoe UI", "Liberation Sans", "sans-serif"], font_mono=["monospace"]),
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"The page cannot be served at {host}:{port}: {error}") from error
