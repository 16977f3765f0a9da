"""``POST /v1/completions``: texts or tokens that are continued without a chat template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from starlette.responses import Response

from localspec.core.emitted import PromptScored, TokenLogprobs
from localspec.core.events import Finished, Reading, Reply, ReplyEvent, Stats, Token
from localspec.serve.backend.answering import Answering
from localspec.serve.http.errors import OpenAIShape, bad_request
from localspec.serve.replies.answer_fields import (
    extra,
    origins,
    own,
    scored,
    tokens_of,
    usage,
)
from localspec.serve.replies.logprob_shapes import TextLogprobs
from localspec.serve.requests.completion import CompletionBody
from localspec.serve.requests.generation import of_choices
from localspec.serve.routes import examples
from localspec.serve.routes.answer_types import Completion
from localspec.serve.routes.chunk_answer import Chunk, ChunkAnswer
from localspec.serve.routes.endpoint import Endpoints, Received
from localspec.serve.routes.replying import Asked, answered

PATH = "/v1/completions"
PATHS = (PATH, "/completions")
_ACCEPTED = (Reading, PromptScored, Token, Finished)
"""Events of a reply that nothing refuses any more."""
_TOKEN_BYTES = 8
"""Size of a prompt's token in an answer that repeats its id."""
_ID_BYTES, _PIECE_BYTES = 40, 64
"""Memory for each token of a prompt that is repeated, by its id and by its text."""
SHAPE = OpenAIShape("prompt")
"""The shape of errors."""


endpoints = Endpoints()


@endpoints.post(*PATHS, answer=Completion, stream=True, example=examples.COMPLETION)
async def complete(received: Received[CompletionBody]) -> Response:
    """The rest of a text, in OpenAI's shape."""
    return await answered(received, PATH, _read, CompletionAnswer)


class CompletionAsked(Asked, frozen=True, kw_only=True):
    """A request, read; with the replies to each prompt one after the other."""

    choices: int
    """Number of replies to each prompt."""
    echo: bool
    logprobs: int | None
    scores: int | None
    """Alternatives of vLLM's ``prompt_logprobs``; None where these are not wanted."""


def _read(received: Received[CompletionBody]) -> CompletionAsked:
    body, settings = received.body, received.service.settings
    request, n, most = body.request(settings), body.choices(settings), settings.limits.prompts
    prompts = body.prompts(settings)
    replies = [reply for prompt in prompts for reply in of_choices(request | prompt, n)]
    if len(replies) > most:
        raise bad_request(f"prompt asks for {len(replies)} replies at once", "prompt")
    return CompletionAsked(
        replies=replies,
        choices=n,
        echo=body.echo or False,
        logprobs=body.logprobs,
        scores=body.prompt_logprobs,
        extras=body.extras(received.given),
    )


class RepeatedPrompt(Struct, frozen=True):
    """The prompt of a reply, as far as the answer repeats it."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()

    @property
    def ids(self) -> dict[str, Any]:
        """vLLM's field, where it is wanted."""
        return {"prompt_token_ids": list(self.tokens)} if self.tokens else {}

    @property
    def size(self) -> int:
        """Bytes, about, of the text and the ids in an answer."""
        return len(self.text) + _TOKEN_BYTES * len(self.tokens)


class CompletionAnswer(ChunkAnswer[CompletionAsked]):
    """The answer."""

    shape = SHAPE
    prefix, type, chunk_type = "cmpl", "text_completion", "text_completion"
    nothing: ClassVar = {"text": ""}

    def __init__(self, answering: Answering, asked: CompletionAsked) -> None:
        super().__init__(answering, asked)
        self._shapes = [TextLogprobs(asked.logprobs or 0) for _ in asked.replies]
        self._shown = [0] * len(asked.replies)
        self._prompts = [RepeatedPrompt()] * len(asked.replies)
        """By reply."""
        self._accepted: set[int] = set()
        """The replies in a stream that nothing refuses any more."""

    async def _begin(self) -> None:
        asked, body = self._asked, self._answering.record.caller.body
        if not asked.echo and not asked.extras.token_ids:
            return
        pieces = asked.echo and asked.logprobs is not None
        for first in range(0, len(asked.replies), asked.choices):
            known = await self._answering.tokenize(first)
            prompt = RepeatedPrompt(
                known.text if asked.echo else "",
                known.tokens if asked.extras.token_ids else (),
                known.pieces if pieces else (),
            )
            if body is not None:
                body.answer(_ID_BYTES * len(prompt.tokens) + _PIECE_BYTES * len(prompt.pieces))
            self._prompts[first : first + asked.choices] = [prompt] * asked.choices

    @property
    def _repeated(self) -> int:
        return sum(one.size for one in self._prompts)

    def _again(self, index: int, events: Sequence[ReplyEvent]) -> int:
        prompt = 0 if index in self._accepted else self._prompts[index].size
        return super()._again(index, events) + prompt

    def _usage(self, stats: Sequence[Stats]) -> dict[str, Any]:
        return usage(stats[:: self._asked.choices], stats)

    def _choice(self, index: int, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        asked, prompt = self._asked, self._prompts[index]
        tokens = tokens_of(events)
        choice: dict[str, Any] = {
            "index": index,
            "text": prompt.text + reply.text,
            "logprobs": self._logprobs(index, events),
            "finish_reason": self._reason(index, reply),
            "localspec": own(events, reply, asked.extras),
        } | extra(tokens, asked.extras)
        return choice | prompt.ids | self._scores(events)

    def _logprobs(self, index: int, events: Sequence[ReplyEvent]) -> dict[str, Any] | None:
        """``logprobs`` of the next events of a reply; None where none are wanted."""
        if self._asked.logprobs is None:
            return None
        pieces = self._prompts[index].pieces if self._asked.echo else None
        return self._shapes[index].of(*_places(events, pieces))

    def _scores(self, events: Sequence[ReplyEvent]) -> dict[str, Any]:
        """vLLM's field for the prompt, if it is wanted and there."""
        most = self._asked.scores
        known = None if most is None else scored(events, most)
        return {} if known is None else {"prompt_logprobs": known}

    def _first_of(self, index: int, events: Sequence[ReplyEvent]) -> Iterable[Chunk]:
        """Its prompt, as far as it is repeated. Whatever refuses the request comes before the
        prompt is read, and becomes its status.
        """
        if index in self._accepted or not any(isinstance(e, _ACCEPTED) for e in events):
            return
        self._accepted.add(index)
        prompt = self._prompts[index]
        if prompt.tokens or self._asked.echo:
            yield self._chunk(index, {"text": prompt.text}, **prompt.ids)

    def _round(self, index: int, events: Sequence[ReplyEvent]) -> list[Chunk]:
        extras = self._asked.extras
        tokens = tokens_of(events)
        said = "".join(token.text for token in tokens)
        self._shown[index] += len(said)
        last = events[-1]
        if isinstance(last, Finished):
            said += last.reply.text[self._shown[index] :]
        more: dict[str, Any] = extra(tokens, extras)
        logprobs = self._logprobs(index, events)
        if logprobs and logprobs["token_logprobs"]:
            more["logprobs"] = logprobs
        if extras.origins and tokens:
            more["localspec"] = origins(tokens)
        scores = self._scores(events)
        if said or more.get("logprobs") or scores or (tokens and more):
            return [self._chunk(index, {"text": said}, **more, **scores)]
        return []


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
