"""Chats as tokens: rendered by the tokenizer's template; the labels are the turns that are learned."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from transformers.utils import logging

from ..data.chats import as_messages, chat_problem
from ..errors import UserError


logger = logging.get_logger(__name__)

IGNORED = -100
#: What surrounds the assistant's turns in a template that marks them.
MARKS = re.compile(r"\{%-?\s*generation\s*-?%\}")
#: Columns that say how the chat of a row is rendered.
TOOLS, OPTIONS = "tools", "chat_template_kwargs"


@dataclass(frozen=True)
class Chat:
    """
    A chat to learn from.

    Args:
        messages (`list[dict]`):
            With `role` and `content`.
        start (`int`):
            The first message that may be learned: the number of those in the prompt.
        options (`dict[str, Any]`):
            What the template is rendered with: `tools`, and what the row's `chat_template_kwargs` say.
        row (`int`):
            The row's number, for messages.
    """

    messages: list[dict[str, Any]]
    start: int
    options: dict[str, Any]
    row: int

    def render(self, tokenizer: Any, stop: int | None = None, **options: Any) -> str:
        """The text of the messages before `stop`."""
        return tokenizer.apply_chat_template(self.messages[:stop], tokenize=False, **self.options, **options)

    def tokens(self, tokenizer: Any, stop: int | None = None, **options: Any) -> dict[str, list[int]]:
        """The tokens of the messages before `stop`."""
        return tokenizer.apply_chat_template(
            self.messages[:stop], tokenize=True, return_dict=True, **self.options, **options
        )


def make_chats(
    rows: dict[str, list[Any]], whole: list[Any], starts: list[int], indices: list[int], needs_answer: bool
) -> list[Chat]:
    """The chats of a batch of rows; raises with the number of one that cannot be learned from."""
    chats = []
    for place, (chat, start, row) in enumerate(zip(whole, starts, indices, strict=True)):
        if problem := chat_problem(chat, needs_answer=False) or chat_problem(chat[start:], needs_answer):
            hint = "Leave such rows out" if needs_answer else "Fix the data"
            every = ", or set assistant_only_loss=False to learn every token" if needs_answer else ""
            raise UserError(f"Row {row} (counted from 0) has {problem}. {hint}{every}.")
        chats.append(Chat(as_messages(chat), start, _options(rows, place), row))
    return chats


def _options(rows: dict[str, list[Any]], place: int) -> dict[str, Any]:
    """What the columns `tools` and `chat_template_kwargs` say of a row; `None` is what a row does not say."""
    options = (rows[OPTIONS][place] if OPTIONS in rows else None) or {}
    tools = rows[TOOLS][place] if TOOLS in rows else None
    tools = json.loads(tools) if isinstance(tools, str) else tools
    return {name: value for name, value in {**options, "tools": tools}.items() if value is not None}


def encode_chats(chats: list[Chat], tokenizer: Any, assistant_only: bool) -> tuple[list[list[int]], list[list[int]]]:
    """
    Tokens and labels of each chat. What is learned are the messages from `start` on: the assistant's turns, found by
    the marks of the template or by rendering the chat up to each of them, or all tokens.
    """
    if tokenizer.chat_template is None:
        raise UserError(
            "The data holds chat messages, but the tokenizer has no chat template: set chat_template_path."
        )
    by_pieces = assistant_only and not MARKS.search(tokenizer.get_chat_template())
    encode = _encode_pieces if by_pieces else _encode_whole
    encoded = [encode(chat, tokenizer, assistant_only) for chat in chats]
    return [ids for ids, _ in encoded], [labels for _, labels in encoded]


def _encode_whole(chat: Chat, tokenizer: Any, assistant_only: bool) -> tuple[list[int], list[int]]:
    """The rendered chat tokenised in one piece."""
    marked = {"return_assistant_tokens_mask": True} if assistant_only else {}
    encoded = chat.tokens(tokenizer, **marked)
    ids = encoded["input_ids"]
    learned = list(encoded["assistant_masks"]) if assistant_only else [1] * len(ids)
    if chat.start:
        prompt = chat.tokens(tokenizer, chat.start, add_generation_prompt=True)["input_ids"]
        unequal = (place for place, (one, other) in enumerate(zip(prompt, ids, strict=False)) if one != other)
        shared = next(unequal, min(len(prompt), len(ids)))
        if shared < len(prompt):
            logger.warning_once(
                "The chat template ends a prompt differently once an answer follows: what is learned begins where the "
                f"two part, and this end of the prompt is not seen in training: {tokenizer.decode(prompt[shared:])!r}"
            )
        learned[:shared] = [0] * shared
    if not any(learned):
        raise UserError(
            f"Row {chat.row} (counted from 0): the chat template marks no token of the assistant's turns. Put "
            "{% generation %} and {% endgeneration %} around them, or set assistant_only_loss=False."
        )
    return ids, [token if chosen else IGNORED for token, chosen in zip(ids, learned, strict=True)]


def _encode_pieces(chat: Chat, tokenizer: Any, assistant_only: bool) -> tuple[list[int], list[int]]:
    ids: list[int] = []
    labels: list[int] = []
    for text, is_target in _pieces(chat, tokenizer):
        tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        ids += tokens
        labels += tokens if is_target else [IGNORED] * len(tokens)
    return ids, labels


def _pieces(chat: Chat, tokenizer: Any) -> list[tuple[str, bool]]:
    """
    The rendered chat cut into texts that are learned and texts that are not. Each piece is tokenised on its own: a
    token never spans the border, just as in generation, where the prompt is tokenised before the answer exists.
    """
    whole, position, pieces = chat.render(tokenizer), 0, []
    for turn in range(chat.start, len(chat.messages)):
        if chat.messages[turn]["role"] != "assistant":
            continue
        prompt = chat.render(tokenizer, turn, add_generation_prompt=True)
        answered = chat.render(tokenizer, turn + 1)
        if not (whole.startswith(answered) and answered.startswith(prompt) and position <= len(prompt)):
            raise UserError(
                f"Row {chat.row}: the chat template renders a conversation differently once it goes on, so the "
                "assistant's turns cannot be located. Mark them with {% generation %} in the template, or use prompt "
                "and completion columns."
            )
        pieces += [(whole[position : len(prompt)], False), (whole[len(prompt) : len(answered)], True)]
        position = len(answered)
    return [*pieces, (whole[position:], False)]
