"""Requests in the shape of Anthropic's messages."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.core.events import Message
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.reply_request import ReplyRequest
from localspec.errors import UsageError
from localspec.serve.http.errors import bad_request
from localspec.serve.http.fields import Fields
from localspec.serve.http.settings import ServeSettings
from localspec.serve.requests.conversation import UNREADABLE, message_call, named
from localspec.serve.requests.request_fields import made, read_request
from localspec.serve.requests.tool_fields import OfferedTools, offered

_CHANGING = "x-anthropic-"
"""Begins blocks of the system prompt that differ with each request, such as Claude Code's
x-anthropic-billing-header: with one in front, no prompt would begin as the last one did."""
_LINES = re.compile(rf"(?:\s*+{_CHANGING}[^\n]*+(?:\n|\Z))++")
"""Such lines at the beginning of a text, read once from left to right."""
_WITHOUT_EFFECT = (
    *("cache_control", "container", "context_management", "diagnostics", "inference_geo"),
    *("mcp_servers", "speed", "user_profile_id", "workspace_id", "betas"),
)
_THINKING = ("enabled", "adaptive", "between_tools", "disabled")


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """A request, read."""

    model: str | None
    reply: ReplyRequest
    tools: OfferedTools
    stream: bool
    ignored: tuple[str, ...]
    """Fields without effect."""


def read_messages_request(fields: Fields, settings: ServeSettings) -> MessagesRequest:
    """A request for a message.

    Raises:
        ApiError: it is invalid.
    """
    limit = fields.whole("max_tokens", 1)
    if limit is None:
        raise fields.refuse("max_tokens", "is missing")
    request = read_request(fields, settings, max_tokens=limit)
    stop = fields.texts("stop_sequences")
    if not all(stop):
        raise fields.refuse("stop_sequences", "must not hold an empty text")
    request["stop"] = (*request["stop"], *stop)
    stream, model = fields.flag("stream") or False, fields.text("model")
    prompt, tools, ignored = read_prompt(fields, request["grammar"])
    return MessagesRequest(model, made(request | prompt), tools, stream, ignored)


def read_prompt(
    fields: Fields, grammar: GrammarSpec | None = None
) -> tuple[dict[str, Any], OfferedTools, tuple[str, ...]]:
    """The parts of a message's prompt, as fields of `ReplyRequest`; the tools among them; and
    names of fields without effect.

    Raises:
        ApiError: it is invalid.
    """
    fields.ignore(*_WITHOUT_EFFECT)
    ignored: list[str] = []
    tools = _tools(fields, ignored)
    output = fields.object("output_config")
    if output is not None:
        grammar = _format(output) or grammar
    messages = (*_system(fields), *_messages(fields))
    found = tools.fields(grammar) | {
        "messages": named(messages),
        "template_arguments": json.dumps(_thinking(fields, output)),
        "markers": True,
        "drop_oldest": False,
    }
    return found, tools, (*ignored, *fields.unread())


def _format(output: Fields) -> GrammarSpec | None:
    given = output.object("format")
    if given is None:
        return None
    given.choice("type", ("json_schema",))
    try:
        return GrammarSpec.schema(given.raw("schema"))
    except UsageError as error:
        raise bad_request(str(error), given.place("schema")) from None


def _thinking(fields: Fields, output: Fields | None) -> dict[str, Any]:
    """Variables of the chat template: the model thinks where the request says so, as Anthropic's
    do.
    """
    given = fields.object("thinking")
    kind = given.choice("type", _THINKING) if given is not None else None
    found: dict[str, Any] = {"enable_thinking": kind not in {None, "disabled"}}
    effort = output.text("effort") if output is not None else None
    return found | ({"reasoning_effort": effort} if effort is not None else {})


# -- messages --------------------------------------------------------------------------------------


def _system(fields: Fields) -> list[Message]:
    if isinstance(fields.raw("system"), str):
        texts = [fields.text("system") or ""]
    else:
        texts = [_text(block) for block in fields.objects("system") or ()]
    kept = [steady for text in texts if (steady := _steady(text))]
    return [Message("system", "\n\n".join(kept))] if kept else []


def _steady(text: str) -> str:
    """A block of the system prompt without the lines at its beginning that change."""
    lines = _LINES.match(text)
    return text[lines.end() :] if lines is not None else text


def _messages(fields: Fields) -> list[Message]:
    given = fields.objects("messages")
    if not given:
        raise fields.refuse("messages", "must have at least one message")
    found: list[Message] = []
    for message in given:
        role = message.choice("role", ("user", "assistant", "system"))
        if role is None:
            raise message.refuse("role", "is missing")
        if role == "assistant":
            said = [_assistant(message)]
        elif role == "system":
            said = [Message("system", "\n\n".join(_texts(message)))]
        else:
            said = _user(message)
        found += said
    # Turns of one side that follow each other are one turn.
    turns = itertools.groupby(enumerate(found), _side)
    return [_as_one([one for _, one in turn]) for _, turn in turns]


def _side(numbered: tuple[int, Message]) -> str | int:
    """What messages of one turn have in common; others have nothing in common."""
    number, one = numbered
    return one.role if one.role in {"user", "assistant"} else number


def _as_one(turn: Sequence[Message]) -> Message:
    if len(turn) == 1:
        return turn[0]
    return dataclasses.replace(
        turn[0],
        content="\n".join(filter(None, (one.content for one in turn))),
        reasoning="\n".join(filter(None, (one.reasoning for one in turn))),
        calls=tuple(call for one in turn for call in one.calls),
    )


def _blocks(given: Fields, name: str = "content") -> list[Fields]:
    """The blocks of a content; a text is one."""
    if isinstance(given.raw(name), str):
        return [Fields({"type": "text", "text": given.raw(name)}, given.place(name))]
    blocks = given.objects(name)
    if blocks is None:
        raise given.refuse(name, "is missing")
    return blocks


def _texts(given: Fields) -> list[str]:
    return [_text(block) for block in _blocks(given)]


def _text(block: Fields) -> str:
    """The text of a block.

    Raises:
        ApiError: it is no text.
    """
    found = _read(block)
    if found is not None:
        return found
    raise block.refuse("type", "must be text: this model reads no images, PDFs or files")


def _read(block: Fields) -> str | None:
    """The text of a block; None if it is not text."""
    kind = block.text("type")
    if kind == "text":
        return block.text("text") or ""
    source = block.object("source") if kind == "document" else None
    if source is not None and source.text("type") == "text":
        return source.text("data") or ""
    return None


def _user(given: Fields) -> list[Message]:
    found: list[Message] = []
    texts: list[str] = []
    for block in _blocks(given):
        if block.text("type") != "tool_result":
            texts.append(_text(block))
            continue
        if texts:
            found.append(Message("user", "\n".join(texts)))
            texts = []
        found.append(_result(block))
    if texts or not found:
        found.append(Message("user", "\n".join(texts)))
    return found


def _result(block: Fields) -> Message:
    """A result, in which `UNREADABLE` stands for images and files, see
    `localspec.serve.requests.conversation.result`.
    """
    blocks = _blocks(block) if block.has("content") else []
    said = [_read(part) for part in blocks]
    text = "\n".join(UNREADABLE if one is None else one for one in said)
    if block.flag("is_error"):
        text = f"Error: {text}"
    return Message("tool", text, call_id=block.text("tool_use_id") or "")


def _assistant(given: Fields) -> Message:
    texts, thoughts, calls = [], [], []
    for block in _blocks(given):
        match block.text("type"):
            case "thinking":
                thoughts.append(block.text("thinking") or "")
            case "redacted_thinking":
                pass
            case "tool_use":
                name = block.text("name")
                if not name:
                    raise block.refuse("name", "is missing")
                calls.append(message_call(block, block.text("id") or "", name, "input"))
            case _:
                texts.append(_text(block))
    return Message("assistant", "\n".join(texts), "\n".join(thoughts), tuple(calls))


# -- tools -----------------------------------------------------------------------------------------


def _tools(fields: Fields, ignored: list[str]) -> OfferedTools:
    given = []
    for tool in fields.objects("tools") or ():
        kind = tool.text("type")
        if kind not in {None, "custom"}:
            ignored.append(f"tools: {kind}")  # run by Anthropic's servers: the model is not told
            continue
        schema = tool.object("input_schema")
        if schema is None:
            raise tool.refuse("input_schema", "is missing")
        function = {"name": tool.raw("name"), "description": tool.text("description") or ""}
        strict = {"strict": True} if tool.flag("strict") else {}
        function |= {"parameters": schema.as_dict(), **strict}
        given.append({"type": "function", "function": function})
    choice = fields.object("tool_choice")
    kind = choice.choice("type", ("auto", "any", "tool", "none")) if choice is not None else None
    wanted = {None: "auto", "any": "required"}.get(kind, kind) or "auto"
    several = True
    if choice is not None:
        several = not choice.flag("disable_parallel_tool_use")
        if kind == "tool":
            wanted = choice.text("name") or ""
            if wanted in {"", "none", "auto", "required"}:
                raise choice.refuse("name", "must be the name of a tool")
    return offered(given, wanted, several=several)


__all__ = ["MessagesRequest", "read_messages_request", "read_prompt"]
