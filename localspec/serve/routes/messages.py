"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's shape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Any

from msgspec import Struct
from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec.core.events import Finished, Reading, Reply, ReplyEvent, Stats
from localspec.core.reply_request import ReplyRequest
from localspec.grammar.reply_parts import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Part,
    Reasoning,
    WholeReply,
    merged,
)
from localspec.grammar.reply_reader import ReplyReader
from localspec.serve.backend.answering import Answering
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, StreamedAnswer, elsewhere, while_connected
from localspec.serve.http.body_budget import caller_of
from localspec.serve.http.errors import ApiError
from localspec.serve.http.sse import sse
from localspec.serve.replies.answer_fields import answer_size, measurements, new_id, own
from localspec.serve.replies.deltas import rounds
from localspec.serve.requests.anthropic import CountBody, MessagesBody
from localspec.serve.requests.generation import Extras, made
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.routes import examples
from localspec.serve.routes.answers import AnthropicError, Count, MessageAnswer
from localspec.serve.routes.endpoint import Received, post

PATH = "/v1/messages"
_PREFIX = "toolu_"
_TYPES: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "invalid_request_error",
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.METHOD_NOT_ALLOWED: "invalid_request_error",
    HTTPStatus.REQUEST_TIMEOUT: "invalid_request_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "invalid_request_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
}


class AnthropicShape:
    """``{"type": "error", "error": {"type", "message"}}``."""

    def body(self, error: ApiError) -> dict[str, Any]:
        """The JSON of an answer that is an error."""
        kind = _TYPES.get(error.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": error.message}}

    def event(self, error: ApiError) -> bytes:
        """The end of a stream that fails after it has begun."""
        return sse(self.body(error), "error")


ANTHROPIC = AnthropicShape()


def routes(service: Service) -> list[BaseRoute]:
    """The endpoints."""
    messages = Messages(service)
    return [
        *post(
            service,
            PATH,
            messages.answer,
            "A message in Anthropic's shape",
            body=MessagesBody,
            answer=MessageAnswer,
            stream=True,
            error=AnthropicError,
            example=examples.MESSAGE,
        ),
        *post(
            service,
            f"{PATH}/count_tokens",
            messages.count,
            "The tokens that the prompt of a message has",
            body=CountBody,
            answer=Count,
            error=AnthropicError,
            example=examples.COUNT,
        ),
    ]


class MessagesRequest(Struct, frozen=True):
    """A request, read."""

    reply: ReplyRequest
    tools: OfferedTools
    ignored: list[str]
    """What the log says of tools without effect."""
    extras: Extras


class Messages:
    """The endpoints."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, received: Received[MessagesBody]) -> Response:
        """Answer one request."""
        service, request, body = self._service, received.http, received.body
        asked = await received.apart(lambda: self._read(received))
        service.tell_unknown(PATH, asked.ignored)
        answering = await service.answer(
            caller_of(request.scope),
            PATH,
            body.model,
            [asked.reply],
            strict=asked.extras.strict,
        )
        if body.stream:
            stream = MessageStream(answering, asked)
            return StreamedAnswer(stream.parts(), service.settings.limits, shape=ANTHROPIC)
        return await while_connected(request, self._whole(answering, asked))

    async def count(self, received: Received[CountBody]) -> Response:
        """Count the tokens that a request's prompt would have."""
        body, caller = received.body, caller_of(received.http.scope)
        asked = await received.apart(lambda: made(body.prompt_fields(body.offered())))
        work = self._service.tokenize(caller, body.model, asked, special=True, bos=True)
        found = await while_connected(received.http, work)
        return JSONAnswer({"input_tokens": len(found.tokens)})

    def _read(self, received: Received[MessagesBody]) -> MessagesRequest:
        prompt = received.part(CountBody)
        tools = prompt.offered()
        reply = received.body.reply(prompt, tools, self._service.settings)
        extras = received.body.wanted(received.given)
        return MessagesRequest(reply, tools, prompt.other_tools, extras)

    async def _whole(self, answering: Answering, asked: MessagesRequest) -> Response:
        """The answer in one piece."""
        async with answering:
            found = await answering.replies()
        ((events, reply),), model = found, answering.record.model
        return await elsewhere(
            answer_size(found), lambda: JSONAnswer(self._answer(model, asked, events, reply))
        )

    def _answer(
        self, model: str, asked: MessagesRequest, events: Sequence[ReplyEvent], reply: Reply
    ) -> dict[str, Any]:
        reader = ReplyReader(asked.tools.tools, prefix=_PREFIX)
        found = WholeReply.of(reader.parts(events))
        return {
            **_message(model),
            "content": _content(found),
            "usage": _usage(reply.stats),
            **_stop(reply, asked, called=reader.called),
            **measurements(reply.stats),
            "localspec": own(events, reply, asked.extras),
        }


def _message(model: str) -> dict[str, Any]:
    """A message in which nothing is said yet."""
    return {
        "id": new_id("msg", "_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _content(found: WholeReply) -> list[dict[str, Any]]:
    """The blocks of a reply; a call that was cut has no input, and is left out."""
    blocks: list[dict[str, Any]] = []
    if found.reasoning:
        blocks.append({"type": "thinking", "thinking": found.reasoning, "signature": ""})
    if found.content:
        blocks.append({"type": "text", "text": found.content})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.value()}
        for call in found.calls
        if call.complete
    ]
    return blocks


def _usage(stats: Stats) -> dict[str, Any]:
    return {
        "input_tokens": stats.prompt_tokens - stats.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": stats.cached_tokens,
        "output_tokens": stats.emitted,
    }


def _stop(reply: Reply, asked: MessagesRequest, *, called: bool) -> dict[str, Any]:
    """Why a message ended."""
    sequence = reply.stop_text if reply.stop_text in asked.reply.stop else None
    if reply.finish_reason != "stop":
        most = asked.reply.max_tokens
        full = reply.finish_reason == "length" and most is not None and reply.stats.emitted < most
        reason = "model_context_window_exceeded" if full else "max_tokens"
    elif sequence is not None:
        reason = "stop_sequence"
    else:
        reason = "tool_use" if called else "end_turn"
    return {"stop_reason": reason, "stop_sequence": sequence}


class MessageStream:
    """The answer as it comes: one block after the other, each of thinking, text or a call."""

    def __init__(self, answering: Answering, asked: MessagesRequest) -> None:
        self._answering = answering
        self._asked = asked
        self._reader = ReplyReader(asked.tools.tools, prefix=_PREFIX)
        self._index = -1
        self._open = ""
        """Type of the block that is open."""
        self._begun = False
        self._seen: list[ReplyEvent] = []

    async def parts(self) -> AsyncIterator[bytes]:
        """The bytes of the stream; each item has all events that are there."""
        async with self._answering as answering:
            async for _, events in answering:
                yield b"".join(
                    sse(event, event["type"])
                    for part in rounds(events)
                    for event in self._events(part, answering.record.model)
                )

    def _events(self, events: Sequence[ReplyEvent], model: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        reading = next((event for event in events if isinstance(event, Reading)), None)
        last = events[-1]
        if not self._begun and (reading is not None or isinstance(last, Finished)):
            self._begun = True
            cached, total = (reading.cached, reading.total) if reading is not None else (0, 0)
            usage = {
                "input_tokens": total - cached,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": cached,
                "output_tokens": 0,
            }
            found.append({"type": "message_start", "message": _message(model) | {"usage": usage}})
        self._seen += events
        for part in merged(self._reader.parts(events)):
            found += self._part(part)
        if isinstance(last, Finished):
            found += [*self._close(), *self._end(self._seen, last.reply)]
        return found

    def _part(self, part: Part) -> list[dict[str, Any]]:
        match part:
            case Reasoning(text):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                delta = {"type": "thinking_delta", "thinking": text}
            case Content(text):
                block = {"type": "text", "text": ""}
                delta = {"type": "text_delta", "text": text}
            case CallBegin(_, id_of_call, name):
                use = {"type": "tool_use", "id": id_of_call, "name": name, "input": {}}
                return [*self._close(), self._start(use)]
            case CallArguments(_, text):
                delta = {"type": "input_json_delta", "partial_json": text}
                return [self._delta(delta)]
            case CallEnd():
                return self._close()
        begin = [] if self._open == block["type"] else [*self._close(), self._start(block)]
        return [*begin, self._delta(delta)]

    def _start(self, block: dict[str, Any]) -> dict[str, Any]:
        self._index += 1
        self._open = block["type"]
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _close(self) -> list[dict[str, Any]]:
        if not self._open:
            return []
        self._open = ""
        return [{"type": "content_block_stop", "index": self._index}]

    def _end(self, events: Sequence[ReplyEvent], reply: Reply) -> list[dict[str, Any]]:
        stop = {
            "type": "message_delta",
            "delta": _stop(reply, self._asked, called=self._reader.called),
            "usage": _usage(reply.stats),
            **measurements(reply.stats),
            "localspec": own(events, reply, self._asked.extras),
        }
        return [stop, {"type": "message_stop"}]
