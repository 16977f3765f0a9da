"""``POST /v1/responses``: OpenAI's newer shape, without a memory of earlier responses."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import Any

from msgspec import Struct
from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec.core.events import Finished, Reading, Reply, ReplyEvent, Stats
from localspec.core.reply_request import ReplyRequest
from localspec.grammar.reply_reader import ReplyReader
from localspec.serve.backend.answering import Answering
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, StreamedAnswer, elsewhere, while_connected
from localspec.serve.http.body_budget import caller_of
from localspec.serve.http.errors import ApiError, OpenAIShape
from localspec.serve.http.sse import sse
from localspec.serve.replies.answer_fields import answer_size, measurements, new_id, own
from localspec.serve.replies.deltas import rounds
from localspec.serve.requests.generation import Extras
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.requests.responses import ResponsesBody
from localspec.serve.routes import examples
from localspec.serve.routes.answers import ResponseAnswer
from localspec.serve.routes.endpoint import Received, post
from localspec.serve.routes.response_items import ResponseItems

PATH = "/v1/responses"
PATHS = (PATH, "/responses")
SHAPE = OpenAIShape("input")
"""The shape of errors."""


def routes(service: Service) -> list[BaseRoute]:
    """Both paths that clients use."""
    return post(
        service,
        PATHS,
        Responses(service).answer,
        "A response in OpenAI's newer shape; nothing is stored",
        body=ResponsesBody,
        answer=ResponseAnswer,
        stream=True,
        example=examples.RESPONSE,
    )


class ResponsesRequest(Struct, frozen=True):
    """A request, read."""

    reply: ReplyRequest
    tools: OfferedTools
    logprobs: bool
    echo: dict[str, Any]
    """Fields of the response that repeat the request."""
    extras: Extras


class Responses:
    """The endpoint."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, received: Received[ResponsesBody]) -> Response:
        """Answer one request."""
        service, request, body = self._service, received.http, received.body
        asked = await received.apart(lambda: self._read(received))
        answering = await service.answer(
            caller_of(request.scope),
            PATH,
            body.model,
            [asked.reply],
            strict=asked.extras.strict,
        )
        if body.stream:
            stream = ResponseStream(answering, asked)
            return StreamedAnswer(stream.parts(), service.settings.limits, shape=SHAPE)
        return await while_connected(request, self._whole(answering, asked))

    def _read(self, received: Received[ResponsesBody]) -> ResponsesRequest:
        body = received.body
        tools = body.offered()
        reply = body.reply(tools, self._service.settings)
        echo, extras = body.echo(received.given), body.wanted(received.given)
        return ResponsesRequest(reply, tools, body.wants_logprobs, echo, extras)

    async def _whole(self, answering: Answering, asked: ResponsesRequest) -> Response:
        """The answer in one piece."""
        async with answering:
            found = await answering.replies()
        ((events, reply),), model = found, answering.record.model
        return await elsewhere(
            answer_size(found), lambda: JSONAnswer(self._answer(model, asked, events, reply))
        )

    def _answer(
        self, model: str, asked: ResponsesRequest, events: Sequence[ReplyEvent], reply: Reply
    ) -> dict[str, Any]:
        building = _Building(asked, model)
        building.items.feed(events)
        building.items.finish(complete=reply.finish_reason == "stop")
        return building.finished(events, reply)


class _Building:
    """A response that is being made."""

    def __init__(self, asked: ResponsesRequest, model: str) -> None:
        self._reader = ReplyReader(asked.tools.tools)
        self._extras = asked.extras
        self.items = ResponseItems(self._reader, logprobs=asked.logprobs)
        self._head = {
            "id": new_id("resp", "_"),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "error": None,
            "incomplete_details": None,
            "background": False,
            **asked.echo,
        }

    def begun(self) -> dict[str, Any]:
        """The response before anything is said."""
        return self._head | {"status": "in_progress", "output": [], "usage": None}

    def failed(self, error: ApiError) -> dict[str, Any]:
        """The response that ends with an error."""
        codes: dict[int, str] = {HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_exceeded"}
        why = {"code": codes.get(error.status, "server_error"), "message": error.message}
        return self.begun() | {"status": "failed", "output": self.items.output, "error": why}

    def finished(self, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        """The whole response."""
        whole = reply.finish_reason == "stop"
        return self._head | {
            "status": "completed" if whole else "incomplete",
            "completed_at": int(time.time()),
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "output": self.items.output,
            "usage": _usage(reply.stats, self._reader.reasoning_tokens),
            **measurements(reply.stats),
            "localspec": own(events, reply, self._extras),
        }


def _usage(stats: Stats, reasoning: int) -> dict[str, Any]:
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": stats.emitted,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": stats.prompt_tokens + stats.emitted,
    }


class ResponseStream:
    """The answer as it comes."""

    def __init__(self, answering: Answering, asked: ResponsesRequest) -> None:
        self._answering = answering
        self._asked = asked
        self._number = 0
        self._begun = False
        self._seen: list[ReplyEvent] = []

    async def parts(self) -> AsyncIterator[bytes]:
        """The bytes of the stream; each item has all events that are there."""
        async with self._answering as answering:
            building = _Building(self._asked, answering.record.model)
            try:
                async for _, events in answering:
                    yield b"".join(
                        self._line(event)
                        for part in rounds(events)
                        for event in self._events(building, part)
                    )
            except ApiError as error:
                if not self._begun:
                    raise
                yield self._line({"type": "response.failed", "response": building.failed(error)})

    def _line(self, event: dict[str, Any]) -> bytes:
        line = sse(event | {"sequence_number": self._number}, event["type"])
        self._number += 1
        return line

    def _events(self, building: _Building, events: Sequence[ReplyEvent]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        last = events[-1]
        # Whatever refuses the request comes before the prompt is read, and becomes its status.
        if not self._begun and any(isinstance(e, Reading | Finished) for e in events):
            self._begun = True
            found += [
                {"type": f"response.{name}", "response": building.begun()}
                for name in ("created", "in_progress")
            ]
        self._seen += events
        found += building.items.feed(events)
        if isinstance(last, Finished):
            whole = last.reply.finish_reason == "stop"
            found += building.items.finish(complete=whole)
            name = "completed" if whole else "incomplete"
            response = building.finished(self._seen, last.reply)
            found.append({"type": f"response.{name}", "response": response})
        return found
