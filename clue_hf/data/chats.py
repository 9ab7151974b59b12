"""Chats: lists of messages, each with a `role` and a `content`."""

from __future__ import annotations

from typing import Any


#: Columns of chats, looked for in this order.
KNOWN_CHATS = ("messages", "conversations")
#: Roles as chats of `from` and `value` call them, and as chat templates do.
ROLES = {"human": "user", "gpt": "assistant"}


def is_chat(value: Any) -> bool:
    """Whether a value is a list of messages."""
    return isinstance(value, list) and bool(value) and all(isinstance(message, dict) for message in value)


def as_messages(chat: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A chat with `role` and `content`, also where its messages say `from` and `value`."""
    return [_as_message(message) for message in chat]


def _as_message(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("from") is None:
        return message
    others = {name: value for name, value in message.items() if name not in ("from", "value", "role", "content")}
    return {"role": ROLES.get(message["from"], message["from"]), "content": message.get("value"), **others}


def chat_problem(chat: Any, needs_answer: bool = True) -> str | None:
    """What is wrong with a chat, where anything is; nothing is learned from one without a turn of the assistant."""
    if not is_chat(chat):
        return "no chat (a list of messages)"
    roles = [message.get("role") for message in as_messages(chat)]
    if None in roles:
        return f"a chat whose message {roles.index(None)} (counted from 0) has no role"
    return "a chat without an assistant turn" if needs_answer and "assistant" not in roles else None
