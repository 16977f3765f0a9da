"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec.core.events import Finished, Reading, Reply, ReplyEvent, Stats, Token
from localspec.core.reply_request import ReplyRequest
from localspec.grammar.reply_reader import ReplyReader
from localspec.serve.backend.answering import Answering, Replies
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, StreamedAnswer, elsewhere, while_connected
from localspec.serve.http.body_budget import caller_of
from localspec.serve.replies.answer_fields import (
    REASONS,
    answer_size,
    extra,
    head,
    measurements,
    origins,
    own,
    scored,
    usage,
)
from localspec.serve.replies.deltas import CallDelta, Delta, PartDeltas
from localspec.serve.replies.logprob_shapes import chat_logprobs
from localspec.serve.requests.chat import ChatBody, ConversationBody
from localspec.serve.requests.generation import Extras, of_choices
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.routes import examples
from localspec.serve.routes.answers import ChatCompletion
from localspec.serve.routes.chunk_stream import Chunk, ChunkStream
from localspec.serve.routes.endpoint import Received, post

PATH = "/v1/chat/completions"


def routes(service: Service) -> list[BaseRoute]:
    """Both paths that clients use."""
    return post(
        service,
        (PATH, "/chat/completions"),
        ChatCompletions(service).answer,
        "A reply to a conversation, in OpenAI's shape",
        body=ChatBody,
        answer=ChatCompletion,
        stream=True,
        example=examples.CHAT,
    )


class ChatRequest(Struct, frozen=True):
    """A request, read."""

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

    async def answer(self, received: Received[ChatBody]) -> Response:
        """Answer one request."""
        service, request = self._service, received.http
        asked = await received.apart(lambda: self._read(received))
        answering = await service.answer(
            caller_of(request.scope),
            PATH,
            received.body.model,
            asked.replies,
            strict=asked.extras.strict,
        )
        if asked.extras.stream:
            stream = ChatStream(answering, asked)
            return StreamedAnswer(stream.parts(), service.settings.limits)
        return await while_connected(request, self._whole(answering, asked))

    def _read(self, received: Received[ChatBody]) -> ChatRequest:
        body, settings = received.body, self._service.settings
        prompt = received.part(ConversationBody)
        tools = prompt.offered(received.given)
        request = body.request(prompt, tools, settings)
        return ChatRequest(
            replies=of_choices(request, body.choices(settings)),
            logprobs=body.logprobs or False,
            extras=body.extras(received.given),
            tools=tools,
            reasoning=body.reasoning_format != "none",
        )

    async def _whole(self, answering: Answering, asked: ChatRequest) -> Response:
        """The answer in one piece."""
        async with answering:
            found = await answering.replies()
        model = answering.record.model
        return await elsewhere(
            answer_size(found), lambda: JSONAnswer(self._answer(model, asked, found))
        )

    def _answer(self, model: str, asked: ChatRequest, found: Replies) -> dict[str, Any]:
        stats = [reply.stats for _, reply in found]
        deltas = [asked.deltas() for _ in found]
        whole: dict[str, Any] = {
            **head("chatcmpl", "chat.completion", model),
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
        for reading in (e for e in events if isinstance(e, Reading) and extras.progress):
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
            found.append(self._last_chunk(index, {"delta": {}}, reason, last.reply))
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
