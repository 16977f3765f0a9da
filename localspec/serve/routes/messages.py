"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from localspec.core.events import Finished, Reading, Reply, ReplyEvent, Stats
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
from localspec.serve.http.bodies import JSONAnswer, while_connected
from localspec.serve.http.errors import KINDS, ApiError
from localspec.serve.http.sse import sse
from localspec.serve.replies.answer_fields import measurements, new_id, own
from localspec.serve.requests.anthropic import CountBody, MessagesBody
from localspec.serve.requests.generation import made
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.routes import answer_types, examples
from localspec.serve.routes.endpoint import Endpoints, Received
from localspec.serve.routes.replying import Asked, SingleAnswer, answered

PATH = "/v1/messages"
_PREFIX = "toolu_"
_TYPES: dict[int, str] = {
    **KINDS,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
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


endpoints = Endpoints()


@endpoints.post(
    PATH,
    answer=answer_types.MessageAnswer,
    stream=True,
    error=answer_types.AnthropicError,
    example=examples.MESSAGE,
)
async def message(received: Received[MessagesBody]) -> Response:
    """A message in Anthropic's shape."""
    return await answered(received, PATH, _read, MessageAnswer)


@endpoints.post(
    f"{PATH}/count_tokens",
    answer=answer_types.Count,
    error=answer_types.AnthropicError,
    example=examples.COUNT,
)
async def count(received: Received[CountBody]) -> Response:
    """The tokens that the prompt of a message has."""
    body = received.body
    asked = await received.apart(lambda: made(body.prompt_fields(body.offered())))
    work = received.service.tokenize(received.caller, body.model, asked, special=True, bos=True)
    found = await while_connected(received.http, work)
    return JSONAnswer({"input_tokens": len(found.tokens)})


class MessageAsked(Asked, frozen=True, kw_only=True):
    """A request, read."""

    tools: OfferedTools


def _read(received: Received[MessagesBody]) -> MessageAsked:
    body, prompt = received.body, received.part(CountBody)
    tools = prompt.offered()
    reply = body.reply(prompt, tools, received.service.settings)
    extras = body.wanted(received.given).of(reply.messages)
    return MessageAsked(replies=[reply], extras=extras, tools=tools)


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


class MessageAnswer(SingleAnswer[MessageAsked]):
    """The answer: one block after the other, each of thinking, text or a call."""

    shape = ANTHROPIC

    def __init__(self, answering: Answering, asked: MessageAsked) -> None:
        super().__init__(answering, asked)
        self._reader = ReplyReader(asked.tools.tools, prefix=_PREFIX)
        self._index = -1
        self._open = ""
        """Type of the block that is open."""
        self._begun = False

    def _whole_reply(self, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        content = _content(WholeReply.of(self._reader.parts(events)))
        return {
            **_message(self._model),
            "content": content,
            "usage": _usage(reply.stats),
            **self._stop(reply),
            **measurements(reply.stats),
            "localspec": own(events, reply, self._asked.extras),
        }

    def _stop(self, reply: Reply) -> dict[str, Any]:
        """Why a message ended."""
        (asked,), stats = self._asked.replies, reply.stats
        sequence = reply.stop_text if reply.stop_text in asked.stop else None
        if reply.finish_reason != "stop":
            most = asked.max_tokens
            full = reply.finish_reason == "length" and most is not None and stats.emitted < most
            reason = "model_context_window_exceeded" if full else "max_tokens"
        elif sequence is not None:
            reason = "stop_sequence"
        else:
            reason = "tool_use" if self._reader.called else "end_turn"
        return {"stop_reason": reason, "stop_sequence": sequence}

    def _reply_pieces(self, events: Sequence[ReplyEvent]) -> Iterator[bytes]:
        for event in self._events(events):
            yield sse(event, event["type"])

    def _events(self, events: Sequence[ReplyEvent]) -> Iterator[dict[str, Any]]:
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
            yield {"type": "message_start", "message": _message(self._model) | {"usage": usage}}
        for part in merged(self._reader.parts(events)):
            yield from self._part(part)
        if isinstance(last, Finished):
            reply = last.reply
            yield from self._close()
            yield {
                "type": "message_delta",
                "delta": self._stop(reply),
                "usage": _usage(reply.stats),
                **measurements(reply.stats),
                "localspec": own(self._told[0], reply, self._asked.extras),
            }
            yield {"type": "message_stop"}

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
