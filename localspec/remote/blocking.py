"""A remote engine for callers without an event loop: commands, benchmarks."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Generic, Self, TypeVar

from localspec.core.errors import Interrupted
from localspec.core.events import Finished, Reply, ReplyEvent
from localspec.core.interrupt import Cancelled, never
from localspec.core.reply_request import ReplyRequest
from localspec.engine.port import Engine, ReplyHandle

T = TypeVar("T")
C = TypeVar("C", bound=Engine)
_LEAVE_SECONDS = 2.0
_WAIT_SECONDS = 0.1
"""Seconds between two checks for Ctrl-C: a signal wakes no other thread."""


class BlockingReply(Iterator[ReplyEvent]):
    """The events of one reply; the last one is `Finished`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use `BlockingClient.submit`."""
        self._loop = loop
        self._events: queue.SimpleQueue[ReplyEvent | BaseException] = queue.SimpleQueue()
        self._reply: ReplyHandle | None = None
        self._interrupted = self._over = False

    async def follow(self, client: Engine, request: ReplyRequest) -> None:
        """Fetch the reply; runs in the loop."""
        try:
            reply = self._reply = client.reply(request)
            if self._interrupted:
                reply.interrupt()
            async for event in reply:
                self._events.put(event)
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            self._events.put(error)

    def __next__(self) -> ReplyEvent:
        """The next event; waits for it.

        Raises:
            LocalspecError: why the reply failed.
        """
        if self._over:
            raise StopIteration
        event = self._events.get()
        if isinstance(event, BaseException):
            self._over = True
            raise event
        self._over = isinstance(event, Finished)
        return event

    def interrupt(self) -> None:
        """End this reply; it still ends with `Finished`. Callable from a signal handler."""
        self._interrupted = True
        self._loop.call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        if self._reply is not None:
            self._reply.interrupt()


class BlockingClient(Generic[C]):
    """A client whose loop runs in a thread of its own."""

    def __init__(self, client: C, cancelled: Cancelled = never) -> None:
        """Connect. ``cancelled`` ends what waits for the server, now and later.

        Raises:
            LocalspecError: as the client's `open`.
            Interrupted: ``cancelled`` became true meanwhile.
        """
        self.client = client
        self._cancelled = cancelled
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="remote", daemon=True)
        self._thread.start()
        self._running: set[BlockingReply] = set()
        try:
            self.info = self.call(client.open())
        except BaseException:
            self.close()
            raise

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs in the loop.

        Raises:
            Interrupted: ``cancelled`` became true meanwhile.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return future.result(_WAIT_SECONDS)
            except TimeoutError:
                if future.done():  # since the wait ended, or with a TimeoutError of its own
                    return future.result()
                if self._cancelled():
                    future.cancel()
                    raise Interrupted("stopped before the server had answered") from None

    def submit(self, request: ReplyRequest) -> BlockingReply:
        """Have a request answered; where all is cancelled already, its reply ends at once."""
        reply = BlockingReply(self._loop)
        self._running.add(reply)
        if self._cancelled():  # the signal came when there was no reply yet that it could end
            reply.interrupt()
        future = asyncio.run_coroutine_threadsafe(reply.follow(self.client, request), self._loop)
        future.add_done_callback(lambda _: self._running.discard(reply))
        return reply

    def answer(self, request: ReplyRequest) -> Reply:
        """The whole reply.

        Raises:
            LocalspecError: why it failed.
        """
        *_, last = self.submit(request)
        assert isinstance(last, Finished)
        return last.reply

    def interrupt(self) -> None:
        """End all replies; callable from a signal handler."""
        for reply in [*self._running]:
            reply.interrupt()

    def close(self) -> None:
        """End everything."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._leave(), self._loop)
        self._thread.join(_LEAVE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    async def _leave(self) -> None:
        try:
            await self.client.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            # An answer that was not read to its end, since an event in it was an error.
            await asyncio.get_running_loop().shutdown_asyncgens()
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        """Nothing more than was done."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()
