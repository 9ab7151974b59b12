"""A local page to try a model: an input, its answer, how uncertain it is, and whether it would rather not answer."""

from __future__ import annotations

import math
import os
import socket
import tempfile
from collections.abc import Callable
from html import escape
from threading import Event
from typing import Any

from transformers.utils import logging

from ..errors import UserError
from ..inputs.image_rows import ImageInputs
from ..inputs.table_columns import TableColumn
from ..inputs.table_rows import TableInputs
from ..pages.parts import number_text
from ..posthoc import AbstentionThreshold
from ..predictors.base import Answer
from ..predictors.numbers import NumberPredictor
from ..predictors.text import TextPredictor
from .pipeline import CALIBRATE, UncertaintyPipeline


logger = logging.get_logger(__name__)
#: Tokens told of in the place of each token.
ALTERNATIVES = 5
#: The entropy (nats) of a token that is shaded fully.
FULL_HEAT = 3.0
#: Longest text and largest upload that are taken.
MAX_CHARACTERS, MAX_UPLOAD = 20_000, "20mb"
#: Inputs that may wait for their turn; one runs at a time.
MAX_WAITING = 16
LOCAL = ("127.0.0.1", "localhost", "::1")
MISSING = "The demo needs gradio: pip install 'clue-hf[demo]'"

CSS = """
.gradio-container { --hot: #ffa364; font-family: system-ui, "Segoe UI", "Liberation Sans", Arial, sans-serif; }
.dark { --hot: #9a4410; }
.clue { line-height: 1.5; overflow-wrap: anywhere; }
.clue h1 { font-size: 1.5rem; margin: 0; } .clue h2 { font-size: .85rem; margin: 1rem 0 .3rem; opacity: .75; }
.clue .passage { padding: .55rem .75rem; border: 1px solid var(--border-color-primary); border-radius: 8px;
  line-height: 2; white-space: pre-wrap; }
.clue .token { position: relative; padding: .18em .08em; border-radius: 4px; cursor: help;
  background: color-mix(in srgb, var(--hot) calc(var(--heat) * 100%), transparent); }
.clue .token:hover, .clue .token:focus { outline: 2px solid var(--color-accent); }
.clue .tip { display: none; position: absolute; left: 0; top: 100%; z-index: 9; min-width: 13rem; padding: .5rem .7rem;
  border: 1px solid var(--border-color-primary); border-radius: 8px; background: var(--background-fill-primary);
  box-shadow: 0 4px 14px rgb(0 0 0 / 16%); font-size: .82rem; line-height: 1.45; white-space: nowrap; }
.clue .token:hover .tip, .clue .token:focus .tip { display: block; }
.clue .row { display: flex; justify-content: space-between; gap: 1rem; font-variant-numeric: tabular-nums; }
.clue .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .6rem;
  margin: .8rem 0; }
.clue .tiles div { padding: .6rem .8rem; border: 1px solid var(--border-color-primary); border-radius: 8px; }
.clue .tiles b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.clue .bar { height: .7rem; border-radius: 4px; background: var(--border-color-primary); }
.clue .bar i { display: block; height: 100%; border-radius: 4px; background: var(--color-accent); }
.clue .note { opacity: .75; font-size: .9rem; }
.clue .verdict { padding: .6rem .8rem; border-radius: 8px; border-left: 5px solid #1a7f37; }
.clue .abstain { border-left-color: #c2410c; }
.overflowing, .overflowing > * { overflow: visible !important; }
#risk input[type=number], #risk .min_value, #risk .max_value { display: none; }
"""


class Demo:
    """
    What the page of a model holds.

    Args:
        pipe ([`UncertaintyPipeline`]):
            The model.
        name (`str`):
            What it is called.
    """

    def __init__(self, pipe: UncertaintyPipeline, name: str) -> None:
        self.pipe, self.name = pipe, name
        abstention = None if pipe.deployed is None else pipe.deployed.abstention
        self.thresholds: tuple[AbstentionThreshold, ...] = () if abstention is None else abstention.thresholds
        inputs = getattr(pipe.predictor, "inputs", None)
        self.columns: list[TableColumn] = inputs.processing_class.columns if isinstance(inputs, TableInputs) else []
        self.takes_images = isinstance(inputs, ImageInputs)

    def answer(self, level: float, risk: int, *given: Any) -> tuple[str, float | None, str]:
        """What is shown of an input: the answer, its uncertainty, and whether to abstain."""
        try:
            answer = self.pipe(self._input(given), **self._options(level))
        except UserError as error:
            return _page(f'<p role="alert">{safe(error)}</p>'), None, ""
        return self.answer_html(answer), answer["uncertainty"], self.verdict_html(answer["uncertainty"], risk)

    def _input(self, given: tuple[Any, ...]) -> Any:
        """What the model takes of the page's fields."""
        if self.columns:
            values = zip(self.columns, given, strict=True)
            return {column.name: None if value == "" else value for column, value in values}
        [value] = given
        if self.takes_images:
            if value is None:
                raise UserError("Choose an image first.")
            return value
        if not value or not value.strip():
            raise UserError("Write a text first.")
        if len(value) > MAX_CHARACTERS:
            raise UserError(f"The text has {len(value):,} characters; at most {MAX_CHARACTERS:,} are taken here.")
        return value

    def _options(self, level: float) -> dict[str, Any]:
        if isinstance(self.pipe.predictor, TextPredictor):
            return {"return_tokens": True, "num_alternatives": ALTERNATIVES}
        return {"level": level} if isinstance(self.pipe.predictor, NumberPredictor) else {}

    # ---- as HTML; every text of a user or a model goes through `safe` ----

    def head_html(self) -> str:
        """Which model it is, and what to do where it is not calibrated."""
        head = f"<h1>{safe(self.name)}</h1>"
        if self.pipe.deployed is None:
            command = CALIBRATE.replace("MODEL", self.name)
            head += (
                '<p id="uncalibrated">This model has not been calibrated: its answers have an uncertainty but no '
                f"confidence, and it cannot abstain. Calibrate it with <code>{safe(command)}</code></p>"
            )
        else:
            data = self.pipe.deployed.data
            rows = f"{data['rows']:,} rows of " if isinstance(data.get("rows"), int) else ""
            head += f'<p class="note">Calibrated on {rows}{safe(data.get("name", "data without a name"))}.</p>'
        return _page(head)

    def answer_html(self, answer: Answer) -> str:
        """An answer and what its uncertainty means."""
        if "generated_text" in answer:
            shown = self._text_html(answer)
        elif "label" in answer:
            share = f"{answer['score']:.1%}"
            shown = (
                f'<h2>Label</h2><div class="row"><b id="label">{safe(answer["label"])}</b><span>{share}</span></div>'
                f'<div class="bar"><i style="width:{share}"></i></div>'
            )
        else:
            low, high = answer["interval"]
            shown = _tiles(
                mean=f"{answer['mean']:.4g}", std=f"{answer['std']:.4g}", interval=f"{low:.4g} to {high:.4g}"
            )
        percentile = answer["percentile"]
        told = _tiles(
            uncertainty=number_text(answer["uncertainty"]),
            confidence=number_text(answer["confidence"]),
            percentile="-" if percentile is None else f"{percentile:.0f}",
        )
        note = f'<p class="note">Uncertainty: {safe(self.pipe.predictor.definition)}</p>'
        return _page(shown + told + note)

    def _text_html(self, answer: Answer) -> str:
        tokens = "".join(token_html(token) for token in answer["tokens"])
        return (
            f'<h2>Output</h2><div id="text" dir="auto">{safe(answer["generated_text"] or "(empty)")}</div>'
            f'<h2>Its tokens, shaded by entropy: point at one for more</h2><div class="passage">{tokens}'
            "</div>"
        )

    def verdict_html(self, uncertainty: float | None, risk: int) -> str:
        """Whether the model answers at the risk at this place of the slider."""
        if uncertainty is None or not self.thresholds:
            return ""
        entry = self.thresholds[min(max(int(risk), 0), len(self.thresholds) - 1)]
        abstains = bool(entry.abstains([uncertainty])[0])
        kind, word = ("verdict abstain", "Abstain") if abstains else ("verdict", "Answer")
        if entry.threshold is None:
            why = f"No answer could be certified at this risk: {entry.reason}"
        elif math.isinf(entry.threshold):
            why = "At this risk everything may be answered."
        else:
            relation = "not below" if abstains else "below"
            why = f"The uncertainty {number_text(uncertainty)} is {relation} {number_text(entry.threshold)}."
        return _page(
            f'<div id="verdict" class="{kind}"><b>{word}</b> at a risk of {entry.max_risk:g}. {safe(why)}</div>'
        )


def token_html(token: Answer) -> str:
    """A token, shaded by its entropy; its probability and the alternatives show when it is pointed at or clicked."""
    rows = [("probability", f"{token['probability']:.1%}"), ("entropy", f"{number_text(token['entropy'])} nats")]
    others = [(other["token"], f"{other['probability']:.1%}") for other in token.get("alternatives", [])]
    lines = "".join(f'<span class="row"><span>{safe(one)}</span><span>{two}</span></span>' for one, two in rows)
    lines += "<b>Most probable here</b>" if others else ""
    lines += "".join(
        f'<span class="row alternative"><span>{safe(one)}</span><span>{two}</span></span>' for one, two in others
    )
    heat = min(1.0, max(0.0, token["entropy"] / FULL_HEAT))
    text = safe(token["token"].replace("▁", " ").replace("Ġ", " ").replace("Ċ", "\n"))
    return (
        f'<span class="token" tabindex="0" style="--heat:{heat:.3f}">{text}<span class="tip" role="tooltip">{lines}'
        "</span></span>"
    )


def safe(text: object) -> str:
    """A text that is only a text, in HTML as in the templates that gradio fills (`${...}`, `{{...}}`)."""
    escaped = escape(str(text))
    for sign in "$`{}":
        escaped = escaped.replace(sign, f"&#{ord(sign)};")
    return escaped


def _page(content: str) -> str:
    return f'<div class="clue">{content}</div>'


def _tiles(**values: str) -> str:
    tiles = (f'<div><b id="{name}">{safe(value)}</b>{name}</div>' for name, value in values.items())
    return f'<div class="tiles">{"".join(tiles)}</div>'


# ---- gradio ----


def import_gradio() -> Any:
    """gradio, told beforehand to send nothing anywhere; raises where it is not installed."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        import gradio
    except ImportError as error:
        raise UserError(MISSING) from error
    return gradio


def build_page(demo: Demo) -> Any:
    """The page as gradio's `Blocks`."""
    gr = import_gradio()
    predictor = demo.pipe.predictor
    with gr.Blocks(title="clue-hf demo", analytics_enabled=False) as page:
        gr.HTML(demo.head_html())
        with gr.Row():
            with gr.Column():
                fields = _fields(gr, demo)
                is_number = isinstance(predictor, NumberPredictor)
                level = gr.Slider(0.5, 0.99, 0.95, step=0.01, label="Probability of the interval", visible=is_number)
                button = gr.Button("Answer", variant="primary", elem_id="run")
                risk, told = _risk_slider(gr, demo)
            with gr.Column(elem_classes="overflowing"):
                shown = gr.HTML(elem_id="answer", elem_classes="overflowing")
                verdict = gr.HTML(elem_id="abstention")
        uncertainty = gr.State(None)
        hidden = {"api_visibility": "private", "show_progress": "minimal"}
        asked = {"inputs": [level, risk, *fields], "outputs": [shown, uncertainty, verdict], "concurrency_id": "model"}
        button.click(demo.answer, **asked, **hidden)
        if is_number:
            level.release(demo.answer, **asked, **hidden)
        elif not demo.takes_images:
            fields[0].submit(demo.answer, **asked, **hidden)

        def moved(value: float | None, place: int) -> tuple[str, str]:
            return _risk_html(demo, place), demo.verdict_html(value, place)

        risk.change(moved, [uncertainty, risk], [told, verdict], **hidden)
    return page.queue(max_size=MAX_WAITING, default_concurrency_limit=1, api_open=False)


def _fields(gr: Any, demo: Demo) -> list[Any]:
    """What the user fills in."""
    if demo.takes_images:
        return [gr.Image(type="pil", sources=["upload", "clipboard"], label="Image", elem_id="input")]
    if not demo.columns:
        return [gr.Textbox(lines=4, max_length=MAX_CHARACTERS, label="Text", elem_id="input")]
    return [_field(gr, column) for column in demo.columns]


def _field(gr: Any, column: TableColumn) -> Any:
    """The field of a column, filled with what is usual; an empty one is a missing value."""
    if column.kind == "categorical":
        return gr.Dropdown(list(column.categories), value=next(iter(column.categories), None), label=column.name)
    if column.kind == "datetime":
        return gr.Textbox(label=column.name, placeholder="2024-05-31 14:30")
    usual = next((feature.fill for feature in column.features if feature.part == "value"), None)
    return gr.Number(usual, label=column.name)


def _risk_slider(gr: Any, demo: Demo) -> tuple[Any, Any]:
    """A slider over the places of the stored risks, and the risk that it stands at."""
    last = max(len(demo.thresholds) - 1, 0)
    finite = [place for place, entry in enumerate(demo.thresholds) if math.isfinite(entry.threshold or math.inf)]
    start = finite[-1] if finite else last  # where some is answered and some is not
    told = gr.HTML(_risk_html(demo, start), elem_id="told")
    movable = len(demo.thresholds) > 1
    slider = gr.Slider(0, max(last, 1), start, step=1, label="Target risk", visible=movable, elem_id="risk")
    return slider, told


def _risk_html(demo: Demo, place: int) -> str:
    if not demo.thresholds:
        return ""
    stored = ", ".join(f"{entry.max_risk:g}" for entry in demo.thresholds)
    entry = demo.thresholds[min(max(int(place), 0), len(demo.thresholds) - 1)]
    return _page(f'<b>Target risk {entry.max_risk:g}</b> <span class="note">(calibrated: {stored})</span>')


def check_address(host: str, port: int) -> None:
    """Raises where the page cannot be served there."""
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
    """
    Serves the page of a model until Ctrl-C.

    Args:
        pipe ([`UncertaintyPipeline`]):
            The model.
        name (`str`):
            What it is called.
        host (`str`, *optional*, defaults to `"127.0.0.1"`):
            Address to listen at; by default only this machine can reach it.
        port (`int`, *optional*, defaults to 7860):
            Port to listen at.
        open_browser (`bool`, *optional*, defaults to `False`):
            Open the page in a browser.
    """
    gr = import_gradio()
    check_address(host, port)
    if host not in LOCAL:
        logger.warning(f"Anybody who can reach {host}:{port} can use the model.")
    with tempfile.TemporaryDirectory(prefix="clue-hf-demo-") as uploads:
        os.environ["GRADIO_TEMP_DIR"] = uploads  # uploaded images do not outlive the page
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
    """Starts to serve, with nothing that leaves this machine: system fonts, no share link, no documented API."""
    launch: Callable[..., Any] = page.launch
    try:
        launch(
            server_name=host, server_port=port, share=False, inbrowser=open_browser, quiet=True, ssr_mode=False,
            prevent_thread_lock=True, footer_links=[], run_history=False, enable_monitoring=False, mcp_server=False,
            pwa=False, max_file_size=MAX_UPLOAD, css=CSS,
            theme=gr.themes.Base(font=["Segoe UI", "Liberation Sans", "sans-serif"], font_mono=["monospace"]),
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"The page cannot be served at {host}:{port}: {error}") from error
