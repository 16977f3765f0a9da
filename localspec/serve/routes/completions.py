"""``POST /v1/completions``: texts or tokens that are continued without a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from localspec.core.events import Finished, Reply, ReplyEvent, Stats, Token
from localspec.core.logprobs import MOST_ALTERNATIVES, PromptScored, TokenLogprobs
from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend.answering import Answering
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, StreamedAnswer, read_body_as, while_connected
from localspec.serve.http.caller import caller_of
from localspec.serve.http.error_shapes import OpenAIShape
from localspec.serve.http.fields import Fields
from localspec.serve.replies.answer_fields import (
    REASONS,
    extra,
    head,
    origins,
    own,
    scored,
)
from localspec.serve.replies.logprob_shapes import TextLogprobs
from localspec.serve.replies.usage import measurements, usage
from localspec.serve.requests.prompt_fields import read_prompts
from localspec.serve.requests.request_fields import (
    Extras,
    choices,
    of_choices,
    read_extras,
    read_request,
)
from localspec.serve.routes.chunk_stream import Chunk, ChunkStream

PATH = "/v1/completions"
PATHS = (PATH, "/completions")
SHAPE = OpenAIShape("prompt")
"""The shape of errors."""
_DEFAULT_TOKENS = 16
"""OpenAI's length of a reply where a request names none."""


def routes(service: Service) -> list[BaseRoute]:
    """Both paths that clients use."""
    endpoint = Completions(service)
    return [Route(path, endpoint.answer, methods=["POST"]) for path in PATHS]


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request, read."""

    model: str | None
    replies: list[ReplyRequest]
    """The choices of each prompt."""
    choices: int
    """Number of replies to each prompt."""
    echo: bool
    logprobs: int | None
    scores: bool
    """Whether vLLM's ``prompt_logprobs`` are wanted."""
    extras: Extras


class Completions:
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
            stream = CompletionStream(answering, asked)
            return StreamedAnswer(stream.parts(), service.settings.limits, shape=SHAPE)
        return JSONAnswer(await while_connected(request, self._whole(answering, asked)))

    def read(self, fields: Fields) -> CompletionRequest:
        """The request in a body.

        Raises:
            ApiError: it is invalid.
        """
        service = self._service
        echo = fields.flag("echo") or False
        logprobs = fields.whole("logprobs", 0, MOST_ALTERNATIVES)
        limit = fields.limit("max_tokens", 0)
        default = None if fields.has("max_tokens") else _DEFAULT_TOKENS
        request = read_request(
            fields,
            service.settings,
            max_tokens=default if limit is None else limit,
        )
        scores = request["prompt_logprobs"] is not None
        request |= {"logprobs": logprobs}
        if echo and logprobs is not None:
            request["prompt_logprobs"] = max(logprobs, request["prompt_logprobs"] or 0)
        n = choices(fields, service.settings)
        replies = [
            reply
            for prompt in read_prompts(fields, service.settings.limits.prompts)
            for reply in of_choices(request | prompt, n)
        ]
        if len(replies) > service.settings.limits.prompts:
            raise fields.refuse("prompt", f"asks for {len(replies)} replies at once")
        return CompletionRequest(
            model=fields.text("model"),
            replies=replies,
            choices=n,
            echo=echo,
            logprobs=logprobs,
            scores=scores,
            extras=read_extras(fields),
        )

    async def _whole(self, answering: Answering, asked: CompletionRequest) -> dict[str, Any]:
        """The answer in one piece."""
        async with answering:
            prompts = await _echoed(answering, asked)
            found = await answering.replies()
        stats = [reply.stats for _, reply in found]
        return {
            **head("cmpl", "text_completion", answering.record.model),
            "choices": [
                _choice(index, events, reply, asked, prompts[index])
                for index, (events, reply) in enumerate(found)
            ],
            "usage": usage(stats[:: asked.choices], stats),
            **measurements(stats[0]),
        }


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The prompt of a reply, as far as the answer repeats it."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()


async def _echoed(answering: Answering, asked: CompletionRequest) -> list[_Prompt]:
    """The prompts, in the order of the replies; empty where the answer does not repeat them."""
    if not asked.echo and not asked.extras.token_ids:
        return [_Prompt() for _ in asked.replies]
    found = []
    for request in asked.replies[:: asked.choices]:
        known = await answering.tokenize(request)
        found += [_Prompt(known.text, known.tokens, known.pieces)] * asked.choices
    return found


def _choice(
    index: int,
    events: Sequence[ReplyEvent],
    reply: Reply,
    asked: CompletionRequest,
    prompt: _Prompt,
) -> dict[str, Any]:
    tokens = [event for event in events if isinstance(event, Token)]
    choice: dict[str, Any] = {
        "index": index,
        "text": (prompt.text if asked.echo else "") + reply.text,
        "logprobs": None,
        "finish_reason": REASONS[reply.finish_reason],
        "localspec": own(events, reply, asked.extras),
    } | extra(tokens, asked.extras)
    if asked.extras.token_ids:
        choice["prompt_token_ids"] = list(prompt.tokens)
    if asked.logprobs is not None:
        shape = TextLogprobs(asked.logprobs)
        choice["logprobs"] = shape.of(*_places(events, prompt.pieces if asked.echo else None))
    known = scored(events) if asked.scores else None
    if known is not None:
        choice["prompt_logprobs"] = known
    return choice


def _places(
    events: Sequence[ReplyEvent], prompt: Sequence[str] | None
) -> tuple[list[TokenLogprobs | None], list[bytes]]:
    """Log-probabilities and bytes of the tokens of events; those of the prompt included where its
    pieces are given.
    """
    places: list[TokenLogprobs | None] = []
    written: list[bytes] = []
    for event in events:
        if isinstance(event, PromptScored) and prompt is not None:
            places += event.logprobs
            pieces = prompt[event.start : event.start + len(event.logprobs)]
            written += [piece.encode("utf-8", "surrogateescape") for piece in pieces]
        elif isinstance(event, Token) and event.logprobs is not None:
            places.append(event.logprobs)
            written.append(event.logprobs.chosen.bytes)
    return places, written


class CompletionStream(ChunkStream):
    """The answer as it comes."""

    kind = "cmpl"
    type = "text_completion"

    def __init__(self, answering: Answering, asked: CompletionRequest) -> None:
        super().__init__(answering, asked.extras)
        self._asked = asked
        self._shapes = [TextLogprobs(asked.logprobs or 0) for _ in asked.replies]
        self._shown = [0] * len(asked.replies)
        self._prompts: list[_Prompt] = []

    async def _opening(self) -> list[Chunk]:
        self._prompts = await _echoed(self._answering, self._asked)
        if not self._asked.echo:
            return []
        return [self._chunk(i, {"text": prompt.text}) for i, prompt in enumerate(self._prompts)]

    def _usage(self, stats: Sequence[Stats]) -> dict[str, Any]:
        return usage(stats[:: self._asked.choices], stats)

    def _round(self, index: int, events: Sequence[ReplyEvent]) -> list[Chunk]:
        asked, found = self._asked, []
        tokens = [event for event in events if isinstance(event, Token)]
        said = "".join(token.text for token in tokens)
        self._shown[index] += len(said)
        last = events[-1]
        if isinstance(last, Finished):
            said += last.reply.text[self._shown[index] :]
        more: dict[str, Any] = extra(tokens, asked.extras)
        if asked.logprobs is not None:
            echoed = self._prompts[index].pieces if asked.echo else None
            places, written = _places(events, echoed)
            if places:
                more["logprobs"] = self._shapes[index].of(places, written)
        if asked.extras.origins and tokens:
            more["localspec"] = origins(tokens)
        known = scored(events) if asked.scores else None
        if known is not None:
            more["prompt_logprobs"] = known
        if said or more.get("logprobs") or known or (tokens and more):
            found.append(self._chunk(index, {"text": said}, **more))
        if isinstance(last, Finished):
            reason = REASONS[last.reply.finish_reason]
            found.append(self._last_chunk(index, {"text": ""}, reason, events, last.reply))
        return found


__all__ = [
    "PATH",
    "PATHS",
    "SHAPE",
    "CompletionRequest",
    "CompletionStream",
    "Completions",
    "routes",
]
