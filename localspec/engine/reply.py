"""One reply of the engine, as its client hands it out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Protocol

from localspec.core.errors import EngineError
from localspec.core.events import Finished, ReplyEvent
from localspec.engine.messages import EngineEvent, FailedEvent, ReplyEvents


class Inbox:
    """Holds as many as come: a slow reader must not hold back the pipe, which carries the events of
    others too. A reply is no longer than the context.
    """

    def __init__(self) -> None:
        self._events: asyncio.Queue[EngineEvent | EngineError] = asyncio.Queue()
        self._closed = False

    async def get(self) -> EngineEvent | EngineError:
        """The next one; waits for it."""
        return await self._events.get()

    def put(self, event: EngineEvent | EngineError) -> None:
        """Add one, unless the reader has left."""
        if not self._closed:
            self._events.put_nowait(event)

    def fail(self, error: EngineError) -> None:
        """Put the last one."""
        self.put(error)
        self._closed = True

    def leave(self) -> None:
        """Nobody will get any more."""
        self._closed = True


class RepliesClient(Protocol):
    """The client, as far as its replies need it."""

    def interrupt_reply(self, id: int) -> None:  # noqa: A002 - the protocol's field
        """End a reply; one that is over already stays as it is."""
        ...

    def forget_reply(self, id: int) -> None:  # noqa: A002 - the protocol's field
        """Take no more events of a reply."""
        ...


class EngineReply(AsyncIterator[ReplyEvent]):
    """The events of one reply, as they come; the last one is `Finished`."""

    def __init__(self, client: RepliesClient, id: int, inbox: Inbox) -> None:  # noqa: A002 - the protocol's field
        """Use `EngineClient.reply`."""
        self._client = client
        self._id = id
        self._inbox = inbox
        self._ready: deque[ReplyEvent] = deque()
        self._over = False

    async def __anext__(self) -> ReplyEvent:
        """The next event.

        Raises:
            LocalspecError: why the reply failed, see `Runtime.submit`.
            EngineError: the process died; what had arrived was delivered before.
        """
        if not self._ready:
            if self._over:
                raise StopAsyncIteration
            await self._receive()
        return self._ready.popleft()

    async def batch(self) -> tuple[ReplyEvent, ...]:
        """The events that came together; waits for some. Empty after the last event.

        Raises:
            LocalspecError, EngineError: as the iterator.
        """
        if not self._ready and not self._over:
            await self._receive()
        events = tuple(self._ready)
        self._ready.clear()
        return events

    async def _receive(self) -> None:
        match await self._inbox.get():
            case ReplyEvents(_, events):
                self._ready.extend(events)
                if isinstance(events[-1], Finished):
                    self._end()
            case FailedEvent() as failed:
                self._end()
                raise failed.exception()
            case EngineError() as error:
                self._end()
                raise error
            case other:
                self.close()
                raise EngineError(f"the engine answered with {other.type}")

    def interrupt(self) -> None:
        """End this reply; it still ends with `Finished`."""
        if not self._over:
            self._client.interrupt_reply(self._id)

    def close(self) -> None:
        """Stop reading; the reply is interrupted. May be called twice."""
        if not self._over:
            self.interrupt()
            self._end()
        self._ready.clear()

    def _end(self) -> None:
        self._over = True
        self._client.forget_reply(self._id)
