"""``POST /v1/chat/completions``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from localspec.core.events import Reply, ReplyEvent, Stats, Token
from localspec.core.reply_request import ReplyRequest
from localspec.grammar.reply_parts import CallArguments, CallBegin, Content, Part, Reasoning
from localspec.grammar.reply_reader import ReplyReader
from localspec.serve.backend.answering import Answering, Replies
from localspec.serve.replies.answer_fields import (
    extra,
    origins,
    own,
    scored,
    tokens_of,
    usage,
)
from localspec.serve.replies.logprob_shapes import chat_logprobs
from localspec.serve.requests.chat import ChatBody, ConversationBody
from localspec.serve.requests.generation import of_choices
from localspec.serve.requests.offered_tools import OfferedTools
from localspec.serve.routes import examples
from localspec.serve.routes.answer_types import ChatCompletion
from localspec.serve.routes.chunk_answer import Chunk, ChunkAnswer
from localspec.serve.routes.endpoint import Endpoints, Received
from localspec.serve.routes.replying import Asked, answered

PATH = "/v1/chat/completions"


endpoints = Endpoints()


@endpoints.post(
    PATH, "/chat/completions", answer=ChatCompletion, stream=True, example=examples.CHAT
)
async def chat(received: Received[ChatBody]) -> Response:
    """A reply to a conversation, in OpenAI's shape."""
    return await answered(received, PATH, _read, ChatAnswer)


class ChatAsked(Asked, frozen=True, kw_only=True):
    """A request, read; with a reply for each choice."""

    logprobs: bool
    tools: OfferedTools
    reasoning: bool
    """Whether the thinking is told apart from the answer."""


def _read(received: Received[ChatBody]) -> ChatAsked:
    body, settings = received.body, received.service.settings
    prompt = received.part(ConversationBody)
    tools = prompt.offered(received.given)
    request = body.request(prompt, tools, settings)
    return ChatAsked(
        replies=_scored_once(of_choices(request, body.choices(settings))),
        logprobs=body.logprobs or False,
        extras=body.extras(received.given).of(request["messages"]),
        tools=tools,
        reasoning=body.reasoning_format != "none",
    )


def _scored_once(choices: Sequence[ReplyRequest]) -> list[ReplyRequest]:
    """The requests, of which the first alone has the prompt scored: an answer shows that once."""
    first, *others = choices
    if first.prompt_logprobs is None:
        return [*choices]
    return [first, *(dataclasses.replace(one, prompt_logprobs=None) for one in others)]


class ChatAnswer(ChunkAnswer[ChatAsked]):
    """The answer."""

    prefix, type, chunk_type = "chatcmpl", "chat.completion", "chat.completion.chunk"
    nothing: ClassVar = {"delta": {}}

    def __init__(self, answering: Answering, asked: ChatAsked) -> None:
        super().__init__(answering, asked)
        self._readers = [
            ReplyReader(asked.tools.tools, reasoning=asked.reasoning) for _ in asked.replies
        ]
        self._begun: set[int] = set()

    def _usage(self, stats: Sequence[Stats]) -> dict[str, Any]:
        return usage(stats[:1], stats, sum(reader.reasoning_tokens for reader in self._readers))

    def _whole(self, found: Replies) -> dict[str, Any]:
        prompt = scored(found[0][0])
        return super()._whole(found) | ({} if prompt is None else {"prompt_logprobs": prompt})

    def _choice(self, index: int, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        reader, extras = self._readers[index], self._asked.extras
        said = Delta.of(reader.parts(events))
        if reader.cut and reply.finish_reason == "stop":  # by a stop text: no other sign is given
            said = replace(said, calls=said.calls[:-1])
        tokens = tokens_of(events)
        choice: dict[str, Any] = {
            "index": index,
            "message": {
                "role": "assistant",
                "content": None if said.calls and not said.content else said.content,
                "refusal": None,
            }
            | _more(said, [_call(call) for call in said.calls]),
            "logprobs": chat_logprobs(tokens) if self._asked.logprobs else None,
            "finish_reason": self._reason(index, reply),
        }
        return choice | extra(tokens, extras) | {"localspec": own(events, reply, extras)}

    def _round(self, index: int, events: Sequence[ReplyEvent]) -> list[Chunk]:
        found, extras = list[Chunk](), self._asked.extras
        prompt = scored(events)
        if prompt is not None:
            found.append(self._chunk(index, self.nothing) | {"prompt_logprobs": prompt})
        tokens = tokens_of(events)
        delta = Delta.of(self._readers[index].parts(events))
        if delta or (tokens and (self._asked.logprobs or extras.token_ids or extras.origins)):
            if self._asked.logprobs and index not in self._begun:
                # openai for Node appends the log-probabilities of a first chunk to themselves.
                self._begun.add(index)
                found.append(self._chunk(index, {"delta": {"role": "assistant", "content": ""}}))
            found.append(self._text_chunk(index, delta, tokens))
        return found

    def _reason(self, index: int, reply: Reply) -> str:
        """A reply that ends inside of a call, also by a stop text, calls no tool."""
        reader = self._readers[index]
        if reader.called and not reader.cut and reply.finish_reason == "stop":
            return "tool_calls"
        return super()._reason(index, reply)

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


class CallDelta(Struct, frozen=True):
    """A part of a call of a tool."""

    index: int
    """Number of the call in its reply, from 0."""
    id: str = ""
    """With the first part only, as the name."""
    name: str = ""
    arguments: str = ""
    """The next characters of the arguments, a JSON object."""


class Delta(Struct, frozen=True):
    """What some events add to a reply."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Delta:
        """The parts put together."""
        content, reasoning = "", ""
        calls: dict[int, CallDelta] = {}
        for part in parts:
            match part:
                case Content(text):
                    content += text
                case Reasoning(text):
                    reasoning += text
                case CallBegin(index, id_of_call, name):
                    calls[index] = CallDelta(index, id_of_call, name)
                case CallArguments(index, text):
                    call = calls.get(index) or CallDelta(index)
                    calls[index] = replace(call, arguments=call.arguments + text)
                case _:
                    pass
        return cls(content, reasoning, tuple(calls.values()))

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.calls)


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
