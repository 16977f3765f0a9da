"""Answers in Ollama's shape: one JSON object a line, or one for all."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from localspec.core.events import Finished, Reply, ReplyEvent, ReplyFormat, Token
from localspec.core.reply_request import ReplyRequest
from localspec.grammar.reply_parts import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Part,
    Reasoning,
    WholeCall,
    merged,
)
from localspec.grammar.reply_reader import ReplyReader
from localspec.serve.backend.answering import Answering
from localspec.serve.http.bodies import JSONAnswer, elsewhere
from localspec.serve.http.errors import ApiError
from localspec.serve.http.sse import dumps
from localspec.serve.replies.answer_fields import REASONS, answer_size, measurements, own
from localspec.serve.replies.deltas import rounds
from localspec.serve.replies.logprob_shapes import chat_logprobs
from localspec.serve.requests.generation import Extras
from localspec.serve.requests.offered_tools import OfferedTools

MEDIA_TYPE = "application/x-ndjson"
FILLER = b" "
"""Between two lines, to keep a connection open: readers of JSON skip it, and not an empty line."""


class OllamaShape:
    """``{"error": "..."}``."""

    def body(self, error: ApiError) -> dict[str, Any]:
        """The JSON of an answer that is an error."""
        return {"error": error.message}

    def event(self, error: ApiError) -> bytes:
        """The end of a stream that fails after it has begun."""
        return line(self.body(error))


OLLAMA = OllamaShape()


def line(value: dict[str, Any]) -> bytes:
    """One line of a stream."""
    return dumps(value) + b"\n"


def stamp(at: float | None = None) -> str:
    """A time as Ollama writes it; now, unless ``at`` is given in seconds since 1970."""
    when = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    return when.isoformat().replace("+00:00", "Z")


Said = Callable[[str, str, list[dict[str, Any]]], dict[str, Any]]
"""The fields of an answer that have its text, thinking and calls."""


class OllamaRequest(Struct, frozen=True):
    """A request, read."""

    reply: ReplyRequest | None
    """None: the model is to be loaded, or unloaded."""
    tools: OfferedTools
    said: Said
    logprobs: bool
    thinks: bool
    """Whether thinking was asked for."""
    extras: Extras


class Answer:
    """The answer to one request."""

    def __init__(self, answering: Answering, asked: OllamaRequest, model: str | None) -> None:
        """``model`` is the name in the request, which the answer repeats."""
        self._answering = answering
        self._asked = asked
        self._model = model
        self._reader = ReplyReader(asked.tools.tools)
        self._calls: list[WholeCall] = []
        self._ready = 0.0
        """Clock when the engine took the request."""
        self._thinks_never = False
        """Whether the chat template has no thinking, as far as is known."""
        self._seen: list[ReplyEvent] = []
        """The events of a stream so far."""

    async def parts(self) -> AsyncIterator[bytes]:
        """The bytes of the stream; each item has all lines that are there."""
        async with self._answering as answering:
            self._ready = time.monotonic()
            async for _, events in answering:
                yield b"".join(line(one) for part in rounds(events) for one in self._lines(part))

    async def whole(self) -> Response:
        """The answer in one piece."""
        async with self._answering as answering:
            self._ready = time.monotonic()
            found = await answering.replies()
        ((events, reply),) = found
        return await elsewhere(answer_size(found), lambda: JSONAnswer(self._answer(events, reply)))

    def _answer(self, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        text, thinking, calls = self._divided(events)
        return self._head(text, thinking, calls, events) | self._end(events, reply)

    def _lines(self, events: Sequence[ReplyEvent]) -> list[dict[str, Any]]:
        self._seen += events
        text, thinking, calls = self._divided(events)
        found = []
        if text or thinking or calls or (self._asked.logprobs and _tokens(events)):
            found.append(self._head(text, thinking, calls, events) | {"done": False})
        last = events[-1]
        if isinstance(last, Finished):
            found.append(self._head("", "", [], ()) | self._end(self._seen, last.reply))
        return found

    def _divided(self, events: Sequence[ReplyEvent]) -> tuple[str, str, list[dict[str, Any]]]:
        """Text, thinking and whole calls of some events."""
        for event in events:
            if isinstance(event, ReplyFormat):
                self._thinks_never = not event.thinking
        text, thinking, calls = "", "", []
        for part in merged(self._reader.parts(events)):
            match part:
                case Content(more):
                    text += more
                case Reasoning(more):
                    thinking += more
                case _:
                    calls += self._call(part)
        return text, thinking, calls

    def _call(self, part: Part) -> list[dict[str, Any]]:
        match part:
            case CallBegin(_, id_of_call, name):
                self._calls.append(WholeCall(id_of_call, name))
            case CallArguments(index, more):
                self._calls[index].arguments += more
            case CallEnd(index, complete) if complete:
                call = self._calls[index]
                arguments = call.value()
                function = {"index": index, "name": call.name, "arguments": arguments}
                return [{"id": call.id, "function": function}]
            case _:  # a call that was cut has no arguments, and is left out
                pass
        return []

    def _head(
        self, text: str, thinking: str, calls: list[dict[str, Any]], events: Sequence[ReplyEvent]
    ) -> dict[str, Any]:
        found = {
            "model": self._model or self._answering.record.model,
            "created_at": stamp(),
            **self._asked.said(text, thinking, calls),
        }
        if self._asked.logprobs and events:
            found["logprobs"] = chat_logprobs(_tokens(events))["content"]
        return found

    def _end(self, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        """The fields of the last object: why it ended, nanoseconds, counts, and our own."""
        stats, arrived = reply.stats, self._answering.record.arrived
        said = own(events, reply, self._asked.extras)
        if self._asked.thinks and self._thinks_never:
            told = "think: the chat template of this model has no thinking"
            said["notices"] = [*said.get("notices", ()), told]
        return {
            "done": True,
            "done_reason": REASONS[reply.finish_reason],
            "total_duration": nanoseconds(time.monotonic() - arrived),
            "load_duration": nanoseconds(self._ready - arrived),
            "prompt_eval_count": stats.prompt_tokens,
            "prompt_eval_duration": nanoseconds(stats.prompt_seconds),
            "eval_count": stats.emitted,
            "eval_duration": nanoseconds(stats.decode_seconds),
            **measurements(stats),
            "localspec": said,
        }


def _tokens(events: Sequence[ReplyEvent]) -> list[Token]:
    return [event for event in events if isinstance(event, Token)]


def nanoseconds(given: float) -> int:
    """Seconds as Ollama writes durations."""
    return max(0, round(given * 1e9))
