"""The messages of a chat request."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, cast

from localspec.core.events import Message, MessageCall, Role
from localspec.errors import UsageError
from localspec.serve.http.errors import bad_request
from localspec.serve.http.fields import Fields

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_TEXTS = ("text", "input_text", "output_text")
UNREADABLE = "[something other than text, which this model cannot read]"
"""Stands for images and files in results of tools."""


def read_messages(fields: Fields, name: str = "messages") -> tuple[Message, ...]:
    """The messages; parts of text in one message are put together.

    Raises:
        ApiError: there are none, or one that this model cannot read.
    """
    given = fields.objects(name)
    if not given:
        raise fields.refuse(name, "must have at least one message")
    return named([_message(message) for message in given])


def named(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, results of calls with the name of the tool: some templates show it."""
    names = {call.id: call.name for message in messages for call in message.calls}
    return tuple(
        dataclasses.replace(m, name=names[m.call_id]) if m.call_id in names and not m.name else m
        for m in messages
    )


def _message(given: Fields) -> Message:
    role = given.choice("role", _ROLES)
    if role is None:
        raise given.refuse("role", "is missing")
    if role == "assistant":
        given.ignore("refusal", "audio", "annotations", "name")
        calls = tuple(_call(call) for call in given.objects("tool_calls") or ())
        function = given.object("function_call")  # OpenAI's older form
        if function is not None:
            calls = (*calls, _function_call(given, function, ""))
        # null is how OpenAI's own answers write a reply without text
        said = (
            "" if given.null("content") or (calls and not given.has("content")) else content(given)
        )
        thought = given.text("reasoning_content") or given.text("reasoning") or ""
        return Message("assistant", said, thought, calls)
    if role in {"tool", "function"}:  # the latter is the older form
        name, call_id = given.text("name") or "", given.text("tool_call_id") or ""
        if role == "function" and not name:
            raise given.refuse("name", "is missing")
        said = "" if given.null("content") else result(given)
        return Message("tool", said, call_id=call_id, name=name)
    given.ignore("name")
    return Message(cast("Role", role), content(given))


def _call(given: Fields) -> MessageCall:
    given.choice("type", ("function",))
    return _function_call(given, given.object("function"), given.text("id") or "")


def _function_call(given: Fields, function: Fields | None, call_id: str) -> MessageCall:
    name = function.text("name") if function is not None else None
    if function is None or not name:
        raise given.refuse("function", "must have a name")
    return message_call(function, call_id, name)


def message_call(given: Fields, call_id: str, name: str, field: str = "arguments") -> MessageCall:
    """An earlier call of a tool, with the arguments in ``field``: a JSON object, or one as text.

    Raises:
        ApiError: they are neither.
    """
    raw = given.raw(field)
    text = json.dumps(raw, ensure_ascii=False) if isinstance(raw, dict) else given.text(field)
    try:
        return MessageCall(call_id, name, text or "{}")
    except UsageError as error:
        raise bad_request(str(error), given.place(field)) from None


def content(given: Fields, name: str = "content") -> str:
    """The text of a message: a string, or an array of parts of text.

    Raises:
        ApiError: neither, or a part that is no text.
    """
    if isinstance(given.raw(name), str):
        return given.text(name) or ""
    parts = given.objects(name)
    if parts is None:
        raise given.refuse(name, "is missing")
    return "".join(part_text(part) for part in parts)


def result(given: Fields, name: str = "content") -> str:
    """The text of a tool's result, in which `UNREADABLE` stands for parts that are not text. Such
    parts are not refused: the user did not send them, and an agent's conversation would end.

    Raises:
        ApiError: it is neither a string nor an array of parts.
    """
    if isinstance(given.raw(name), str):
        return given.text(name) or ""
    parts = given.objects(name)
    if parts is None:
        raise given.refuse(name, "is missing")
    return "".join(part_text(p) if _is_text(p) else UNREADABLE for p in parts)


def _is_text(part: Fields) -> bool:
    kind = part.text("type")
    return kind == "refusal" or kind in _TEXTS


def part_text(part: Fields) -> str:
    """The text of one part of a message.

    Raises:
        ApiError: it is no text.
    """
    kind = part.text("type")
    if kind == "refusal":
        return part.text("refusal") or ""
    if kind not in _TEXTS:
        raise part.refuse("type", "must be text: this model reads no images, sound or files")
    return part.text("text") or ""


def template_arguments(fields: Fields) -> str | None:
    """Variables of the chat template: those of the request, and the effort of thinking in the names
    that templates have for it.
    """
    found: dict[str, Any] = {}
    effort = fields.text("reasoning_effort")
    if effort is not None:
        found = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    given = fields.object("chat_template_kwargs")
    if given is not None:
        found |= given.as_dict()
    return json.dumps(found) if found else None


__all__ = [
    "UNREADABLE",
    "content",
    "message_call",
    "named",
    "part_text",
    "read_messages",
    "result",
    "template_arguments",
]
