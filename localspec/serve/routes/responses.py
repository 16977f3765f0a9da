"""``POST /v1/responses``: OpenAI's newer shape, without a memory of earlier responses."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from localspec.core.events import Finished, Reading, Reply, ReplyEvent, Stats, Token
from localspec.grammar.reply_reader import ReplyReader
from localspec.serve.backend.answering import Answering
from localspec.serve.http.errors import ApiError, OpenAIShape
from localspec.serve.http.sse import sse
from localspec.serve.replies.answer_fields import measurements, new_id, own
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.requests.responses import ResponsesBody
from localspec.serve.routes import answer_types, examples
from localspec.serve.routes.endpoint import Endpoints, Received
from localspec.serve.routes.replying import Asked, SingleAnswer, answered
from localspec.serve.routes.response_items import ResponseItems

PATH = "/v1/responses"
PATHS = (PATH, "/responses")
SHAPE = OpenAIShape("input")
"""The shape of errors."""


endpoints = Endpoints()


@endpoints.post(*PATHS, answer=answer_types.ResponseAnswer, stream=True, example=examples.RESPONSE)
async def respond(received: Received[ResponsesBody]) -> Response:
    """A response in OpenAI's newer shape; nothing is stored."""
    return await answered(received, PATH, _read, ResponseAnswer)


class ResponseAsked(Asked, frozen=True, kw_only=True):
    """A request, read."""

    tools: OfferedTools
    logprobs: bool
    echo: dict[str, Any]
    """Fields of the response that repeat the request."""
    size: int
    """Bytes of the request."""


def _read(received: Received[ResponsesBody]) -> ResponseAsked:
    body, given = received.body, received.given
    tools = body.offered()
    reply = body.reply(tools, received.service.settings)
    return ResponseAsked(
        replies=[reply],
        extras=body.wanted(given).of(reply.messages),
        tools=tools,
        logprobs=body.wants_logprobs,
        echo=body.echo(given),
        size=received.size,
    )


class ResponseAnswer(SingleAnswer[ResponseAsked]):
    """The answer."""

    shape = SHAPE

    def __init__(self, answering: Answering, asked: ResponseAsked) -> None:
        super().__init__(answering, asked)
        self._reader = ReplyReader(asked.tools.tools)
        self._items = ResponseItems(self._reader, logprobs=asked.logprobs)
        if asked.logprobs:  # of which items are made
            self._counted = (*self._kept, Token)
        self._number = 0
        """Events of a stream so far."""
        self._begun = False

    @property
    def _repeated(self) -> int:
        return self._asked.size

    def _again(self, index: int, events: Sequence[ReplyEvent]) -> int:
        """Events that begin or end the response repeat the request; those that end it, or its text
        before a call, repeat the log-probabilities.
        """
        found, ends = super()._again(index, events), isinstance(events[-1], Finished)
        if ends or not self._begun:
            found += self._repeated
        if ends or self._reader.may_call(events):
            found += self._answering.kept
        return found

    def _whole_reply(self, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        self._items.feed(events)
        self._items.finish(complete=reply.finish_reason == "stop")
        if self._reader.cut and reply.finish_reason == "stop":  # by a stop text: no other sign
            self._items.drop_last()
        return self._finished(events, reply)

    def _reply_pieces(self, events: Sequence[ReplyEvent]) -> Iterator[bytes]:
        return map(self._line, self._events(events))

    def failed(self, error: ApiError) -> bytes:
        """The response that ends with an error, once it has begun, without log-probabilities."""
        if not self._begun:
            return super().failed(error)
        self._items.forget_logprobs()
        codes: dict[int, str] = {HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_exceeded"}
        why = {"code": codes.get(error.status, "server_error"), "message": error.message}
        found = self._in_progress() | {"status": "failed", "output": self._items.output}
        return self._line({"type": "response.failed", "response": found | {"error": why}})

    def _line(self, event: dict[str, Any]) -> bytes:
        line = sse(event | {"sequence_number": self._number}, event["type"])
        self._number += 1
        return line

    def _events(self, events: Sequence[ReplyEvent]) -> Iterator[dict[str, Any]]:
        last = events[-1]
        # Whatever refuses the request comes before the prompt is read, and becomes its status.
        if not self._begun and any(isinstance(e, Reading | Finished) for e in events):
            self._begun = True
            for name in ("created", "in_progress"):
                yield {"type": f"response.{name}", "response": self._in_progress()}
        yield from self._items.feed(events)
        if isinstance(last, Finished):
            whole = last.reply.finish_reason == "stop"
            yield from self._items.finish(complete=whole)
            name = "completed" if whole else "incomplete"
            response = self._finished(self._told[0], last.reply)
            yield {"type": f"response.{name}", "response": response}

    @cached_property
    def _head(self) -> dict[str, Any]:
        return {
            "id": new_id("resp", "_"),
            "object": "response",
            "created_at": int(time.time()),
            "model": self._model,
            "error": None,
            "incomplete_details": None,
            "background": False,
            **self._asked.echo,
        }

    def _in_progress(self) -> dict[str, Any]:
        """The response before anything is said."""
        return self._head | {"status": "in_progress", "output": [], "usage": None}

    def _finished(self, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        """The whole response."""
        whole = reply.finish_reason == "stop"
        return self._head | {
            "status": "completed" if whole else "incomplete",
            "completed_at": int(time.time()),
            "incomplete_details": None if whole else {"reason": "max_output_tokens"},
            "output": self._items.output,
            "usage": _usage(reply.stats, self._reader.reasoning_tokens),
            **measurements(reply.stats),
            "localspec": own(events, reply, self._asked.extras),
        }


def _usage(stats: Stats, reasoning: int) -> dict[str, Any]:
    return {
        "input_tokens": stats.prompt_tokens,
        "input_tokens_details": {"cached_tokens": stats.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": stats.emitted,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": stats.prompt_tokens + stats.emitted,
    }
