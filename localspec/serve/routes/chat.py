"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from localspec.core.events import Finished, Reading, Reply, ReplyEvent, Stats, Token
from localspec.core.logprobs import MOST_ALTERNATIVES
from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend.answering import Answering
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, StreamedAnswer, read_body_as, while_connected
from localspec.serve.http.caller import caller_of
from localspec.serve.http.fields import Fields
from localspec.serve.replies.answer_fields import (
    REASONS,
    extra,
    head,
    origins,
    own,
    scored,
)
from localspec.serve.replies.deltas import CallDelta, Delta
from localspec.serve.replies.logprob_shapes import chat_logprobs
from localspec.serve.replies.reply_reader import PartDeltas, ReplyReader
from localspec.serve.replies.usage import measurements, usage
from localspec.serve.requests.conversation import read_messages, template_arguments
from localspec.serve.requests.request_fields import (
    Extras,
    choices,
    of_choices,
    read_extras,
    read_request,
)
from localspec.serve.requests.tool_fields import OfferedTools, read_tools
from localspec.serve.routes.chunk_stream import Chunk, ChunkStream

PATH = "/v1/chat/completions"
_FORMATS = ("auto", "none", "deepseek")


def routes(service: Service) -> list[BaseRoute]:
    """Both paths that clients use."""
    endpoint = ChatCompletions(service)
    return [Route(path, endpoint.answer, methods=["POST"]) for path in (PATH, "/chat/completions")]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request, read."""

    model: str | None
    replies: list[ReplyRequest]
    """One for each choice."""
    logprobs: bool
    extras: Extras
    tools: OfferedTools
    reasoning: bool
    """Whether the thinking is told apart from the answer."""

    def deltas(self) -> PartDeltas:
        """Divides one reply."""
        return PartDeltas(ReplyReader(self.tools.tools, reasoning=self.reasoning))


class ChatCompletions:
    """The endpoint."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, request: Request) -> Response:
        """Answer one request."""
        service = self._service
        fields, asked = await read_body_as(request, service.settings.limits, self.read)
        service.tell_unknown(PATH, fields.unread())
        answering = await service.answer(
            caller_of(request.scope),
            PATH,
            asked.model,
            asked.replies,
            strict=asked.extras.strict,
        )
        if asked.extras.stream:
            stream = ChatStream(answering, asked)
            return StreamedAnswer(stream.parts(), service.settings.limits)
        return JSONAnswer(await while_connected(request, self._whole(answering, asked)))

    def read(self, fields: Fields) -> ChatRequest:
        """The request in a body.

        Raises:
            ApiError: it is invalid.
        """
        service = self._service
        wanted = fields.flag("logprobs") or False
        top = fields.whole("top_logprobs", 0, MOST_ALTERNATIVES)
        if top and not wanted:
            raise fields.refuse("top_logprobs", "needs logprobs: true")
        limit = fields.limit("max_completion_tokens", 1) or fields.limit("max_tokens", 1)
        fields.ignore("max_tokens")
        request = read_request(fields, service.settings, max_tokens=limit)
        tools = read_tools(fields)
        request |= tools.fields(request["grammar"]) | {
            "messages": read_messages(fields),
            "template_arguments": template_arguments(fields),
            "markers": True,
            "drop_oldest": False,
            "logprobs": (top or 0) if wanted else None,
        }
        return ChatRequest(
            model=fields.text("model"),
            replies=of_choices(request, choices(fields, service.settings)),
            logprobs=wanted,
            extras=read_extras(fields),
            tools=tools,
            reasoning=fields.choice("reasoning_format", _FORMATS) != "none",
        )

    async def _whole(self, answering: Answering, asked: ChatRequest) -> dict[str, Any]:
        """The answer in one piece."""
        async with answering:
            found = await answering.replies()
        stats = [reply.stats for _, reply in found]
        deltas = [asked.deltas() for _ in found]
        whole: dict[str, Any] = {
            **head("chatcmpl", "chat.completion", answering.record.model),
            "choices": [
                self._choice(index, events, reply, asked, deltas[index])
                for index, (events, reply) in enumerate(found)
            ],
            "usage": usage(stats[:1], stats, sum(each.reasoning_tokens for each in deltas)),
            **measurements(stats[0]),
        }
        prompt = scored(found[0][0])
        if prompt is not None:
            whole["prompt_logprobs"] = prompt
        return whole

    def _choice(
        self,
        index: int,
        events: Sequence[ReplyEvent],
        reply: Reply,
        asked: ChatRequest,
        deltas: PartDeltas,
    ) -> dict[str, Any]:
        said = deltas.feed(events)
        if deltas.cut and reply.finish_reason == "stop":  # by a stop text: no other sign is given
            said = replace(said, calls=said.calls[:-1])
        tokens = [event for event in events if isinstance(event, Token)]
        choice: dict[str, Any] = {
            "index": index,
            "message": {
                "role": "assistant",
                "content": None if said.calls and not said.content else said.content,
                "refusal": None,
            }
            | _more(said, [_call(call) for call in said.calls]),
            "logprobs": chat_logprobs(tokens) if asked.logprobs else None,
            "finish_reason": _reason(reply, deltas),
        }
        return (
            choice | extra(tokens, asked.extras) | {"localspec": own(events, reply, asked.extras)}
        )


class ChatStream(ChunkStream):
    """The answer as it comes."""

    kind = "chatcmpl"
    type = "chat.completion.chunk"

    def __init__(self, answering: Answering, asked: ChatRequest) -> None:
        super().__init__(answering, asked.extras)
        self._asked = asked
        self._deltas = [asked.deltas() for _ in asked.replies]
        self._begun: set[int] = set()

    def _usage(self, stats: Sequence[Stats]) -> dict[str, Any]:
        return usage(stats[:1], stats, sum(each.reasoning_tokens for each in self._deltas))

    def _round(self, index: int, events: Sequence[ReplyEvent]) -> list[Chunk]:
        found = []
        extras = self._asked.extras
        reading = next((e for e in events if isinstance(e, Reading)), None)
        if reading is not None and extras.progress:
            progress = {
                "total": reading.total,
                "cache": reading.cached,
                "processed": reading.done,
            }
            found.append(self._chunk(index, {"delta": {}}) | {"prompt_progress": progress})
        prompt = scored(events)
        if prompt is not None:
            found.append(self._chunk(index, {"delta": {}}) | {"prompt_logprobs": prompt})
        tokens = [event for event in events if isinstance(event, Token)]
        delta = self._deltas[index].feed(events)
        wanted = tokens and (self._asked.logprobs or extras.token_ids or extras.origins)
        if delta or wanted:
            found.append(self._text_chunk(index, delta, tokens))
        last = events[-1]
        if isinstance(last, Finished):
            reason = _reason(last.reply, self._deltas[index])
            found.append(self._last_chunk(index, {"delta": {}}, reason, events, last.reply))
        return found

    def _text_chunk(self, index: int, delta: Delta, tokens: Sequence[Token]) -> Chunk:
        said = _more(delta, [{"index": call.index} | _call(call) for call in delta.calls])
        if delta.content or not said:
            said["content"] = delta.content
        if index not in self._begun:
            self._begun.add(index)
            said = {"role": "assistant"} | said
        more = extra(tokens, self._asked.extras)
        if self._asked.logprobs:
            more["logprobs"] = chat_logprobs(tokens)
        if self._asked.extras.origins:
            more["localspec"] = origins(tokens)
        return self._chunk(index, {"delta": said}, **more)


def _more(delta: Delta, calls: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields of a delta besides its content."""
    found: dict[str, Any] = {}
    if delta.reasoning:
        found["reasoning_content"] = delta.reasoning
    if calls:
        found["tool_calls"] = calls
    return found


def _call(call: CallDelta) -> dict[str, Any]:
    """A call, or more of its arguments."""
    if not call.id:
        return {"function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _reason(reply: Reply, deltas: PartDeltas) -> str:
    """``finish_reason``; a reply that ends inside of a call, also by a stop text, calls no tool."""
    if deltas.called and not deltas.cut and reply.finish_reason == "stop":
        return "tool_calls"
    return REASONS[reply.finish_reason]


__all__ = ["PATH", "ChatCompletions", "ChatRequest", "ChatStream"]
