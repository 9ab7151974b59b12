"""A text as it is generated, token by token, each with how certain the model was of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .generate import UncertainText, uncertain_text
from .text import TextPredictor


#: A token of one byte, of tokenizers that spell what they do not know: whether it is part of a character is known only
#: when another token follows.
BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")
#: What the bytes of an unfinished character are decoded to.
UNFINISHED = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class StreamedToken:
    """
    A token of a text that is being generated.

    Args:
        token (`str`):
            As the tokenizer has it; the end token comes too.
        text (`str`):
            The part of the text that is certain to stay with this token: empty within a character of several tokens,
            more than the token where something was held back before it. All parts together are the text.
        log_probability (`float`), entropy (`float`):
            In nats; where the model has a token calibrator, calibrated.
    """

    token: str
    text: str
    log_probability: float
    entropy: float


class UncertainTextStream(Iterator[StreamedToken]):
    """Iterates over the tokens of a text while it is generated; `output` is the finished text with its scores."""

    def __init__(self, predictor: TextPredictor, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"Give one text, not {type(text).__name__}.")
        self._predictor, self._ids, self._shown = predictor, list[int](), ""
        self._output: UncertainText | None = None
        [batch] = predictor.collector.plan([text])
        self._steps = predictor.collector.stream(batch)

    @property
    def output(self) -> UncertainText:
        """The finished text, as of [`generate_with_uncertainty`]. Generates what has not been iterated over."""
        for _ in self:
            pass
        if self._output is None:
            raise RuntimeError("The stream was closed or has failed before its end.")
        return self._output

    def close(self) -> None:
        """Generates no more."""
        self._steps.close()

    def __next__(self) -> StreamedToken:
        try:
            token, (error, entropy, *_), is_last = next(self._steps)
        except StopIteration as end:
            if end.value is not None:  # only once
                self._output = uncertain_text(self._predictor, end.value)
            raise
        self._ids.append(token)
        [name] = self._predictor.processing_class.convert_ids_to_tokens([token])
        return StreamedToken(name, self._new_text(name, is_last), -float(error), float(entropy))

    def _new_text(self, token: str, is_last: bool) -> str:
        """What the text has got by its last token, without what later tokens may still change."""
        collector = self._predictor.collector
        text = collector.text_of(self._ids)
        if not is_last:
            text = "" if BYTE_TOKEN.fullmatch(token) else text.rstrip(UNFINISHED).rstrip()
            if getattr(collector.tokenizer, "clean_up_tokenization_spaces", False):
                text = text.rpartition(" ")[0]  # "do n" becomes "don't"
        new = text[len(self._shown) :] if text.startswith(self._shown) else ""
        self._shown += new
        return new


def stream_with_uncertainty(
    model: Any, tokenizer: Any, text: str, scorers: Sequence[str] = ("perplexity",), **settings: Any
) -> UncertainTextStream:
    """
    [`generate_with_uncertainty`] for one source, token by token: the same tokens and numbers, as they come.

    Args:
        model, tokenizer, scorers, settings:
            As of [`generate_with_uncertainty`]. The text is decoded greedily: beams, sampled outputs and `mc_samples`
            are not supported.
        text (`str`):
            The source (or prompt).

    Returns:
        [`UncertainTextStream`]: an iterator over [`StreamedToken`], whose `output` is then the finished text.

    Example:

    ```python
    stream = stream_with_uncertainty(model, tokenizer, "the cat sleeps .", max_new_tokens=32)
    for token in stream:
        print(token.text, token.log_probability, token.entropy)
    print(stream.output.text, stream.output.uncertainty)
    ```
    """
    return UncertainTextStream(TextPredictor(model, tokenizer, scorers, **settings), text)
