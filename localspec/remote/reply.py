"""One reply of a remote engine: its events, as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from localspec.core.events import Finished, Notice, ReplyEvent


class ReplySource(Protocol):
    """Fetches a reply."""

    def events(self, waiting: Callable[[str], None]) -> AsyncIterator[ReplyEvent]:
        """The events until the reply ends; `Finished` is the last one. ``waiting`` is told why a
        request is sent again.
        """
        ...

    def interrupted(self) -> Finished:
        """The end of a reply that is stopped now: what had arrived, with its figures."""
        ...


class RemoteReply(AsyncIterator[ReplyEvent]):
    """The events of one reply; the last one is `Finished`. It is fetched in a task of its own."""

    def __init__(self, source: ReplySource) -> None:
        """Begin to fetch it; in a running loop."""
        self._source = source
        self._events: deque[ReplyEvent | BaseException] = deque()
        self._changed = asyncio.Event()
        self._interrupted = self._over = False
        self._task = asyncio.create_task(self._fetch(), name="remote reply")
        self._task.add_done_callback(self._ended)

    async def _fetch(self) -> None:
        async for event in self._source.events(self._tell):
            self._put(event)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._put(self._source.interrupted())
        elif (error := task.exception()) is not None:
            self._put(error)
        self._changed.set()

    def when_over(self, call: Callable[[RemoteReply], object]) -> None:
        """Have ``call`` called with this reply when it has been fetched."""
        self._task.add_done_callback(lambda _: call(self))

    def _tell(self, line: str) -> None:
        self._put(Notice(line))

    def _put(self, event: ReplyEvent | BaseException) -> None:
        self._events.append(event)
        self._changed.set()

    async def __anext__(self) -> ReplyEvent:
        """The next event.

        Raises:
            LocalspecError: why the reply failed; what had arrived was delivered before.
        """
        while not self._events:
            if self._over or self._task.done():
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        event = self._events.popleft()
        if isinstance(event, BaseException):
            self._over = True
            raise event
        if isinstance(event, Finished):
            self._over = True
        return event

    def interrupt(self) -> None:
        """End this reply; it still ends with `Finished`. The server notices the closed
        connection.
        """
        if not self._interrupted and not self._task.done():
            self._interrupted = True
            self._task.cancel()

    def close(self) -> None:
        """Stop reading; the reply is interrupted. May be called twice."""
        self.interrupt()
        self._over = True
        self._events.clear()
        self._changed.set()
