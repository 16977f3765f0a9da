"""The messages of a chat request."""

from __future__ import annotations

from typing import Literal, cast

from localspec.core.events import Message
from localspec.serve.fields import Fields

_ROLES = ("system", "developer", "user", "assistant")


def read_messages(fields: Fields, name: str = "messages") -> tuple[Message, ...]:
    """The messages; parts of text in one message are put together.

    Raises:
        ApiError: there are none, or one that this model cannot read.
    """
    given = fields.objects(name)
    if not given:
        raise fields.refuse(name, "must have at least one message")
    return tuple(_message(message) for message in given)


def _message(given: Fields) -> Message:
    role = given.choice("role", _ROLES)
    if role is None:
        raise given.refuse("role", "is missing")
    role = "system" if role == "developer" else role
    return Message(cast("Literal['system', 'user', 'assistant']", role), content(given))


def content(given: Fields, name: str = "content") -> str:
    """The text of a message: a string, or an array of parts of type text.

    Raises:
        ApiError: neither, or a part that is no text.
    """
    if isinstance(given.raw(name), str):
        return given.text(name) or ""
    parts = given.objects(name)
    if parts is None:
        raise given.refuse(name, "is missing")
    texts = []
    for part in parts:
        kind = part.text("type")
        if kind not in {"text", "input_text", "output_text"}:
            raise part.refuse("type", "must be text: this model reads nothing else")
        texts.append(part.text("text") or "")
    return "".join(texts)


__all__ = ["content", "read_messages"]
