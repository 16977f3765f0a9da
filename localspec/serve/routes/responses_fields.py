"""Requests in the shape of OpenAI's responses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from localspec.core.events import Message, Role
from localspec.core.grammar_spec import GrammarSpec
from localspec.core.logprobs import MOST_ALTERNATIVES
from localspec.core.reply_request import ReplyRequest
from localspec.errors import UsageError
from localspec.serve.http.errors import ApiError, bad_request
from localspec.serve.http.fields import Fields
from localspec.serve.http.settings import ServeSettings
from localspec.serve.requests.conversation import content, message_call, named, result
from localspec.serve.requests.request_fields import made, read_request
from localspec.serve.requests.tool_fields import OfferedTools, offered

_LOGPROBS = "message.output_text.logprobs"
_STORED = {
    "previous_response_id": "names an earlier response",
    "conversation": "names a stored conversation",
    "prompt": "names a stored prompt",
}
_WITHOUT_EFFECT = (
    *("stream_options", "max_tool_calls", "moderation", "context_management", "image"),
    *("prompt_cache_options", "background_options", "access_programs", "client_metadata"),
)
_ECHOED = ("instructions", "metadata", "temperature", "top_p", "user", "prompt_cache_key")
_ROLES = ("user", "assistant", "system", "developer")


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A request, read."""

    model: str | None
    reply: ReplyRequest
    tools: OfferedTools
    stream: bool
    logprobs: bool
    echo: dict[str, Any]
    """Fields of the response that repeat the request."""
    ignored: tuple[str, ...]
    """Fields without effect."""


def read_responses_request(fields: Fields, settings: ServeSettings) -> ResponsesRequest:
    """A request for a response.

    Raises:
        ApiError: it is invalid, or refers to something stored.
    """
    for name, what in _STORED.items():
        if fields.has(name):
            raise fields.refuse(
                name, f"{what}, and nothing is stored here: send the whole conversation in input"
            )
    if fields.flag("background"):
        raise fields.refuse("background", "is not possible: nothing is stored here")
    fields.ignore(*_WITHOUT_EFFECT, "max_tokens")
    limit = fields.whole("max_output_tokens", 1)
    request = read_request(fields, settings, max_tokens=limit)
    ignored: list[str] = []
    given = _tools(fields, ignored)
    parallel = fields.flag("parallel_tool_calls") is not False
    tools = offered(given, _choice(fields), several=parallel)
    logprobs = _wants_logprobs(fields)
    truncation = fields.choice("truncation", ("auto", "disabled")) or "disabled"
    thinking = _thinking(fields)
    stream = fields.flag("stream") or False
    request |= tools.fields(_format(fields) or request["grammar"]) | {
        "messages": _messages(fields),
        "template_arguments": json.dumps(thinking) if thinking else None,
        "markers": True,
        "drop_oldest": truncation == "auto",
        "logprobs": fields.whole("top_logprobs", 0, MOST_ALTERNATIVES) or 0 if logprobs else None,
    }
    fields.ignore("top_logprobs", *_ECHOED)
    model = fields.text("model")
    return ResponsesRequest(
        model=model,
        reply=made(request),
        tools=tools,
        stream=stream,
        logprobs=logprobs,
        echo=_echo(fields, limit, truncation, parallel=parallel),
        ignored=(*ignored, *fields.unread()),
    )


def _echo(fields: Fields, limit: int | None, truncation: str, *, parallel: bool) -> dict[str, Any]:
    instructions = fields.text("instructions")
    metadata = fields.object("metadata")
    reasoning = fields.object("reasoning")
    return {
        "instructions": instructions,
        "max_output_tokens": limit,
        "metadata": metadata.as_dict() if metadata is not None else {},
        "parallel_tool_calls": parallel,
        "previous_response_id": None,
        "reasoning": {
            "effort": reasoning.text("effort") if reasoning is not None else None,
            "summary": None,
        },
        "store": False,
        "temperature": fields.number("temperature"),
        "text": {"format": _echoed_format(fields)},
        "tool_choice": fields.raw("tool_choice") or "auto",
        "tools": _echoed_tools(fields),
        "top_p": fields.number("top_p"),
        "truncation": truncation,
        "user": fields.text("user"),
    }


def _echoed_format(fields: Fields) -> dict[str, Any]:
    text = fields.object("text")
    given = text.object("format") if text is not None else None
    return given.as_dict() if given is not None else {"type": "text"}


def _echoed_tools(fields: Fields) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "name": tool.raw("name"),
            "description": tool.raw("description"),
            "parameters": tool.raw("parameters"),
            "strict": tool.raw("strict") or False,
        }
        for tool in fields.objects("tools") or ()
        if tool.raw("type") == "function"
    ]


def _wants_logprobs(fields: Fields) -> bool:
    return _LOGPROBS in fields.texts("include") or bool(fields.whole("top_logprobs", 0))


def _thinking(fields: Fields) -> dict[str, Any]:
    """Variables of the chat template."""
    given = fields.object("reasoning")
    effort = given.text("effort") if given is not None else None
    found: dict[str, Any] = {}
    if effort is not None:
        found = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    arguments = fields.object("chat_template_kwargs")
    return found | (arguments.as_dict() if arguments is not None else {})


def _format(fields: Fields) -> GrammarSpec | None:
    text = fields.object("text")
    given = text.object("format") if text is not None else None
    if given is None:
        return None
    kind = given.choice("type", ("text", "json_object", "json_schema"))
    if kind is None:
        raise given.refuse("type", "is missing")
    given.text("name")
    try:
        if kind == "json_object":
            return GrammarSpec.json_object()
        if kind == "json_schema":
            if not given.has("schema"):
                raise given.refuse("schema", "is missing")
            return GrammarSpec.schema(given.raw("schema"))
    except UsageError as error:
        raise bad_request(f"text.format: {error}", given.place("schema")) from None
    return None


# -- input -----------------------------------------------------------------------------------------


def _messages(fields: Fields) -> tuple[Message, ...]:
    found: list[Message] = []
    instructions = fields.text("instructions")
    if instructions:
        found.append(Message("system", instructions))
    if isinstance(fields.raw("input"), str):
        found.append(Message("user", fields.text("input") or ""))
        return tuple(found)
    items = fields.objects("input")
    if not items:
        raise fields.refuse("input", "must be a text or hold at least one item")
    return named([*found, *_turns(map(_message, items))])


def _turns(messages: Iterable[Message]) -> Iterator[Message]:
    """The turns of the conversation; one of the assistant may be several items: thinking, a
    message and calls.
    """
    turn: list[Message] = []
    said = False
    for one in messages:
        joins = turn and turn[-1].role == one.role == "assistant" and not (said and one.content)
        if turn and not joins:
            yield _as_one(turn)
            turn, said = [], False
        turn.append(one)
        said = said or bool(one.content)
    if turn:
        yield _as_one(turn)


def _as_one(turn: Sequence[Message]) -> Message:
    if len(turn) == 1:
        return turn[0]
    return Message(
        "assistant",
        "".join(one.content for one in turn),
        "".join(one.reasoning for one in turn),
        tuple(call for one in turn for call in one.calls),
    )


def _message(item: Fields) -> Message:
    """One item."""
    match item.text("type"):
        case "message" | None:
            role = item.choice("role", _ROLES)
            if role is None:
                raise item.refuse("role", "is missing")
            return Message(cast("Role", role), content(item))
        case "function_call":
            name = item.text("name")
            if not name:
                raise item.refuse("name", "is missing")
            call = message_call(item, item.text("call_id") or "", name)
            return Message("assistant", "", calls=(call,))
        case "reasoning":
            return Message("assistant", "", _thought(item))
        case "function_call_output":
            output = result(item, "output")
            return Message("tool", output, call_id=item.text("call_id") or "")
        case _:
            raise item.refuse("type", "is not an item that this server reads")


def _thought(item: Fields) -> str:
    parts = [*(item.objects("content") or ()), *(item.objects("summary") or ())]
    return "\n".join(part.text("text") or "" for part in parts)


# -- tools -----------------------------------------------------------------------------------------


def _tools(fields: Fields, ignored: list[str]) -> list[dict[str, Any]]:
    found = []
    for tool in fields.objects("tools") or ():
        kind = tool.text("type")
        if kind is None:
            raise tool.refuse("type", "is missing")
        if kind != "function":
            ignored.append(f"tools: {kind}")  # run by OpenAI's servers: the model is not told
            continue
        parameters = tool.object("parameters")
        function: dict[str, Any] = {
            "name": tool.text("name"),
            "description": tool.text("description") or "",
            "parameters": parameters.as_dict() if parameters is not None else {},
        }
        if tool.flag("strict"):
            function["strict"] = True
        found.append({"type": "function", "function": function})
    return found


def _choice(fields: Fields) -> str:
    value = fields.raw("tool_choice")
    if value is None or isinstance(value, str):
        return fields.choice("tool_choice", ("none", "auto", "required")) or "auto"
    given = fields.object("tool_choice")
    if given is None or given.text("type") != "function":
        raise _not_a_choice(fields)
    name = given.text("name")
    if name in {None, "", "none", "auto", "required"}:
        raise given.refuse("name", "must be the name of a tool")
    return name or ""


def _not_a_choice(fields: Fields) -> ApiError:
    return fields.refuse(
        "tool_choice", 'must be none, auto, required or {"type": "function", "name": ...}'
    )


__all__ = ["ResponsesRequest", "read_responses_request"]
