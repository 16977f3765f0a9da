"""How routes answer with replies: a request is read, the engine is asked, and its events become the
shape of an API, whole or as they come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct
from starlette.responses import Response

from localspec.core.events import Finished, Notice, Reply, ReplyEvent, Round, Token
from localspec.core.reply_request import ReplyRequest
from localspec.serve.backend.answering import Answering, Replies
from localspec.serve.backend.engine_times import KeepAlive
from localspec.serve.http.bodies import LARGE, JSONAnswer, elsewhere, while_connected
from localspec.serve.http.body_budget import Caller
from localspec.serve.http.errors import OPENAI, ApiError, ErrorShape
from localspec.serve.http.sse import COMMENT, EVENTS
from localspec.serve.http.streamed import StreamedAnswer
from localspec.serve.replies.answer_fields import answer_size
from localspec.serve.requests.generation import Extras, GenerationBody
from localspec.serve.routes.endpoint import Received


class Asked(Struct, frozen=True, kw_only=True):
    """What a request asks for."""

    replies: Sequence[ReplyRequest]
    extras: Extras
    keep: KeepAlive | None = None
    """How long the model stays afterwards, where the API lets requests say so."""


A = TypeVar("A", bound=Asked)
B = TypeVar("B", bound=GenerationBody)


class Answer(ABC, Generic[A]):
    """The answer to one request, in the shape of an API."""

    shape: ErrorShape = OPENAI
    """The shape of an error that ends a stream."""
    media_type = EVENTS
    """The media type of a stream."""
    filler = COMMENT
    """Bytes that a reader of the stream skips, to keep the connection open."""
    tells_origins = True
    """Whether the end of a stream says where its tokens came from; else its parts do."""

    def __init__(self, answering: Answering, asked: A) -> None:
        self._answering = answering
        self._asked = asked
        self._told: defaultdict[int, list[ReplyEvent]] = defaultdict(list)
        """Of each reply in a stream, the events that `own` has to say at its end."""
        self._kept = (Notice, Token) if self.tells_origins and asked.extras.origins else (Notice,)
        self._counted: tuple[type, ...] = self._kept
        """Types of the events of which something is in memory until the end of a stream."""

    @property
    def _model(self) -> str:
        """The name of the model that answers, once the engine has taken the request."""
        return self._answering.record.model

    async def _begin(self) -> None:
        """Ask the engine, which has taken the request, for what the answer has besides replies."""

    @property
    def _repeated(self) -> int:
        """Bytes, about, of the request that the answer repeats."""
        return 0

    def _again(self, index: int, events: Sequence[ReplyEvent]) -> int:
        """Bytes, about, that the pieces for the next events have of what came before."""
        return answer_size(self._told[index]) if isinstance(events[-1], Finished) else 0

    @abstractmethod
    def _pieces(self, index: int, events: Sequence[ReplyEvent]) -> Iterable[bytes]:
        """What a stream has for the next events of a reply, those of one round. Made in a thread,
        where it is large.
        """

    @abstractmethod
    def _whole(self, found: Replies) -> dict[str, Any]:
        """The JSON of the answer in one piece. May run in a thread."""

    def _size(self, found: Replies) -> int:
        """Bytes, about, of what `_whole` makes."""
        return answer_size(event for events, _ in found for event in events) + self._repeated

    def failed(self, error: ApiError) -> bytes:
        """The end of a stream that fails after it has begun."""
        return self.shape.event(error)

    async def in_one_piece(self) -> Response:
        """The answer, when all replies have ended.

        Raises:
            ApiError: there is no engine, or a reply failed.
        """
        async with self._answering as answering:
            await self._begin()
            found = await answering.replies()
        caller, size = self._answering.record.caller, self._size(found)
        return await elsewhere(caller, size, lambda: JSONAnswer(self._whole(found)))

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """The bytes of a stream; each item has all that is there, or 64 KB and a piece of it.

        Raises:
            ApiError: there is no engine, or a reply failed.
        """
        async with self._answering as answering:
            await self._begin()
            caller = answering.record.caller
            share = caller.body
            async for index, events in answering:
                if share is not None:
                    share.next_part()
                self._told[index] += [event for event in events if isinstance(event, self._kept)]
                answering.keep(event for event in events if isinstance(event, self._counted))
                size = answer_size(events) + self._again(index, events)
                pieces = (piece for one in rounds(events) for piece in self._pieces(index, one))
                while part := await _gathered(caller, size, pieces):
                    yield part


class SingleAnswer(Answer[A]):
    """The answer to a request that has one reply."""

    @abstractmethod
    def _reply_pieces(self, events: Sequence[ReplyEvent]) -> Iterable[bytes]:
        """See `Answer._pieces`."""

    @abstractmethod
    def _whole_reply(self, events: Sequence[ReplyEvent], reply: Reply) -> dict[str, Any]:
        """See `Answer._whole`; ``events`` are those of the reply."""

    def _pieces(self, index: int, events: Sequence[ReplyEvent]) -> Iterable[bytes]:
        del index
        return self._reply_pieces(events)

    def _whole(self, found: Replies) -> dict[str, Any]:
        ((events, reply),) = found
        return self._whole_reply(events, reply)


async def _gathered(caller: Caller, size: int, pieces: Iterator[bytes]) -> bytes:
    """The next pieces of about ``size`` bytes, in a thread where that are many; empty after the
    last one.
    """

    def gathered() -> bytes:
        found, n = [], 0
        for piece in pieces:
            found.append(piece)
            n += len(piece)
            if n > LARGE:
                break
        return b"".join(found)

    return await elsewhere(caller, size, gathered)


async def answered(
    received: Received[B],
    path: str,
    read: Callable[[Received[B]], A],
    answer: Callable[[Answering, A], Answer[A]],
) -> Response:
    """The answer to a request: the engine is asked for what ``read`` makes of it, and its replies
    become an ``answer``.

    Raises:
        ApiError: it is invalid, there is no engine, or a reply failed.
        GoneError: the client left.
    """
    asked = await received.apart(lambda: read(received))
    answering = await ask(received, path, asked)
    return await send(received, answer(answering, asked), stream=received.body.stream)


async def ask(received: Received[Any], path: str, asked: Asked) -> Answering:
    """The replies to a request, not begun; ``path`` is what the log calls it by.

    Raises:
        ApiError: as `Service.answer`.
    """
    return await received.service.answer(
        received.caller,
        path,
        received.body.model,
        asked.replies,
        strict=asked.extras.strict,
        keep=asked.keep,
    )


async def send(received: Received[Any], answer: Answer[Any], *, stream: bool | None) -> Response:
    """The answer, as it comes or in one piece.

    Raises:
        ApiError: there is no engine, or a reply failed.
        GoneError: the client left.
    """
    if stream:
        return StreamedAnswer(
            answer.parts(),
            received.service.settings.limits,
            failed=answer.failed,
            media_type=answer.media_type,
            comment=answer.filler,
        )
    return await while_connected(received.http, answer.in_one_piece())


def rounds(events: Sequence[ReplyEvent]) -> Iterator[list[ReplyEvent]]:
    """The events of each round in a batch. Those of a round that goes on in the next batch come
    without waiting for it.
    """
    part: list[ReplyEvent] = []
    for event in events:
        part.append(event)
        if isinstance(event, Round):
            yield part
            part = []
    if part:
        yield part
