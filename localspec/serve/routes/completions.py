"""``POST /v1/completions``: texts or tokens that are continued without a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from starlette.responses import Response
from starlette.routing import BaseRoute

from localspec.core.emitted import PromptScored, TokenLogprobs
from localspec.core.events import Finished, Reply, ReplyEvent, Stats, Token
from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend.answering import Answering, Replies
from localspec.serve.backend.service import Service
from localspec.serve.http.bodies import JSONAnswer, StreamedAnswer, elsewhere, while_connected
from localspec.serve.http.body_budget import caller_of
from localspec.serve.http.errors import OpenAIShape, bad_request
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
from localspec.serve.replies.logprob_shapes import TextLogprobs
from localspec.serve.requests.completion import CompletionBody
from localspec.serve.requests.generation import Extras, of_choices
from localspec.serve.routes import examples
from localspec.serve.routes.answers import Completion
from localspec.serve.routes.chunk_stream import Chunk, ChunkStream
from localspec.serve.routes.endpoint import Received, post

PATH = "/v1/completions"
PATHS = (PATH, "/completions")
_TOKEN_BYTES = 8
"""Of an answer, for each token of a prompt that it repeats."""
_ID_BYTES, _PIECE_BYTES = 40, 64
"""In memory, for each token of a prompt that is repeated, by its id and by its text."""
SHAPE = OpenAIShape("prompt")
"""The shape of errors."""


def routes(service: Service) -> list[BaseRoute]:
    """Both paths that clients use."""
    return post(
        service,
        PATHS,
        Completions(service).answer,
        "The rest of a text, in OpenAI's shape",
        body=CompletionBody,
        answer=Completion,
        stream=True,
        example=examples.COMPLETION,
    )


class CompletionRequest(Struct, frozen=True):
    """A request, read."""

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

    async def answer(self, received: Received[CompletionBody]) -> Response:
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
            stream = CompletionStream(answering, asked)
            return StreamedAnswer(stream.parts(), service.settings.limits, shape=SHAPE)
        return await while_connected(request, self._whole(answering, asked))

    def _read(self, received: Received[CompletionBody]) -> CompletionRequest:
        body, settings = received.body, self._service.settings
        request, n, most = body.request(settings), body.choices(settings), settings.limits.prompts
        prompts = body.prompts(settings)
        replies = [reply for prompt in prompts for reply in of_choices(request | prompt, n)]
        if len(replies) > most:
            raise bad_request(f"prompt asks for {len(replies)} replies at once", "prompt")
        return CompletionRequest(
            replies=replies,
            choices=n,
            echo=body.echo or False,
            logprobs=body.logprobs,
            scores=body.prompt_logprobs is not None,
            extras=body.extras(received.given),
        )

    async def _whole(self, answering: Answering, asked: CompletionRequest) -> Response:
        """The answer in one piece."""
        async with answering:
            prompts = await _echoed(answering, asked)
            found = await answering.replies()
        model = answering.record.model
        size = answer_size(found) + _TOKEN_BYTES * sum(len(prompt.tokens) for prompt in prompts)
        return await elsewhere(size, lambda: JSONAnswer(_answer(model, asked, prompts, found)))


class _Prompt(Struct, frozen=True):
    """The prompt of a reply, as far as the answer repeats it."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()


async def _echoed(answering: Answering, asked: CompletionRequest) -> list[_Prompt]:
    """The prompts, in the order of the replies; empty where the answer does not repeat them."""
    if not asked.echo and not asked.extras.token_ids:
        return [_Prompt() for _ in asked.replies]
    found, body = [], answering.record.caller.body
    with_pieces = asked.echo and asked.logprobs is not None
    for request in asked.replies[:: asked.choices]:
        known = await answering.tokenize(request)
        prompt = _Prompt(
            known.text if asked.echo else "",
            known.tokens if asked.extras.token_ids else (),
            known.pieces if with_pieces else (),
        )
        if body is not None:
            body.answer(_ID_BYTES * len(prompt.tokens) + _PIECE_BYTES * len(prompt.pieces))
        found += [prompt] * asked.choices
    return found


def _answer(
    model: str, asked: CompletionRequest, prompts: Sequence[_Prompt], found: Replies
) -> dict[str, Any]:
    stats = [reply.stats for _, reply in found]
    return {
        **head("cmpl", "text_completion", model),
        "choices": [
            _choice(index, events, reply, asked, prompts[index])
            for index, (events, reply) in enumerate(found)
        ],
        "usage": usage(stats[:: asked.choices], stats),
        **measurements(stats[0]),
    }


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
            found.append(self._last_chunk(index, {"text": ""}, reason, last.reply))
        return found
