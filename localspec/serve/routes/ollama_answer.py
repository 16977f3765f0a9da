"""Answers in Ollama's shape: one JSON object a line, or one for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from localspec.core.events import Finished, Reply, ReplyEvent, ReplyFormat
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
from localspec.serve.http.errors import ApiError
from localspec.serve.http.sse import dumps_in_steps
from localspec.serve.replies.answer_fields import REASONS, measurements, own, tokens_of
from localspec.serve.replies.logprob_shapes import chat_logprobs
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.routes.replying import Asked, SingleAnswer

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
    return dumps_in_steps(value) + b"\n"


def stamp(at: float | None = None) -> str:
    """A time as Ollama writes it; now, unless ``at`` is given in seconds since 1970."""
    when = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    return when.isoformat().replace("+00:00", "Z")


Said = Callable[[str, str, list[dict[str, Any]]], dict[str, Any]]
"""The fields of an answer that have its text, thinking and calls."""


class OllamaAsked(Asked, frozen=True, kw_only=True):
    """A request, read; without a reply, the model is to be loaded, or unloaded."""

    model: str | None
    """The name in the request, which the answer repeats."""
    tools: OfferedTools
    said: Said
    logprobs: bool
    thinks: bool
    """Whether thinking was asked for."""


class OllamaAnswer(SingleAnswer[OllamaAsked]):
    """The answer to one request."""

    shape, media_type, filler = OLLAMA, MEDIA_TYPE, FILLER

    def __init__(self, answering: Answering, asked: OllamaAsked) -> None:
        super().__init__(answering, asked)
        self._reader = ReplyReader(asked.tools.tools)
        self._calls: list[WholeCall] = []
        self._ready = 0.0
        """Clock when the engine took the request."""
        self._thinks_never = False
        """Whether the chat template has no thinking, as far as is known."""

    async def _begin(self) -> None:
        self._ready = time.monotonic()

    def _whole_reply(self, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        text, thinking, calls = self._divided(events)
        return self._head(text, thinking, calls, events) | self._end(events, reply)

    def _reply_pieces(self, events: Sequence[ReplyEvent]) -> Iterator[bytes]:
        text, thinking, calls = self._divided(events)
        if text or thinking or calls or (self._asked.logprobs and tokens_of(events)):
            yield line(self._head(text, thinking, calls, events) | {"done": False})
        last = events[-1]
        if isinstance(last, Finished):
            yield line(self._head("", "", [], ()) | self._end(self._told[0], last.reply))

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
            "model": self._asked.model or self._model,
            "created_at": stamp(),
            **self._asked.said(text, thinking, calls),
        }
        if self._asked.logprobs and events:
            found["logprobs"] = chat_logprobs(tokens_of(events))["content"]
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


def nanoseconds(given: float) -> int:
    """Seconds as Ollama writes durations."""
    return max(0, round(given * 1e9))
