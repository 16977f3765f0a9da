"""A remote engine and one reply of it: what all kinds of servers share."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from localspec.core.errors import EngineError, Interrupted, LocalspecError
from localspec.core.events import Finished, ModelInfo, Notice, ReplyEvent
from localspec.engine.port import Engine, OnLoading
from localspec.remote.address import Address
from localspec.remote.connection import Connection, Patience
from localspec.remote.keys import Key


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
        self._fetched = False
        """Whether the last event is there; a turn of the loop after the task is done."""
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
        self._fetched = True
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
        while not (self._over or self._events or self._fetched):
            self._changed.clear()
            await self._changed.wait()
        if self._over or not self._events:
            raise StopAsyncIteration
        event = self._events.popleft()
        self._over = isinstance(event, Finished | BaseException)
        if isinstance(event, BaseException):
            raise event
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


class ServerClient(Engine, ABC):
    """An engine behind HTTP. All methods belong to one asyncio loop."""

    pid: int | None = None
    """The process is the server's."""

    def __init__(self, address: Address, key: Key, patience: Patience | None = None) -> None:
        """Ask nothing yet."""
        self.connection = Connection(address, key, patience)
        self.on_death: Callable[[EngineError], None] | None = None
        self.info: ModelInfo | None = None
        self._opening: asyncio.Task[ModelInfo] | None = None
        self._replies: set[RemoteReply] = set()

    async def open(self, on_loading: OnLoading | None = None) -> ModelInfo:
        """Find out what the server is; waits while it loads its model.

        Raises:
            LocalspecError: it does not answer, refuses, does not have the model, or is of another
                kind.
            Interrupted: `close` was called meanwhile.
        """
        await self.close()
        self._opening = asyncio.create_task(self._connect(on_loading), name="connecting")
        try:
            self.info = await self._opening
        except LocalspecError:
            await self.connection.close()
            raise
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                self._opening.cancel()
                raise
            await self.connection.close()
            raise Interrupted("stopped before the server had answered") from None
        finally:
            self._opening = None
        return self.info

    @abstractmethod
    async def _connect(self, on_loading: OnLoading | None) -> ModelInfo:
        """Ask the server what it is, until its model is loaded.

        Raises:
            LocalspecError: see `open`.
        """

    def _begin(self, source: ReplySource) -> RemoteReply:
        """A reply that `interrupt` and `close` end."""
        reply = RemoteReply(source)
        self._replies.add(reply)
        reply.when_over(self._replies.discard)
        return reply

    def interrupt(self) -> None:
        """End every reply; each still ends with Finished."""
        for reply in [*self._replies]:
            reply.interrupt()

    async def close(self) -> None:
        """End all replies and connections; while `open` waits, this cancels it."""
        if self._opening is not None:
            self._opening.cancel()
        self.interrupt()
        self.info = None
        await self.connection.close()
