"""What `p_true` asks a model about its own output."""

from __future__ import annotations

import os
from typing import Any


QUESTION = (
    "Question: {source}\n Possible answer:{output}\n Is the possible answer:\n (A) True\n (B) False\n"
    " The possible answer is:"
)
#: The answer whose probability counts.
ANSWER = " True"


def truth_question(tokenizer: Any, prompt: list[int], output: str) -> tuple[list[int], list[int]]:
    """The question whether an output is a true answer to a prompt, and the answer that it is: the tokens of both."""
    text = QUESTION.format(source=tokenizer.decode(prompt, skip_special_tokens=True), output=output)
    asked, answered = (tokenizer(text + end)["input_ids"] for end in ("", ANSWER))
    start = len(
        os.path.commonprefix([asked, answered])
    )  # a tokenizer may join the answer with the end of the question
    return answered[:start], answered[start:]
