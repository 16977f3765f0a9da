"""The replies to one HTTP request, from the engine to the shapes of an API.

::

    async with service.answer(caller, path, model, requests) as answering:
        async for index, events in answering:
            ...

Prompts that cannot fit into the context are refused before they reach the engine: llama.cpp's
tokenizer takes seconds for megabytes, and time that grows with the square of the number of special
tokens in a text; other prompts would wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from localspec.core.async_places import AsyncPlaces
from localspec.core.errors import EngineError, LocalspecError
from localspec.core.events import Finished, Reply, ReplyEvent, Round, Token
from localspec.core.options import Options
from localspec.core.reply_request import ReplyRequest, Tokenized
from localspec.engine.reply import EngineReply
from localspec.serve.backend.adapters import AdaptedEngine, ServedAdapters
from localspec.serve.backend.engine_slots import EngineSlots
from localspec.serve.backend.engine_times import KeepAlive
from localspec.serve.backend.metrics import Metrics
from localspec.serve.backend.model_names import ModelNames
from localspec.serve.backend.public_name import public_name
from localspec.serve.backend.records import ReplyRecord, RequestRecord
from localspec.serve.backend.wanted import Wanted
from localspec.serve.http.errors import ApiError, bad_request, of_engine, stopping, too_long
from localspec.serve.replies.answer_fields import held_size

CHARACTERS_PER_TOKEN = 64
"""Most characters of a prompt for each token of the context; texts have 3 to 5."""
_MOST_TURNS = 1 << 14
"""Messages and calls of tools, of which each takes 3 to 5 µs on its way to the engine, in one turn
of the loop."""
_MOST_PICTURES = 1024
"""Pictures, those of tools' results included, of which the engine leaves out the oldest."""
_MARKERS = ("<|", "</s>", "<s>", "[INST]", "<start_of_turn>", "<end_of_turn>")
"""Texts of special tokens, or their beginnings: each is at least one token."""


class Server(Protocol):
    """The server, as far as an answer needs it: `localspec.serve.backend.service.Service`."""

    adapters: ServedAdapters
    slots: EngineSlots
    models: ModelNames
    metrics: Metrics
    splitting: AsyncPlaces
    """Places for texts that are split into tokens."""

    def entered(self, answering: Answering) -> None:
        """Count an answer that begins.

        Raises:
            ApiError: 429, too many wait.
        """
        ...

    def left(self, answering: Answering) -> None:
        """Count an answer that has ended, and tell of it."""
        ...

    def refused(self, error: LocalspecError) -> ApiError:
        """The answer to a request that the engine refused."""
        ...


Batch = tuple[int, tuple[ReplyEvent, ...]]
"""The index of a reply, and events of it that came together."""


Replies = list[tuple[list[ReplyEvent], Reply]]
"""All events of each reply but for its rounds, and the reply; in the order of the requests."""


class Answering:
    """The replies to several requests; leaving the block ends those that still run."""

    def __init__(
        self,
        server: Server,
        record: RequestRecord,
        wanted: Wanted,
        requests: Sequence[ReplyRequest],
        keep: KeepAlive | None,
    ) -> None:
        """Use `Service.answer`. All requests want the same."""
        self._server = server
        self.record = record
        self._wanted = wanted
        self._requests = tuple(requests)
        self._keep = keep
        self._waiting = _by_first(self._requests)
        """By each request that reads a prompt, those that wait until it has read it for them."""
        self._records: dict[int, ReplyRecord] = {}
        """The records of the replies that the engine was asked for, by reply."""
        self._running: dict[int, EngineReply] = {}
        self._pending: dict[asyncio.Task[tuple[ReplyEvent, ...]], int] = {}
        self._stack = contextlib.AsyncExitStack()
        self._used: AdaptedEngine | None = None
        self._entering: asyncio.Task[Any] | None = None
        """The task that waits for the engine."""
        self._cut = False
        self.kept = 0
        """Bytes, about, of the log-probabilities that are kept until the answer is made."""

    @property
    def options(self) -> Options:
        """Options of the model that answers: until it does, that of the request or else the present
        one.
        """
        if self._used is not None:
            return self._used.options
        return self._wanted.options or self._server.slots.options

    @property
    def size(self) -> int:
        """Replies that are wanted."""
        return len(self._requests)

    @property
    def over(self) -> bool:
        """Whether all replies have ended, of those that are read."""
        return not self._running and len(self.record.replies) == self.size

    async def __aenter__(self) -> Self:
        """Wait for the engine and hand it the requests.

        Raises:
            ApiError: 429 if too many wait, 503 if there is no engine or this was `cut`, 404 or 400
                if an adapter of theirs was unloaded just before.
        """
        self._server.entered(self)
        try:
            self._used = await self._entered()
            self.record.model = self.record.adapter or public_name(self._used.options.model)
            await self._submit(self._waiting)
        except BaseException as error:
            await self._left(error)
            if isinstance(error, LocalspecError):
                raise self._server.refused(error) from None
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the replies that still run."""
        await self._left(error)

    async def tokenize(self, index: int) -> Tokenized:
        """Text and tokens of the prompt of a reply.

        Raises:
            ApiError: there are none.
        """
        assert self._used is not None
        try:
            async with self._server.splitting.of(self.record.caller.owner):
                return await self._used.engine.tokenize(self._requests[index])
        except LocalspecError as error:
            raise self._server.refused(error) from None

    async def __aiter__(self) -> AsyncIterator[Batch]:
        """Batches of events as they come, those of each reply in their order.

        Raises:
            ApiError: a reply failed, or was `cut`.
        """
        try:
            while not self.over:
                if not self._running:  # cut before the others had begun
                    raise stopping()
                if self.size == 1:
                    index, events = 0, await self._running[0].batch()
                else:
                    index, events = await self._next()
                self._note(index, events)
                begun = any(isinstance(event, Token | Finished) for event in events)
                if begun and (others := self._waiting.pop(index, None)):
                    await self._submit(others)
                last = events[-1]
                if isinstance(last, Finished):
                    if last.reply.finish_reason == "interrupt":  # nobody but `cut` interrupts
                        if events[:-1]:
                            yield index, events[:-1]
                        raise stopping()
                    del self._running[index]
                yield index, events
        except LocalspecError as error:
            raise self._server.refused(error) from None

    def cut(self) -> None:
        """End the replies now, with an error after what has come: the server stops."""
        self._cut = True
        if self._entering is not None:
            self._entering.cancel()
        for reply in self._running.values():
            reply.interrupt()

    def keep(self, events: Iterable[ReplyEvent]) -> None:
        """Count the log-probabilities of events that are kept until the answer is made, or what
        was made of them.

        Raises:
            ApiError: there is no memory for more.
        """
        self.kept += held_size(events)
        if self.record.caller.body is not None:
            self.record.caller.body.keep(self.kept)

    async def replies(self) -> Replies:
        """The replies, when all have ended.

        Raises:
            ApiError: a reply failed or was `cut`, or there is no memory for them all.
        """
        found: list[list[ReplyEvent]] = [[] for _ in self._requests]
        async for index, events in self:
            kept = [event for event in events if not isinstance(event, Round)]
            self.keep(kept)
            found[index].extend(kept)
        whole = []
        for events_of_one in found:
            last = events_of_one[-1]
            assert isinstance(last, Finished)
            whole.append((events_of_one, last.reply))
        return whole

    # -- inside --------------------------------------------------------------------------------

    async def _entered(self) -> AdaptedEngine:
        """The engine, once it is this request's turn."""
        using = self._server.adapters.use(self._wanted, self._keep)
        self._entering = task = asyncio.current_task()
        try:
            return await self._stack.enter_async_context(using)
        except asyncio.CancelledError:
            if self._cut and task is not None:
                task.uncancel()
                raise stopping() from None
            raise
        finally:
            self._entering = None

    async def _submit(self, indices: Iterable[int]) -> None:
        """Hand over some of the requests, unless this is `cut`. Others have their turn between two:
        to write a large one takes time.
        """
        assert self._used is not None
        for n, index in enumerate(indices):
            if n:
                await asyncio.sleep(0)
            if self._cut:
                return
            request = dataclasses.replace(self._requests[index], adapters=self._used.adapters)
            self._running[index] = self._used.engine.reply(request)
            self._records[index] = ReplyRecord()
            self.record.replies.append(self._records[index])
        if not any(self._waiting.values()):
            self._used.submitted()

    async def _next(self) -> Batch:
        """The first batch that any reply has."""
        for index, reply in self._running.items():
            if index not in self._pending.values():
                self._pending[asyncio.create_task(reply.batch())] = index
        done, _ = await asyncio.wait(self._pending, return_when=asyncio.FIRST_COMPLETED)
        task = next(iter(done))
        return self._pending.pop(task), task.result()

    def _note(self, index: int, events: Sequence[ReplyEvent]) -> None:
        if not events:
            raise EngineError("a reply ended without its last event")
        self._server.metrics.note(self.record, self._records[index], events)

    async def _left(self, error: BaseException | None) -> None:
        for task in self._pending:
            task.cancel()
        for task in self._pending:
            with contextlib.suppress(asyncio.CancelledError, LocalspecError):
                await task
        for reply in self._running.values():
            reply.close()
        self._pending.clear()
        self._running.clear()
        await self._stack.aclose()
        if isinstance(error, ApiError):
            self.record.error = error.message
        elif isinstance(error, LocalspecError):
            self.record.error = of_engine(error).message
        elif error is not None and not self.record.error:
            self.record.error = "the client left"
        self._server.left(self)


def _by_first(requests: Sequence[ReplyRequest]) -> dict[int, list[int]]:
    """By the first of several requests in a row with one prompt, as choices are, the others."""
    found: dict[int, list[int]] = {}
    first = 0
    for index, request in enumerate(requests):
        if index and request.reads_as(requests[first]):
            found[first].append(index)
        else:
            first = index
            found[first] = []
    return found


def require_room(
    request: ReplyRequest, context: int, limit: str = "the available context size"
) -> None:
    """Refuse a request whose prompt has certainly more tokens than the context holds, or more parts
    than are sent to an engine; ``limit`` says what ``context`` is.

    Raises:
        ApiError: 400, context_length_exceeded where it is for its tokens.
    """

    def require(found: int, most: int, what: str) -> None:
        if found > most:
            said = f"the prompt has {found} {what}, which exceeds {limit}: at most {most}"
            raise too_long(said)

    if request.prediction is not None:
        most = CHARACTERS_PER_TOKEN * context
        require(len(request.prediction), most, "characters in its prediction")
    if request.prompt_tokens is not None:
        require(len(request.prompt_tokens), context, "tokens")
        return
    texts = [message.content for message in request.messages]
    texts += [message.name for message in request.messages]
    calls = [call for message in request.messages for call in message.calls]
    texts += [text for call in calls for text in (call.name, call.arguments)]
    if request.prompt is not None:
        texts.append(request.prompt)
    # Few templates show ids, in which some programs keep what another model has thought.
    ids = [message.call_id for message in request.messages] + [call.id for call in calls]
    turns = len(request.messages) + len(calls)
    require(len(request.messages), context, "messages")
    pictures = sum(len(message.pictures) for message in request.messages)
    parts = (turns, _MOST_TURNS, "messages and calls"), (pictures, _MOST_PICTURES, "pictures")
    for found, most, what in parts:
        if found > most:
            raise bad_request(f"a request has at most {most} {what}, and this one has {found}")
    for several, what in ((texts, "characters"), (ids, "characters in ids of calls")):
        require(sum(map(len, several)), CHARACTERS_PER_TOKEN * context, what)
    special = sum(text.count(marker) for text in (*texts, *ids) for marker in _MARKERS)
    require(special, context, "special tokens")
